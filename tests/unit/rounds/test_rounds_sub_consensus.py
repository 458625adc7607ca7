"""RSCFed's rounds: who is drawn trains once, and groups decide what the updates weigh (METHODS.md 6.10)."""

import numpy as np
import pytest
from scripted_silos import LAYOUT, ScriptedSilo, set_scene

from anchorage.aggregation import build_weigher
from anchorage.spec.method import Weighting
from anchorage.tensors.model import ModelBytes

SLOT = Weighting(type="SubConsensus", groups=2, group_size=2, scale="0", labelled_scale="0")


class BrokenSilo(ScriptedSilo):
    def update_for(self, model: ModelBytes) -> ModelBytes:
        return ModelBytes.from_arrays(LAYOUT, {"w": np.full(4, np.nan, np.float32), "steps": np.array(1)})


def test_only_drawn_silos_train_and_each_once():
    silos = [ScriptedSilo(name) for name in "abcdefgh"]
    s = set_scene(*silos, weigher=build_weigher(SLOT, 2), rounds=3, min_silos=2)
    s.engine.run()
    records = s.store.history()[1:]
    assert all(2 <= len(record.silos) <= 4 for record in records)
    assert len({tuple(part.name for part in record.silos) for record in records}) > 1
    for record in records:
        assert sum(part.weight for part in record.silos) == pytest.approx(1)
        assert {part.weight for part in record.silos} <= {0.25, 0.5, 0.75, 1.0}
    trained = [task for silo in silos for task in silo.trained]
    assert len(trained) == sum(len(record.silos) for record in records)


def test_an_update_that_is_not_finite_is_taken_out_and_the_rest_measured_again():
    slot = SLOT.model_copy(update={"groups": 1, "group_size": 3})
    silos = [ScriptedSilo("a"), BrokenSilo("b"), ScriptedSilo("c")]
    s = set_scene(*silos, weigher=build_weigher(slot, 2), rounds=1, min_silos=2)
    record = s.engine.run()
    assert [(part.state, part.weight) for part in record.silos] == [("Counted", 0.5), ("Failed", 0.0), ("Counted", 0.5)]
