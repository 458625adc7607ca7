"""Silos that come and go while an engine plays, in fake time; deadlines across restarts; what breaks at the server's own end."""

from typing import Any

import pytest
from scripted_silos import CountWeigher, ScriptedSilo, set_scene, value_of

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import DISK_FULL
from anchorage.engine.store import MemoryStore
from anchorage.transport.messages import Broken, Joined, Left, MembersChanged, Profile


def taken_out(scene: Any, time: float, silo: str, *remaining: str) -> None:
    scene.link.at(time, MembersChanged(remaining))
    scene.link.at(time, Left(silo, "no member any more"))


def parts(scene: Any, round_number: int) -> dict[str, str]:
    return {s.name: s.state for s in scene.store.history()[round_number].silos}


def test_a_new_member_takes_part_from_its_first_round_on_and_nobody_waits_for_one_that_never_came():
    a, b = ScriptedSilo("a"), ScriptedSilo("b", joins_at=3.5)
    s = set_scene(a, b, silos=("a",), rounds=4)
    s.link.at(0.5, MembersChanged(("c", "a", "b")))
    s.engine.run()
    assert [parts(s, n) for n in (1, 2, 3, 4)] == [
        {"a": "Counted"},
        {"a": "Counted"},
        {"a": "Counted", "b": "Counted"},
        {"a": "Counted", "b": "Counted"},
    ]
    assert s.clock.now() < 20


def test_members_before_the_first_round_are_waited_for_like_those_of_a_document():
    s = set_scene(ScriptedSilo("a", joins_at=1.0), ScriptedSilo("b", joins_at=50.0), silos=())
    s.link.at(0.5, MembersChanged(("b", "a")))
    s.engine.run()
    assert parts(s, 1) == {"b": "Counted", "a": "Counted"}
    assert [p.name for p in s.store.history()[1].silos] == ["b", "a"]


def test_a_server_that_comes_back_does_not_wait_once_more_for_a_silo_that_is_away():
    store = MemoryStore()
    before = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=1e6), store=store, rounds=2)
    before.engine.run()
    assert (before.clock.now() > 100, parts(before, 1)["b"]) == (True, "Absent")
    after = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=1.5), store=store, rounds=5)
    after.link.at(0.5, MembersChanged(("a", "b", "c")))
    after.engine.run()
    assert [parts(after, n) for n in (3, 4, 5)] == [{"a": "Counted"}, *[{"a": "Counted", "b": "Counted"}] * 2]
    assert after.clock.now() < 20


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("at", [0.5, 1.5, 2.5])
def test_a_removed_silo_counts_no_more_wherever_it_was(at, barrier):
    a = ScriptedSilo("a", train_seconds=5.0)
    s = set_scene(a, ScriptedSilo("b", adds=100.0), weigher=CountWeigher(barrier=barrier), rounds=2)
    taken_out(s, at, "b", "a")
    s.engine.run()
    assert parts(s, 1) == {"a": "Counted", "b": "Removed"}
    assert parts(s, 2) == {"a": "Counted"}
    assert value_of(s.recorder.models[-1]) == 2.0
    assert s.clock.now() < 30
    assert ("b", s.link.dismissals[0][1], "Removed") in s.link.dismissals


def test_a_silo_removed_while_updates_are_scored_is_neither_counted_nor_waited_for():
    a, b = ScriptedSilo("a"), ScriptedSilo("b", adds=3.0)
    c = ScriptedSilo("c", adds=100.0)
    s = set_scene(a, b, c, weigher=CountWeigher(evaluated=True))
    taken_out(s, 2.5, "c", "a", "b")
    s.engine.run()
    assert parts(s, 1) == {"a": "Counted", "b": "Counted", "c": "Removed"}
    assert value_of(s.recorder.models[-1]) == 2.0
    assert s.clock.now() < 50


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_a_silo_that_is_taken_out_and_in_again_unseen_begins_anew(mode):
    a, b = ScriptedSilo("a", train_seconds=5.0), ScriptedSilo("b", train_seconds=90.0)
    s = set_scene(a, b, mode=mode, rounds=3, round_deadline_seconds=60.0)
    s.link.at(0.5, Left("b", "no member any more"))
    s.link.at(0.6, Joined("b", Profile("All", 100, "test")))
    s.link.at(0.6, MembersChanged(("a", "b"), frozenset("b")))
    b.train_seconds = 1.0
    s.engine.run()
    assert ("b", "Removed") in s.recorder.changes
    assert {p.name for record in s.store.history()[2:] for p in record.silos} >= {"b"}
    assert s.clock.now() < 40


def test_a_record_has_what_silos_said_of_their_images():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b"), rounds=1)
    s.link.at(0.0, Joined("b", Profile("None", 100, "test", "f0")))
    s.engine.run()
    assert {p.name: (p.labels, p.fingerprint) for p in s.store.history()[1].silos} == {
        "a": ("All", ""),
        "b": ("None", "f0"),
    }


def test_a_removal_below_the_quorum_ends_the_round_by_name():
    s = set_scene(ScriptedSilo("a", train_seconds=5.0), ScriptedSilo("b", train_seconds=5.0), min_silos=2)
    taken_out(s, 0.5, "b", "a")
    with pytest.raises(AnchorageError, match="b ANC-3010 no member any more") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3001"


@pytest.mark.parametrize("mode", ["Synchronous", "Asynchronous"])
def test_a_run_past_its_deadline_ends_well_with_the_rounds_that_it_has(mode):
    store = MemoryStore()
    first = set_scene(ScriptedSilo("a"), mode=mode, rounds=50, store=store, active_deadline_seconds=10.0)
    with pytest.raises(AnchorageError, match="activeDeadlineSeconds"):
        first.engine.run()
    committed = store.history()[-1].round
    assert committed > 0
    settings = {"rounds": committed, "store": store, "active_deadline_seconds": 10.0, "started": -100.0}
    assert set_scene(mode=mode, **settings).engine.run().round == committed


def test_a_quorum_that_has_too_few_members_says_so():
    s = set_scene(ScriptedSilo("a"), min_silos=3)
    with pytest.raises(
        AnchorageError, match=r"1 silos connected, 3 needed .*missing: 2 more that would have to become"
    ):
        s.engine.run()


def test_a_removed_silo_leaves_the_asynchronous_run_and_its_commits_stay():
    a, b = ScriptedSilo("a"), ScriptedSilo("b", adds=5.0)
    s = set_scene(a, b, mode="Asynchronous", rounds=8)
    taken_out(s, 3.0, "b", "a")
    s.engine.run()
    names = [p.name for record in s.store.history() for p in record.silos]
    assert names.count("b") == 1
    assert names.count("a") == 7
    assert ("b", "Removed") in s.recorder.changes


def test_a_silo_removed_while_it_is_scored_or_scores_is_not_waited_for():
    a, b = ScriptedSilo("a"), ScriptedSilo("b", upload_seconds=1.2)
    s = set_scene(a, b, mode="Asynchronous", rounds=3, weigher=CountWeigher(evaluated=True))
    taken_out(s, 2.5, "b", "a")
    s.engine.run()
    assert {p.name for record in s.store.history() for p in record.silos} == {"a"}
    assert s.clock.now() < 50


def test_a_silo_joins_the_asynchronous_run():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", joins_at=5.0), silos=("a",), mode="Asynchronous", rounds=8)
    s.link.at(4.5, MembersChanged(("a", "b")))
    s.engine.run()
    assert {p.name for record in s.store.history() for p in record.silos} == {"a", "b"}


def test_an_upload_that_ends_while_the_asynchronous_quorum_is_lost_is_not_forgotten():
    a, b = ScriptedSilo("a", upload_seconds=3.0), ScriptedSilo("b", train_seconds=50.0)
    s = set_scene(a, b, mode="Asynchronous", rounds=1, min_silos=2)
    s.link.at(2.0, Left("b", "gone"))
    s.link.at(9.0, s.link.heap[1][2])  # b joins again
    s.engine.run()
    assert parts(s, 1) == {"a": "Counted"}
    assert (a.uploads, s.clock.now()) == (1, 9.0)


@pytest.mark.parametrize(("started", "rounds"), [(None, 4), (-7.0, 1)])
def test_the_deadline_counts_from_the_first_start(started, rounds):
    s = set_scene(ScriptedSilo("a"), rounds=100, active_deadline_seconds=10.0, started=started)
    with pytest.raises(AnchorageError, match="not finished 10 s after its first start") as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3002"
    assert len(s.store.history()) == rounds + 1


def test_events_that_never_cease_do_not_put_the_deadline_off():
    s = set_scene(ScriptedSilo("a", answers=False), active_deadline_seconds=10.0)
    for n in range(1000):
        s.link.at(n / 10, Left("x", "again and again"))
    with pytest.raises(AnchorageError) as caught:
        s.engine.run()
    assert caught.value.code == "ANC-3002"
    assert s.clock.now() <= 10.1


def test_a_failure_of_the_servers_own_disk_is_no_silos_fault():
    s = set_scene(ScriptedSilo("a"), ScriptedSilo("b", answers=False))
    s.link.at(0.5, Broken(AnchorageError(DISK_FULL, "spool: no space left")))
    with pytest.raises(AnchorageError) as caught:
        s.engine.run()
    assert (caught.value.code, caught.value.failure.exit_code) == ("ANC-3101", 6)
    assert s.recorder.end == ("ANC-3101", "spool: no space left")
