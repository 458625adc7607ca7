"""What a silo does with the server's orders: the same in an agent's process and in a simulation."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.engine.buffers import Buffers, BufferSource
from anchorage.engine.error_feedback import ErrorFeedback
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.run_encodings import decoding_sink, update_encoding
from anchorage.engine.secure_silo import FixedPointSilo
from anchorage.engine.watched import WatchedSink, WatchedSource
from anchorage.transport import messages
from anchorage.transport.link import ServerLink
from anchorage.transport.tensors.chunks import ChunkSource, Manifest
from anchorage.transport.tensors.differences import Differences
from anchorage.transport.tensors.encoded import Encoded, Encoding

MAX_EVALUATIONS = 4096
"""Evaluate tasks that a silo has open or remembers the answer of."""


class WithdrawnError(Exception):
    """The task at hand was replaced or dismissed: stop working on it, say nothing."""


@dataclass(eq=False)
class _Work:
    """A task and how far it is; `withdrawn` stops it at its next step, chunk or call."""

    task: messages.Task
    withdrawn: bool = False

    def check(self) -> None:
        if self.withdrawn:
            raise WithdrawnError


@dataclass(eq=False)
class _Training(_Work):
    announcement: messages.Announcement | None = None
    announced: bool = False
    permitted: bool = False
    uploading: bool = False
    reported_progress: tuple[int, int] = (0, 0)
    committed_steps: int = 0


@dataclass(eq=False)
class _Scoring(_Work):
    evaluation: messages.Evaluation | None = None


class SiloWorker:
    """Carries out a server's orders with a learner.

    There is at most one train task: another one replaces it. Evaluate tasks queue. A failure of the catalogue ends the task, not the silo:
    the server is told its code. Only a mistake in a piece of the method also ends the silo, for it would be made again. A train task that is
    given again is not trained again: what was announced is announced again, also after a restart where the buffers outlive the process; a
    failed one is tried anew.

    Parameters
    ----------
    link : ServerLink
        The way to the server.
    learner : SiloLearner
        Trains and evaluates. It must write the update only between its call of ``out`` and its return.
    buffers : Buffers
        Where models and the update lie.
    threads : bool
        False: `handle` does everything before it returns, in the caller's thread. True: training, evaluation and upload have a thread each,
        and `handle` returns at once.
    lanes : callable, optional
        ``lanes(lane, job)``, in the place of the threads, carries out the jobs of a lane (``train``, ``evaluate`` or ``upload``) one after
        another; `handle` returns at once.
    admit : callable
        Called with every task before anything is fetched for it; raises AnchorageError to refuse it.
    secure : FixedPointSilo, optional
        Protects updates before anything of them leaves; the run has secure aggregation.
    feedback : ErrorFeedback, optional
        Keeps what an encoding with error feedback loses.
    """

    def __init__(
        self,
        link: ServerLink,
        learner: SiloLearner,
        buffers: Buffers,
        *,
        threads: bool = False,
        lanes: Callable[[str, Callable[[], None]], None] | None = None,
        admit: Callable[[messages.Task], None] = lambda task: None,
        secure: FixedPointSilo | None = None,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        self._link = link
        self._learner = learner
        self._buffers = buffers
        self._admit = admit
        self._secure = secure
        self._feedback = feedback
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._training: _Training | None = None
        self._scorings: dict[str, _Scoring] = {}
        self._closing = False
        self._fault: BaseException | None = None
        self._lanes = lanes
        names = ("train", "evaluate", "upload") if threads else ()
        self._threads = {lane: ThreadPoolExecutor(1, thread_name_prefix=lane) for lane in names}

    def run(self) -> str | None:
        """Carry out orders until the run is over.

        Returns
        -------
        str or None
            Why the run is over; None where the link was closed at this end.

        Raises
        ------
        AnchorageError
            The link cannot come back, a failure could not be reported, or PIECE_WRONG: a piece of the method made a mistake.
        """
        while (order := self._link.next_order(None)) is not None:
            self.handle(order)
            if isinstance(order, messages.Finished):
                return order.why
        if self._fault is not None:
            raise self._fault
        return None

    def handle(self, order: messages.Order) -> None:
        """Carry out one order, or start to."""
        match order:
            case messages.Assigned(task) if task.kind is messages.TaskKind.TRAIN:
                self._take_training(task)
            case messages.Assigned(task):
                self._take_scoring(task)
            case messages.Permit(task_id):
                self._take_permit(task_id)
            case messages.Dismissed(task_id):
                self._dismiss(task_id)
            case messages.Finished():
                self._withdraw_all()

    def stop(self) -> None:
        """Withdraw the work at hand; nothing is said about it any more."""
        self._closing = True
        self._withdraw_all()

    def join(self) -> None:
        """Wait for the threads, after `stop`; a learner or link that could hold them must be closed in between."""
        for lane in self._threads.values():
            lane.shutdown(cancel_futures=True)

    def _submit(self, lane: str, job: Callable[[], None]) -> None:
        if self._lanes is not None:
            self._lanes(lane, job)
        elif not self._threads:
            job()
        elif not self._closing:
            self._threads[lane].submit(job).add_done_callback(self._note_fault)

    def _note_fault(self, done: "Future[None]") -> None:
        """End `run` with the exception that a job let through."""
        if not done.cancelled() and (fault := done.exception()) is not None and not self._closing:
            self._fault = self._fault or fault
            self._link.close()

    def _take_training(self, task: messages.Task) -> None:
        with self._lock:
            work = self._training
            if work is None or work.task.id != task.id:
                if work is not None:
                    work.withdrawn = True
                self._training = work = _Training(task)
            elif not work.announced:
                return
        self._submit("train", lambda: self._train(work))

    def _train(self, work: _Training) -> None:
        """Train unless that is done, announce, and upload where the server allowed it before."""
        try:
            work.check()
            self._admit(work.task)
            if work.announcement is None:
                work.announcement = self._restore_announcement(work.task) or self._train_task(work)
            work.check()
            self._link.announce(work.announcement)
        except WithdrawnError:
            return
        except AnchorageError as error:
            self._fail(work, error)
            if error.failure is PIECE_WRONG:
                raise
            return
        with self._lock:
            work.announced = True
        self._upload_if_due(work)

    def _restore_announcement(self, task: messages.Task) -> messages.Announcement | None:
        """Return what was announced for a task before a restart, with the model at hand again that its update is told from."""
        announcement = self._buffers.find_announcement(task.id)
        if announcement is not None:
            self._buffers.model(task.kind).receive(task.model)
        return announcement

    def _train_task(self, work: _Training) -> messages.Announcement:
        model = self._fetch_model(work)

        def out(nbytes: int) -> NDArray[np.uint8]:
            with self._sending:  # what is on its way belongs to a task before this one, and stops at its next chunk
                work.check()
            self._buffers.keep(None)
            return self._buffers.update(nbytes)

        def progress(done: int, total: int) -> int:
            work.check()
            if (done, total) != work.reported_progress:
                work.reported_progress = (done, total)
                work.committed_steps = self._link.progress(work.task.id, done, total)
            return work.committed_steps

        announcement = self._learner.train(work.task, model, out, progress)
        work.check()
        announcement = self._round_update(work, announcement, model)
        if self._secure is not None and announcement.update is not None:
            buffer = self._buffers.update(announcement.update.nbytes)
            announcement = self._secure.protect(work.task, announcement, buffer, model)
        self._buffers.keep(announcement)
        return announcement

    def _round_update(
        self, work: _Training, announcement: messages.Announcement, model: NDArray[np.uint8]
    ) -> messages.Announcement:
        """Round an update to what its encoding says, after all that learner and policy did to it, and announce that."""
        update = announcement.update
        if update is None or (encoding := self._encoding(work.task, update)) is None:
            return announcement
        buffer = self._buffers.update(update.nbytes)
        if encoding.coding.feedback:
            assert self._feedback is not None, "what encodings lose is kept where they have error feedback"
            self._feedback.round_update(work.task.round, encoding, buffer, encoding.base(model))
        else:
            encoding.round_update(buffer, encoding.base(model))
        return replace(announcement, update=Manifest.of(update.layout, buffer))

    def _encoding(self, task: messages.Task, update: Manifest) -> Encoding | None:
        """Return how a task's update travels; None: as it is."""
        encoding = (
            update_encoding(self._link.welcome(), task.round)
            if task.update_format is messages.UpdateFormat.ENCODED
            else None
        )
        return encoding if encoding is not None and encoding.fits(task.model, update) else None

    def _fetch_model(self, work: _Work) -> NDArray[np.uint8]:
        """Fetch a task's model, uint8, shape [nbytes]."""
        buffer = self._buffers.model(work.task.kind)
        buffer.receive(work.task.model)
        for kind in (messages.TaskKind.TRAIN, messages.TaskKind.EVALUATE):
            buffer.borrow(self._buffers.model(kind))
        if buffer.missing():
            sink = WatchedSink(work.check, buffer)
            if work.task.model_encoded:
                self._link.fetch(work.task.model, decoding_sink(self._link.welcome(), work.task, sink))
            else:
                self._link.fetch(work.task.model, sink)
        return buffer.array

    def _take_permit(self, task_id: str) -> None:
        with self._lock:
            work = self._training
            if work is None or work.task.id != task_id:
                return
            work.permitted = True
        self._upload_if_due(work)

    def _upload_if_due(self, work: _Training) -> None:
        with self._lock:
            due = work.permitted and work.announced and not work.uploading
            work.uploading = work.uploading or due
        if due:
            self._submit("upload", lambda: self._upload(work))

    def _upload(self, work: _Training) -> None:
        """Push the update; once more where the server permitted it again meanwhile."""
        try:
            while self._still_permitted(work):
                update = work.announcement.update if work.announcement else None
                if update is None:
                    continue
                with self._sending:
                    work.check()
                    source = BufferSource(update, self._buffers.update(update.nbytes))
                    self._link.push(work.task.id, WatchedSource(work.check, self._as_it_travels(work, source)))
        except WithdrawnError:
            return
        except AnchorageError as error:
            self._fail(work, error)

    def _as_it_travels(self, work: _Training, update: ChunkSource) -> ChunkSource:
        """Return an update as it travels; as a whole where the received model is no longer held."""
        model = self._buffers.model(messages.TaskKind.TRAIN)
        if model.manifest != work.task.model or model.missing():
            return update
        if work.task.update_format is messages.UpdateFormat.DIFFERENCES:
            return Differences(update, BufferSource(model.manifest, model.array))
        if (encoding := self._encoding(work.task, update.manifest)) is not None:
            return Encoded(update, BufferSource(update.manifest, encoding.base(model.array)), encoding)
        return update

    def _still_permitted(self, work: _Training) -> bool:
        with self._lock:
            work.uploading, work.permitted = work.permitted, False
            return work.uploading

    def _take_scoring(self, task: messages.Task) -> None:
        full = False
        with self._lock:
            work = self._scorings.get(task.id)
            if work is None:
                self._forget_oldest_answer()
                work = _Scoring(task)
                full = len(self._scorings) >= MAX_EVALUATIONS
                if not full:
                    self._scorings[task.id] = work
            elif work.evaluation is None:
                return
        if full:
            self._fail(work, AnchorageError(silo.TOO_MANY_TASKS, f"{MAX_EVALUATIONS} evaluate tasks are open"))
        else:
            self._submit("evaluate", lambda: self._score(work))

    def _forget_oldest_answer(self) -> None:
        if len(self._scorings) >= MAX_EVALUATIONS:
            answered = next((task for task, work in self._scorings.items() if work.evaluation is not None), None)
            if answered is not None:
                del self._scorings[answered]

    def _score(self, work: _Scoring) -> None:
        """Evaluate unless that is done, and report."""
        try:
            work.check()
            self._admit(work.task)
            if work.evaluation is None:
                work.evaluation = self._answer_secure(work)
            work.check()
            self._link.report(work.evaluation)
        except WithdrawnError:
            return
        except AnchorageError as error:
            self._fail(work, error)
            if error.failure is PIECE_WRONG:
                raise

    def _answer_secure(self, work: _Scoring) -> messages.Evaluation:
        if not work.task.kind.step:
            return self._learner.evaluate(work.task, self._fetch_model(work))
        if self._secure is None:
            raise AnchorageError(silo.SECURE_AGGREGATION_REFUSED, f"{work.task.id}: the run has no secure aggregation")
        return self._secure.answer(work.task)

    def _fail(self, work: _Work, error: AnchorageError) -> None:
        """Tell the server, unless the task is over anyway; the same task may be given again."""
        with self._lock:
            if work.withdrawn:
                return
            work.withdrawn = True
            if self._training is work:
                self._training = None
            self._scorings.pop(work.task.id, None)
        self._link.fail(work.task.id, error.code, error.message)

    def _dismiss(self, task_id: str) -> None:
        with self._lock:
            if self._training is not None and self._training.task.id == task_id:
                self._training.withdrawn = True
                self._training = None
            scoring = self._scorings.pop(task_id, None)
            if scoring is not None:
                scoring.withdrawn = True

    def _withdraw_all(self) -> None:
        with self._lock:
            for work in (self._training, *self._scorings.values()):
                if work is not None:
                    work.withdrawn = True
            self._training = None
            self._scorings.clear()
