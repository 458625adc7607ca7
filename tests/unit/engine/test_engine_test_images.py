"""The test images: scored once, at the end, of the final model and of the one that the validation images chose."""

import pytest
from scripted_silos import CountWeigher, PlainLearner, ScriptedSilo, set_scene, value_of

from anchorage.engine.store import MemoryStore
from anchorage.engine.strategy import Strategy
from anchorage.pieces.server_step.keep import Keep
from anchorage.transport.messages import Report
from anchorage.transport.tensors.model import ModelBytes


class Scored(PlainLearner):
    """Rounds have the accuracies given (nothing: no validation images); a test says which model it was asked about."""

    def __init__(self, *accuracies: float) -> None:
        super().__init__()
        self.accuracies = accuracies
        self.tested: list[tuple[float, int]] = []

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        return Report({"accuracy": self.accuracies[round_number]} if self.accuracies else {})

    def test(self, model: ModelBytes, round_number: int) -> Report:
        self.tested.append((value_of(model), round_number))
        return Report({"accuracy": value_of(model) / 10})


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_the_final_model_and_the_best_by_validation_are_tested_once(mode: str) -> None:
    learner = Scored(0.1, 0.5, 0.9, 0.4)
    s = set_scene(ScriptedSilo("a"), mode=mode, rounds=3, learner=learner)
    record = s.engine.run()
    values = [value_of(model) for model in s.recorder.models]
    assert learner.tested == [(values[3], 3), (values[2], 2)] and values[3] != values[2]
    assert record.test == {"final": {"accuracy": values[3] / 10}, "best": {"accuracy": values[2] / 10}}
    assert [entry.test for entry in s.store.history()[:-1]] == [{}] * 3


@pytest.mark.parametrize(
    ("accuracies", "why"), [((0.1, 0.5, 0.7), "the last round is the best"), ((), "no validation images")]
)
def test_the_last_model_may_be_the_best(accuracies: tuple[float, ...], why: str) -> None:
    learner = Scored(*accuracies)
    s = set_scene(ScriptedSilo("a"), rounds=2, learner=learner)
    record = s.engine.run()
    assert learner.tested == [(2.0, 2)], why
    assert record.test == {"final": {"accuracy": 0.2}, "best": {"accuracy": 0.2}}


def test_rounds_of_a_warm_up_are_not_the_best() -> None:
    learner = Scored(0.9, 0.8, 0.1, 0.05)
    s = set_scene(ScriptedSilo("a"), rounds=3, learner=learner, store=MemoryStore(first=2))
    assert s.engine.run().test["best"] == {"accuracy": 0.2}


def test_a_run_that_goes_on_from_its_end_is_tested_again() -> None:
    learner = Scored(0.1, 0.5, 0.9, 0.4)
    s = set_scene(ScriptedSilo("a"), rounds=1, learner=learner)
    assert s.engine.run().test["final"] == {"accuracy": 0.1}
    restarted = set_scene(ScriptedSilo("a"), rounds=3, learner=learner, store=s.store)
    assert restarted.engine.run().test == {"final": {"accuracy": 0.3}, "best": {"accuracy": 0.2}}


def test_where_models_stay_at_the_silos_the_last_ones_are_tested() -> None:
    learner = Scored(0.1, 0.5, 0.4)
    silos = ScriptedSilo("a", adds=1.0), ScriptedSilo("b", adds=3.0)
    s = set_scene(*silos, rounds=2, learner=learner, strategy=Strategy(CountWeigher(), server_step=Keep().step()))
    assert s.engine.run().test == {"final": {"accuracy": pytest.approx(0.2), "accuracy_std": pytest.approx(0.1)}}


def committed(scene):
    return [entry.digest for entry in scene.store.history()]


def test_an_average_of_models_is_scored_and_kept_while_training_goes_on_from_the_models() -> None:
    learner = Scored()
    s = set_scene(ScriptedSilo("a"), rounds=4, learner=learner, average_decay=0.5)
    record = s.engine.run()
    assert [value_of(model) for model in s.recorder.models] == [0.0, 1.0, 1.5, 2.25, 3.125]  # of 0, 1, 2, 3 and 4
    assert record.test["final"] == {"accuracy": pytest.approx(0.3125)} and s.store.latest().record == record


def test_a_run_with_an_average_goes_on_where_it_was_killed() -> None:
    straight = set_scene(ScriptedSilo("a"), rounds=4, learner=Scored(), average_decay=0.5)
    straight.engine.run()
    first = set_scene(ScriptedSilo("a"), rounds=2, learner=Scored(), average_decay=0.5)
    first.engine.run()
    restarted = set_scene(ScriptedSilo("a"), rounds=4, learner=Scored(), average_decay=0.5, store=first.store)
    restarted.engine.run()
    assert committed(restarted) == committed(straight)
