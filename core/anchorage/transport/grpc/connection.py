"""One connection of a silo to the server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.calls import CHANNEL_OPTIONS, SESSION, TASK, path
from anchorage.transport.grpc.narrow_path import route_to
from anchorage.transport.grpc.proxy import proxy_options
from anchorage.transport.grpc.tls import channel_credentials
from anchorage.transport.peer_clock import PeerClock
from anchorage.transport.pki import Credentials


class ClosedError(grpc.RpcError):
    """The channel was closed locally before a call."""

    def code(self) -> grpc.StatusCode:
        """Return the status, as of a call."""
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        """Return what happened, as of a call."""
        return "the connection was closed"


class Connection:
    """A channel with the silo's credentials as they are on disk now, and the session that was opened on it.

    Parameters
    ----------
    server : str
        Address ``host:port``, as the server's certificate names it.
    credentials : Credentials
        The silo's TLS files.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.
    clock : PeerClock or None
        Is told what time the server has.

    Raises
    ------
    AnchorageError
        The TLS files cannot be used.
    """

    def __init__(
        self, server: str, credentials: Credentials, proxy: str | None = None, clock: PeerClock | None = None
    ) -> None:
        self.session = ""
        self._clock = clock or PeerClock()
        self._path = route_to(server).open(proxy)
        options = [*CHANNEL_OPTIONS, *proxy_options(self._path.url if self._path is not None else proxy)]
        self._channel: Any = grpc.secure_channel(server, channel_credentials(credentials), options)

    def open(self, hello: pb.Hello) -> Any:
        """Start the call that yields orders, as bytes; says what time it is here."""
        hello.time = int(time.time())
        with _open_channel():
            return self._channel.unary_stream(path("Orders"))(hello.SerializeToString())

    def call(self, call: str, message: bytes, seconds: float) -> bytes:
        """Make a unary call that takes at most `seconds`."""
        with _open_channel(), noting(self._clock):
            answer, ended = self._channel.unary_unary(path(call)).with_call(message, seconds, self._metadata())
            self._clock.note(ended.initial_metadata())
            return bytes(answer)

    def start_call(self, call: str, message: bytes, seconds: float) -> Any:
        """Start a unary call and return its future."""
        with _open_channel():
            return self._channel.unary_unary(path(call)).future(message, seconds, self._metadata())

    def fetch(self, wanted: bytes) -> Any:
        """Start the call that yields chunks."""
        with _open_channel():
            return self._channel.unary_stream(path("Fetch"))(wanted, None, self._metadata())

    def push(self, task: str, messages: Iterator[bytes]) -> Any:
        """Start to send chunks and return the call's future."""
        with _open_channel():
            metadata = (*self._metadata(), (TASK, task))
            return self._channel.stream_unary(path("Push")).future(messages, None, metadata)

    def close(self) -> None:
        """End every call."""
        self._channel.close()
        if self._path is not None:
            self._path.close()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return ((SESSION, self.session),)


@contextmanager
def noting(clock: PeerClock) -> Iterator[None]:
    """Tell a clock what time the server had when it refused a call."""
    try:
        yield
    except grpc.RpcError as error:
        clock.note(getattr(error, "initial_metadata", tuple)())  # a call that was never made has none
        raise


@contextmanager
def _open_channel() -> Iterator[None]:
    try:
        yield
    except ValueError as error:  # grpcio's way to say that the channel is closed
        raise ClosedError from error


class Feed(Iterator[bytes]):
    """Hands messages from the thread that makes them to gRPC's sending thread, one at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: bytes | None = None
        self._closed = False

    def send(self, message: bytes) -> bool:
        """Hand over a message when the previous one was taken; False if the call has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._held is None or self._closed)
            if not self._closed:
                self._held = message
                self._changed.notify_all()
            return not self._closed

    def close(self) -> None:
        """Mark the end of the messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __next__(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._held is not None or self._closed)
            if self._held is None:
                raise StopIteration
            message, self._held = self._held, None
            self._changed.notify_all()
            return message
