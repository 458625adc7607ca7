"""Idle calls and connections of one peer, or of strangers, keep nobody else out."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
from link_world import PATIENCE, PROFILE
from test_link_identity import raw, status_of

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import guard
from anchorage.transport.grpc.calls import ENROLMENT, MAX_CALLS, path
from anchorage.transport.grpc.enrolment import MAX_REQUEST_BYTES, serve_enrolment
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.messages import Joined


class Idle:
    """Calls that are opened and then send nothing."""

    def __init__(self, channel: grpc.Channel, call: str, count: int) -> None:
        self._over = threading.Event()
        open_one = channel.stream_unary(path(call))
        self.calls = [open_one.future(self._nothing()) for _ in range(count)]

    def _nothing(self) -> Iterator[bytes]:
        self._over.wait()
        yield from ()

    def ended(self) -> list[grpc.StatusCode]:
        """Return how the calls ended, when all of them have."""
        try:
            return [status_of(lambda call=call: call.result(PATIENCE))[0] for call in self.calls]
        finally:
            self._over.set()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer has half a second for its first message."""
    monkeypatch.setattr(guard, "Watchdog", lambda seconds: Watchdog(0.5))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("call", ["Push", "Announce", "Report", "Describe"])
def test_idle_calls_of_one_silo_end_and_take_no_more_than_their_share(serve, dial, identities, call: str) -> None:
    link, port = serve()
    channels = [raw(port, identities.silo("greedy")) for _ in range(6)]
    idle = [Idle(channel, call, 16) for channel in channels]
    codes = [code for calls in idle for code in calls.ended()]
    assert codes.count(grpc.StatusCode.CANCELLED) >= MAX_CALLS, "those that were let in are cancelled"
    assert set(codes) <= {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}
    silo = dial(port, "honest")
    assert silo.welcome() and link.next_event(time.time() + PATIENCE) == Joined("honest", PROFILE)
    for channel in channels:
        channel.close()


def test_a_silo_that_holds_all_its_calls_leaves_the_others_theirs(serve, dial, identities) -> None:
    link, port = serve()
    with raw(port, identities.silo("greedy")) as channel, raw(port, identities.silo("greedy")) as more:
        first, second = Idle(channel, "Push", 16), Idle(more, "Push", MAX_CALLS)
        silo = dial(port, "honest")
        assert silo.welcome() and link.next_event(time.time() + PATIENCE) == Joined("honest", PROFILE)
    assert {*first.ended(), *second.ended()} <= {grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}


def test_a_stranger_that_says_nothing_is_cut_off(monkeypatch, serve, dial) -> None:
    monkeypatch.setattr(guard, "HANDSHAKE_SECONDS", 1)
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 8)
    link, port = serve()
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for stranger in strangers:
        with stranger:
            stranger.settimeout(PATIENCE)
            with suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    silo = dial(port, "honest")
    assert silo.welcome() and link.next_event(time.time() + PATIENCE) == Joined("honest", PROFILE)


def test_a_silo_holds_no_connection_without_a_call(monkeypatch, serve, dial, identities) -> None:
    monkeypatch.setattr(guard, "IDLE_SECONDS", 0.5)
    link, port = serve()
    silo = dial(port, "honest")
    assert silo.welcome() and link.next_event(time.time() + PATIENCE) == Joined("honest", PROFILE)
    files = identities.silo("greedy")
    context = ssl.create_default_context(cafile=files.authority)
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(files.certificate, files.key)
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain, context.wrap_socket(plain) as idle:
        idle.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))  # the settings: none
        while idle.recv(4096):
            pass
    assert link.next_event(time.time()) is None, "the silo that has its orders stays"


@pytest.fixture
def enrolment(identities) -> Iterator[int]:
    def refuse(csr: bytes, token: str, silo: str) -> bytes:
        raise AnchorageError(identity.TOKEN_UNKNOWN, f"{silo} shows {token}")

    stop, port = serve_enrolment("127.0.0.1:0", identities.files("server"), refuse)
    yield port
    stop()


def test_a_request_for_a_certificate_is_small(enrolment: int, identities) -> None:
    with raw(enrolment, identities.silo("a")) as channel:
        ask = channel.unary_unary(path("Enrol", ENROLMENT))
        small = pb.SigningRequest(silo="a", token="t", request=b"x" * (MAX_REQUEST_BYTES - 100)).SerializeToString()
        assert status_of(lambda: ask(small, PATIENCE))[0] is grpc.StatusCode.FAILED_PRECONDITION
        code, details = status_of(lambda: ask(small + small, PATIENCE))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details
