import errno
import http.client
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from ipv6 import ipv6_loopback, needs_ipv6

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport import probes
from anchorage.transport.probes import CONNECTIONS, Answer, ProbeServer, verdict


def broken() -> Answer:
    raise RuntimeError("a defect")


ANSWERS = {"/good": lambda: verdict(True, "ok"), "/bad": lambda: verdict(False, "no connection"), "/broken": broken}


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    server = ProbeServer("127.0.0.1:0", ANSWERS)
    server.start()
    yield server
    server.stop()


def ask(server: ProbeServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(server.address, timeout=120)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_answers(server: ProbeServer) -> None:
    assert ask(server, "/good") == (200, b"ok\n")
    assert ask(server, "/bad?x=1") == (503, b"no connection\n")
    assert ask(server, "/else") == (404, b"not found\n")
    assert ask(server, "/good", "POST")[0] == 501


def test_a_defect_in_one_answer_leaves_the_others(server: ProbeServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/broken")
    assert ask(server, "/good")[0] == 200
    assert "cannot answer a probe" in caplog.text


@pytest.mark.parametrize("partial_request", [b"", b"GET /good HT"])
def test_slow_callers_keep_no_probe_out(server: ProbeServer, partial_request: bytes) -> None:
    host, port = server.address.split(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS + 8)]
    for caller in slow:
        caller.send(partial_request)
    assert all(ask(server, "/good") == (200, b"ok\n") for _ in range(2 * CONNECTIONS))
    turned_away = [caller.recv(1) for caller in slow[:8]]
    assert turned_away == [b""] * 8, "those that waited longest"
    for caller in slow:
        caller.close()


def test_a_crowd_at_another_address_ends_no_probe(server: ProbeServer) -> None:
    host, port = server.address.split(":")
    probe = socket.create_connection((host, int(port)), 120)
    probe.send(b"GET /good HT")
    crowd = [socket.create_connection((host, int(port)), 120, ("127.0.0.2", 0)) for _ in range(CONNECTIONS + 8)]
    assert [caller.recv(1) for caller in crowd[:9]] == [b""] * 9
    probe.send(b"TP/1.0\r\n\r\n")
    assert probe.recv(12) == b"HTTP/1.0 200"
    for caller in [probe, *crowd]:
        caller.close()


def test_an_address_that_is_taken(server: ProbeServer) -> None:
    with pytest.raises(AnchorageError, match=server.address) as caught:
        ProbeServer(server.address, ANSWERS)
    assert caught.value.failure is transfer.CANNOT_LISTEN


@pytest.mark.parametrize("listen", ["127.0.0.1:70000", "203.0.113.1:0"])
def test_an_address_that_is_none(listen: str) -> None:
    with pytest.raises(AnchorageError, match=listen.replace(".", r"\.")):
        ProbeServer(listen, ANSWERS)


@pytest.mark.parametrize("has_ipv6", [True, False])
def test_every_address_is_of_both_families(monkeypatch: pytest.MonkeyPatch, has_ipv6: bool) -> None:
    if not has_ipv6:  # a kernel without it

        def only_ipv4(family: int = socket.AF_INET, *more: int) -> socket.socket:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            return original_socket(family, *more)

        original_socket = socket.socket
        monkeypatch.setattr(probes.socket, "socket", only_ipv4)
    server = ProbeServer("[::]:0", ANSWERS)
    monkeypatch.undo()
    server.start()
    for host in ("127.0.0.1", "::1") if has_ipv6 and ipv6_loopback() else ("127.0.0.1",):
        with closing(http.client.HTTPConnection(host, server.server_port, timeout=120)) as connection:
            connection.request("GET", "/good")
            assert connection.getresponse().status == 200
    server.stop()


@needs_ipv6
def test_ipv6() -> None:
    server = ProbeServer("[::1]:0", ANSWERS)
    server.start()
    with closing(http.client.HTTPConnection("::1", int(server.address.rpartition(":")[2]), timeout=120)) as connection:
        connection.request("GET", "/good")
        assert connection.getresponse().status == 200
    server.stop()
