"""Bounds of what one peer can hold open at a server, so that nobody keeps the others out."""

import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from anchorage.transport.addresses import party_of
from anchorage.transport.grpc.address_guard import Peer, peer_of
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.peer_clock import TIME

MESSAGE_SECONDS = 10.0
"""Time that a caller has for the first message of a call."""
HANDSHAKE_SECONDS = 10
"""Time that a connection has for TLS."""
IDLE_SECONDS = 30.0
"""Time that a connection may have no call: a silo at work always has one, its orders."""
MOST_CONNECTIONS = 4096
"""Connections of one port, strangers' among them; further ones are closed at once."""
ADDRESS_PART = 8
"""One address may have this part of a port's connections (an eighth) before they have a call."""


def most_connections(most: int | None = None) -> int:
    """Return how many connections a port takes, at most `most`: no more than half of the files that the process may have."""
    most = MOST_CONNECTIONS if most is None else most
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else min(most, files // 2)


def connection_options(most: int) -> list[tuple[str, Any]]:
    """Return a server's options that bound its connections to `most`."""
    return [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", int(IDLE_SECONDS * 1000)),
    ]


class CallGuard:
    """Bounds the calls that one peer has open, and the time until a call's first message is there.

    A call waits for its first message in a thread of the server's, so idle calls would take all of them.

    Parameters
    ----------
    peer_of : callable
        ``peer_of(context)`` returns who calls.
    most : int
        Calls of one peer at once.
    message_seconds : float
        Time for the first message.
    """

    def __init__(
        self,
        peer_of: Callable[[grpc.ServicerContext], str],
        most: int,
        message_seconds: float = MESSAGE_SECONDS,
    ) -> None:
        self._peer_of = peer_of
        self._most = most
        self._open: Counter[str] = Counter()
        self._connections: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._watchdog = Watchdog(message_seconds)

    def close(self) -> None:
        """Stop watching."""
        self._watchdog.close()

    def callers(self) -> list[Peer]:
        """Return the connections that have a call."""
        with self._lock:
            return [peer_of(peer_text) for peer_text in self._connections]

    def handler(self, method: MethodDescriptor, call: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a method, whose messages stay bytes; `call` gets one message, or with a client's stream all of them."""
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self._stream(call, requests, context)
            )
        streaming = method.client_streaming

        def one(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            self._enter(context)
            first = self._first(requests, context)
            return call(_with_first(first, requests) if streaming else first, context)

        return grpc.stream_unary_rpc_method_handler(one)

    def _stream(self, call: Callable[..., Any], requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        self._enter(context)
        yield from call(self._first(requests, context), context)

    def _enter(self, context: grpc.ServicerContext) -> None:
        """Say what time it is, and count a call until it has ended; one too many is refused so that a client tries again later."""
        context.send_initial_metadata(((TIME, f"{time.time():.0f}"),))
        peer, connection = self._peer_of(context), context.peer()
        with self._lock:
            refused = self._open[peer] >= self._most
            if not refused:
                self._open[peer] += 1
                self._connections[connection] += 1
        if refused or not context.add_callback(lambda: self._leave(peer, connection)):
            if not refused:
                self._leave(peer, connection)
            context.abort(grpc.StatusCode.UNAVAILABLE, f"more than {self._most} calls at once")

    def _leave(self, peer: str, connection: str) -> None:
        with self._lock:
            for counts, key in ((self._open, peer), (self._connections, connection)):
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]

    def _first(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        with self._watchdog.watch(context.cancel):
            return next(requests, b"")


def _with_first(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others


def address_of(context: grpc.ServicerContext) -> str:
    """Return what stands for a caller's address (`party_of`)."""
    return party_of(peer_of(context.peer())[0])
