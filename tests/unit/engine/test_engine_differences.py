"""Updates go up as differences where a memory says that they hardly differ, and have the layout of the model (FedMatch, methods reference, 6.6)."""

import pytest
from classification_of import classes as of_classes
from scripted_silos import LAYOUT, CountWeigher, PlainLearner, ScriptedLink, ScriptedSilo, model_of, set_scene, value_of

from anchorage.engine.strategy import Strategy
from anchorage.pieces.pseudo_labels.helpers import Helpers
from anchorage.transport.messages import UpdateFormat
from anchorage.transport.tensors.chunks import ChunkSink
from anchorage.transport.tensors.differences import Differences
from anchorage.transport.tensors.model import ModelBytes


class PackingLink(ScriptedLink):
    """Its silos pack what they are told to."""

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        if self.tasks[silo][-1].update_format is UpdateFormat.DIFFERENCES:
            (model,) = self.offered.values()
            sink.write(0, Differences(self.updates[silo, task], model).chunk(0))
        super().permit(silo, task, sink)


class OfWeights(PlainLearner):
    """Whose silos send the weights alone."""

    up = LAYOUT.select(["w"])


class WeightsOnly(ScriptedSilo):
    def update_for(self, model: ModelBytes) -> ModelBytes:
        return ModelBytes.from_arrays(OfWeights.up, model_of(value_of(model) + 1).arrays())


@pytest.mark.parametrize(
    ("learner", "silo", "receives"), [(PlainLearner(), ScriptedSilo, True), (OfWeights(), WeightsOnly, False)]
)
def test_who_is_told_so_sends_differences(learner, silo, receives):
    strategy = Strategy(CountWeigher(), memories={"pseudo_labels": Helpers().memory(of_classes(2), 0)})
    s = set_scene(silo("a"), silo("b"), learner=learner, rounds=2, min_silos=2, strategy=strategy)
    s.link.__class__ = PackingLink
    s.engine.run()
    assert [task.update_format is UpdateFormat.DIFFERENCES for tasks in s.link.tasks.values() for task in tasks] == [
        receives
    ] * 4
    assert value_of(s.store.latest().model) == 2.0
    assert set(s.store.contributions()) == {"a", "b"}
