"""The synchronous engine with SOLO's and SCAFFOLD's server: what each is told of a round, and finds again after a restart."""

import pytest
from scripted_silos import CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.engine.strategy import Strategy
from anchorage.pieces.server_step.control_variates import COUNTED, CountedUpdates
from anchorage.pieces.server_step.keep import Keep, KeepStep
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.transport.messages import StopRequested


def solo() -> Strategy:
    return Strategy(CountWeigher(), server_step=Keep().step())


def test_solo_reports_mean_and_deviation_over_silos_and_keeps_the_model():
    silos = ScriptedSilo("a", adds=1.0), ScriptedSilo("b", adds=3.0, samples=900)
    s = set_scene(*silos, rounds=3, evaluate_every=2, strategy=solo())
    s.engine.run()
    assert [r is not None for r in s.recorder.reports] == [True, False, True, True]
    assert s.store.history()[2].metrics == {"accuracy": 2.0, "accuracy_std": 1.0}
    assert [value_of(model) for model in s.recorder.models] == [0.0] * 4


def test_solo_without_any_update_has_no_metrics():
    s = set_scene(ScriptedSilo("a", inactive=True), strategy=solo())
    assert s.engine.run().metrics == {}


class SharedKeep(KeepStep):
    """Writes down the share of the silos."""

    def __init__(self):
        self.shares = []

    def apply(self, previous, mean, round_number, share=1.0):
        self.shares.append(share)
        return super().apply(previous, mean, round_number, share)


def test_a_step_knows_the_share_of_the_silos_and_a_silo_what_counted_of_its_own():
    late = ScriptedSilo("b", train_seconds=150.0)
    step = SharedKeep()
    strategy = Strategy(CountWeigher(), server_step=step, memories={"server_step": CountedUpdates()})
    silos = ScriptedSilo("a"), late, ScriptedSilo("c", inactive=True), ScriptedSilo("d")
    s = set_scene(*silos, rounds=2, strategy=strategy)
    s.engine.run()
    assert step.shares == [0.5, 0.5]
    counts = {silo: [int(auxiliary[COUNTED][0]) for auxiliary in sides] for silo, sides in s.link.sides.items()}
    assert counts == {"a": [0, 1], "b": [0, 0], "c": [0, 0], "d": [0, 1]}


def test_a_killed_server_finds_what_its_step_and_its_memory_had_learnt():
    def scene(**options):
        step, memories = Momentum(learning_rate="0.5").step(), {"server_step": CountedUpdates()}
        strategy = Strategy(CountWeigher(), server_step=step, memories=memories)
        return set_scene(ScriptedSilo("a"), rounds=4, strategy=strategy, **options)

    undisturbed = scene().engine.run().digest
    s = scene()
    s.link.at(5.5, StopRequested("test"))
    with pytest.raises(AnchorageError, match="Stopped"):
        s.engine.run()
    assert 0 < s.store.latest().record.round < 4
    restarted = scene(store=s.store)
    assert restarted.engine.run().digest == undisturbed
    counts = [int(auxiliary[COUNTED][0]) for scene in (s, restarted) for auxiliary in scene.link.sides["a"]]
    assert counts == [0, 1, 2, 2, 3], "the round in which it was killed is played again"
