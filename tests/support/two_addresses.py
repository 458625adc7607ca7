"""A name with two addresses, of which the first leads nowhere: packets to it are lost."""

import socket
from typing import Any

import pytest

NAME = "two.example"
DEAD = "2001:db8::1"


def dead_address_first(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Give `NAME` the addresses `DEAD` and 127.0.0.1; return the list to which the seconds are added that would be waited for `DEAD`."""
    waited: list[float | None] = []
    resolve, plain = socket.getaddrinfo, socket.socket

    def resolve_two(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        if host not in (NAME, NAME.encode()):
            return resolve(host, port, *more, **options)
        dead = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (DEAD, int(port), 0, 0))
        return [dead, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]

    class Socket(plain):  # type: ignore[misc, valid-type]
        def __init__(self, family: int = -1, *more: Any, **options: Any) -> None:
            self.asked = family
            super().__init__(socket.AF_INET if family == socket.AF_INET6 else family, *more, **options)

        def connect(self, address: Any) -> None:
            if address[0] == DEAD:
                waited.append(self.gettimeout())
                raise TimeoutError("timed out")
            super().connect(address)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_two)
    monkeypatch.setattr(socket, "socket", Socket)
    return waited
