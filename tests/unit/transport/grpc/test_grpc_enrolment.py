"""Enrolment over the wire: a certificate for a request and a token, refusals with their code, no key on the way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from ipv6 import needs_ipv6

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc.enrolment import enrol, serve_enrolment
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, server_uri, silo_uri


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority", "derm")


@pytest.fixture
def address(authority: Authority, tmp_path: Path) -> Iterator[str]:
    files = Credentials(tmp_path / "server.key", tmp_path / "server.pem", authority.certificate_path)
    request = SigningRequest.make(new_key(files.key), server_uri("derm"))
    files.save_certificate(authority.issue_server(request, ["127.0.0.1", "::1"]))

    def issue(csr_pem: bytes, token: str, silo: str) -> bytes:
        if token != "right":
            raise AnchorageError(identity.TOKEN_UNKNOWN, f"the token of silo {silo} is none of ours; ask for a new one")
        assert b"PRIVATE" not in csr_pem
        return authority.issue_silo(csr_pem, silo)

    stop, port = serve_enrolment("[::]:0", files, issue)
    yield f"127.0.0.1:{port}"
    stop()


def request_of(folder: Path) -> bytes:
    return SigningRequest.make(new_key(folder / "a.key"), silo_uri("derm", "a"))


def test_a_silo_gets_its_certificate(address: str, authority: Authority, tmp_path: Path) -> None:
    files = Credentials(tmp_path / "a.key", tmp_path / "a.pem", authority.certificate_path)
    files.save_certificate(enrol(address, authority.certificate_path, "a", "right", request_of(tmp_path)))
    files.check(silo_uri("derm", "a"), lambda: files.expires() - 60)


@needs_ipv6
def test_a_silo_enrols_over_ipv6(address: str, authority: Authority, tmp_path: Path) -> None:
    server = f"[::1]:{address.rpartition(':')[2]}"
    assert enrol(server, authority.certificate_path, "a", "right", request_of(tmp_path))


def test_a_refusal_keeps_its_code(address: str, authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(AnchorageError) as caught:
        enrol(address, authority.certificate_path, "a", "wrong", request_of(tmp_path))
    assert caught.value.failure is identity.TOKEN_UNKNOWN
    assert caught.value.message == "the token of silo a is none of ours; ask for a new one"


def test_an_impostor_never_hears_the_token(address: str, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", "derm")
    with pytest.raises(AnchorageError) as caught:
        enrol(address, other.certificate_path, "a", "right", request_of(tmp_path))
    assert caught.value.failure is transfer.SERVER_NOT_TRUSTED


def test_a_server_that_is_not_there_has_its_own_code(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(AnchorageError) as caught:
        enrol("127.0.0.1:1", authority.certificate_path, "a", "right", request_of(tmp_path))
    assert caught.value.failure is transfer.SERVER_UNREACHABLE


def test_a_missing_authority_has_its_own_code(tmp_path: Path) -> None:
    with pytest.raises(AnchorageError) as caught:
        enrol("127.0.0.1:1", tmp_path / "ca.pem", "a", "right", b"")
    assert caught.value.failure is identity.CREDENTIALS_UNUSABLE


def test_guesses_are_slowed_down_and_told_of(
    address: str, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request, calls = request_of(tmp_path), []
    for number in range(8):
        with pytest.raises(AnchorageError) as caught:
            enrol(address, authority.certificate_path, "a", f"guess {number}", request)
        calls.append(caught.value.failure)
    assert calls[:3] == [identity.TOKEN_UNKNOWN] * 3
    assert identity.TOO_MANY_REQUESTS in calls
    assert [(r.address, r.silo) for r in caplog.records if "tokens" in r.message] == [("127.0.0.1", "a")]  # type: ignore[attr-defined]
