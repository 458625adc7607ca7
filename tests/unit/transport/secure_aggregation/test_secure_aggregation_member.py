"""The sum is the plain one bit for bit, whoever is lost within a third; nothing else is revealed."""

import time
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509

from anchorage.transport.pki import Authority, SigningRequest, silo_uri
from anchorage.transport.pki.keys import make_key
from anchorage.transport.secure_aggregation.masks import add_masks
from anchorage.transport.secure_aggregation.member import FEWEST, Member, ProtocolError, threshold
from anchorage.transport.secure_aggregation.shamir import combine, split
from anchorage.transport.secure_aggregation.unmasking import Group, Opening

TASK = "1.keys.0"


def members(folder: Path, count: int, authority: Authority | None = None, fewest: int = FEWEST) -> dict[str, Member]:
    authority = authority or Authority.create(folder, "derm")
    root = [x509.load_pem_x509_certificate(authority.certificate_path.read_bytes())]
    results = {}
    for silo in "abcdefgh"[:count]:
        key = make_key()
        certificate = authority.issue_silo(SigningRequest.make(key, silo_uri("derm", silo)), silo)
        results[silo] = Member("derm", silo, TASK, 100, key, certificate, root, fewest)
    return results


def shared(silos: dict[str, Member]) -> tuple[Group, dict[str, bytes]]:
    """Have all deal; returns what each dealt, and who signed the list."""
    group = Group(TASK, {name: silo.keys for name, silo in silos.items()})
    for name, silo in silos.items():
        group.dealt[name] = group.check_dealing(name, silo.share(group.roster, time.time()))
    return group, {name: dealing.signature for name, dealing in group.dealt.items()}


def dealt_to(group: Group, name: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    others = {other: dealing for other, dealing in group.dealt.items() if other != name}
    return {o: d.sealed[name] for o, d in others.items()}, {o: d.commitments[name] for o, d in others.items()}


def opened(
    group: Group, silos: dict[str, Member], survivors: list[str], signed: dict[str, bytes], name: str
) -> Opening:
    shares, unreadable = silos[name].reveal(survivors, *dealt_to(group, name), signed)
    return group.check_opening(name, survivors, Opening(shares, unreadable))


@pytest.mark.parametrize(
    ("count", "late", "lost"), [(3, "", ""), (3, "", "b"), (5, "a", ""), (8, "c", "h"), (8, "", "ad")]
)
def test_the_sum_is_the_plain_sum_bit_for_bit(count: int, late: str, lost: str, tmp_path: Path) -> None:
    """`late` silos are lost after the shares, `lost` ones before they upload."""
    silos = members(tmp_path, count, fewest=2)
    group, signatures = shared(silos)
    for name in late:
        del group.dealt[name]
    taking = {name: sign for name, sign in signatures.items() if name not in late}
    plain = {name: np.random.default_rng(ord(name)).integers(0, 2**32, 300_001, np.uint32) for name in taking}
    masked = {name: numbers.copy() for name, numbers in plain.items()}
    for name, numbers in masked.items():
        silos[name].mask(numbers, taking)
    survivors = [name for name in taking if name not in lost]
    total = np.zeros(300_001, np.uint32)
    for name in survivors:
        total += masked[name]
    tellers = survivors[: threshold(count)]
    signed = {n: silos[n].confirm(survivors) for n in tellers}
    openings = {name: opened(group, silos, survivors, signed, name) for name in tellers}
    add_masks(total, group.masks(survivors, openings))
    assert np.array_equal(total, sum(plain[name] for name in survivors).astype(np.uint32))
    assert all(abs(np.corrcoef(masked[name], plain[name])[0, 1]) < 0.02 for name in taking)


def test_keys_that_the_server_made_are_refused(tmp_path: Path) -> None:
    silos, foreign = members(tmp_path / "own", 4), members(tmp_path / "foreign", 4)
    roster = {name: silo.keys for name, silo in silos.items()} | {"d": foreign["d"].keys}
    with pytest.raises(ProtocolError, match="d are not signed"):
        silos["a"].share(roster, time.time())


def test_two_silos_are_too_few(tmp_path: Path) -> None:
    silos = members(tmp_path, 2)
    with pytest.raises(ProtocolError, match="too short"):
        silos["a"].share({name: silo.keys for name, silo in silos.items()}, time.time())


def test_a_silo_that_signed_another_list_is_refused(tmp_path: Path) -> None:
    silos = members(tmp_path, 4)
    keys = {name: silo.keys for name, silo in silos.items()}
    signatures = {name: silos[name].share(keys, time.time()).signature for name in "abc"}
    part = {name: keys[name] for name in "bcd"}
    signatures["d"] = silos["d"].share(part, time.time()).signature
    with pytest.raises(ProtocolError, match="d has not signed"):
        silos["a"].mask(np.zeros(8, np.uint32), signatures)


def test_one_update_and_one_answer_per_round(tmp_path: Path) -> None:
    silos = members(tmp_path, 4)
    group, signatures = shared(silos)
    member = silos["a"]
    member.mask(np.zeros(8, np.uint32), signatures)
    with pytest.raises(ProtocolError, match="one update"):
        member.mask(np.zeros(8, np.uint32), signatures)
    with pytest.raises(ProtocolError, match="sum of 2"):
        member.confirm(["a", "b"])
    for name in "bc":
        silos[name].mask(np.zeros(8, np.uint32), signatures)
    signed = {name: silos[name].confirm(["c", "a", "b"]) for name in "abc"}
    member.reveal(["a", "b", "c"], *dealt_to(group, "a"), signed)
    with pytest.raises(ProtocolError, match="once"):
        member.reveal(["a", "b", "c"], *dealt_to(group, "a"), signed)


def test_nothing_is_revealed_of_survivors_that_others_do_not_confirm(tmp_path: Path) -> None:
    """A server that tells silos of different losses would gather both secrets of a silo."""
    silos = members(tmp_path, 4)
    group, signatures = shared(silos)
    fewer = {name: signatures[name] for name in "abc"}
    for name, silo in silos.items():
        silo.mask(np.zeros(8, np.uint32), fewer if name == "c" else signatures)
    to_a = dealt_to(group, "a")
    signed = {name: silos[name].confirm(["a", "b", "c"]) for name in "abc"}
    with pytest.raises(ProtocolError, match="one set"):
        silos["b"].confirm(["a", "b", "d"])
    with pytest.raises(ProtocolError, match="c has not confirmed"):  # it masked its numbers for other silos
        silos["a"].reveal(["a", "b", "c"], *to_a, signed)
    with pytest.raises(ProtocolError, match="2 of 4"):
        silos["a"].reveal(["a", "b", "c"], *to_a, {name: signed[name] for name in "ab"})
    signed["d"] = silos["d"].confirm(["a", "b", "d"])
    with pytest.raises(ProtocolError, match="or others"):
        silos["a"].reveal(["a", "b", "c"], *to_a, {name: signed[name] for name in "abd"})
    with pytest.raises(ProtocolError, match="one set"):
        silos["a"].reveal(["a", "b", "d"], *to_a, {name: signed[name] for name in "abd"})


def test_fewer_shares_than_the_threshold_tell_nothing() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(split(secret, 8, threshold(8))))
    assert combine({i: shares[i] for i in (7, 1, 2, 5, 0, 3)}) == secret
    with pytest.raises(ValueError, match="not of one secret"):
        combine({i: shares[i] for i in range(5)})
