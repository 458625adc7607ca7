"""What an engine reports of a run: one union of events, which status, logs, tracking and views match on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from anchorage.api.silo_state import SiloState
from anchorage.engine.interfaces import RoundRecord
from anchorage.transport.messages import Profile, Report
from anchorage.transport.tensors.model import ModelBytes


@dataclass(frozen=True, slots=True)
class SiloJoined:
    """A silo connected."""

    silo: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class SiloLeft:
    """A silo's connection ended."""

    silo: str
    reason: str


@dataclass(frozen=True, slots=True)
class SiloChanged:
    """A silo's part in the open round changed, or its task moved on."""

    silo: str
    state: SiloState
    """Any but ``Waiting``."""
    done: int = 0
    """Steps of its task that are done."""
    total: int = 0
    """Steps in all; 0 where that is not known."""
    code: str = ""
    """Of the catalogue, where it failed."""
    message: str = ""
    """Why, one line."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The run cannot go on now, or goes on again."""

    reason: str
    """Of the catalogue; empty when it goes on again."""
    message: str


@dataclass(frozen=True, slots=True)
class RoundStarted:
    """A round was dispatched."""

    round: int
    silos: Sequence[str]


class Step(StrEnum):
    """A step of a round, as status, traces and the times of a record have it."""

    SELECT = "select"
    DISPATCH = "dispatch"
    AGREE_ON_KEYS = "agree on keys"
    TRAIN = "train"
    WEIGH = "weigh"
    SILOS = "silos"
    """In a record's times alone: from the dispatch until the silos' updates have arrived."""
    EVALUATE_AT_SILOS = "evaluate at silos"
    AGGREGATE = "aggregate"
    SERVER_TRAINING = "server training"
    SERVER = "server"
    """In a record's times alone: the server's step and its training."""
    EVALUATE = "evaluate"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class StepBegan:
    """A step of the round began."""

    name: Step


@dataclass(frozen=True, slots=True)
class RoundCommitted:
    """A round is durable."""

    record: RoundRecord
    model: ModelBytes
    report: Report | None
    """Scores of the model on the validation images, where it was evaluated."""
    test: Mapping[str, Report] = field(default_factory=dict)
    """Of the run's last round: scores of the ``final`` and of the ``best`` model on the test images."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over."""

    code: str
    """Of the catalogue; empty when every round is committed."""
    message: str


RunEvent = SiloJoined | SiloLeft | SiloChanged | Waiting | RoundStarted | StepBegan | RoundCommitted | RunEnded

Observer = Callable[[RunEvent], None]
"""Told every event in the engine's thread; returns quickly and never raises."""


def tell_all(*observers: Observer) -> Observer:
    """Return several observers as one, told in their order; without any, events are not heard."""

    def tell(event: RunEvent) -> None:
        for observer in observers:
            observer(event)

    return tell
