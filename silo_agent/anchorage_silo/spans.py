"""Spans of a silo's part in rounds: from the task to its end, and in it what is fetched, trained and uploaded."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import Span

from anchorage.engine.interfaces import SiloLearner
from anchorage.transport.link import ServerLink
from anchorage.transport.messages import (
    Announcement,
    Assigned,
    Bytes,
    Dismissed,
    Evaluation,
    Finished,
    Order,
    Out,
    Progress,
    Task,
    TaskKind,
)
from anchorage.transport.spans import RoundSpans
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest


class SiloPart:
    """The span of the train task at hand; there is at most one.

    Parameters
    ----------
    spans : RoundSpans
        Where they go.
    """

    def __init__(self, spans: RoundSpans) -> None:
        self._spans = spans
        self._lock = threading.Lock()
        self._task: Task | None = None
        self._span: Span | None = None

    def begin(self, task: Task) -> None:
        """Begin with a train task; one that is given again goes on."""
        with self._lock:
            if self._task is not None and self._task.id == task.id:
                return
        self.end()
        with self._lock:
            self._task, self._span = task, self._spans.begin_silo(task.round)

    def end(self, task: str | None = None, code: str = "") -> None:
        """End with the task of an id, or whichever it is; `code` says how it failed."""
        with self._lock:
            if self._span is None or self._task is None or task not in (None, self._task.id):
                return
            if code:
                self._span.set_attribute("anchorage.code", code)
            self._span.end()
            self._task = self._span = None

    @contextmanager
    def step(self, name: str, *, task: str | None = None, model: Manifest | None = None) -> Iterator[None]:
        """Span the block, if it is about the task at hand: its id, or its model."""
        with self._lock:
            is_current_task = self._task is not None and (self._task.id == task or self._task.model == model)
            parent = self._span if is_current_task else None
        if parent is None:
            yield
            return
        with self._spans.step(name, parent):
            yield


class SpannedLink:
    """A `ServerLink` whose train tasks, fetches and uploads are spanned.

    Parameters
    ----------
    link : ServerLink
        The way to the server.
    part : SiloPart
        The silo's part.
    """

    def __init__(self, link: ServerLink, part: SiloPart) -> None:
        self._link, self._part = link, part

    def welcome(self) -> str:
        """Return the run's description."""
        return self._link.welcome()

    def next_order(self, timeout: float | None) -> Order | None:
        """Wait for the next order."""
        order = self._link.next_order(timeout)
        match order:
            case Assigned(task) if task.kind is TaskKind.TRAIN:
                self._part.begin(task)
            case Dismissed(task_id):
                self._part.end(task_id)
            case Finished():
                self._part.end()
        return order

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive chunks."""
        with self._part.step("fetch", model=manifest):
            self._link.fetch(manifest, sink)

    def announce(self, announcement: Announcement) -> None:
        """Say that a train task is done."""
        self._link.announce(announcement)

    def push(self, task: str, update: ChunkSource) -> None:
        """Send chunks."""
        with self._part.step("upload", task=task):
            self._link.push(task, update)

    def report(self, evaluation: Evaluation) -> None:
        """Send the result of an evaluate task."""
        self._link.report(evaluation)

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done."""
        self._part.end(task, code)
        self._link.fail(task, code, message)

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is."""
        return self._link.progress(task, done, total)

    def close(self) -> None:
        """End the connection."""
        self._part.end()
        self._link.close()


class SpannedLearner:
    """A `SiloLearner` whose trainings are spanned.

    Parameters
    ----------
    learner : SiloLearner
        Does the work.
    part : SiloPart
        The silo's part.
    """

    def __init__(self, learner: SiloLearner, part: SiloPart) -> None:
        self._learner, self._part = learner, part

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train."""
        with self._part.step("train", task=task.id):
            return self._learner.train(task, model, out, progress)

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model."""
        return self._learner.evaluate(task, model)


def with_spans(link: ServerLink, learner: SiloLearner, spans: RoundSpans) -> tuple[SpannedLink, SpannedLearner]:
    """Return a link and a learner that span the same tasks."""
    part = SiloPart(spans)
    return SpannedLink(link, part), SpannedLearner(learner, part)
