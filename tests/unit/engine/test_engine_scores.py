"""What memories hear of silos' own models on the server's validation images."""

from collections.abc import Mapping
from typing import Any

import pytest
from scripted_silos import CountWeigher, PlainLearner, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors.learning import LOSS_NOT_FINITE, MODEL_MISMATCH
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.strategy import Strategy
from anchorage.transport.messages import Announcement, Report
from anchorage.transport.tensors.model import ModelBytes


class Heard(RoundMemory):
    """Notes every score."""

    scores_updates = True

    def __init__(self) -> None:
        self.scores: list[tuple[str, Mapping[str, float]]] = []

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        pass

    def scored(self, silo: str, metrics: Mapping[str, float]) -> None:
        self.scores.append((silo, metrics))

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


class Scores(PlainLearner):
    """Scores a model by its weight; one of 8 fails."""

    def __init__(self, failure: Failure = LOSS_NOT_FINITE) -> None:
        super().__init__()
        self.failure = failure

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        if value_of(model) == 8:
            raise AnchorageError(self.failure, "as scripted")
        return Report({"accuracy": value_of(model)})


SILOS = {"a": 1.0, "b": 8.0, "late": 3.0}


def scene(memory: RoundMemory, learner: PlainLearner):
    silos = [ScriptedSilo(name, adds=adds, fails="ANC-5001" * (name == "late")) for name, adds in SILOS.items()]
    strategy = Strategy(CountWeigher(), memories={"own": memory})
    return set_scene(*silos, rounds=1, learner=learner, strategy=strategy, min_silos=2)


def test_a_memory_hears_the_score_of_every_model_that_counted() -> None:
    memory = Heard()
    scene(memory, Scores()).engine.run()
    assert memory.scores == [("a", {"accuracy": 1.0}), ("b", {})]  # outputs that are not finite have none


def test_another_failure_ends_the_run() -> None:
    with pytest.raises(AnchorageError, match="as scripted"):
        scene(Heard(), Scores(MODEL_MISMATCH)).engine.run()
