"""The synchronous engine in fake time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scripted_silos import CountWeigher, PlainLearner, ScriptedSilo, model_of, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.transport.messages import Announced, Announcement, Joined, Left, Profile, StopRequested
from anchorage.transport.tensors.layout import Layout


def states(scene: Any, round_number: int = 1) -> dict[str, str]:
    return {s.name: s.state for s in scene.store.history()[round_number].silos}


def test_a_record_says_which_images_a_silo_trained_on():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b"), rounds=1)
    s.link.heap = [(at, order, replace(event, profile=replace(event.profile, fingerprint=event.silo * 4)))
                   for at, order, event in s.link.heap]  # fmt: skip
    assert [part.fingerprint for part in s.engine.run().silos] == ["aaaa", "bbbb"]


def test_rounds_are_weighted_means_of_what_came():
    s = set_scene(ScriptedSilo("a", adds=1.0, samples=100), ScriptedSilo("b", adds=2.0, samples=300), rounds=3)
    record = s.engine.run()
    assert record.round == 3
    assert value_of(s.recorder.models[-1]) == pytest.approx(3 * 1.75)
    assert [r.round for r in s.store.history()] == [0, 1, 2, 3]
    assert {p.name: p.weight for p in record.silos} == {"a": 0.25, "b": 0.75}
    assert (record.bytes_up, record.bytes_down) == (2 * 24, 2 * 24)
    assert s.link.finished and s.recorder.end[0] == ""
    assert int(s.recorder.models[-1].arrays()["steps"]) == 7


def test_the_model_does_not_depend_on_who_comes_first():
    def digest(first, second):
        s = set_scene(
            ScriptedSilo("a", adds=0.1, train_seconds=first, joins_at=first),
            ScriptedSilo("b", adds=0.7, train_seconds=second, joins_at=second),
            ScriptedSilo("c", adds=1.3, samples=33),
            rounds=2,
        )
        return s.engine.run().digest

    assert digest(1.0, 9.0) == digest(9.0, 1.0)


def test_deadline_leaves_out_the_silent_silo():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", answers=False), min_silos=1)
    s.engine.run()
    assert states(s) == {"a": "Counted", "b": "Late"}
    assert s.clock.now() == 100.0
    assert s.store.history()[1].silos[1].code == "ANC-3006"


def test_absent_silo_is_waited_for_once_and_taken_back():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=101.5), rounds=3, min_silos=1)
    s.engine.run()
    assert states(s, 1) == {"a": "Counted", "b": "Absent"}
    assert states(s, 2) == {"a": "Counted"}
    assert states(s, 3) == {"a": "Counted", "b": "Counted"}


def test_a_silo_that_says_nothing_is_left_out_after_two_rounds_until_it_speaks():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", answers=False), rounds=40, min_silos=1)
    old = Announced("b", Announcement("1.train.old", {"train": 1}, {}, {}, None))
    s.link.at(204.5, old)
    s.engine.run()
    named = [r.round for r in s.store.history()[1:] if len(r.silos) == 2]
    assert named[:2] == [1, 2] and len(named) == 4, "two deadlines, and two more after it had said something"
    assert s.clock.now() < 2 * 200.0 + 40 * 3.0
    message = s.store.history()[2].silos[1].message
    assert message == "not whole after 100 s, not a word in 2 rounds: left out until it says something"


def test_a_silo_that_connects_again_and_says_nothing_costs_one_deadline():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", answers=False), rounds=20, min_silos=1)
    s.link.at(203.0, Joined("b", Profile("All", 100, "test")))
    s.engine.run()
    assert [r.round for r in s.store.history()[1:] if len(r.silos) == 2][:2] == [1, 2]
    assert sum(len(r.silos) == 2 for r in s.store.history()) == 3


def test_silent_silos_are_waited_for_where_the_quorum_needs_them():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b"), ScriptedSilo("c"), min_silos=2)
    s.engine._silent["b"] = 5
    assert s.engine._without_silent(["a", "b"]) == ["a", "b"]
    assert s.engine._without_silent(["a", "b", "c"]) == ["a", "c"]


def test_too_few_silos_to_begin_waits_says_so_and_ends():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=500.0), min_silos=2)
    with pytest.raises(AnchorageError, match=r"1 silos connected, 2 needed .*missing: b") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3001"
    assert s.clock.now() == 100.0
    assert s.recorder.waits[-1][0] == "QuorumLost"
    assert s.recorder.end[0] == "ANC-3001"


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_in_a_cluster_the_first_silos_are_waited_for_beyond_every_deadline(mode):
    """Ending would make a crash loop, and throw out the silos that came."""
    b = ScriptedSilo("b", joins_at=500.0)
    s = set_scene(ScriptedSilo("a"), b, mode=mode, min_silos=2, awaits_first_silos=True)
    s.engine.run()
    assert s.clock.now() > 500.0 and s.recorder.end[0] == ""
    waits = [message for reason, message in s.recorder.waits if reason == "QuorumLost"]
    assert len(waits) >= 5 and all(message.endswith("b") for message in waits)


def test_in_a_cluster_too_few_silos_later_end_the_run_at_the_deadline():
    a, b = ScriptedSilo("a"), ScriptedSilo("b", train_seconds=5.0)
    s = set_scene(a, b, rounds=9, min_silos=2, awaits_first_silos=True)
    s.link.at(5.5, Left("b", "gone"))
    with pytest.raises(AnchorageError, match=r"2 needed") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3001" and s.clock.now() <= 5.5 + 2 * 100.0
    assert s.recorder.waits[-1][0] == "QuorumLost"


def test_quorum_lost_in_a_round_names_the_silos():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", fails="ANC-1301"), ScriptedSilo("c", answers=False), min_silos=2)
    with pytest.raises(AnchorageError, match="b ANC-1301 as scripted; c ANC-3006"):
        s.engine.run()
    assert [r.round for r in s.store.history()] == [0]


def test_failed_silo_is_named_and_the_round_goes_on():
    s = set_scene(ScriptedSilo("a", adds=4.0), ScriptedSilo("b", fails="ANC-1301"))
    s.engine.run()
    assert states(s) == {"a": "Counted", "b": "Failed"}
    assert value_of(s.recorder.models[-1]) == 4.0


def test_nan_update_does_not_count():
    s = set_scene(ScriptedSilo("a", adds=2.0), ScriptedSilo("b", adds=float("nan")))
    s.engine.run()
    part = s.store.history()[1].silos[1]
    assert (part.state, part.code) == ("Failed", "ANC-3004") and "'w'" in part.message.replace("tensor w", "'w'")
    assert value_of(s.recorder.models[-1]) == 2.0


def test_wrong_layout_is_refused_before_its_bytes_come():
    s = set_scene(ScriptedSilo("a", adds=2.0), ScriptedSilo("b", layout=Layout.of([("x", "F32", (4,))])))
    s.engine.run()
    assert states(s) == {"a": "Counted", "b": "Failed"}
    assert s.link.silos["b"].uploads == 0


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weight_takes_the_silo_out(weight):
    s = set_scene(ScriptedSilo("a", adds=2.0), ScriptedSilo("b"), weigher=CountWeigher(overrides={"b": weight}))
    s.engine.run()
    assert s.store.history()[1].silos[1].code == "ANC-3005"


def test_all_weights_zero_means_uniform():
    s = set_scene(
        ScriptedSilo("a", adds=1.0), ScriptedSilo("b", adds=3.0), weigher=CountWeigher(overrides={"a": 0.0, "b": 0.0})
    )
    s.engine.run()
    assert value_of(s.recorder.models[-1]) == 2.0


def test_inactive_silos_leave_the_model_and_the_server_still_trains():
    s = set_scene(
        ScriptedSilo("a", inactive=True),
        ScriptedSilo("b", inactive=True),
        min_silos=2,
        learner=PlainLearner(adds=0.5),
        rounds=2,
    )
    record = s.engine.run()
    assert value_of(s.recorder.models[-1]) == 1.0
    assert record.metrics["server_loss"] == 1.0
    assert states(s) == {"a": "Inactive", "b": "Inactive"}


def test_one_inactive_silo_is_in_neither_sum():
    s = set_scene(
        ScriptedSilo("a", samples=100, adds=1.0),
        ScriptedSilo("b", samples=200, inactive=True),
        ScriptedSilo("c", samples=300, adds=5.0),
    )
    s.engine.run()
    assert value_of(s.recorder.models[-1]) == 4.0


def test_barrier_holds_uploads_until_all_announced():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", train_seconds=7.0), weigher=CountWeigher(barrier=True))
    s.engine.run()
    assert s.link.permits == [(7.0, "a"), (7.0, "b")]


def test_barrier_opens_at_the_deadline_for_those_who_announced():
    s = set_scene(
        ScriptedSilo("a", upload_seconds=20.0), ScriptedSilo("b", answers=False), weigher=CountWeigher(barrier=True)
    )
    s.engine.run()
    assert s.link.permits == [(100.0, "a")]
    assert states(s) == {"a": "Counted", "b": "Late"} and s.clock.now() == 120.0


def test_weight_zero_behind_a_barrier_need_not_upload():
    s = set_scene(
        ScriptedSilo("a", adds=3.0), ScriptedSilo("b"), weigher=CountWeigher(barrier=True, overrides={"b": 0.0})
    )
    s.engine.run()
    assert s.link.silos["b"].uploads == 0 and states(s)["b"] == "Counted"
    assert value_of(s.recorder.models[-1]) == 3.0


def test_every_update_is_scored_by_every_other_silo():
    s = set_scene(
        ScriptedSilo("a", adds=1.0, scores=(1, 10)),
        ScriptedSilo("b", adds=2.0, scores=(2, 10)),
        ScriptedSilo("c", adds=4.0, scores=(3, 10)),
        weigher=CountWeigher(evaluated=True),
    )
    record = s.engine.run()
    assert sorted(silo for silo, _ in s.link.evaluated) == ["a", "a", "b", "b", "c", "c"]
    assert {p.name: p.weight for p in record.silos} == pytest.approx({"a": 5 / 12, "b": 4 / 12, "c": 3 / 12})
    assert s.link.offered == {}


def test_equal_updates_are_scored_each():
    s = set_scene(
        ScriptedSilo("a", adds=1.0, scores=(1, 10)),
        ScriptedSilo("b", adds=1.0, scores=(2, 10)),
        ScriptedSilo("c", adds=4.0, scores=(3, 10)),
        weigher=CountWeigher(evaluated=True),
    )
    record = s.engine.run()
    assert {p.name: p.weight for p in record.silos} == pytest.approx({"a": 5 / 12, "b": 4 / 12, "c": 3 / 12})


def test_a_restarted_server_waits_for_the_scores_of_silos_that_come_back_late():
    def silos(late: float = 0.0) -> list[ScriptedSilo]:
        return [
            ScriptedSilo("a", adds=1.0, scores=(1, 10)),
            ScriptedSilo("b", adds=2.0, scores=(2, 10)),
            ScriptedSilo("c", adds=4.0, scores=(3, 10), joins_at=late),
        ]

    weigher = CountWeigher(evaluated=True)
    undisturbed = set_scene(*silos(), weigher=weigher).engine.run()
    s = set_scene(*silos(), weigher=weigher)
    s.link.at(2.5, StopRequested("test"))
    with pytest.raises(AnchorageError, match="Stopped"):
        s.engine.run()
    assert set(s.store.load_updates(1)) == {"a", "b", "c"}
    restarted = set_scene(*silos(late=20.0), weigher=weigher, store=s.store)
    assert restarted.engine.run().digest == undisturbed.digest


def test_an_announcement_said_twice_counts_once():
    s = set_scene(ScriptedSilo("a", adds=1.0, repeats=3), ScriptedSilo("b", adds=3.0), rounds=2)
    s.engine.run()
    assert value_of(s.recorder.models[-1]) == 4.0


def test_a_killed_server_reuses_whole_updates():
    silos = lambda: (
        ScriptedSilo("a", adds=0.3),
        ScriptedSilo("b", adds=0.9),
        ScriptedSilo("c", adds=1.7, train_seconds=50.0),
    )
    undisturbed = set_scene(*silos(), rounds=2).engine.run().digest
    s = set_scene(*silos(), rounds=2)
    s.link.at(30.0, StopRequested("test"))
    with pytest.raises(AnchorageError) as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3008"
    restarted = set_scene(*silos(), rounds=2, store=s.store)
    assert restarted.engine.run().digest == undisturbed
    first_task = restarted.link.silos["c"].trained[0]
    assert first_task not in restarted.link.silos["a"].trained and first_task not in restarted.link.silos["b"].trained


def test_a_killed_server_finds_what_its_training_had_learnt():
    """FedCon's moving average is no part of the model (methods reference, 6.7)."""

    class Counting(PlainLearner):
        trained = 0

        def train(self, model, round_number):
            self.trained += 1
            return model_of(value_of(model) + self.trained), {}

        def state(self):
            return {"trained": np.array(self.trained)}

        def restore(self, state):
            self.trained = int(state["trained"])

    undisturbed = set_scene(ScriptedSilo("a"), rounds=4, learner=Counting()).engine.run()
    s = set_scene(ScriptedSilo("a"), rounds=4, learner=Counting())
    s.link.at(5.5, StopRequested("test"))
    with pytest.raises(AnchorageError, match="Stopped"):
        s.engine.run()
    assert 0 < s.store.latest().record.round < 4
    restarted = set_scene(ScriptedSilo("a"), rounds=4, learner=Counting(), store=s.store)
    assert restarted.engine.run().digest == undisturbed.digest


def test_a_finished_run_only_says_so():
    s = set_scene(ScriptedSilo("a"), rounds=2)
    digest = s.engine.run().digest
    restarted = set_scene(ScriptedSilo("a"), rounds=2, store=s.store)
    assert restarted.engine.run().digest == digest
    assert restarted.link.silos["a"].trained == [] and restarted.link.finished


def test_the_run_ends_at_its_own_deadline():
    s = set_scene(ScriptedSilo("a", train_seconds=10.0), rounds=50, active_deadline_seconds=35.0)
    with pytest.raises(AnchorageError, match="activeDeadlineSeconds") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3002"
    assert s.store.latest().record.round == 3


def test_sampled_cohorts_follow_the_seed():
    def cohorts(seed):
        s = set_scene(*(ScriptedSilo(f"s{i}") for i in range(6)), rounds=4, silos_per_round=2, seed=seed)
        s.engine.run()
        return [tuple(p.name for p in r.silos) for r in s.store.history()[1:]]

    assert cohorts(1) == cohorts(1) != cohorts(2)
    assert all(len(c) == 2 for c in cohorts(1))


def test_silo_without_samples_takes_no_part():
    s = set_scene(ScriptedSilo("a", adds=1.0), ScriptedSilo("b", samples=0, adds=9.0), rounds=2)
    s.engine.run()
    assert states(s, 1)["b"] == "Inactive" and "b" not in states(s, 2)
    assert s.link.silos["b"].uploads == 0
    assert value_of(s.recorder.models[-1]) == 2.0


def test_evaluation_is_due_every_so_many_rounds_and_at_the_end():
    s = set_scene(ScriptedSilo("a"), rounds=5, evaluate_every=3)
    s.engine.run()
    assert [r is not None for r in s.recorder.reports] == [True, False, False, True, False, True]
    assert np.isclose(s.store.history()[5].metrics["accuracy"], 5.0)


def test_what_is_announced_again_before_the_quorum_is_not_lost():
    s = set_scene(ScriptedSilo("a", answers=False), ScriptedSilo("b", joins_at=5.0, adds=3.0), min_silos=2)
    task, update = f"1.train.{model_of(0.0).digest[:16]}", model_of(1.0, 7)
    s.link.updates["a", task] = update
    s.link.at(1.0, Announced("a", Announcement(task, {"train": 100}, {}, {}, update.manifest)))
    s.engine.run()
    assert states(s) == {"a": "Counted", "b": "Counted"}
    assert value_of(s.recorder.models[-1]) == 2.0
