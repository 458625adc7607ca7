"""Small segments where a path loses large packets: when they are tried, and what the socket does."""

import logging
import socket
from collections.abc import Iterator

import grpc
import pytest
from fake_api.clock import Clock

from anchorage.transport.grpc.calls import PING_SECONDS
from anchorage.transport.grpc.connection import ClosedError
from anchorage.transport.grpc.narrow_path import SEGMENT_BYTES, NarrowPath, Route


class Broken(grpc.RpcError):
    """A call that broke off."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def route(clock: Clock) -> Route:
    return Route("fed.example.org:8443", clock)


def call(
    route: Route,
    clock: Clock,
    error: grpc.RpcError | None,
    *,
    seconds: float = 2.0 * PING_SECONDS,
    moves: int = 0,
    pieces: int = 1,
) -> None:
    try:
        with route.watch("Fetch", pieces) as moved:
            for _ in range(moves):
                moved()
            clock.advance(seconds)
            if error is not None:
                raise error
    except grpc.RpcError as caught:
        assert caught is error


@pytest.mark.parametrize(
    "error",
    [Broken(grpc.StatusCode.UNAVAILABLE), Broken(grpc.StatusCode.DEADLINE_EXCEEDED), ClosedError()],
)
def test_after_a_call_with_which_nothing_came_through_segments_are_small(
    route: Route, clock: Clock, error: grpc.RpcError, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    call(route, clock, error)
    assert route.narrow and "nothing came through to or from fed.example.org:8443 in 14 seconds" in caplog.text
    call(route, clock, None, moves=3)
    call(route, clock, None, moves=3)
    warnings_logged = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert (
        len(warnings_logged) == 1
        and "VPN with a smaller MTU" in warnings_logged[0]
        and "set the MTU" in warnings_logged[0]
    )
    assert route.narrow


def test_where_small_segments_do_not_help_the_ordinary_ones_come_back(
    route: Route, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    call(route, clock, Broken(grpc.StatusCode.UNAVAILABLE))
    call(route, clock, Broken(grpc.StatusCode.UNAVAILABLE))
    assert not route.narrow
    call(route, clock, None, moves=3)
    assert not caplog.records, "it was something else"


@pytest.mark.parametrize(
    ("code", "seconds", "moves", "pieces"),
    [
        (grpc.StatusCode.UNAVAILABLE, 1.0, 0, 1),  # a server that restarts
        (grpc.StatusCode.UNAVAILABLE, 60.0, 1, 1),  # one that was killed on the way
        (grpc.StatusCode.UNAVAILABLE, 60.0, 6, 6),
        (grpc.StatusCode.PERMISSION_DENIED, 60.0, 0, 1),  # an answer
        (grpc.StatusCode.FAILED_PRECONDITION, 60.0, 0, 1),
    ],
)
def test_other_ends_change_nothing(
    route: Route, clock: Clock, code: grpc.StatusCode, seconds: float, moves: int, pieces: int
) -> None:
    call(route, clock, Broken(code), seconds=seconds, moves=moves, pieces=pieces)
    assert not route.narrow and route.open(None) is None


def test_what_only_filled_buffers_did_not_come_through(route: Route, clock: Clock) -> None:
    call(route, clock, ClosedError(), moves=5, pieces=6)
    assert route.narrow


def test_two_calls_that_break_off_together_change_it_once(route: Route, clock: Clock) -> None:
    with pytest.raises(ClosedError), route.watch("Fetch"), route.watch("Push"):
        clock.advance(60.0)
        raise ClosedError
    assert route.narrow


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        yield listening


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def caller(path: NarrowPath) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(path.url.rpartition(":")[2])), 120)


def test_segments_are_small_in_both_directions(server: socket.socket) -> None:
    path = NarrowPath(address(server), None)
    far, _ = server.accept()
    with far, caller(path) as near:
        near.sendall(b"CONNECT fed.example.org:8443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert near.recv(100).startswith(b"HTTP/1.1 200 ")
        sizes = [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for end in (far, path._far)]
        assert max(sizes) <= SEGMENT_BYTES
        near.sendall(b"up")
        far.sendall(b"down")
        assert (far.recv(9), near.recv(9)) == (b"up", b"down")
        path.close()
        assert (far.recv(9), near.recv(9)) == (b"", b"")


def test_a_proxy_on_the_way_is_spoken_with_by_the_channel(server: socket.socket) -> None:
    path = NarrowPath("fed.example.org:8443", f"http://{address(server)}")
    far, _ = server.accept()
    with far, caller(path) as near:
        near.sendall(b"CONNECT fed.example.org:8443 HTTP/1.1\r\n\r\n")
        assert far.recv(100) == b"CONNECT fed.example.org:8443 HTTP/1.1\r\n\r\n"
    path.close()


def test_nobody_else_gets_through(server: socket.socket) -> None:
    path = NarrowPath(address(server), None)
    far, _ = server.accept()
    with far, caller(path) as near:
        near.sendall(b"CONNECT x:1 HTTP/1.1\r\n\r\n")
        near.recv(100)
        with pytest.raises(OSError):
            caller(path)
    path.close()


def test_without_a_connection_the_channel_makes_one_and_says_why_not(server: socket.socket, clock: Clock) -> None:
    route = Route(address(server), clock)
    route.narrow = True
    channel = route.open(None)
    assert channel is not None
    channel.close()
    server.close()
    assert route.open(None) is None
