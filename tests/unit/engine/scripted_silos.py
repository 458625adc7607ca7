"""A scripted link, a fake clock and plain learners, so that every timing rule of the engine runs in fake time."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from anchorage.engine import engine_of
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.engine.engine import Engine
from anchorage.engine.events import (
    RoundCommitted,
    RoundStarted,
    RunEnded,
    RunEvent,
    SiloChanged,
    SiloJoined,
    SiloLeft,
    StepBegan,
    Waiting,
)
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.settings import RoundSettings
from anchorage.engine.store import MemoryStore
from anchorage.engine.strategy import Strategy
from anchorage.transport.messages import (
    Announced,
    Announcement,
    Arrived,
    AuxiliaryData,
    Evaluated,
    Evaluation,
    Event,
    Joined,
    Profile,
    Report,
    Task,
    TaskFailed,
    TaskKind,
)
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LAYOUT = Layout.of([("w", "F32", (4,)), ("steps", "I64", ())])


def model_of(value: float, steps: int = 0) -> ModelBytes:
    """A model whose four weights are `value`."""
    return ModelBytes.from_arrays(LAYOUT, {"w": np.full(4, value, np.float32), "steps": np.array(steps)})


def value_of(model: ModelBytes) -> float:
    """The first weight of a model."""
    return float(model.arrays()["w"][0])


class FakeClock:
    """Time that only the scripted link moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


@dataclass
class ScriptedSilo:
    """How a silo behaves: every update is the received model plus `adds`."""

    name: str
    adds: float = 1.0
    samples: int = 100
    joins_at: float = 0.0
    train_seconds: float = 1.0
    upload_seconds: float = 1.0
    answers: bool = True
    inactive: bool = False
    fails: str = ""
    layout: Layout = LAYOUT
    auxiliary_data: AuxiliaryData = field(default_factory=dict)
    scores: tuple[int, int] = (1, 2)
    score_seconds: float = 1.0
    repeats: int = 1
    uploads: int = 0
    trained: list[str] = field(default_factory=list)

    def update_for(self, model: ModelBytes) -> ModelBytes:
        if self.layout is not LAYOUT:
            return ModelBytes(self.layout, [bytes(self.layout.nbytes)])
        return model_of(value_of(model) + self.adds, steps=7)


class ScriptedLink:
    """An `Exchange` whose silos follow a script in fake time."""

    def __init__(self, clock: FakeClock, silos: Sequence[ScriptedSilo]) -> None:
        self.clock = clock
        self.silos = {s.name: s for s in silos}
        self.heap: list[tuple[float, int, Event]] = []
        self.order = count()
        self.offered: dict[str, ChunkSource] = {}
        self.updates: dict[tuple[str, str], ModelBytes] = {}
        self.permits: list[tuple[float, str]] = []
        self.dismissals: list[tuple[str, str, str]] = []
        self.evaluated: list[tuple[str, str]] = []
        self.finished = ""
        self.bytes = [0, 0]
        self.steps: list[int] = []
        self.tasks: dict[str, list[Task]] = {s.name: [] for s in silos}
        self.sides: dict[str, list[AuxiliaryData]] = {s.name: [] for s in silos}
        for silo in silos:
            self.at(silo.joins_at, Joined(silo.name, Profile("All", silo.samples, "test")))

    def at(self, time: float, event: Event) -> None:
        heapq.heappush(self.heap, (time, next(self.order), event))

    def offer(self, model: ChunkSource) -> None:
        self.offered[model.manifest.digest] = model

    def withdraw(self, digest: str) -> None:
        del self.offered[digest]

    def assign(self, silo: str, task: Task) -> None:
        script = self.silos.get(silo)
        now = self.clock.now()
        if script is None or not script.answers:
            return
        model = self.offered[task.model.digest]
        self.bytes[1] += task.model.nbytes
        start = max(now, script.joins_at)
        if task.kind is TaskKind.EVALUATE:
            self.evaluated.append((silo, task.id))
            counts, name = np.array(script.scores), "confusion" if task.held_out else "validation"
            self.at(start + script.score_seconds, Evaluated(silo, Evaluation(task.id, {name: counts})))
            return
        script.trained.append(task.id)
        self.tasks[silo].append(task)
        self.sides[silo].append(task.auxiliary_data)
        done = start + script.train_seconds
        if script.fails:
            self.at(done, TaskFailed(silo, task.id, script.fails, "as scripted"))
            return
        assert isinstance(model, ModelBytes)
        update = None if script.inactive else script.update_for(model)
        if update is not None:
            self.updates[silo, task.id] = update
        announcement = Announcement(
            task.id,
            {"train": script.samples},
            script.auxiliary_data,
            {"loss": 0.5},
            update.manifest if update else None,
        )
        for _ in range(script.repeats):
            self.at(done, Announced(silo, announcement))

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        self.permits.append((self.clock.now(), silo))
        update = self.updates[silo, task]
        for index in sink.missing():
            sink.write(index, update.chunk(index))
        self.silos[silo].uploads += 1
        self.bytes[0] += update.manifest.nbytes
        self.at(self.clock.now() + self.silos[silo].upload_seconds, Arrived(silo, task))

    def dismiss(self, silo: str, task: str, why: str) -> None:
        self.dismissals.append((silo, task, why))

    def finish(self, why: str) -> None:
        self.finished = why

    def publish_steps(self, committed: int) -> None:
        self.steps.append(committed)

    def traffic(self) -> tuple[int, int]:
        return self.bytes[0], self.bytes[1]

    def next_event(self, until: float | None) -> Event | None:
        if self.heap and (until is None or self.heap[0][0] <= until):
            time, _, event = heapq.heappop(self.heap)
            self.clock.seconds = max(self.clock.seconds, time)
            return event
        assert until is not None, "the engine would wait for ever"
        self.clock.seconds = max(self.clock.seconds, until)
        return None


class PlainLearner:
    """`ServerLearner` whose server training adds `adds` to every weight."""

    down = LAYOUT
    up = LAYOUT

    def __init__(self, adds: float = 0.0) -> None:
        self.adds = adds

    def initialise(self) -> ModelBytes:
        return model_of(0.0)

    def auxiliary_data(self, model: ModelBytes, round_number: int) -> AuxiliaryData:
        return {}

    def train(self, model: ModelBytes, round_number: int) -> tuple[ModelBytes, Mapping[str, float]]:
        return (model_of(value_of(model) + self.adds, 7), {"server_loss": 1.0}) if self.adds else (model, {})

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        return Report({"accuracy": value_of(model)})

    def test(self, model: ModelBytes, round_number: int) -> Report:
        return Report({})


class Recorder:
    """`Observer` that writes down what it hears."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, str]] = []
        self.records: list[RoundRecord] = []
        self.models: list[ModelBytes] = []
        self.reports: list[Report | None] = []
        self.changes: list[tuple[str, str]] = []
        self.end: tuple[str, str] | None = None
        self.steps: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        match event:
            case SiloJoined(silo):
                self.changes.append((silo, "joined"))
            case SiloLeft(silo):
                self.changes.append((silo, "left"))
            case SiloChanged(silo, state):
                self.changes.append((silo, state))
            case Waiting(reason, message):
                self.waits.append((reason, message))
            case RoundStarted(number, silos):
                self.steps.append(f"round {number}: {','.join(silos)}")
            case StepBegan(name):
                self.steps.append(name)
            case RoundCommitted(record, model, report):
                self.records.append(record)
                self.models.append(model)
                self.reports.append(report)
            case RunEnded(code, message):
                self.end = (code, message)


@dataclass
class CountWeigher(BaseWeigher):
    """Weight = training samples, with any of the two waits."""

    barrier: bool = False
    evaluated: bool = False
    overrides: dict[str, float] = field(default_factory=dict)

    def _weigh(
        self, announcements: Mapping[str, Announcement], evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> dict[str, float]:
        if self.evaluated:
            return {s: sum(float(e.tally["validation"][0]) for e in evaluations[s]) for s in announcements}
        return {s: self.overrides.get(s, float(a.samples["train"])) for s, a in announcements.items()}


@dataclass
class Scene:
    """Everything around one engine."""

    engine: Engine
    link: ScriptedLink
    store: MemoryStore
    clock: FakeClock
    recorder: Recorder


def set_scene(
    *silos: ScriptedSilo,
    mode: str = "Synchronous",
    learner: Any = None,
    weigher: Any = None,
    strategy: Strategy | None = None,
    store: MemoryStore | None = None,
    started: float | None = None,
    **settings: Any,
) -> Scene:
    """Put an engine among scripted silos."""
    clock, recorder, store = FakeClock(), Recorder(), store or MemoryStore()
    link = ScriptedLink(clock, silos)
    plain = {
        "rounds": 1,
        "seed": 1,
        "silos": tuple(s.name for s in silos),
        "round_deadline_seconds": 100.0,
    } | settings
    settings_ = RoundSettings(**plain)
    engine = engine_of(mode, settings_)(
        link=link,
        store=store,
        clock=clock,
        learner=learner or PlainLearner(),
        strategy=strategy or Strategy(weigher or CountWeigher()),
        settings=settings_,
        observer=recorder,
        started=started,
    )
    return Scene(engine, link, store, clock, recorder)
