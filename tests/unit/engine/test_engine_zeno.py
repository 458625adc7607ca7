"""Rounds whose updates are judged by the server's validation images."""

import pytest
from scripted_silos import PlainLearner, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.engine.strategy import Strategy
from anchorage.pieces.aggregation.zeno import Zeno
from anchorage.pieces.weighting.uniform import UniformWeigher
from anchorage.transport.messages import Report
from anchorage.transport.tensors.model import ModelBytes


class Judge(PlainLearner):
    """Its loss is the distance to 1; of 4 it has none."""

    def evaluate(self, model: ModelBytes, round_number: int) -> Report:
        if value_of(model) == 4:
            raise AnchorageError(LOSS_NOT_FINITE, "as scripted")
        return Report({"loss": abs(value_of(model) - 1)})


@pytest.mark.parametrize("wrong", [9.0, 4.0], ids=["far off", "without finite outputs"])
def test_the_worst_update_of_a_round_is_left_out(wrong: float) -> None:
    silos = [ScriptedSilo("a", adds=1.0), ScriptedSilo("wrong", adds=wrong), ScriptedSilo("c", adds=2.0)]
    strategy = Strategy(UniformWeigher(), Zeno(norm_penalty="0"), compares_norms=False)
    scene = set_scene(*silos, rounds=1, learner=Judge(), strategy=strategy, min_silos=2)
    scene.engine.run()
    assert value_of(scene.recorder.models[-1]) == pytest.approx(1.5)
