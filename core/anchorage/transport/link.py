"""Both ends of the link between server and silos, and the clock."""

from typing import Protocol

from anchorage.transport.messages import Announcement, Evaluation, Order
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest


class Clock(Protocol):
    """Time, so that tests can fake it."""

    def now(self) -> float:
        """Seconds since the epoch; never goes backwards within a run."""


class AuditHeads(Protocol):
    """Where the server keeps the newest head of each silo's audit log. Calls may come from several threads."""

    def newest(self, silo: str) -> SignedHead | None:
        """Return the head of a silo's log with the most lines; None without one."""

    def keep(self, silo: str, key: str, head: SignedHead) -> None:
        """Keep a head that a member signed with the key of this fingerprint, where it is newer; a failure may not stop the call."""


class ServerLink(Protocol):
    """How tasks and updates travel; the silo's end of an `anchorage.transport.exchange.Exchange`. Calls may come from several threads."""

    def welcome(self) -> str:
        """Return the run's description as the server sent it (JSON of `anchorage.api.run.RunDescription`)."""

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order; None after `timeout` seconds. Reconnects by itself, with back-off, until `close`.

        Raises
        ------
        AnchorageError
            The connection cannot come back: the silo is not authorised, or its certificate was refused.
        """

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive the chunks that `sink` misses; continues after a cut."""

    def announce(self, announcement: Announcement) -> None:
        """Say that a train task is done; said again by itself after a reconnect until dismissed."""

    def push(self, task: str, update: ChunkSource) -> None:
        """Send the chunks that the server misses, after its `Permit`; continues after a cut."""

    def report(self, evaluation: Evaluation) -> None:
        """Send the result of an evaluate task."""

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done."""

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is; may be dropped. Return the newest number of committed steps heard of, 0 where none are counted."""

    def close(self) -> None:
        """End the connection; a waiting `next_order` returns None."""
