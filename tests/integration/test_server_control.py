"""The server's control endpoint: who may ask, and members that come and go, over real sockets."""

import http.client
import json
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cert_manager import Issuer
from eventually import WAIT_SECONDS, eventually
from operated_site import OperatedSite, WorkingSilo
from safetensors.numpy import load_file
from server_site import WEIGHTS

from anchorage.api.errors import transfer
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.pki import Authority, Credentials, SigningRequest, key_fingerprint, new_key
from anchorage_operator.identity import _context as operator_context


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OperatedSite]:
    site = OperatedSite(tmp_path)
    yield site
    site.stop()


def test_only_the_operator_may_ask(site: OperatedSite, tmp_path: Path) -> None:
    site.start()
    assert site.ask("/status")["rounds"] == 2
    silo = WorkingSilo(site, "a")
    with closing(site.connect(silo.credentials)) as connection:
        assert site.call("GET", "/status", connection=connection)[0] == 403
        assert site.call("PUT", "/members", {"members": []}, connection)[0] == 403
    foreign = Authority.create(tmp_path / "foreign", "derm")
    stranger = Credentials(tmp_path / "stranger.key", tmp_path / "stranger.pem", site.authority.certificate_path)
    request = SigningRequest.make(new_key(stranger.key), "anchorage://derm/operator")
    stranger.save_certificate(foreign.issue_operator(request))
    with closing(site.connect(stranger)) as connection, pytest.raises((ssl.SSLError, ConnectionError)):
        site.call("GET", "/status", connection=connection)
    host, _, port = site.endpoints["control"].removeprefix("https://").rpartition(":")
    anonymous = ssl.create_default_context(cafile=str(site.authority.certificate_path))
    nobody = http.client.HTTPSConnection(host, int(port), timeout=120, context=anonymous)
    with closing(nobody), pytest.raises((ssl.SSLError, ConnectionError)):
        site.call("GET", "/status", connection=nobody)
    plain = http.client.HTTPConnection(host, int(port), timeout=120)
    with closing(plain), pytest.raises((ConnectionError, http.client.HTTPException)):
        plain.request("GET", "/status")
        plain.getresponse()


def test_an_authority_that_another_one_certified_is_trusted_without_it(site: OperatedSite) -> None:
    """As in clusters with cert-manager: silos, server and operator have its certificate, and not the issuer's."""
    authority = site.authority
    signed = Issuer().sign(Authority.signing_request("derm", authority.key_pem))
    for file in (authority.certificate_path, site.folder / "tls" / "ca.pem"):
        file.write_bytes(signed)
    site.start()
    WorkingSilo(site, "a")
    context = operator_context(signed, site.operator.certificate.read_bytes(), site.operator.key.read_bytes())
    host, _, port = site.endpoints["control"].removeprefix("https://").rpartition(":")
    with closing(http.client.HTTPSConnection(host, int(port), timeout=120, context=context)) as connection:
        assert site.call("GET", "/status", connection=connection)[0] == 200


def test_tls_1_2_is_refused(site: OperatedSite) -> None:
    site.start()
    context = ssl.create_default_context(cafile=str(site.authority.certificate_path))
    context.load_cert_chain(site.operator.certificate, site.operator.key)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    host, _, port = site.endpoints["control"].removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=120) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname=host)


def test_the_plain_port_serves_probes_and_metrics_only(site: OperatedSite) -> None:
    site.start()

    def plain(path: str) -> int:
        try:
            with urllib.request.urlopen(site.endpoints["status"] + path, timeout=120) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    answers = {path: plain(path) for path in ("/healthz", "/readyz", "/metrics", "/status", "/rounds", "/members")}
    assert answers == {
        "/healthz": 200,
        "/readyz": 200,
        "/metrics": 200,
        "/status": 404,
        "/rounds": 404,
        "/members": 404,
    }


def test_bad_requests_are_refused_and_the_server_goes_on(site: OperatedSite) -> None:
    site.start()
    assert site.call("GET", "/nothing")[0] == 404
    assert site.call("PUT", "/status", b"{}")[0] == 405
    assert site.call("GET", "/answers")[0] == 405
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"members": [{"name": "A"}]}',
        b'{"members": [{"name": "a"}, {"name": "a"}]}',
        b'{"members": [{"name": "a", "key": "xyz"}]}',
        b'{"members": [], "further": 1}',
        b"\xff\xfe",
    ):
        status, answer = site.call("PUT", "/members", body)
        assert (status, bool(answer["message"])) == (400, True), body
    for answer in ({"id": "x"}, {"id": "x", "code": "ANC-9999"}, {"id": "x", "code": "ANC-2003", "certificate": "c"}):
        assert site.call("PUT", "/answers", {"answers": [answer]})[0] == 400
    for header, value, status in (("Content-Length", str(1 << 30), 413), ("Transfer-Encoding", "chunked", 411)):
        with closing(site.connect()) as connection:
            connection.putrequest("PUT", "/members")
            connection.putheader(header, value)
            connection.endheaders()
            with connection.getresponse() as answer:
                assert answer.status == status
    assert site.ask("/members") == {"members": [], "generation": 0}


def test_one_connection_serves_many_requests(site: OperatedSite) -> None:
    site.start()
    connection = site.connect()
    connection.connect()
    first = connection.sock
    for _ in range(5):
        assert site.ask("/status", connection=connection)["round"] == 0
        assert site.ask("/members", {"members": [], "generation": 3}, connection)["generation"] == 3
    assert connection.sock is first
    connection.close()


def test_members_connect_and_the_run_ends_with_their_models(site: OperatedSite) -> None:
    site.start()
    silos = [WorkingSilo(site, "a", step=0.5, samples=100), WorkingSilo(site, "b", step=1.0, samples=200)]
    eventually(lambda: "2 more that would have to become members" in quorum(site)["message"])
    site.put_members(*silos)
    for silo in silos:
        silo.start()
    site.succeed()
    for silo in silos:
        silo.join(WAIT_SECONDS)
        assert silo.finished
    mean = (0.5 * 100 + 1.0 * 200) / 300
    for name, array in load_file(site.state / "model" / "final.safetensors").items():
        np.testing.assert_allclose(array, WEIGHTS[name] + 2 * mean, atol=1e-5)


def quorum(site: OperatedSite) -> dict[str, Any]:
    condition: dict[str, Any] = next(c for c in site.ask("/status")["conditions"] if c["type"] == "QuorumMet")
    return condition


def test_a_missing_member_is_named(site: OperatedSite) -> None:
    site.start()
    silos = [WorkingSilo(site, "a"), WorkingSilo(site, "b")]
    site.put_members(*silos)
    silos[0].start()
    eventually(lambda: quorum(site)["message"] == "1 of 2 silos connected, missing: b")
    assert quorum(site)["reason"] == "QuorumLost"
    status = site.ask("/status")
    assert status["silosSummary"] == "1/2"
    assert [s["name"] for s in status["silos"]] == ["a", "b"]


def test_who_is_no_member_or_shows_another_key_is_refused(site: OperatedSite) -> None:
    site.start()
    a, b = WorkingSilo(site, "a"), WorkingSilo(site, "b")
    site.put_members(a)
    for silo in (a, b):
        silo.start()
    b.join(WAIT_SECONDS)
    assert b.refusal is not None
    assert b.refusal.failure is transfer.SILO_NOT_ADMITTED
    eventually(lambda: site.status_of("a")["connected"])
    old = a.credentials.certificate.read_bytes()
    a.enrol()
    assert key_fingerprint(old) != a.key
    site.put_members(a)
    a.join(WAIT_SECONDS)
    assert a.refusal is not None
    assert "another key" in a.refusal.message
    assert json.loads(describe(site.endpoints["silos"], a.credentials))["federation"] == "derm"


def test_a_silo_joins_while_training_and_nobody_is_disturbed(tmp_path: Path) -> None:
    site = OperatedSite(tmp_path, rounds=4, protocol={"minSilos": 1, "roundDeadlineSeconds": 200})
    try:
        site.start()
        a, b, c = (WorkingSilo(site, name) for name in "abc")
        site.put_members(a)
        a.may_train.clear()
        a.start()
        site.read_until("round dispatched", round=1)
        site.put_members(a, b, c)  # b comes at once, c never: no round may wait for it
        b.start()
        site.read_until("silo connected", silo="b")
        a.may_train.set()
        site.succeed()
        journal = [json.loads(line) for line in (site.state / "journal.jsonl").read_text().splitlines()]
        counted = [[s["name"] for s in entry["silos"]] for entry in journal]
        assert counted == [[], ["a"], ["a", "b"], ["a", "b"], ["a", "b"]]
        assert a.trained == [1, 2, 3, 4]
        assert b.trained == [2, 3, 4]
        assert not any(line["message"] == "silo disconnected" and line["silo"] == "a" for line in site.lines[:-8])
    finally:
        site.stop()


def test_a_silo_that_is_taken_out_loses_its_streams_and_its_late_update(tmp_path: Path) -> None:
    site = OperatedSite(tmp_path, rounds=2, protocol={"minSilos": 1, "roundDeadlineSeconds": 200})
    try:
        site.start()
        a, b = WorkingSilo(site, "a", step=1.0), WorkingSilo(site, "b", step=100.0)
        site.put_members(a, b)
        b.may_upload.clear()
        a.start()
        b.start()
        assert b.permitted.wait(WAIT_SECONDS)
        site.put_members(a)
        b.may_upload.set()
        b.join(WAIT_SECONDS)
        assert b.refusal is not None
        assert b.refusal.failure is transfer.SILO_NOT_ADMITTED
        site.succeed()
        first = json.loads((site.state / "journal.jsonl").read_text().splitlines()[1])
        assert {s["name"]: (s["state"], s["code"]) for s in first["silos"]} == {
            "a": ("Counted", ""),
            "b": ("Removed", "ANC-3010"),
        }
        final = load_file(site.state / "model" / "final.safetensors")
        np.testing.assert_allclose(final["encoder.weight"], WEIGHTS["encoder.weight"] + 2, atol=1e-5)
        assert [s["name"] for s in json.loads((site.state / "status.json").read_text())["silos"]] == ["a"]
    finally:
        site.stop()


def test_silos_come_and_go_in_the_asynchronous_protocol(tmp_path: Path) -> None:
    protocol = {"mode": "Asynchronous", "minSilos": 1, "roundDeadlineSeconds": 200}
    site = OperatedSite(tmp_path, rounds=12, protocol=protocol)
    try:
        site.start()
        a, b, c = (WorkingSilo(site, name) for name in "abc")
        site.put_members(a, b)
        b.may_upload.clear()
        a.may_train.clear()
        a.start()
        b.start()
        assert b.permitted.wait(WAIT_SECONDS)
        site.put_members(a, c)
        c.start()
        site.read_until("round committed", round=2)
        b.may_upload.set()
        b.join(WAIT_SECONDS)
        assert b.refusal is not None
        a.may_train.set()
        site.succeed()
        journal = [json.loads(line) for line in (site.state / "journal.jsonl").read_text().splitlines()]
        assert {s["name"] for entry in journal for s in entry["silos"]} <= {"a", "c"}
        assert len(journal) == 13
    finally:
        site.stop()


def test_members_survive_a_killed_server_and_a_quorum_resumes(site: OperatedSite) -> None:
    site.start()
    silos = [WorkingSilo(site, "a", step=0.5), WorkingSilo(site, "b", step=0.5)]
    site.put_members(*silos)
    for silo in silos:
        silo.start()
    site.read_until("round committed", round=1)
    assert site.process is not None
    site.process.kill()
    site.end()
    site.keep_ports()
    site.start()
    site.succeed()
    final = load_file(site.state / "model" / "final.safetensors")
    np.testing.assert_allclose(final["encoder.weight"], WEIGHTS["encoder.weight"] + 1.0, atol=1e-5)


def test_a_quorum_that_is_late_is_waited_for_and_nobody_is_thrown_out(tmp_path: Path) -> None:
    site = OperatedSite(tmp_path, protocol={"minSilos": 2, "roundDeadlineSeconds": 1})
    try:
        site.start()
        a, b = WorkingSilo(site, "a"), WorkingSilo(site, "b")
        site.put_members(a, b)
        a.start()
        for _ in range(3):
            site.read_until("waiting", found="1 of 2 silos connected, missing: b")
        b.start()
        site.succeed()
        assert a.trained == [1, 2]
    finally:
        site.stop()


def test_a_stopped_server_ends_with_its_code_while_it_waits(site: OperatedSite) -> None:
    site.start()
    assert site.process is not None
    site.process.send_signal(signal.SIGTERM)
    assert site.end()[0] == 5
