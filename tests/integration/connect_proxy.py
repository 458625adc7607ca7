"""A small HTTP proxy that only does CONNECT, as hospitals have them."""

import socket
import threading
from contextlib import suppress


class ConnectProxy:
    """Joins callers with the host that they name, or answers with `refusal` (a status line's end such as ``403 Forbidden``)."""

    def __init__(self) -> None:
        self.refusal = ""
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._closed = False
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self) -> None:
        """End every connection that goes through."""
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._closed:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head and (part := caller.recv(4096)):
                head += part
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            self.asked.append(f"{method} {target}")
            if self.refusal:
                caller.sendall(f"HTTP/1.1 {self.refusal}\r\nContent-Length: 0\r\n\r\n".encode())
                caller.close()
                return
            host, _, port = target.rpartition(":")
            server = socket.create_connection((host, int(port)))
            with self._lock:
                self._open += [caller, server]
            caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(server, caller), daemon=True).start()
            _copy(caller, server)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(1 << 16):
            sink.sendall(part)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
