"""The control endpoint over mutual TLS, asked by the operator's client: what it says, and every way in which it may fail."""

import hashlib
import socket
import ssl

import pytest
from fake_api.control import Control
from ipv6 import needs_ipv6
from two_addresses import NAME as TWO
from two_addresses import dead_address_first

from anchorage.api.errors import commands
from anchorage.api.status import FederationStatus
from anchorage.transport import server_client
from anchorage.transport.pki import (
    Authority,
    SigningRequest,
    key_fingerprint,
    key_to_pem,
    make_key,
    operator_uri,
    silo_uri,
)
from anchorage.transport.probes import ProbeServer
from anchorage.transport.server_client import Member, ServerClient, ServerError

NAME = "derm-server.ns.svc"


def client_context(authority, tmp_path, uri=None, trusted=None):
    key = make_key()
    if uri is None:
        pem = authority.issue_operator(SigningRequest.make(key, operator_uri("derm")))
    else:
        pem = authority.issue_silo(SigningRequest.make(key, uri), uri.rpartition("/")[2])
    chain = tmp_path / "client.pem"
    chain.write_bytes(key_to_pem(key) + pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=(trusted or authority).certificate_pem.decode())
    context.load_cert_chain(chain)
    return context


@pytest.fixture(scope="module")
def authority():
    return Authority.make("derm")


@pytest.fixture
def control(tmp_path, authority):
    folder = tmp_path / "server"
    folder.mkdir()
    control = Control(folder, authority)
    yield control
    control.stop()


@pytest.fixture
def client(control, authority, tmp_path):
    client = ServerClient("127.0.0.1", control.port, NAME, client_context(authority, tmp_path))
    yield client
    client.close()


def test_the_status_comes_as_the_server_wrote_it(client, control):
    assert client.status() == control.status


@needs_ipv6
def test_the_control_endpoint_is_asked_over_ipv6(control, authority, tmp_path):
    client = ServerClient("::1", control.port, NAME, client_context(authority, tmp_path))
    assert client.status() == control.status
    client.close()


def test_one_connection_serves_many_questions(client, control, monkeypatch):
    opened = []
    connect = server_client._Connection.connect
    monkeypatch.setattr(server_client._Connection, "connect", lambda self: (opened.append(1), connect(self)))
    for _ in range(5):
        client.status()
        client.members()
        client.requests()
    assert len(opened) == 1


def test_members_go_and_come_back(client):
    members = (Member("a", "None", "f" * 64), Member("b", "All", ""))
    client.put_members(members, 7)
    assert client.members() == members


def test_requests_come_without_their_tokens(client, control):
    csr = SigningRequest.make(make_key(), silo_uri("derm", "a")).decode()
    common = {"silo": "a", "csr": csr, "time": "2027-01-15T08:00:00Z"}
    control.requests = [
        {"id": "1", "kind": "Enrol", "token": "secret", **common},
        {"id": "2", "kind": "Renew", "token": "", **common},
    ]
    enrol, renew = client.requests()
    assert enrol.token_hash == hashlib.sha256(b"secret").hexdigest()
    assert enrol.key == key_fingerprint(csr.encode()) and enrol.time == 1_800_000_000.0
    assert (renew.kind, renew.token_hash) == ("Renew", "")
    assert "secret" not in repr(enrol) and csr not in repr(enrol)


def test_a_request_that_cannot_be_read_has_no_key(client, control):
    control.requests = [{"id": "1", "kind": "Enrol", "token": "t", "silo": "a", "csr": "nonsense", "time": ""}]
    (request,) = client.requests()
    assert (request.key, request.csr, request.time) == ("", "nonsense", 0.0)


def test_answers_are_given(client, control):
    control.requests = [{"id": "1", "kind": "Enrol", "token": "t", "silo": "a", "csr": "", "time": ""}]
    client.put_answers([{"id": "1", "code": "ANC-2001", "message": "no"}])
    assert control.answers == [{"id": "1", "code": "ANC-2001", "message": "no"}]
    assert client.requests() == ()


def test_a_server_that_was_restarted_is_found_again(client, control, authority, tmp_path):
    client.status()
    control.stop()
    client._connection.sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ServerError) as raised:
        client.status()
    assert raised.value.reason == "ConnectionRefused"
    folder = tmp_path / "again"
    folder.mkdir()
    restarted = Control(folder, authority, port=control.port)
    try:
        assert client.status() == restarted.status
    finally:
        restarted.stop()


def test_a_server_of_another_authority_is_not_trusted(control, authority, tmp_path):
    context = client_context(authority, tmp_path, trusted=Authority.make("derm"))
    client = ServerClient("127.0.0.1", control.port, NAME, context)
    with pytest.raises(ServerError) as raised:
        client.status()
    assert raised.value.reason == "CertificateNotTrusted"


def test_a_server_under_another_name_is_not_trusted(control, authority, tmp_path):
    client = ServerClient("127.0.0.1", control.port, "other-server.ns.svc", client_context(authority, tmp_path))
    with pytest.raises(ServerError) as raised:
        client.status()
    assert raised.value.reason == "CertificateNotTrusted"


def test_a_silo_s_certificate_opens_nothing(control, authority, tmp_path):
    context = client_context(authority, tmp_path, uri=silo_uri("derm", "a"))
    client = ServerClient("127.0.0.1", control.port, NAME, context)
    for ask in (client.status, client.members, client.requests, lambda: client.put_members((), 1)):
        with pytest.raises(ServerError) as raised:
            ask()
        assert raised.value.reason == "Status403"


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"members": 5}', b'{"members": [5]}', b"\xff\xfe", b""])
def test_an_answer_of_another_form_is_told_as_such(client, control, body):
    control._server.asks = {"/members": lambda: (200, "application/json", body)}
    with pytest.raises(ServerError) as raised:
        client.members()
    assert raised.value.reason == "MalformedAnswer"


def test_a_status_of_another_form_is_told_as_such(client, control):
    control._server.asks = {"/status": lambda: (200, "application/json", b'{"round": "three"}')}
    with pytest.raises(ServerError, match="round") as raised:
        client.status()
    assert raised.value.reason == "MalformedAnswer"


def test_an_answer_without_end_is_not_read(client, control, monkeypatch):
    monkeypatch.setattr(server_client, "LARGEST_ANSWER", 1000)
    control._server.asks = {"/status": lambda: (200, "application/json", b" " * 5000)}
    with pytest.raises(ServerError) as raised:
        client.status()
    assert raised.value.reason == "AnswerTooLarge"


def test_a_server_that_says_nothing_is_given_up(authority, tmp_path, monkeypatch):
    monkeypatch.setattr(server_client, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the connection waits in the backlog
        client = ServerClient("127.0.0.1", silent.getsockname()[1], NAME, client_context(authority, tmp_path))
        with pytest.raises(ServerError) as raised:
            client.status()
    assert raised.value.reason == "Timeout"


def test_a_local_run_is_asked_without_tls():
    status = FederationStatus(round=2, rounds=3)
    server = ProbeServer(
        "127.0.0.1:0", {"/status": lambda: (200, "application/json", status.model_dump_json().encode())}
    )
    server.start()
    client = ServerClient("127.0.0.1", server.server_address[1])
    try:
        assert [client.status() for _ in range(2)] == [status, status]  # it hangs up after every answer
    finally:
        server.stop()
    with pytest.raises(ServerError) as raised:
        client.status()
    assert raised.value.reason == "ConnectionRefused" and raised.value.failure is commands.STATUS_UNREACHABLE


def test_the_second_address_of_a_name_is_tried_within_seconds(monkeypatch):
    waited = dead_address_first(monkeypatch)
    server = ProbeServer("127.0.0.1:0", {})
    server.start()
    client = ServerClient(TWO, server.server_port)
    with pytest.raises(ServerError) as raised:
        client.status()
    client.close()
    server.stop()
    assert raised.value.reason == "Status404" and waited == [server_client.CONNECT_SECONDS]
