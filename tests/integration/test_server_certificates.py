"""Certificates over the server: enrolment and renewal relayed to the operator, and the server's own replaced while it runs."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from operated_site import OperatedSite, WorkingSilo

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc.enrolment import enrol
from anchorage.transport.grpc.single_calls import describe, renew
from anchorage.transport.pki import SigningRequest, load_key, new_key, silo_uri


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OperatedSite]:
    site = OperatedSite(tmp_path)
    yield site
    site.stop()


def test_enrolment_waits_for_the_operators_answer(site: OperatedSite) -> None:
    site.start()
    files = site.credentials("new", silo_uri("derm", "new"))
    csr = SigningRequest.make(new_key(files.key), silo_uri("derm", "new"))

    def asked(token: str = "secret-token") -> bytes:
        return enrol(site.endpoints["enrolment"], files.authority, "new", token, csr)

    for _ in range(2):
        with pytest.raises(AnchorageError) as caught:
            asked()
        assert caught.value.failure is identity.ENROLMENT_PENDING
    (request,) = site.ask("/requests")["requests"]
    assert (request["kind"], request["silo"], request["token"]) == ("Enrol", "new", "secret-token")
    assert request["csr"].encode() == csr
    certificate = site.authority.issue_silo(csr, "new")
    answers = [{"id": request["id"], "certificate": certificate.decode()}, {"id": "gone", "code": "ANC-2003"}]
    assert site.ask("/answers", {"answers": answers}) == {"unknown": ["gone"]}
    assert site.ask("/requests") == {"requests": []}
    assert asked() == asked() == certificate
    with pytest.raises(AnchorageError):
        asked("another")
    (other,) = site.ask("/requests")["requests"]
    site.ask("/answers", {"answers": [{"id": other["id"], "code": "ANC-2001", "message": "not issued here"}]})
    with pytest.raises(AnchorageError, match="not issued here") as caught:
        asked("another")
    assert caught.value.failure is identity.TOKEN_UNKNOWN
    assert site.process is not None
    site.process.kill()
    assert "secret-token" not in json.dumps(site.lines) + site.end()[1]


def test_a_request_for_another_name_never_reaches_the_operator(site: OperatedSite) -> None:
    site.start()
    files = site.credentials("new", silo_uri("derm", "new"))
    key = new_key(files.key)
    for silo, csr in (
        ("new", SigningRequest.make(key, silo_uri("derm", "other"))),
        ("new", SigningRequest.make(key, silo_uri("other", "new"))),
        ("New/../x", SigningRequest.make(key, silo_uri("derm", "New/../x"))),
        ("new", b"rubbish"),
        ("new", b"\xff" * 100),
    ):
        with pytest.raises(AnchorageError) as caught:
            enrol(site.endpoints["enrolment"], files.authority, silo, "t", csr)
        assert caught.value.failure is identity.REQUEST_REFUSED
    assert site.ask("/requests") == {"requests": []}


def test_a_member_renews_over_its_own_key(site: OperatedSite) -> None:
    site.start()
    a, stranger = WorkingSilo(site, "a"), WorkingSilo(site, "b")
    site.put_members(a)
    csr = SigningRequest.make(load_key(a.credentials.key), silo_uri("derm", "a"))

    def asked(csr: bytes = csr, silo: WorkingSilo = a) -> bytes:
        return renew(site.endpoints["silos"], silo.credentials, csr)

    with pytest.raises(AnchorageError) as caught:
        asked()
    assert caught.value.failure is identity.ENROLMENT_PENDING
    (request,) = site.ask("/requests")["requests"]
    assert (request["kind"], request["silo"], request["token"]) == ("Renew", "a", "")
    certificate = site.authority.issue_silo(csr, "a")
    site.ask("/answers", {"answers": [{"id": request["id"], "certificate": certificate.decode()}]})
    assert asked() == certificate
    with pytest.raises(AnchorageError) as caught:
        asked(SigningRequest.make(new_key(site.folder / "other.key"), silo_uri("derm", "b")))
    assert caught.value.failure is identity.REQUEST_REFUSED
    with pytest.raises(AnchorageError) as caught:
        asked(silo=stranger)
    assert caught.value.failure is transfer.SILO_NOT_ADMITTED


def test_the_servers_certificate_is_replaced_without_a_restart(site: OperatedSite) -> None:
    site.start()

    def shown() -> bytes:
        connection = site.connect()
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        certificate = connection.sock.getpeercert(binary_form=True)
        connection.close()
        assert certificate is not None
        return certificate

    before = shown()
    (site.folder / "tls" / "tls.crt").write_text("half written")
    assert shown() == before
    site.new_server_certificate()
    assert shown() != before
    a = WorkingSilo(site, "a")
    site.put_members(a)
    assert json.loads(describe(site.endpoints["silos"], a.credentials))["federation"] == "derm"
