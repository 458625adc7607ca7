"""Small TCP segments, for networks that lose large packets and say so to nobody.

Between two sites there may be a VPN with a smaller MTU than the interfaces at both ends, and a firewall that drops the ICMP messages by which TCP
would learn of it: small messages arrive, and the first large one is sent again and again for ever. The size of gRPC's messages does not matter
there, as TCP cuts them into segments as large as it may. gRPC cannot be told to make them smaller, but a socket can before it connects, for both
directions. So where nothing came through, the next connection goes through a socket of this process's own, like through a proxy.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import grpc

from anchorage.transport.grpc.calls import PING_SECONDS

SEGMENT_BYTES = 1100
"""What passes a path with IPv6's least MTU, 1280, inside another tunnel."""
CONNECT_SECONDS = 10.0
_HEAD_BYTES = 8192
_PIECE_BYTES = 1 << 18

log = logging.getLogger(__name__)


class NarrowPath:
    """One connection to a server with small segments, for a channel that takes `url` for its HTTP proxy; closed with the channel.

    Parameters
    ----------
    server : str
        Address ``host:port``.
    proxy : str or None
        The HTTP proxy on the way, ``http://host:port``, which the channel then speaks with.

    Raises
    ------
    OSError
        The server, or the proxy, cannot be connected to.
    """

    def __init__(self, server: str, proxy: str | None) -> None:
        place = urlsplit(proxy or f"//{server}")
        self._is_proxy = proxy is not None
        self._far = _connect(place.hostname or "", place.port or 80)
        self._near: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, name="narrow-path", daemon=True).start()

    def close(self) -> None:
        """End the connection."""
        for end in (self._listener, self._far, self._near):
            if end is not None:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _serve(self) -> None:
        """Join the first caller, who is this process's channel, with the server; there is no second one."""
        with suppress(OSError):
            near, _ = self._listener.accept()
            self._near = near
            self._listener.close()
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._is_proxy:
                _read_head(near)
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(self._far, near), name="narrow-path", daemon=True).start()
            _copy(near, self._far)


class Route:
    """How one server is connected to: as usual, or, while nothing comes through, by turns with small segments.

    Parameters
    ----------
    server : str
        Address ``host:port``.
    now : callable
        Seconds of a steady clock.
    """

    def __init__(self, server: str, now: Callable[[], float] = time.monotonic) -> None:
        self._server, self._now = server, now
        self._stuck = ""
        self.narrow = False
        """Whether the next connection has small segments."""

    def open(self, proxy: str | None) -> NarrowPath | None:
        """Return the connection for a channel; None where the channel makes one itself."""
        if self.narrow:
            with suppress(OSError):  # the channel will say why
                return NarrowPath(self._server, proxy)
        return None

    @contextmanager
    def watch(self, call: str, pieces: int = 1) -> Iterator[Callable[[], None]]:
        """Watch a call: where nothing came through until it broke off, the next connection is of the other kind.

        The block calls the yielded function for every piece of what is received or sent.

        Parameters
        ----------
        call : str
            What is called.
        pieces : int
            Pieces from which on something has come through: what is sent fills buffers first.
        """
        narrow, began, count = self.narrow, self._now(), 0

        def note_progress() -> None:
            nonlocal count
            count += 1
            if count == pieces:
                self._came_through(call, narrow)

        try:
            yield note_progress
        except grpc.RpcError as error:
            seconds = self._now() - began
            if error.code() in _SILENCE and count < pieces and seconds >= PING_SECONDS and narrow == self.narrow:
                self.narrow, self._stuck = not narrow, call
                log.debug("%s: nothing came through to or from %s in %d seconds", call, self._server, seconds)
            raise
        self._came_through(call, narrow)

    def _came_through(self, call: str, narrow: bool) -> None:
        if narrow and call == self._stuck:
            self._stuck = ""
            log.warning("%s: %s was reached with small segments only; %s", call, self._server, HINT)


_SILENCE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""With which a call breaks off that the other end does not refuse."""
HINT = (
    "if that is so at every start, packets of full size are lost on the way, as by a VPN with a smaller MTU while a firewall drops ICMP: set the MTU "
    "of this machine's interface to the VPN's, or let ICMP type 3 code 4 (IPv6: type 2) through"
)

_routes: dict[str, Route] = {}


def route_to(server: str) -> Route:
    """Return the route to a server, which all connections of this process share."""
    return _routes.setdefault(server, Route(server))


def _connect(host: str, port: int) -> socket.socket:
    """Connect to the first address of a name that accepts, with small segments in both directions."""
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(CONNECT_SECONDS)
            made.connect(address)
            made.settimeout(None)
        except OSError as error:
            made.close()
            failure = error
        else:
            return made
    raise failure


def _read_head(near: socket.socket) -> None:
    """Read the request for a connection, to its empty line."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < _HEAD_BYTES:
        piece = near.recv(1)
        if not piece:
            raise ConnectionError
        head += piece


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy until one end closes, and close the other."""
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            sink.sendall(piece)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
