"""The server's end of a link, whatever the transport: open tasks, offered models, permitted uploads, orders and events."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from anchorage.errors import AnchorageError, transfer
from anchorage.messages import (
    Announced,
    Announcement,
    Arrived,
    Assigned,
    Dismissed,
    Evaluated,
    Evaluation,
    Event,
    Finished,
    Joined,
    Left,
    Order,
    Permit,
    Profile,
    Progressed,
    StopRequested,
    Task,
    TaskFailed,
    TaskKind,
)
from anchorage.rounds.interfaces import Clock
from anchorage.tensors.chunks import ChunkSink, ChunkSource
from anchorage.wire.desk import Desk, Upload, close_all, unknown_task
from anchorage.wire.events import EventQueue

STRANGE_TASKS = 8
"""Announcements for tasks that the server did not give which it still hears in one session: the engine judges them."""


class Exchange:
    """Where the orders and events of all silos meet (`SiloLink`); a transport adds the sessions.

    Parameters
    ----------
    clock : Clock
        The clock of `next_event`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = (
            threading.Condition()
        )  # re-entrant: `request_stop` may interrupt `next_event` as a signal handler
        self._events = EventQueue()
        self._models: dict[str, ChunkSource] = {}
        self._desks: dict[str, Desk] = {}
        self._finished: Finished | None = None
        self._received = self._sent = 0

    def offer(self, model: ChunkSource) -> None:
        """Let silos that were given a task on this model fetch its chunks, until it is withdrawn."""
        with self._changed:
            self._models[model.manifest.digest] = model

    def withdraw(self, digest: str) -> None:
        """Stop offering a model."""
        with self._changed:
            self._models.pop(digest, None)

    def assign(self, silo: str, task: Task) -> None:
        """Give a silo a task. Another train task replaces the silo's open train task; evaluate tasks queue."""
        with self._changed:
            desk = self._desk(silo)
            if task.id in desk.tasks:
                return
            uploads = []
            if task.kind is TaskKind.TRAIN:
                for old in [t.id for t in desk.tasks.values() if t.kind is TaskKind.TRAIN]:
                    uploads.append(self._forget(desk, old))
            desk.tasks[task.id] = task
            if desk.session is not None:
                desk.session.orders.put(Assigned(task))
        close_all(uploads)

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        """Let a silo upload what it announced into `sink`; `Arrived` follows when it is whole. Idempotent."""
        with self._changed:
            desk = self._desk(silo)
            old = desk.uploads.get(task)
            if old is None or old.sink.manifest.digest != sink.manifest.digest:
                desk.uploads[task] = Upload(sink)
            else:
                old = None
            self._permit_or_arrive(silo, desk, task)
        close_all([old])

    def dismiss(self, silo: str, task: str, why: str) -> None:
        """Tell a silo that this task is over: its update was counted, or does not count any more."""
        with self._changed:
            desk = self._desk(silo)
            upload = self._forget(desk, task)
            if desk.session is not None:
                desk.session.announced.discard(task)
                desk.session.orders.put(Dismissed(task, why))
        close_all([upload])

    def finish(self, why: str) -> None:
        """Tell every silo, connected now or later, that the run is over."""
        with self._changed:
            self._finished = Finished(why)
            uploads = [upload for desk in self._desks.values() for upload in desk.uploads.values()]
            for desk in self._desks.values():
                desk.tasks.clear()
                desk.uploads.clear()
                if desk.session is not None:
                    desk.session.orders.put(self._finished)
        close_all(uploads)

    def expel(self, silo: str, why: str) -> None:
        """End a silo's session and all its transfers at once, such as when it was revoked."""
        with self._changed:
            session = self._desk(silo).session
        if session is not None:
            session.end(AnchorageError(transfer.SILO_NOT_ADMITTED, f"silo {silo}: {why}"))

    def request_stop(self, reason: str) -> None:
        """Have `next_event` return a `StopRequested`; may be called from a signal handler."""
        self._post(StopRequested(reason))

    def traffic(self) -> tuple[int, int]:
        """Return the model bytes received and sent since the link was opened."""
        with self._changed:
            return self._received, self._sent

    def next_event(self, until: float | None) -> Event | None:
        """Wait for the next event; None when `until` (the clock's seconds) has come first."""
        with self._changed:
            while (event := self._events.pop()) is None:
                remaining = None if until is None else until - self._clock.now()
                if remaining is not None and remaining <= 0:
                    return None
                self._changed.wait(remaining)
            return event

    def join(self, silo: str, profile: Profile) -> "Session":
        """Open a silo's session, in the place of the one that it may have; its open tasks are its first orders."""
        session = Session(self, silo)
        with self._changed:
            desk = self._desk(silo)
            replaced, desk.session = desk.session, session
            for task in desk.tasks.values():
                session.orders.put(Assigned(task))
            if self._finished is not None:
                session.orders.put(self._finished)
            self._post(Joined(silo, profile))
        if replaced is not None:
            taken = f"another connection of silo {silo} took over; see that only one agent runs for it"
            replaced.end(AnchorageError(transfer.SESSION_REPLACED, taken))
        return session

    def session(self, silo: str, identity: str) -> "Session":
        """Return a silo's session.

        Raises
        ------
        AnchorageError
            The silo's session is another one, or it has none.
        """
        with self._changed:
            session = self._desk(silo).session
            if session is None or session.id != identity:
                raise AnchorageError(transfer.STALE_SESSION, f"silo {silo} calls in a session that is over")
            return session

    def _desk(self, silo: str) -> Desk:
        return self._desks.setdefault(silo, Desk())

    def _post(self, event: Event) -> None:
        with self._changed:
            self._events.post(event)
            self._changed.notify_all()

    def _forget(self, desk: Desk, task: str) -> Upload | None:
        desk.tasks.pop(task, None)
        return desk.uploads.pop(task, None)

    def _permit_or_arrive(self, silo: str, desk: Desk, task: str) -> None:
        upload, session = desk.uploads[task], desk.session
        if not upload.sink.missing():
            if not upload.arrived:
                upload.arrived = True
                self._post(Arrived(silo, task))
        elif session is not None and task in session.announced and upload.permitted_in is not session:
            upload.permitted_in = session
            session.orders.put(Permit(task))


class Session:
    """One silo's connection, from its hello to its end: what the silo may see and say.

    Parameters
    ----------
    exchange : Exchange
        Where it was opened.
    silo : str
        The silo, as its certificate names it.
    """

    def __init__(self, exchange: Exchange, silo: str) -> None:
        self.id = secrets.token_hex(8)
        self.silo = silo
        self.orders: SimpleQueue[Order | None] = SimpleQueue()
        self.announced: set[str] = set()
        self.refusal: AnchorageError | None = None
        self._exchange = exchange
        self._over = False
        self._transfers: set[Callable[[], object]] = set()

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order; None after `timeout` seconds and when the session is over."""
        try:
            order = self.orders.get(timeout=timeout)
        except Empty:
            return None
        if order is None:
            self.orders.put(None)
        return order

    def announce(self, announcement: Announcement) -> None:
        """Hear an announcement; a permit follows at once where it was given before.

        Raises
        ------
        AnchorageError
            The session is over, or it announced too many tasks that the silo does not have.
        """
        with self._live() as desk:
            known = announcement.task in desk.tasks or announcement.task in self.announced
            if not known and len(self.announced.difference(desk.tasks)) >= STRANGE_TASKS:
                raise unknown_task(announcement.task)
            self.announced.add(announcement.task)
            self._exchange._post(Announced(self.silo, announcement))
            upload = desk.uploads.get(announcement.task)
            if upload is not None and upload.sink.manifest == announcement.update:
                self._exchange._permit_or_arrive(self.silo, desk, announcement.task)

    def report(self, evaluation: Evaluation) -> None:
        """Hear the result of an evaluate task; that closes the task.

        Raises
        ------
        AnchorageError
            The session is over, or the silo has no such task.
        """
        with self._live() as desk:
            if desk.tasks.pop(evaluation.task, None) is None:
                raise unknown_task(evaluation.task)
            self._exchange._post(Evaluated(self.silo, evaluation))

    def fail(self, task: str, code: str, message: str) -> None:
        """Hear that a task cannot be done; that closes the task.

        Raises
        ------
        AnchorageError
            The session is over, or the silo has no such task.
        """
        with self._live() as desk:
            if task not in desk.tasks:
                raise unknown_task(task)
            upload = self._exchange._forget(desk, task)
            self.announced.discard(task)
            self._exchange._post(TaskFailed(self.silo, task, code, message))
        close_all([upload])

    def progress(self, task: str, done: int, total: int) -> None:
        """Hear how far a task is; of a task that the silo does not have, nothing is said on.

        Raises
        ------
        AnchorageError
            The session is over.
        """
        with self._live() as desk:
            if task in desk.tasks:
                self._exchange._post(Progressed(self.silo, task, done, total))

    def source(self, model: str) -> ChunkSource:
        """Return a model that the silo has a task on, by its content address.

        Raises
        ------
        AnchorageError
            The session is over, or none of the silo's open tasks is on such a model, or it is not offered any more.
        """
        with self._live() as desk:
            wanted = any(task.model.digest == model for task in desk.tasks.values())
            source = self._exchange._models.get(model) if wanted else None
        if source is None:
            found = f"silo {self.silo} has no open task on the model {model[:12]}"
            raise AnchorageError(transfer.MODEL_NOT_OFFERED, found)
        return source

    def upload(self, task: str) -> Upload:
        """Return the place for an announced update.

        Raises
        ------
        AnchorageError
            The session is over, or the silo was not permitted to upload for this task.
        """
        with self._live() as desk:
            upload = desk.uploads.get(task)
        if upload is None:
            raise unknown_task(task)
        return upload

    def pushed(self, task: str) -> None:
        """Note that a push is over; posts `Arrived` where the update is whole.

        Raises
        ------
        AnchorageError
            The session is over.
        """
        with self._live() as desk:
            if task in desk.uploads and not desk.uploads[task].sink.missing():
                self._exchange._permit_or_arrive(self.silo, desk, task)

    def count(self, *, received: int = 0, sent: int = 0) -> None:
        """Count model bytes.

        Raises
        ------
        AnchorageError
            The session is over: the transfer must stop.
        """
        with self._live():
            self._exchange._received += received
            self._exchange._sent += sent

    @contextmanager
    def transfer(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Have `cancel` called when the session ends within the block."""
        with self._live():
            self._transfers.add(cancel)
        try:
            yield
        finally:
            with self._exchange._changed:
                self._transfers.discard(cancel)

    def leave(self, reason: str) -> None:
        """End the session from the silo's side; posts `Left` unless another session took its place."""
        self._end(None, reason)

    def end(self, refusal: AnchorageError) -> None:
        """End the session from the server's side; the silo is told why."""
        self._end(refusal, refusal.message)

    def _end(self, refusal: AnchorageError | None, reason: str) -> None:
        with self._exchange._changed:
            if self._over:
                return
            self._over, self.refusal = True, refusal
            desk = self._exchange._desk(self.silo)
            if desk.session is self:
                desk.session = None
                self._exchange._post(Left(self.silo, reason))
            transfers = list(self._transfers)
            self.orders.put(None)
        for cancel in transfers:
            cancel()

    @contextmanager
    def _live(self) -> Iterator[Desk]:
        with self._exchange._changed:
            if self._over:
                over = f"silo {self.silo} calls in a session that is over"
                raise self.refusal or AnchorageError(transfer.STALE_SESSION, over)
            yield self._exchange._desk(self.silo)
