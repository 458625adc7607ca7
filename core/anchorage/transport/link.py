"""Both ends of the link between server and silos, and the clock."""

from typing import Protocol

from anchorage.transport.messages import Announcement, Evaluation, Event, Order, Task
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest


class Clock(Protocol):
    """Time, so that tests can fake it."""

    def now(self) -> float:
        """Seconds since the epoch; never goes backwards within a run."""
        ...


class SiloLink(Protocol):
    """How tasks and updates travel; the server's end. Implementations: `anchorage.transport.grpc` (gRPC) and `anchorage.simulation` (in one process).

    Orders are sticky: a silo that comes back is given its open task again, and announces again what it had announced.
    """

    def offer(self, model: ChunkSource) -> None:
        """Let silos that were given a task on this model fetch its chunks, until it is withdrawn."""
        ...

    def withdraw(self, digest: str) -> None:
        """Stop offering a model."""
        ...

    def assign(self, silo: str, task: Task) -> None:
        """Give a silo a task. Another train task replaces the silo's open train task; evaluate tasks queue."""
        ...

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        """Let a silo upload what it announced into `sink`; `Arrived` follows when it is whole. Idempotent."""
        ...

    def dismiss(self, silo: str, task: str, why: str) -> None:
        """Tell a silo that this task is over: its update was counted, or does not count any more."""
        ...

    def finish(self, why: str) -> None:
        """Tell every silo, connected now or later, that the run is over."""
        ...

    def publish_steps(self, committed: int) -> None:
        """Let silos hear, in the answers to their progress, how many steps are committed."""
        ...

    def traffic(self) -> tuple[int, int]:
        """Return the model bytes received and sent since the link was opened."""
        ...

    def next_event(self, until: float | None) -> Event | None:
        """Wait for the next event; None when `until` (the clock's seconds) has come first."""
        ...


class ServerLink(Protocol):
    """How tasks and updates travel; the silo's end of a `SiloLink`. Calls may come from several threads."""

    def welcome(self) -> str:
        """Return the run's description as the server sent it (JSON of `anchorage.api.run.RunDescription`)."""
        ...

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order; None after `timeout` seconds. Reconnects by itself, with back-off, until `close`.

        Raises
        ------
        AnchorageError
            The connection cannot come back: the silo is not authorised, or its certificate was refused.
        """
        ...

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive the chunks that `sink` misses; continues after a cut."""
        ...

    def announce(self, announcement: Announcement) -> None:
        """Say that a train task is done; said again by itself after a reconnect until dismissed."""
        ...

    def push(self, task: str, update: ChunkSource) -> None:
        """Send the chunks that the server misses, after its `Permit`; continues after a cut."""
        ...

    def report(self, evaluation: Evaluation) -> None:
        """Send the result of an evaluate task."""
        ...

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done."""
        ...

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is; may be dropped. Return the newest number of committed steps heard of, 0 where none are counted."""
        ...

    def close(self) -> None:
        """End the connection; a waiting `next_order` returns None."""
        ...
