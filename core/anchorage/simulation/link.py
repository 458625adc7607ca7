"""The link within one process: the same orders, events and refusals as over gRPC, values passed by reference."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError, transfer
from anchorage.engine.store import HeldUpdate
from anchorage.transport.exchange import Exchange
from anchorage.transport.link import Clock
from anchorage.transport.messages import Announcement, Evaluation, Event, Order, Profile, Task
from anchorage.transport.session import Session
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage.transport.tensors.encoded_model import RoundedModel


class InProcessLink(Exchange):
    """The server's end (`Exchange`) of links to silos in the same process; usable from one thread or several.

    Parameters
    ----------
    clock : Clock
        The clock of `next_event`.
    welcome : str
        The run's description (JSON), as every silo hears it.
    pump : callable, optional
        Lets the silos work in the caller's thread: called when `next_event` finds no event; returns False when they have nothing
        to do. Only then `next_event` waits.
    """

    def __init__(self, clock: Clock, welcome: str = "{}", pump: Callable[[], bool] | None = None) -> None:
        super().__init__(clock)
        self._welcome = welcome
        self._pump = pump
        self.due: OrderedDict[str, None] = OrderedDict()
        """Silos that were given orders, those first that may upload; whoever carries the orders out takes them from here."""

    def assign(self, silo: str, task: Task) -> None:
        """Give a silo a task. Another train task replaces the silo's open train task; evaluate tasks queue."""
        super().assign(silo, task)
        self.due[silo] = None

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        """Let a silo upload what it announced into `sink`; `Arrived` follows when it is whole. Idempotent."""
        super().permit(silo, task, sink)
        self.due[silo] = None
        self.due.move_to_end(silo, last=False)

    def dismiss(self, silo: str, task: str, why: str) -> None:
        """Tell a silo that this task is over: its update was counted, or does not count any more."""
        super().dismiss(silo, task, why)
        self.due[silo] = None

    def lanes(self, silo: str) -> Callable[[str, Callable[[], None]], None] | None:
        """Return where a silo's worker has its jobs done; None: in the caller's thread, at once."""
        return None

    def connect(self, silo: str, profile: Profile) -> "InProcessServerLink":
        """Open a silo's session, in the place of the one that it may have."""
        return InProcessServerLink(self.join(silo, profile), self._welcome)

    def next_event(self, until: float | None) -> Event | None:
        """Return the next event, letting silos work as long as there is none; None when `until` has come first."""
        while self._pump is not None:
            event = super().next_event(self._clock.now())
            if event is not None:
                return event
            if (until is not None and self._clock.now() >= until) or not self._pump():
                break
        return super().next_event(until)


class InProcessServerLink:
    """A silo's end (`ServerLink`); `InProcessLink.connect` makes it.

    Parameters
    ----------
    session : Session
        The silo's session.
    welcome : str
        The run's description.
    """

    def __init__(self, session: Session, welcome: str) -> None:
        self._session = session
        self._welcome = welcome
        self.hand_over: Callable[[], NDArray[np.uint8] | None] = lambda: None
        """Returns the announced update's own memory, uint8, shape [nbytes], for the server to keep; None: it is sent chunk by chunk."""

    def welcome(self) -> str:
        """Return the run's description (JSON of `anchorage.api.run.RunDescription`)."""
        return self._welcome

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order; None after `timeout` seconds, and after `close`.

        Raises
        ------
        AnchorageError
            The server ended the session, or another one took its place.
        """
        order = self._session.next_order(timeout)
        if order is None and self._session.refusal is not None:
            raise self._session.refusal
        return order

    def source(self, manifest: Manifest) -> ChunkSource:
        """Return the model of an open task, as it is for a silo that has it.

        Raises
        ------
        AnchorageError
            The model belongs to no open task.
        """
        source = self._session.source(manifest.digest)
        return source.model if isinstance(source, RoundedModel) else source

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Hand over the chunks that `sink` misses.

        Raises
        ------
        AnchorageError
            The model belongs to no open task, or `sink` is for other bytes.
        """
        if sink.manifest != manifest:
            raise AnchorageError(transfer.UNEXPECTED_UPDATE, f"the sink is not for the model {manifest.digest[:12]}")
        source = self._session.source(manifest.digest)
        for index in sink.missing():
            chunk = source.chunk(index)
            sink.write(index, chunk)
            self._session.count(sent=len(chunk))

    def announce(self, announcement: Announcement) -> None:
        """Say that a train task is done."""
        self._session.announce(announcement)

    def push(self, task: str, update: ChunkSource) -> None:
        """Hand over the chunks that the server misses, after its `Permit`.

        Raises
        ------
        AnchorageError
            The task was replaced or dismissed, or the update is not the announced one.
        """
        upload = self._session.upload(task)
        missing, sink = upload.sink.missing(), upload.sink
        if update.manifest is not sink.manifest:  # the very announcement needs no digests
            upload.check(task, update.manifest.digest)
        held_update = self.hand_over() if missing and isinstance(sink, HeldUpdate) else None
        if held_update is not None and isinstance(sink, HeldUpdate):
            sink.adopt(held_update)
            self._session.count(received=update.manifest.nbytes)
            missing = ()
        for index in missing:
            self._session.store(task, upload, index, update.chunk(index))
        self._session.finish_push(task)

    def report(self, evaluation: Evaluation) -> None:
        """Send the result of an evaluate task; one that is over already is not heard."""
        with _forgiving():
            self._session.report(evaluation)

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done; one that is over already is not heard."""
        with _forgiving():
            self._session.fail(task, code, message)

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is, and return the committed steps."""
        return self._session.progress(task, done, total)

    def close(self) -> None:
        """End the session; a waiting `next_order` returns None."""
        self._session.leave("the silo closed the link")


@contextmanager
def _forgiving() -> Iterator[None]:
    """Let pass that a task is over: the server said so, or will."""
    try:
        yield
    except AnchorageError as error:
        if error.failure is not transfer.UNKNOWN_TASK:
            raise
