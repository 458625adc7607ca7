"""A member that may say anything: it has a good certificate, and every message is written by who uses it."""

import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.connection import Connection
from anchorage.transport.grpc.enrolment import enrol
from anchorage.transport.pki import Credentials, SigningRequest, Tokens, new_key, silo_uri
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.versions import PROTOCOL

ANSWER_SECONDS = 120.0
"""After so long without an answer something hangs."""


@dataclass(frozen=True)
class Answer:
    """How a call ended."""

    status: grpc.StatusCode
    details: str = ""
    content: bytes = b""

    @property
    def code(self) -> str:
        """The code of the catalogue, or the status where there is none."""
        return self.details[:8] if self.details.startswith("ANC-") else self.status.name


def ended(error: grpc.RpcError) -> Answer:
    """Return how a call ended that did not succeed."""
    return Answer(error.code(), error.details() or "")


def enrolled(endpoints: dict[str, Any], authority: Path, federation: str, silo: str, folder: Path) -> Credentials:
    """Enrol a silo at a real server whose tokens are here, with a key of its own in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Credentials(folder / "silo.key", folder / "silo.pem", authority / "ca.pem")
    request = SigningRequest.make(new_key(files.key), silo_uri(federation, silo))
    token = Tokens(authority / "tokens").create(silo)
    files.save_certificate(enrol(endpoints["enrolment"], files.authority, silo, token, request))
    return files


class HostileSilo:
    """Says what it is told to, and keeps the orders that it gets.

    A session with images takes part in the rounds, which wait for it; `park` opens one without images, for which no round waits.
    """

    def __init__(self, server: str, credentials: Credentials) -> None:
        self.server, self.credentials = server, credentials
        self.session = ""
        self.connection: Connection | None = None
        self._orders: queue.SimpleQueue[pb.Order | None] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._connections: list[Connection] = []
        self.ends: list[Answer] = []
        """How its sessions ended, other than well."""

    def join(self, samples: int = 100, **fields: Any) -> Answer:
        """Open a session in the place of the one before; what is said in it may be changed."""
        hello = pb.Hello(**{"labels": "All", "samples": samples, "version": "0.1.0", "protocol": PROTOCOL, **fields})
        connection = Connection(self.server, self.credentials)
        self._connections.append(connection)
        calls = connection.open(hello)
        try:
            welcome = pb.Order.FromString(next(calls)).welcome
        except grpc.RpcError as error:
            return ended(error)
        connection.session = self.session = welcome.session
        self.connection, self._orders = connection, queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(calls, self._orders, self.ends), daemon=True)
        self._readers.append(reader)
        reader.start()
        return Answer(grpc.StatusCode.OK, content=welcome.SerializeToString())

    def park(self) -> Answer:
        """Take part in no round from now on; open work is void."""
        return self.join(samples=0)

    def order(self, kind: str) -> Any:
        """Wait for the next order of a kind: ``assign``, ``permit``, ``dismiss`` or ``finish``."""
        while (order := self._orders.get(timeout=ANSWER_SECONDS)) is not None:
            if order.WhichOneof("order") == kind:
                return getattr(order, kind)
        raise AssertionError(f"the session ended without an order to {kind}")

    def next_order(self, seconds: float) -> pb.Order | None:
        """Return the next order; None where none comes within so many seconds, or the session has ended."""
        try:
            return self._orders.get(timeout=seconds)
        except queue.Empty:
            return None

    def orders(self) -> list[pb.Order]:
        """Return the orders that have come by now."""
        orders = list[pb.Order]()
        with suppress(queue.Empty):
            while (order := self._orders.get_nowait()) is not None:
                orders.append(order)
        return orders

    def task(self) -> pb.Task:
        """Wait for a task to train."""
        while (task := self.order("assign")).kind != "Train":
            pass
        return task

    def await_end(self) -> None:
        """Wait until the server has ended the session."""
        while self._orders.get(timeout=ANSWER_SECONDS) is not None:
            pass

    def say(self, call: str, message: Any) -> Answer:
        """Make a call that has one message, bytes or of protobuf."""
        assert self.connection is not None, "it has joined"
        content = message if isinstance(message, bytes) else message.SerializeToString()
        try:
            return Answer(grpc.StatusCode.OK, content=self.connection.call(call, content, ANSWER_SECONDS))
        except grpc.RpcError as error:
            return ended(error)

    def push(self, task: str, messages: Iterable[bytes]) -> Answer:
        """Send the messages of an upload."""
        assert self.connection is not None, "it has joined"
        try:
            call = self.connection.push(task, iter(messages))
            return Answer(grpc.StatusCode.OK, content=call.result(ANSWER_SECONDS))
        except grpc.RpcError as error:
            return ended(error)

    def fetch(self, model: str, chunks: Iterable[int]) -> Answer:
        """Fetch chunks of a model, and return them one after another."""
        assert self.connection is not None, "it has joined"
        wanted = pb.ChunkList(model=model, chunks=list(chunks)).SerializeToString()
        try:
            return Answer(grpc.StatusCode.OK, content=b"".join(self.connection.fetch(wanted)))
        except grpc.RpcError as error:
            return ended(error)

    def announce(self, task: str, update: ModelBytes, samples: int = 100, **fields: Any) -> Answer:
        """Announce an update."""
        profile = {
            "task": task,
            "samples": {"train": samples},
            "update": convert.manifest_to_proto(update.manifest),
            **fields,
        }
        return self.say("Announce", pb.Announcement(**profile))

    def upload(self, task: str, update: ModelBytes) -> Answer:
        """Send a whole update for which there is a permit."""
        chunks = range(len(update.manifest.digests))
        first = pb.ChunkList(model=update.digest, chunks=list(chunks)).SerializeToString()
        return self.push(task, [first, *(update.chunk(index) for index in chunks)])

    def leave(self) -> None:
        """End the connection of the session: calls are CANCELLED until another one is joined."""
        if self.connection is not None:
            self.connection.close()

    def close_earlier(self) -> None:
        """End the connections of earlier sessions, and those on which none was opened."""
        connections = [connection for connection in self._connections if connection is self.connection]
        for connection in self._connections:
            if connection not in connections:
                connection.close()
        self._connections = connections
        self._readers = [reader for reader in self._readers if reader.is_alive()]

    def close(self) -> None:
        """End every connection."""
        for connection in self._connections:
            connection.close()
        for reader in self._readers:
            reader.join(ANSWER_SECONDS)


def filled(layout: Layout, value: float) -> ModelBytes:
    """Return an update whose floats are all the same."""
    dtypes = {"F32": np.float32, "I64": np.int64}
    arrays = {
        tensor.name: np.full(tensor.shape, value if tensor.dtype == "F32" else 0, dtypes[tensor.dtype])
        for tensor in layout.tensors
    }
    return ModelBytes.from_arrays(layout, arrays)


def _read(calls: Any, orders: "queue.SimpleQueue[pb.Order | None]", ends: list[Answer]) -> None:
    try:
        for message in calls:
            orders.put(pb.Order.FromString(message))
    except grpc.RpcError as error:
        ends.append(ended(error))
    orders.put(None)
