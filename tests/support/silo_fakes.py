"""A server and a learner as simple as can be."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.method import ResolvedMethod
from anchorage.methods import PRESETS
from anchorage.transport.messages import Announcement, Assigned, Evaluation, Order, Permit, Task, TaskKind
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.config import SiloConfig
from anchorage_silo.frames import Setup
from anchorage_silo.limits import Limits
from anchorage_silo.policy import Policy
from anchorage_silo.verdict import RunTerms

LAYOUT = Layout.of([("count", "I64", (3,)), ("weight", "F32", (600_000,)), ("bn.running_var", "F32", (5,))])
WAIT_SECONDS = 120
MANY = Limits(1_000, 1_000)
"""More than these tests need."""


def terms_of(*methods: str | ResolvedMethod, needed: Limits = MANY, **fields: Any) -> RunTerms:
    """What a run of these methods asks of a silo."""
    slots = tuple(PRESETS[each].slots if isinstance(each, str) else each for each in methods)
    return RunTerms(slots, needed, **fields)


def model_of(value: float) -> ModelBytes:
    return ModelBytes.from_arrays(
        LAYOUT,
        {
            "count": np.array([1, 2, 3]),
            "weight": np.full(600_000, value, np.float32),
            "bn.running_var": np.ones(5, np.float32),
        },
    )


def train_task(model: ModelBytes, round_number: int = 1) -> Task:
    return Task(f"{round_number}.train.{model.digest[:8]}", TaskKind.TRAIN, round_number, model.manifest)


def evaluate_task(model: ModelBytes, round_number: int = 1) -> Task:
    return Task(f"{round_number}.evaluate.{model.digest[:8]}", TaskKind.EVALUATE, round_number, model.manifest)


def setup_with(state: Path, run: str, policy: Policy | None = None, **config: Any) -> Setup:
    """What sets up a trainer of an agent with this configuration beside what every agent needs."""
    needed = {"silo": "a", "federation": "derm", "server": "s:1", "enrolment": "s:2", "authority": "ca.pem"}
    complete_config = SiloConfig.model_validate_json(
        json.dumps({**needed, "state": str(state), "labels": "None", **config})
    )
    text = (policy or Policy()).model_dump_json(by_alias=True, exclude_unset=True)
    return Setup(complete_config.model_dump_json(by_alias=True), text, run)


def changed_setup(setup: Setup, *, run: str | None = None, **config: Any) -> Setup:
    """The same with other values in the configuration, or for another run."""
    return replace(setup, config=json.dumps({**setup.plain, **config}), run=setup.run if run is None else run)


class FakeLink:
    """A `ServerLink` that keeps what it is told as tuples, in order; `permit_at_once` answers announcements with a permit."""

    def __init__(self, *models: ModelBytes, permit_at_once: bool = False) -> None:
        self.models = {m.digest: m for m in models}
        self.permit_at_once = permit_at_once
        self.orders: SimpleQueue[Order | None] = SimpleQueue()
        self.messages: list[tuple[object, ...]] = []
        self.fetched: list[int] = []
        self.updates: dict[str, bytes] = {}
        self.announcements: dict[str, Announcement] = {}
        self.evaluations: dict[str, Evaluation] = {}
        self.refuse: dict[str, AnchorageError] = {}
        self.committed_steps = 0
        self.before_chunk: Callable[[int], None] = lambda index: None
        self._changed = threading.Condition()

    def assign(self, task: Task) -> None:
        self.orders.put(Assigned(task))

    def next_order(self, timeout: float | None) -> Order | None:
        return self.orders.get()

    def welcome(self) -> str:
        return "{}"

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        for index in sink.missing():
            self.before_chunk(index)
            sink.write(index, self.models[manifest.digest].chunk(index))
            self.fetched.append(index)

    def announce(self, announcement: Announcement) -> None:
        self.announcements[announcement.task] = announcement
        self._say("announce", announcement.task)
        if self.permit_at_once and announcement.update is not None:
            self.orders.put(Permit(announcement.task))

    def push(self, task: str, update: ChunkSource) -> None:
        chunks = []
        for index in range(len(update.manifest.digests)):
            self.before_chunk(index)
            chunks.append(update.chunk(index))
        self.updates[task] = b"".join(chunks)
        self._say("push", task)

    def report(self, evaluation: Evaluation) -> None:
        self.evaluations[evaluation.task] = evaluation
        self._say("report", evaluation.task, *evaluation.tally.get("validation", np.zeros(0, np.int64)).tolist())

    def fail(self, task: str, code: str, message: str) -> None:
        self._say("fail", task, code)

    def progress(self, task: str, done: int, total: int) -> int:
        self._say("progress", task, done, total)
        return self.committed_steps

    def close(self) -> None:
        self.orders.put(None)

    def await_said(self, *what: object) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: what in self.messages, WAIT_SECONDS), (
                f"{what} is not in {self.messages}"
            )

    def _say(self, *what: object) -> None:
        if (refusal := self.refuse.get(str(what[0]))) is not None:
            raise refusal
        with self._changed:
            self.messages.append(what)
            self._changed.notify_all()


class FakeLearner:
    """A `SiloLearner` that adds one to every weight in two steps; `at_step` may block or raise."""

    def __init__(self, inactive: bool = False) -> None:
        self.inactive = inactive
        self.trained: list[str] = []
        self.evaluated: list[str] = []
        self.at_step: Callable[[Task, int], None] = lambda task, step: None
        self.at_evaluation: Callable[[Task], None] = lambda task: None

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        for step in (1, 2):
            self.at_step(task, step)
            progress(step, 2)
        self.trained.append(task.id)
        if self.inactive:
            return Announcement(task.id, {"train": 0}, {}, {}, None)
        update = out(LAYOUT.nbytes)
        update[:] = model
        for name in ("weight", "bn.running_var"):
            entry = LAYOUT.by_name[name]
            update[entry.offset : entry.offset + entry.nbytes].view("<f4")[:] += 1
        return Announcement(task.id, {"train": 20}, {}, {}, Manifest.of(LAYOUT.digest, update))

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        self.at_evaluation(task)
        self.evaluated.append(task.id)
        return Evaluation(task.id, {"validation": np.array([3, 4])}, 4)
