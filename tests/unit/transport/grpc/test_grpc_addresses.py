import pytest

from anchorage.transport.addresses import party_of
from anchorage.transport.grpc.address_guard import peer_of


@pytest.mark.parametrize(
    ("host", "party"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::7", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_machine_with_many_addresses_of_a_network_is_one_party(host: str, party: str) -> None:
    assert party_of(host) == party


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:192.0.2.7:50000", ("192.0.2.7", 50000)),
        ("ipv6:%5B2001:db8::7%5D:50000", ("2001:db8::7", 50000)),
        ("ipv6:[::ffff:192.0.2.7]:50000", ("192.0.2.7", 50000)),
        ("unix:/run/silo", ("unix:/run/silo", 0)),
    ],
)
def test_peers_as_grpc_names_them(name: str, peer: tuple[str, int]) -> None:
    assert peer_of(name) == peer
