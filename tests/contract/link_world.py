"""What the tests of links share: models, tasks, certificates, and a server's end with as many silos as a test connects."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchorage.transport.messages import Announcement, Event, Order, Profile, Progressed, Task, TaskKind
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, server_uri, silo_uri
from anchorage.transport.tensors.chunks import CHUNK_BYTES, ChunkSource, Manifest
from anchorage.transport.tensors.large_arrays import LargeArrays, joined_behind
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

PATIENCE = 120.0
"""Seconds after which a test that waits has failed."""
PROFILE = Profile("None", 12, "0.1.0", packages=("acme 0.1.0", "beta-tools 2!1.0+cu118"))
FEDERATION = "derm"


class SystemClock:
    def now(self) -> float:
        return time.time()


def model_of(chunks: float, seed: int = 0) -> ModelBytes:
    nbytes = int(chunks * CHUNK_BYTES)
    layout = Layout.of([("weights", "U8", (nbytes,))])
    return ModelBytes.of(layout, np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8))


def large_of(chunks: float, seed: int = 0) -> ModelBytes:
    """An array in rows, as large auxiliary data."""
    rows = int(chunks * CHUNK_BYTES) // 12
    images = np.random.default_rng(seed).random((rows, 3), np.float32)
    return ModelBytes.from_arrays(Layout.of([("mean_images", "F32", (rows, 3))]), {"mean_images": images})


def train_task(model: ChunkSource, number: int = 1, **auxiliary: Any) -> Task:
    return Task(f"{number}-Train-{model.manifest.digest[:8]}", TaskKind.TRAIN, number, model.manifest, auxiliary)


@dataclass
class Behind:
    """A model with large auxiliary data behind it, and a task on it; an update with some behind it, and its announcement."""

    model: ModelBytes
    pool: ModelBytes
    update: ModelBytes
    means: ModelBytes
    number: int = 1

    def __post_init__(self) -> None:
        arrays = (LargeArrays(large.layout, large) for large in (self.pool, self.means))
        (self.down, down), (self.up, up) = (
            joined_behind(exact, [large]) for exact, large in zip((self.model, self.update), arrays, strict=True)
        )
        self.task = Task(f"{self.number}.train", TaskKind.TRAIN, self.number, self.down.manifest, {}, down)
        self.announcement = Announcement(self.task.id, {"train": 7}, {}, {}, self.up.manifest, up)


def announcement_of(task: Task, update: ModelBytes | None) -> Announcement:
    manifest: Manifest | None = None if update is None else update.manifest
    return Announcement(task.id, {"train": 7}, {"similarity": np.array([0.5, np.nan])}, {"loss": 1.5}, manifest)


@dataclass
class World:
    """One server's end, and how to connect a silo to it."""

    link: Any
    connect: Callable[[str], Any]

    def event(self) -> Event:
        """Return the next event that is not progress."""
        while (event := self.link.next_event(time.time() + PATIENCE)) is not None:
            if not isinstance(event, Progressed):
                return event
        raise AssertionError("no event came")

    def events_until(self, kind: type) -> Any:
        """Return the next event of a kind."""
        while not isinstance(event := self.event(), kind):
            pass
        return event


def order_of(silo: Any) -> Order:
    """Return a silo's next order."""
    order: Order | None = silo.next_order(PATIENCE)
    assert order is not None, "no order came"
    return order


@dataclass
class Identities:
    """An authority, and the certificates that tests ask of it."""

    folder: Path
    federation: str = FEDERATION
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority.create(self.folder / "authority", self.federation, now=self.now)

    def server(self) -> Credentials:
        server_files = self.files("server")
        request = SigningRequest.make(new_key(server_files.key), server_uri(self.federation))
        server_files.save_certificate(self.authority.issue_server(request, ["127.0.0.1", "::1", "localhost"]))
        return server_files

    def silo(self, silo: str) -> Credentials:
        silo_files = self.files(silo)
        if not silo_files.certificate.exists():
            request = SigningRequest.make(new_key(silo_files.key), silo_uri(self.federation, silo))
            silo_files.save_certificate(self.authority.issue_silo(request, silo))
        return silo_files

    def files(self, name: str) -> Credentials:
        return Credentials(self.folder / f"{name}.key", self.folder / f"{name}.pem", self.authority.certificate_path)


class CuttingProxy:
    """Relays TCP connections to a port and ends the next ones after given numbers of bytes, both directions counted together."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._cuts: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.port: int = self._listener.getsockname()[1]

    def cut_next(self, *after: int) -> None:
        """Cut the next connections, each after so many bytes; later ones live."""
        self._cuts = list(after)

    def close(self) -> None:
        """Take no more connections, and wait for the end of those there are."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                self._threads.append(threading.Thread(target=self._relay_both, args=(near,)))
                self._threads[-1].start()

    def _relay_both(self, near: socket.socket) -> None:
        budget = [self._cuts.pop(0) if self._cuts else 1 << 62]
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            back = threading.Thread(target=self._relay, args=(far, near, budget))
            back.start()
            self._relay(near, far, budget)
            back.join()

    @staticmethod
    def _relay(source: socket.socket, sink: socket.socket, budget: list[int]) -> None:
        with contextlib.suppress(OSError):
            while budget[0] > 0 and (data := source.recv(65536)):
                passed, budget[0] = data[: budget[0]], budget[0] - len(data)
                sink.sendall(passed)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
