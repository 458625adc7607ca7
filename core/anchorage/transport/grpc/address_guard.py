"""A limit of connections per address, so that strangers at one address do not take a port's connections from all others.

gRPC bounds the connections of a port in all, and tells of none before it has a call. Its sockets are this process's own, though: they are
among its descriptors, each with the port and the peer's address.
"""

import os
import socket
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event, Thread
from urllib.parse import unquote

from anchorage.transport.addresses import address, party_of

LOOK_SECONDS = 0.5
"""Time between two looks."""
_DESCRIPTORS = Path("/dev/fd")

Peer = tuple[str, int]
"""Address and port."""


class AddressGuard:
    """Ends connections without a call where one address has too many of them, those first that have waited longest.

    Parameters
    ----------
    port : int
        The port that is served.
    most : int
        Connections of one address (of IPv6: of one /64) without a call.
    callers : callable
        Returns whose connections do not count: the peers that have shown who they are and have a call.
    """

    def __init__(self, port: int, most: int, callers: Callable[[], Collection[Peer]] = tuple) -> None:
        self._port, self._most, self._callers = port, most, callers
        self._peers: list[Peer] = []
        self._over = Event()
        self._thread = Thread(target=self._watch, name="address-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with suppress(OSError):  # no descriptor is left to look with
                self._look()

    def _look(self) -> None:
        descriptors = [int(entry.name) for entry in _DESCRIPTORS.iterdir()]
        if len(descriptors) <= self._most:
            return
        with ExitStack() as stack:
            peers = _connections(descriptors, self._port, stack)
            callers = set(self._callers())
            self._peers = [peer for peer in self._peers if peer in peers]
            known = set(self._peers)
            self._peers += [peer for peer in peers if peer not in known]
            waiting = defaultdict(list)
            for peer in self._peers:
                if peer not in callers:
                    waiting[party_of(peer[0])].append(peers[peer])
            for connections in waiting.values():
                for connection in connections[: -self._most]:
                    with suppress(OSError):  # it has ended by itself
                        connection.shutdown(socket.SHUT_RDWR)


def peer_of(peer_text: str) -> Peer:
    """Return address and port of a peer as gRPC writes it: ``ipv4:192.0.2.1:50000``, ``ipv6:%5B2001:db8::1%5D:50000``; port 0 for others."""
    _, _, rest = unquote(peer_text).partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return str(address(host.strip("[]"))), int(port)
    except ValueError:
        return peer_text, 0


def _connections(descriptors: list[int], port: int, stack: ExitStack) -> dict[Peer, socket.socket]:
    """Return the connections to a port of this process. Each is a copy, so that nothing meets another one that gets its number; `stack` closes it."""
    sockets = {}
    for descriptor in descriptors:
        with suppress(OSError):  # it is closed by now
            copy = os.dup(descriptor)
            try:
                connection = stack.enter_context(socket.socket(fileno=copy))
            except OSError:  # no socket
                os.close(copy)
                continue
            local, peer = connection.getsockname(), connection.getpeername()
            if connection.family in (socket.AF_INET, socket.AF_INET6) and local[1] == port:
                sockets[str(address(peer[0])), int(peer[1])] = connection
    return sockets
