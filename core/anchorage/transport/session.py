"""The server's end of one silo's connection, independent of the transport."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport import messages
from anchorage.transport.bounds import LONGEST_TASK, check_announcement, check_code, check_evaluation, one_line
from anchorage.transport.pace import Pace, Travel
from anchorage.transport.silo_tasks import STORAGE, SiloTasks, Upload, close_all, unknown_task
from anchorage.transport.tensors.chunks import ChunkSource

if TYPE_CHECKING:
    from anchorage.transport.exchange import Exchange

STRANGE_TASKS = 8
"""Announcements for unknown tasks that are accepted in one session; the engine decides about them."""


class Session:
    """One silo's connection, from its hello to its end: what the silo may read and send.

    Parameters
    ----------
    exchange : Exchange
        Where it was opened.
    silo : str
        The silo, as its certificate names it.
    images : int
        How many images it says to have.
    """

    def __init__(self, exchange: "Exchange", silo: str, images: int) -> None:
        self.id = secrets.token_hex(8)
        self.silo = silo
        self.images = images
        self.orders: SimpleQueue[messages.Order | None] = SimpleQueue()
        self.announced: set[str] = set()
        self.refusal: AnchorageError | None = None
        self._exchange = exchange
        self._over = False
        self._transfers: dict[Callable[[], object], Pace] = {}

    def next_order(self, timeout: float | None) -> messages.Order | None:
        """Wait for the next order; None after `timeout` seconds and when the session has ended."""
        try:
            order = self.orders.get(timeout=timeout)
        except Empty:
            return None
        if order is None:
            self.orders.put(None)
        return order

    def announce(self, announcement: messages.Announcement) -> None:
        """Receive an announcement; the permit is repeated if it was given before.

        Raises
        ------
        AnchorageError
            The session has ended, it announced too many unknown tasks, or what it says is out of bounds or no answer to such a task, which
            closes the task.
        """
        with self._closing(announcement.task):
            check_announcement(announcement, self.images)
            self._check_kind(announcement.task, lambda kind: kind is messages.TaskKind.TRAIN)
        with self._while_open() as known:
            expected = announcement.task in known.tasks or announcement.task in self.announced
            if not expected and len(self.announced.difference(known.tasks)) >= STRANGE_TASKS:
                raise unknown_task(announcement.task)
            self.announced.add(announcement.task)
            self._exchange._post(messages.Announced(self.silo, announcement))
            upload = known.uploads.get(announcement.task)
            if upload is not None and upload.sink.manifest == announcement.update:
                self._exchange._permit_or_arrive(self.silo, known, announcement.task)

    def report(self, evaluation: messages.Evaluation) -> None:
        """Receive the result of an evaluate task, which closes the task.

        Raises
        ------
        AnchorageError
            The session has ended, the silo has no such task, or the counts are out of bounds or no answer to such a task, which closes the
            task, too.
        """
        with self._closing(evaluation.task):
            check_evaluation(evaluation, self.images)
            self._check_kind(
                evaluation.task,
                lambda kind: kind is not messages.TaskKind.TRAIN and kind.step == bool(evaluation.answer),
            )
        with self._while_open() as known:
            if known.tasks.pop(evaluation.task, None) is None:
                raise unknown_task(evaluation.task)
            self._exchange._post(messages.Evaluated(self.silo, evaluation))

    def fail(self, task: str, code: str, message: str) -> None:
        """Receive the failure of a task, which closes the task.

        Raises
        ------
        AnchorageError
            The session has ended, the silo has no such task, or the code is none, which closes the task, too.
        """
        with self._closing(task):
            check_code(code)
        self._close(task, code, one_line(message))

    def progress(self, task: str, done: int, total: int) -> int:
        """Receive the progress of a task and return the committed steps. Ignores tasks that the silo does not hold.

        Raises
        ------
        AnchorageError
            The session has ended.
        """
        with self._while_open() as known:
            if task in known.tasks and done <= total:
                self._exchange._post(messages.Progressed(self.silo, task, done, total))
            return self._exchange._committed_steps

    def source(self, model: str) -> ChunkSource:
        """Return the model of one of the silo's tasks, by its content address.

        Raises
        ------
        AnchorageError
            The session has ended, or none of the silo's open tasks is on such a model, or it is not offered any more.
        """
        with self._while_open() as known:
            wanted = any(task.model.digest == model for task in known.tasks.values())
            source = self._exchange._models.get(model) if wanted else None
        if source is None:
            detail = f"silo {self.silo} has no open task on the model {model[:12]}"
            raise AnchorageError(transfer.MODEL_NOT_OFFERED, detail)
        return source

    def upload(self, task: str) -> Upload:
        """Return the upload of an announced update.

        Raises
        ------
        AnchorageError
            The session has ended, or the silo was not permitted to upload for this task.
        """
        with self._while_open() as known:
            upload = known.uploads.get(task)
        if upload is None:
            raise unknown_task(task)
        return upload

    def store(self, task: str, upload: Upload, index: int, chunk: bytes) -> None:
        """Store one chunk of an update and count its bytes.

        Raises
        ------
        AnchorageError
            The session has ended, the upload was closed meanwhile, the bytes are not the announced ones, or the disk failed; the last is
            reported to the engine, as it is not the silo's fault.
        """
        try:
            upload.write(task, index, chunk)
        except AnchorageError as error:
            if error.failure.exit_code == STORAGE:
                self._exchange.break_down(error)
            raise
        self.count(received=len(chunk))

    def finish_push(self, task: str) -> None:
        """Note that a push has ended; posts `Arrived` if the update is complete.

        Raises
        ------
        AnchorageError
            The session has ended.
        """
        with self._while_open() as known:
            if task in known.uploads and not known.uploads[task].sink.missing():
                self._exchange._permit_or_arrive(self.silo, known, task)

    def count(self, *, received: int = 0, sent: int = 0) -> None:
        """Count model bytes, which have moved even where the session has ended meanwhile.

        Raises
        ------
        AnchorageError
            The session has ended: the transfer must stop.
        """
        with self._exchange._changed:
            self._exchange._received += received
            self._exchange._sent += sent
            with self._while_open():
                pass

    @contextmanager
    def transfer(self, chunks: int, cancel: Callable[[], object]) -> Iterator[Callable[[int], None]]:
        """Call `cancel` if the session ends within the block, which calls the yielded function with the bytes of each of its `chunks` that moved."""
        clock = self._exchange._clock
        pace = Pace(chunks, clock.now())

        def count_moved(nbytes: int) -> None:
            with self._exchange._changed:
                pace.move(nbytes, clock.now())

        with self._while_open():
            self._transfers[cancel] = pace
        try:
            yield count_moved
        finally:
            with self._exchange._changed:
                del self._transfers[cancel]

    def travel(self) -> Travel:
        """Return what is on its way now, both ways; nothing of a session that is over."""
        with self._exchange._changed:
            now = self._exchange._clock.now()
            return sum((pace.travel(now) for pace in self._transfers.values() if not self._over), Travel())

    def leave(self, reason: str) -> None:
        """End the session from the silo's side; posts `Left` unless another session replaced it."""
        self._end(None, reason)

    def end(self, refusal: AnchorageError) -> None:
        """End the session from the server's side and tell the silo why."""
        self._end(refusal, refusal.message)

    @contextmanager
    def _closing(self, task: str) -> Iterator[None]:
        """Close a task about which the silo says what is out of bounds, so that nobody waits for it."""
        try:
            yield
        except AnchorageError as error:
            self._close(task, error.code, error.message)
            raise

    def _check_kind(self, task: str, fits: Callable[[messages.TaskKind], bool]) -> None:
        """Check that an answer fits the kind of a task that the silo has: one that closes the task without an answer would be waited for."""
        with self._while_open() as known:
            if task in known.tasks and not fits(known.tasks[task].kind):
                raise AnchorageError(transfer.OUT_OF_BOUNDS, "answer: it does not fit the task")

    def _close(self, task: str, code: str, message: str) -> None:
        with self._while_open() as known:
            if task not in known.tasks:
                raise unknown_task(one_line(task, LONGEST_TASK))
            upload = self._exchange._forget(known, task)
            self.announced.discard(task)
            self._exchange._post(messages.TaskFailed(self.silo, task, code, message))
        close_all([upload])

    def _end(self, refusal: AnchorageError | None, reason: str) -> None:
        with self._exchange._changed:
            if self._over:
                return
            self._over, self.refusal = True, refusal
            known = self._exchange._tasks_of(self.silo)
            if known.session is self:
                known.session = None
                self._exchange._post(messages.Left(self.silo, reason))
            transfers = list(self._transfers)
            self.orders.put(None)
        for cancel in transfers:
            cancel()

    @contextmanager
    def _while_open(self) -> Iterator[SiloTasks]:
        with self._exchange._changed:
            if self._over:
                over = f"silo {self.silo} calls in a session that is over"
                raise self.refusal or AnchorageError(transfer.STALE_SESSION, over)
            yield self._exchange._tasks_of(self.silo)
