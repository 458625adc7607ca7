"""The asynchronous engine in fake time."""

import pytest
from scripted_silos import CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.transport.messages import Left, StopRequested


def test_each_update_is_a_commit_and_fast_silos_commit_more():
    s = set_scene(
        ScriptedSilo("fast", train_seconds=1.0), ScriptedSilo("slow", train_seconds=5.0), mode="Asynchronous", rounds=6
    )
    record = s.engine.run()
    assert record.round == 6
    names = [r.silos[0].name for r in s.store.history()[1:]]
    assert names.count("fast") > names.count("slow") >= 1


def test_community_replaces_the_silos_last_contribution():
    s = set_scene(
        ScriptedSilo("a", adds=1.0, samples=1, train_seconds=1.0),
        ScriptedSilo("b", adds=4.0, samples=3, train_seconds=2.5),
        mode="Asynchronous",
        rounds=3,
    )
    s.engine.run()
    # a commits 1 (alone: 1), b commits 0 + 4 (1 + 3*4) / 4 = 3.25, a trained on 1 meanwhile and commits 2: (2 + 12) / 4
    assert [value_of(m) for m in s.recorder.models] == pytest.approx([0.0, 1.0, 3.25, 3.5])


def test_resume_rebuilds_the_community():
    silos = lambda: (ScriptedSilo("a", adds=1.0, samples=1), ScriptedSilo("b", adds=4.0, samples=3, train_seconds=2.5))
    s = set_scene(*silos(), mode="Asynchronous", rounds=9)
    s.link.at(3.9, StopRequested("test"))
    with pytest.raises(AnchorageError):
        s.engine.run()
    committed = s.store.latest().record.round
    assert committed == 2
    restarted = set_scene(*silos(), mode="Asynchronous", rounds=3, store=s.store)
    restarted.engine.run()
    # a trains on 3.25 and contributes 4.25 beside b's stored 4
    assert value_of(restarted.recorder.models[-1]) == pytest.approx((4.25 + 3 * 4) / 4)


def test_scores_by_the_other_silos_weigh_the_commit():
    s = set_scene(
        ScriptedSilo("a", adds=1.0, scores=(1, 10)),
        ScriptedSilo("b", adds=4.0, scores=(3, 10), train_seconds=1.5),
        mode="Asynchronous",
        rounds=2,
        weigher=CountWeigher(evaluated=True),
    )
    s.engine.run()
    assert [r.silos[0].weight for r in s.store.history()[1:]] == [1.0, 0.25], "shares of the sum"
    assert value_of(s.recorder.models[-1]) == pytest.approx((3 * 1 + 1 * 4) / 4)
    assert s.link.offered.keys() <= {o.task.model.digest for o in s.engine._open.values()}


def test_an_evaluator_that_leaves_is_not_waited_for():
    s = set_scene(
        ScriptedSilo("a"),
        ScriptedSilo("b", answers=False),
        mode="Asynchronous",
        rounds=1,
        weigher=CountWeigher(evaluated=True),
    )
    s.link.at(5.0, Left("b", "test"))
    s.engine.run()
    assert s.clock.now() == 5.0


def test_a_silent_evaluator_costs_one_deadline():
    s = set_scene(
        ScriptedSilo("a"),
        ScriptedSilo("b", train_seconds=1.5),
        ScriptedSilo("c", answers=False),
        mode="Asynchronous",
        rounds=6,
        weigher=CountWeigher(evaluated=True),
    )
    s.engine.run()
    assert s.store.latest().record.round == 6
    assert ("c", "Late") in s.recorder.changes
    assert 100.0 < s.clock.now() < 200.0


def test_an_update_that_is_being_scored_holds_up_no_other():
    s = set_scene(
        ScriptedSilo("a", train_seconds=1.0),
        ScriptedSilo("b", train_seconds=3.0),
        ScriptedSilo("slow", train_seconds=90.0, score_seconds=50.0),
        mode="Asynchronous",
        rounds=2,
        weigher=CountWeigher(evaluated=True),
    )
    s.engine.run()
    commits = [(record.time, record.silos[0].name) for record in s.store.history()[1:]]
    assert commits == [(52.0, "a"), (54.0, "b")], "both are scored at the same time, and training goes on meanwhile"


def test_an_update_without_weight_leaves_the_model_as_it_is():
    s = set_scene(
        ScriptedSilo("a", adds=5.0),
        ScriptedSilo("b", adds=2.0, train_seconds=1.5),
        mode="Asynchronous",
        rounds=3,
        weigher=CountWeigher(overrides={"a": 0.0}),
    )
    s.engine.run()
    assert [value_of(model) for model in s.recorder.models] == [0.0, 0.0, 2.0, 2.0]
    assert [record.silos[0].weight for record in s.store.history()[1:]] == [0.0, 1.0, 0.0]


def test_no_more_is_committed_than_asked_for():
    s = set_scene(
        ScriptedSilo("a"),
        ScriptedSilo("b"),
        ScriptedSilo("c", answers=False),
        mode="Asynchronous",
        rounds=1,
        weigher=CountWeigher(evaluated=True),
    )
    s.link.at(50.0, Left("c", "test"))
    assert s.engine.run().round == 1
    assert s.store.latest().record.round == 1


def test_a_failing_silo_rests_until_the_community_moves():
    s = set_scene(
        ScriptedSilo("a", train_seconds=3.0),
        ScriptedSilo("b", fails="ANC-1301", train_seconds=0.1),
        mode="Asynchronous",
        rounds=3,
    )
    s.engine.run()
    assert len(s.link.silos["b"].trained) <= 4
    assert {r.silos[0].name for r in s.store.history()[1:]} == {"a"}


def test_nan_update_is_not_committed():
    s = set_scene(
        ScriptedSilo("a", train_seconds=3.0), ScriptedSilo("b", adds=float("nan")), mode="Asynchronous", rounds=2
    )
    s.engine.run()
    assert ("b", "Failed") in s.recorder.changes
    assert value_of(s.recorder.models[-1]) == 2.0


def test_silence_ends_the_run_at_its_deadline():
    s = set_scene(ScriptedSilo("a", answers=False), mode="Asynchronous", rounds=1)
    with pytest.raises(AnchorageError, match="a holds 1.train") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3002" and s.clock.now() == 100.0


def test_too_few_silos_wait_for_quorum():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=40.0), mode="Asynchronous", rounds=2, min_silos=2)
    s.engine.run()
    assert s.recorder.waits[0][0] == "QuorumLost" and s.recorder.waits[-1][0] == ""
