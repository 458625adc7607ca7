"""Pitfalls of the methods reference, section 12 that a round could fall into; each test names its number."""

from collections.abc import Mapping, Sequence

from scripted_silos import CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.transport.messages import Announcement, Evaluation


class Listening(CountWeigher):
    """Notes whose announcements it weighs."""

    def weigh(
        self, announcements: Mapping[str, Announcement], evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> Mapping[str, float]:
        self.announcing = sorted(announcements)
        return super().weigh(announcements, evaluations)


def test_1_who_sent_no_usable_update_is_in_no_sum():
    """Number 1: a weigher that divides by a sum over silos must not see those that failed or have nothing to send."""
    for barrier in (False, True):
        weigher = Listening(barrier=barrier)
        silos = [
            ScriptedSilo("a", adds=2.0, samples=10),
            ScriptedSilo("broken", adds=float("nan"), samples=1000),
            ScriptedSilo("idle", inactive=True, samples=1000),
            ScriptedSilo("b", adds=4.0, samples=30),
        ]
        scene = set_scene(*silos, weigher=weigher, min_silos=2)
        record = scene.engine.run()
        assert weigher.announcing == ["a", "b"]
        assert value_of(scene.recorder.models[-1]) == 3.5
        assert {p.name: p.weight for p in record.silos if p.state == "Counted"} == {"a": 0.25, "b": 0.75}


class Rising(CountWeigher):
    """Weighs every commit more than the one before it."""

    commits = 0

    def _weigh(
        self, announcements: Mapping[str, Announcement], evaluations: Mapping[str, Sequence[Evaluation]]
    ) -> dict[str, float]:
        self.commits += 1
        return dict.fromkeys(announcements, float(self.commits))


def test_11_a_commit_takes_away_what_was_added_with_the_weight_it_had():
    """Number 11: a silo alone is the global model, whatever its earlier updates weighed."""
    scene = set_scene(ScriptedSilo("a", adds=1.0), mode="Asynchronous", rounds=4, weigher=Rising())
    scene.engine.run()
    assert [value_of(model) for model in scene.recorder.models] == [0.0, 1.0, 2.0, 3.0, 4.0]
