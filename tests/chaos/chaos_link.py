"""The way between one agent and the server, which can break: connections pass through a listener of the driver, byte by byte as they are."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

PIECE = 1 << 14
SLOW = 125_000
"""Bytes per second, each way, of a slow link: 1 Mbit/s."""
WAIT_SECONDS = 120.0


class Link:
    """Passes the connections of one agent on to ``host:port``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._rate = 0
        self._bytes_left: int | None = None
        self._pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._wait(self._open())

    async def _open(self) -> None:
        self._flows = asyncio.Event()
        self._flows.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self, after: int) -> None:
        """End the connection that passes the byte `after` from now on, in the middle of what it sends."""
        self._bytes_left = after

    def half_open(self, silent_end: str = "server") -> None:
        """End every connection at one end only, the ``server``'s or the ``agent``'s: the other is told nothing, and nothing answers it."""
        self._wait(self._drop(silent_end))

    def slow(self, rate: int = SLOW) -> None:
        """Let so many bytes pass in a second, each way; 0 for all."""
        self._rate = rate

    def block(self) -> None:
        """Let nothing pass; connections stay open."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def mend(self) -> None:
        """Let everything pass."""
        self._rate, self._bytes_left = 0, None
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        """End everything."""

        async def end() -> None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)  # in which the aborted connections are closed

        self._wait(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    async def _drop(self, silent_end: str) -> None:
        pairs, self._pairs = self._pairs, []
        for near, far in pairs:
            (far if silent_end == "server" else near).transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(near)
        try:
            await self._flows.wait()
            far_reader, far = await asyncio.open_connection(self._host, self._port)
        except OSError:  # no server listens now
            near.transport.abort()
        else:
            pair = (near, far)
            self._writers.append(far)
            self._pairs.append(pair)
            await asyncio.gather(self._pass(reader, far, pair), self._pass(far_reader, near, pair))
        finally:
            self._tasks.discard(task)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if self._rate:
                    await asyncio.sleep(len(data) / self._rate)
                await self._flows.wait()
                if self._bytes_left is not None and self._bytes_left < len(data):
                    writer.write(data[: self._bytes_left])
                    self._bytes_left = None
                    break
                if self._bytes_left is not None:
                    self._bytes_left -= len(data)
                writer.write(data)
                await writer.drain()
        if pair in self._pairs:  # else it is half open: the agent is told nothing
            self._pairs.remove(pair)
            for end in pair:
                end.close()
