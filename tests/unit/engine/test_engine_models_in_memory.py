"""How many models an engine holds: the one that a round began with, and the one that it makes."""

import gc
import weakref

import pytest
from scripted_silos import PlainLearner, ScriptedSilo, set_scene

from anchorage.transport.messages import Report
from anchorage.transport.tensors.model import ModelBytes


class Watching(PlainLearner):
    """Notes which rounds' models are still there when one is scored, whatever observers keep."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[int, weakref.ref[ModelBytes]] = {}
        self.alive: list[list[int]] = []
        self.observed: list[ModelBytes] = []

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        self.models[round_number] = weakref.ref(model)
        self.observed.clear()
        gc.collect()
        self.alive.append([number for number, held in self.models.items() if held() is not None])
        return Report({})


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_a_model_goes_with_its_round(mode: str) -> None:
    learner = Watching()
    s = set_scene(ScriptedSilo("a"), mode=mode, rounds=4, learner=learner)
    learner.observed = s.recorder.models
    s.engine.run()
    assert learner.alive[0] == [0] and [numbers[-2:] for numbers in learner.alive[1:]] == learner.alive[1:]
    assert learner.alive[-1] == [3, 4], "the store in memory holds the last committed model"
