"""The synchronous engine with SOLO's and SCAFFOLD's server: what each is told of a round."""

from scripted_silos import ScriptedSilo, set_scene, value_of

from anchorage.engine.aggregation import Keep
from anchorage.engine.aggregation.counted_updates import COUNTED, CountedUpdates


def test_solo_reports_mean_and_deviation_over_silos_and_keeps_the_model():
    s = set_scene(ScriptedSilo("a", adds=1.0), ScriptedSilo("b", adds=3.0, samples=900), rounds=3, evaluate_every=2)
    s.engine.server_step = Keep()
    s.engine.run()
    assert [r is not None for r in s.seen.reports] == [True, False, True, True]
    assert s.store.history()[2].metrics == {"accuracy": 2.0, "accuracy_std": 1.0}
    assert [value_of(model) for model in s.seen.models] == [0.0] * 4


def test_solo_without_any_update_has_no_metrics():
    s = set_scene(ScriptedSilo("a", inactive=True))
    s.engine.server_step = Keep()
    assert s.engine.run().metrics == {}


class SharedKeep(Keep):
    """Writes down the share of the silos."""

    def __init__(self):
        self.shares = []

    def apply(self, previous, mean, round_number, share=1.0):
        self.shares.append(share)
        return super().apply(previous, mean, round_number, share)


def test_a_step_knows_the_share_of_the_silos_and_a_silo_what_counted_of_its_own():
    late = ScriptedSilo("b", train_seconds=150.0)
    s = set_scene(ScriptedSilo("a"), late, ScriptedSilo("c", inactive=True), ScriptedSilo("d"), rounds=2)
    s.engine.server_step = step = SharedKeep()
    s.engine.memory = CountedUpdates()
    s.engine.run()
    assert step.shares == [0.5, 0.5]
    told = {silo: [int(side[COUNTED][0]) for side in sides] for silo, sides in s.link.sides.items()}
    assert told == {"a": [0, 1], "b": [0, 0], "c": [0, 0], "d": [0, 1]}
