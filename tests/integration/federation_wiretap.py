"""A listener between an agent and its server that holds both ends' keys, so that a test reads what crosses the wire in clear."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path


def inward(key: Path, certificate: Path) -> ssl.SSLContext:
    """TLS as the server speaks it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    return context


def outward(authority: Path, key: Path | None = None, certificate: Path | None = None) -> ssl.SSLContext:
    """TLS as an agent speaks it, before or after its enrolment."""
    context = ssl.create_default_context(cafile=str(authority))
    if key is not None and certificate is not None:
        context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    return context


class Wiretap:
    """Passes connections on and keeps their bytes, decrypted: `up` to the server, `down` from it."""

    def __init__(self, target: str, inward: ssl.SSLContext, outward: Callable[[], ssl.SSLContext]) -> None:
        self.up, self.down = bytearray(), bytearray()
        self._target, self._inward, self._outward = target.rsplit(":", 1), inward, outward
        self._writers: list[asyncio.StreamWriter] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._inward)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(120)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        host, port = self._target
        far_reader, far_writer = await asyncio.open_connection(host, int(port), ssl=self._outward())
        self._writers += [writer, far_writer]
        ways = (self._pass(reader, far_writer, self.up), self._pass(far_reader, writer, self.down))
        await asyncio.gather(*ways, return_exceptions=True)

    @staticmethod
    async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray) -> None:
        try:
            while data := await reader.read(1 << 16):
                record += data
                writer.write(data)
                await writer.drain()
        finally:
            if (
                not writer.is_closing()
            ):  # closed by the other side: a second close takes the transport's protocol away, and no abort works then
                writer.close()

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            if self._connections:
                await asyncio.wait(self._connections, timeout=120)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(120)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()
