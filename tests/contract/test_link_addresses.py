"""Strangers at one address take some of a port's connections, and leave the rest to other addresses and to silos at work."""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc
import pytest
from link_world import PATIENCE, PROFILE
from test_link_identity import raw, status_of

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.grpc import enrolment, guard
from anchorage.transport.grpc.address_guard import AddressGuard
from anchorage.transport.grpc.calls import ENROLMENT, path
from anchorage.transport.messages import Joined

MOST = 32
SHARE = MOST // guard.ADDRESS_PART

Stranger = Callable[[int, str], socket.socket]


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    """Give a function that connects to a port from an address and says nothing; the ports take few connections and wait long for TLS."""
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", MOST)
    monkeypatch.setattr(enrolment, "CONNECTIONS", MOST)
    monkeypatch.setattr(guard, "HANDSHAKE_SECONDS", int(10 * PATIENCE))
    with ExitStack() as stack:

        def connect(port: int, host: str) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(host, 0))
            return stack.enter_context(made)

        yield connect


def standing(crowd: list[socket.socket], share: int) -> int:
    """Wait until no more than a share of the connections is open, and return how many are."""
    ends = time.monotonic() + PATIENCE
    remaining = list(crowd)
    while len(remaining) > share:
        readable, _, _ = select.select(remaining, [], [], ends - time.monotonic())
        assert readable, f"{len(remaining)} connections stand"
        remaining = [connection for connection in remaining if connection not in readable]
    return len(remaining)


def test_strangers_at_one_address_keep_no_silo_out(serve, dial, stranger: Stranger) -> None:
    link, port = serve()
    working = dial(port, "working")
    assert working.welcome() and link.next_event(time.time() + PATIENCE) == Joined("working", PROFILE)
    crowd = [stranger(port, "127.0.0.2") for _ in range(MOST - 1)]
    assert standing(crowd, SHARE) == SHARE
    silo = dial(port, "honest")
    assert silo.welcome() and link.next_event(time.time() + PATIENCE) == Joined("honest", PROFILE)
    assert link.next_event(time.time()) is None, "the silo at work has not left"


def test_silos_at_the_strangers_address_keep_their_connections(monkeypatch, serve, dial, stranger: Stranger) -> None:
    link, port = serve()
    names = [f"silo-{number}" for number in range(SHARE + 2)]
    for name in names:
        assert dial(port, name).welcome() and link.next_event(time.time() + PATIENCE) == Joined(name, PROFILE)
    crowd = [stranger(port, "127.0.0.1") for _ in range(2 * SHARE)]
    assert standing(crowd, SHARE) == SHARE
    assert link.next_event(time.time()) is None, "more than an address' share, and none has left"


def test_strangers_at_one_address_keep_nobody_from_enrolling(identities, stranger: Stranger) -> None:
    def refuse(csr: bytes, token: str, silo: str) -> bytes:
        raise AnchorageError(identity.TOKEN_UNKNOWN, f"{silo} shows {token}")

    stop, port = enrolment.serve_enrolment("127.0.0.1:0", identities.files("server"), refuse)
    try:
        crowd = [stranger(port, "127.0.0.2") for _ in range(MOST)]
        assert standing(crowd, SHARE) == SHARE
        with raw(port, identities.silo("a")) as channel:
            ask = channel.unary_unary(path("Enrol", ENROLMENT))
            assert status_of(lambda: ask(b"", PATIENCE))[0] is grpc.StatusCode.FAILED_PRECONDITION
    finally:
        stop()


def test_strangers_of_many_addresses_take_no_more_than_a_port_has(serve, stranger: Stranger) -> None:
    _, port = serve()
    crowd = [stranger(port, f"127.0.1.{number}") for number in range(1, 2 * MOST)]
    assert standing(crowd, MOST) == MOST


def test_a_port_takes_no_more_than_half_of_the_files_that_its_process_may_have(monkeypatch) -> None:
    monkeypatch.setattr(guard.resource, "getrlimit", lambda _: (100, 100))
    assert guard.most_connections() == 50 and guard.most_connections(20) == 20


def test_each_address_has_a_share_of_its_own() -> None:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listening.getsockname()[1]
        guarding = AddressGuard(port, 2)
        stack.callback(guarding.close)

        def connect(host: str) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(host, 0))
            stack.enter_context(made), stack.enter_context(listening.accept()[0])
            return made

        calm = [connect("127.0.0.3"), connect("127.0.0.3")]
        crowd = [connect("127.0.0.2") for _ in range(5)]
        assert standing(crowd, 2) == 2
        assert not select.select(calm, [], [], 0)[0], "the address within its share"
