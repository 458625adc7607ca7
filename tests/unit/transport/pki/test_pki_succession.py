"""A new authority in the place of one: what is trusted at every moment, and what a silo comes to trust."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport import files
from anchorage.transport.pki import (
    Authority,
    Credentials,
    Registrar,
    SigningRequest,
    SiloKeys,
    Tokens,
    certificate_of,
    key_fingerprint,
    load_key,
    new_key,
    silo_uri,
)
from anchorage.transport.pki.credentials import ENDORSEMENTS, certificates_of, issuer_of, read_certificates
from anchorage.transport.pki.succession import (
    MOST_AUTHORITIES,
    accepted_authorities,
    drop_previous_authority,
    introduce_authority,
)

DAY = 86_400.0


@pytest.fixture
def old(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority", "derm")


def certified(authority: Authority, folder: Path) -> Credentials:
    credentials = Credentials(folder / "a.key", folder / "a.pem", authority.certificate_path)
    key = load_key(credentials.key) if credentials.key.exists() else new_key(credentials.key)
    credentials.save_certificate(authority.issue_silo(SigningRequest.make(key, silo_uri("derm", "a")), "a"))
    return credentials


def test_both_are_trusted_until_the_former_is_dropped(old: Authority, tmp_path: Path) -> None:
    before = certified(old, tmp_path)
    certificate = before.certificate.read_bytes()
    new = introduce_authority(old.folder)
    assert new.certificate_pem != old.certificate_pem and old.current().certificate_pem == new.certificate_pem
    assert old.former().certificate_pem == old.certificate_pem == new.former().certificate_pem
    before.check(silo_uri("derm", "a"), time.time)
    certified(new, tmp_path).check(silo_uri("derm", "a"), time.time)
    assert all(file.stat().st_mode & 0o077 == 0 for file in old.folder.glob("*.key"))
    with pytest.raises(AnchorageError, match="finish that first"):
        introduce_authority(old.folder)

    drop_previous_authority(old.folder)
    before.check(silo_uri("derm", "a"), time.time)
    before.save_certificate(certificate)
    with pytest.raises(AnchorageError) as caught:
        before.check(silo_uri("derm", "a"), time.time)
    assert caught.value.failure is identity.CREDENTIALS_UNUSABLE
    assert old.former().certificate_pem == new.certificate_pem
    assert sorted(file.name for file in old.folder.iterdir()) == ["ca.key", "ca.pem"]
    with pytest.raises(AnchorageError, match="introduce a new one first"):
        drop_previous_authority(old.folder)
    second = introduce_authority(old.folder)
    assert second.certificate_pem not in (old.certificate_pem, new.certificate_pem)


@pytest.mark.parametrize("writes", range(4))
def test_a_crash_leaves_an_authority_that_signs(
    old: Authority, tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining = [writes]

    def write(path: Path, content: bytes, **how: object) -> None:
        if not remaining[0]:
            raise OSError(28, "No space left on device")
        remaining[0] -= 1
        files.write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("anchorage.transport.pki.succession.write_atomically", write)
        with pytest.raises(AnchorageError) as caught:
            introduce_authority(old.folder)
    assert caught.value.failure is identity.AUTHORITY_UNUSABLE
    assert old.current().certificate_pem == old.former().certificate_pem == old.certificate_pem
    certified(old.current(), tmp_path).check(silo_uri("derm", "a"), time.time)
    new = introduce_authority(old.folder)
    assert len(read_certificates(old.certificate_path)) == 2 and new.former().certificate_pem == old.certificate_pem


def test_silos_enrol_with_the_former_and_renew_with_the_new_one(old: Authority, tmp_path: Path) -> None:
    tokens, keys = Tokens(tmp_path / "tokens"), SiloKeys(old.folder)
    registrar, request = (
        Registrar(old, tokens, keys),
        SigningRequest.make(new_key(tmp_path / "b.key"), silo_uri("derm", "b")),
    )
    new = introduce_authority(old.folder)
    signed, former = key_fingerprint(new.certificate_pem), certificates_of(old.certificate_pem, "")
    first = registrar.enrol(request, tokens.create("b"), "b")
    assert issuer_of(certificate_of(first, ""), former) and keys.not_signed_by(signed, ["a", "b"]) == ["a", "b"]
    second = registrar.renew(request, "b")
    assert issuer_of(certificate_of(second, ""), certificates_of(new.certificate_pem, ""))
    assert keys.not_signed_by(signed, ["a", "b"]) == ["a"] and keys.admits("b", key_fingerprint(request))


def offered(old: Authority) -> tuple[bytes, bytes]:
    return old.certificate_path.read_bytes(), (old.folder / ENDORSEMENTS).read_bytes()


def test_a_silo_takes_what_its_authority_endorses_and_may_lose_the_former(old: Authority) -> None:
    known = certificates_of(old.certificate_pem, "")
    assert accepted_authorities(known, old.certificate_pem, b"", "derm", time.time()) == old.certificate_pem
    new = introduce_authority(old.folder)
    both = accepted_authorities(known, *offered(old), "derm", time.time())
    assert both == new.certificate_pem + old.certificate_pem
    drop_previous_authority(old.folder)
    alone = accepted_authorities(certificates_of(both, ""), new.certificate_pem, b"", "derm", time.time())
    assert alone == new.certificate_pem


def stranger(old: Authority) -> tuple[bytes, bytes]:
    other = Authority.make("derm")
    return other.certificate_pem, offered(old)[1]


def by_a_stranger(old: Authority) -> tuple[bytes, bytes]:
    other, third = Authority.make("derm"), Authority.make("derm")
    return other.certificate_pem, third.endorse(other)


def of_another_federation(old: Authority) -> tuple[bytes, bytes]:
    other = Authority.make("other")
    return other.certificate_pem, old.endorse(other)


def a_silos(old: Authority) -> tuple[bytes, bytes]:
    made = old.issue_silo(SigningRequest.make(new_key(old.folder / "x.key"), silo_uri("derm", "a")), "a")
    return made, made


def too_many(old: Authority) -> tuple[bytes, bytes]:
    return old.certificate_pem * (MOST_AUTHORITIES + 1), b""


def expired(old: Authority) -> tuple[bytes, bytes]:
    other = Authority.make("derm", valid=timedelta(days=1), now=lambda: time.time() - 3 * DAY)
    return other.certificate_pem, old.endorse(other)


@pytest.mark.parametrize(
    "offer", [stranger, by_a_stranger, of_another_federation, a_silos, too_many, expired, lambda old: (b"rubbish", b"")]
)
def test_nothing_else_is_taken(old: Authority, offer: Callable[[Authority], tuple[bytes, bytes]]) -> None:
    introduce_authority(old.folder)
    known = certificates_of(old.certificate_pem, "")
    with pytest.raises(AnchorageError) as caught:
        accepted_authorities(known, *offer(old), "derm", time.time())
    assert caught.value.failure is identity.CREDENTIALS_UNUSABLE
