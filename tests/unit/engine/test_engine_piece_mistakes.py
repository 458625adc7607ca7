"""Mistakes of pieces in fake time: when they end a run, and when a silo is to blame."""

from collections.abc import Sequence

import numpy as np
import pytest
from scripted_silos import LAYOUT, CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError, learning
from anchorage.engine.strategy import Strategy
from anchorage.pieces.slots import Aggregation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

WRONG = learning.PIECE_WRONG.code


class Careless(Aggregation):
    """The plain mean of two weights or more, which looks at no update."""

    def aggregate(
        self, updates: Sequence[ChunkSource], weights: Sequence[float], layout: Layout, model: ModelBytes
    ) -> ModelBytes:
        arrays = [ModelBytes(layout, [update.chunk(0)]).arrays() for update in updates]
        mean = np.mean([each["w"] for each in arrays], axis=0, dtype=np.float32)
        return ModelBytes.from_arrays(LAYOUT, {"w": mean, "steps": arrays[0]["steps"]})


def test_silos_that_go_on_without_it_are_not_disturbed() -> None:
    s = set_scene(ScriptedSilo("a", adds=4.0), ScriptedSilo("b", fails=WRONG), rounds=2)
    assert s.engine.run().round == 2
    assert value_of(s.recorder.models[-1]) == 8.0


def test_too_few_silos_without_it_end_the_run_before_the_others_have_trained() -> None:
    s = set_scene(ScriptedSilo("a", train_seconds=50.0), ScriptedSilo("b", fails=WRONG), min_silos=2)
    with pytest.raises(AnchorageError, match="silo b: as scripted") as caught:
        s.engine.run()
    assert caught.value.failure is learning.PIECE_WRONG and s.recorder.end[0] == WRONG
    assert s.clock.now() == 1.0


def test_an_asynchronous_run_ends_when_nobody_is_left_who_trains() -> None:
    s = set_scene(
        ScriptedSilo("a", fails=WRONG), ScriptedSilo("b", fails=WRONG, train_seconds=5.0), mode="Asynchronous"
    )
    with pytest.raises(AnchorageError, match="silo b: as scripted") as caught:
        s.engine.run()
    assert caught.value.failure is learning.PIECE_WRONG and s.clock.now() == 5.0


def test_an_update_that_the_aggregation_should_have_refused_is_the_silos_mistake() -> None:
    silos = [ScriptedSilo("a", adds=2.0), ScriptedSilo("b", adds=float("nan"))]
    s = set_scene(*silos, strategy=Strategy(CountWeigher(), Careless(), compares_norms=False))
    s.engine.run()
    parts = {part.name: (part.state, part.code) for part in s.store.history()[1].silos}
    assert parts == {"a": ("Counted", ""), "b": ("Failed", "ANC-3004")}
    assert value_of(s.recorder.models[-1]) == 2.0


def test_one_weight_that_is_none_is_the_silos_and_all_are_the_pieces() -> None:
    one = CountWeigher(overrides={"b": float("nan")})
    assert set_scene(ScriptedSilo("a"), ScriptedSilo("b"), weigher=one).engine.run().round == 1
    both = CountWeigher(overrides={"a": float("nan"), "b": -1.0})
    with pytest.raises(AnchorageError, match="weigh returned no usable weight for 2 silos, such as nan") as caught:
        set_scene(ScriptedSilo("a"), ScriptedSilo("b"), weigher=both).engine.run()
    assert caught.value.failure is learning.PIECE_WRONG
