"""When the operator looks again, lists again and calls itself unwell: its threads' loops, played one after the other in fake time."""

import copy
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
from fake_api.clock import Clock
from fake_api.memory import StoreApi
from fake_api.operator_scene import IMAGES, POD, RESYNC_SECONDS, Scene, TurningQueue

from anchorage.transport.kube.client import ApiError
from anchorage_operator import process
from anchorage_operator.cache import Key
from anchorage_operator.metrics import Metrics
from anchorage_operator.process import MISSED_RESYNCS, Operator
from anchorage_operator.settings import OperatorSettings
from anchorage_operator.work_queue import JITTER, RETRY

PATIENCE_SECONDS = 120.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=clock, time=clock))
    monkeypatch.setattr(process, "WorkQueue", TurningQueue)
    return clock


@pytest.fixture
def scene(clock):
    scene = Scene(clock)
    yield scene
    scene.operator._probes.server_close()


@pytest.fixture
def filled(scene):
    scene.federation()
    scene.resync(1.0)
    return scene


@pytest.mark.parametrize("status", [0, 409, 429, 500, 503])
def test_writes_that_are_refused_for_a_while_are_done_in_the_end_without_a_hot_loop(filled, status):
    begun = filled.clock.now
    filled.refuse(begun + 60.0, status)
    filled.work(59.0)
    looks = sorted(set(filled.attempts))
    pauses = [later - sooner for sooner, later in pairwise(looks)]
    assert len(looks) >= 5 and not filled.built()
    for n, pause in enumerate(pauses):
        assert RETRY.first_seconds * 2**n <= pause <= RETRY.first_seconds * 2**n * (1 + JITTER)
    filled.work(120.0)
    assert filled.built()


def test_the_wish_to_wait_is_kept(filled):
    begun = filled.clock.now
    filled.refuse(begun + 10.0, 429, retry_after=4.0)
    filled.work(9.0)
    late = sorted({moment - begun for moment in filled.attempts})
    assert late[0] == 0.0 and all(second - first >= 4.0 for first, second in pairwise(late))
    filled.work(10.0)
    assert filled.built()


def test_one_federation_that_cannot_be_digested_does_not_hold_up_the_others(scene):
    odd = {"metadata": {"name": "odd"}, "spec": "no mapping at all"}
    scene.api.store.create("federations", "study", odd)
    scene.federation()
    scene.resync(1.0)
    scene.work(60.0)
    assert scene.built() and scene.operator.unhealthy() == ""


class OddError(Exception):
    """Nothing that anybody expects."""


def test_whatever_one_federation_raises_is_counted_told_and_tried_again_while_others_go_on(filled, monkeypatch):
    """Four such looks ended all workers, and the liveness probe then restarted the operator for ever."""
    filled.federation("other", "other")
    filled.resync(1.0)
    looks, real_observe = [], filled.operator._reconciler.observe

    def observe(key):
        if key.namespace == "study":
            looks.append(filled.clock.now)
            raise OddError("no subject alternative names")
        return real_observe(key)

    monkeypatch.setattr(filled.operator._reconciler, "observe", observe)
    filled.work(300.0)
    assert len(looks) >= 8 and filled.operator.unhealthy() == ""
    assert filled.api.get("StatefulSet", "other", "other-server") is not None
    ready = filled.api.get("Federation", "study", "derm")["status"]["conditions"]
    assert [(each["type"], each["reason"]) for each in ready] == [("Ready", "ReconcileFailed")]
    assert ready[0]["message"].startswith("OddError: no subject alternative names; ")
    events = [event for event in filled.api.store.list("events", "study") if event["reason"] == "ReconcileFailed"]
    assert len(events) == 1 and events[0]["type"] == "Warning"
    counted = f'anchorage_operator_defects_total{{where="reconcile"}} {len(looks)}.0'
    assert counted in filled.metrics.exposition().decode()

    monkeypatch.setattr(filled.operator._reconciler, "observe", real_observe)
    filled.work(60.0)
    conditions = filled.api.get("Federation", "study", "derm")["status"]["conditions"]
    assert filled.built() and "ReconcileFailed" not in [each["reason"] for each in conditions]


def test_a_status_that_breaks_the_telling_too_ends_no_worker(filled, monkeypatch):
    def fail(*_):
        raise OddError

    monkeypatch.setattr(filled.operator._reconciler, "observe", fail)
    filled.federation("other", "other")
    filled.api.store.patch("federations", "study", "derm", {"status": {"conditions": [{"kind": "odd"}]}})
    filled.resync(1.0)
    filled.work(60.0)
    assert filled.condition("other", "other") == "ReconcileFailed"


def test_no_thread_ends_of_what_nobody_expects(filled, monkeypatch):
    def fail(*_):
        raise OddError

    monkeypatch.setattr(filled.operator._poller, "poll", fail)
    filled.operator._polls.end = filled.clock.now + 60.0
    filled.operator._polls.add(("study", "derm"))
    filled.operator._poll()
    monkeypatch.setattr(filled.operator._resync, "run", fail)
    filled.resync(60.0)
    for where in ("poll", "resync"):
        assert f'anchorage_operator_defects_total{{where="{where}"}} ' in filled.metrics.exposition().decode()


def test_lists_that_are_refused_are_asked_for_again_without_a_hot_loop(scene):
    begun = scene.clock.now
    scene.federation()
    scene.refuse(begun + 60.0, 500, verbs=("list",))
    assert scene.operator.unready() == "nothing has been read from the API server yet"
    scene.resync(59.0)
    assert 3 <= len(scene.attempts) <= 10
    assert scene.operator.unready()
    scene.resync(2.0 * RESYNC_SECONDS)
    scene.work(10.0)
    assert scene.built() and scene.operator.unready() == ""


def test_an_api_server_that_is_away_for_long_turns_the_probe_red_until_it_is_back(filled):
    assert filled.operator.unhealthy() == ""
    filled.refuse(float("inf"), 0, verbs=("list",))
    filled.go_on(MISSED_RESYNCS + 1)
    assert "the API server has not answered a resync" in filled.operator.unhealthy()
    filled.refuse(0.0, 0)
    filled.go_on(1)
    filled.hear()
    assert filled.operator.unhealthy() == ""


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_api_server_that_says_what_is_wrong_is_no_reason_to_start_again(filled, status):
    filled.refuse(float("inf"), status, verbs=("list",))
    filled.go_on(MISSED_RESYNCS + 1)
    filled.hear()
    assert filled.operator.unhealthy() == ""
    assert "the last successful resync" in filled.operator.unready()


@pytest.mark.parametrize("status", [403, 404])
def test_a_namespace_that_is_gone_or_forbidden_keeps_no_other_one_waiting(scene, status):
    """A RoleBinding was taken away, or the whole namespace: the other one's federations go on, and no restart is asked for."""
    lost = ApiError(status, "Forbidden", "cannot list federations in namespace 'other'")
    lists = scene.api.list

    def list_in(kind, namespace, labels):
        if namespace == "other" and denied:
            raise lost
        return lists(kind, namespace, labels)

    scene.api.list, denied = list_in, True
    scene.federation()
    scene.resync(1.0)
    scene.work(10.0)
    assert scene.built() and scene.over == [("study",)] and scene.operator.unready() == ""
    for _ in range(MISSED_RESYNCS + 1):
        scene.resync(RESYNC_SECONDS)
        scene.work(0.0)
        scene.hear()
    assert scene.operator.unhealthy() == scene.operator.unready() == ""
    (event,) = scene.api.store.list("events", "anchorage")
    assert (event["reason"], event["type"], event["involvedObject"]) == ("NamespaceDenied", "Warning", POD)
    assert lost.message in event["message"]
    assert b'namespace_readable{watched="other"} 0.0' in scene.metrics.exposition()
    assert b'namespace_readable{watched="study"} 1.0' in scene.metrics.exposition()

    denied = False
    scene.resync(RESYNC_SECONDS)
    assert scene.over[-1] == ("study", "other")
    assert b'namespace_readable{watched="other"} 1.0' in scene.metrics.exposition()
    assert {each["reason"] for each in scene.api.store.list("events", "anchorage")} == {
        "NamespaceDenied",
        "NamespaceReadable",
    }


def test_what_a_namespace_holds_is_forgotten_while_it_is_denied_and_found_again_after(filled):
    filled.work(10.0)
    filled.refuse(filled.clock.now + RESYNC_SECONDS, 403, verbs=("list",))
    filled.resync(1.0)
    assert filled.operator.cache.versions("Federation", ()) == {} and filled.operator.cache.lag() == 0.0
    filled.api.store.delete("services", "study", "derm-server")
    filled.resync(2.0 * RESYNC_SECONDS)
    filled.work(10.0)
    assert filled.api.get("Service", "study", "derm-server") is not None


def test_what_the_watch_never_told_of_is_found_by_the_resync(filled):
    """A list tells what is there, not what is gone; the watch engine never learns of it."""
    filled.work(60.0)
    filled.api.store.delete("services", "study", "derm-server")
    filled.work(60.0)
    assert filled.api.get("Service", "study", "derm-server") is None
    filled.resync(2.0 * RESYNC_SECONDS)
    filled.work(60.0)
    assert filled.api.get("Service", "study", "derm-server") is not None


def test_a_status_that_is_refused_for_its_version_is_read_anew(filled):
    filled.work(60.0)
    ahead = copy.deepcopy(filled.api.get("Silo", "study", "a"))
    ahead["metadata"]["resourceVersion"] = "999999"
    ahead["status"] = {}
    filled.operator.cache.add_watched(ahead)

    def refuse(verb, kind, name):
        if (verb, kind) == ("status", "Silo"):
            raise ApiError(409, "Conflict", "the object has been modified")

    filled.api.refuse = refuse
    filled.operator._queue.add(Key("study", "derm"))
    filled.work(60.0)
    known = filled.operator.cache.versions("Silo", ())
    assert list(known.values()) == [filled.api.get("Silo", "study", "a")["metadata"]["resourceVersion"]]


def test_a_watch_that_owes_an_object_for_long_turns_the_probe_red_while_work_goes_on(scene):
    scene.resync(1.0)
    scene.federation()
    scene.resync(RESYNC_SECONDS)
    scene.work(1.0)
    assert scene.built() and scene.operator.unhealthy() == ""
    scene.go_on(MISSED_RESYNCS + 1)
    assert "s behind" in scene.operator.unhealthy()
    scene.hear()
    assert scene.operator.unhealthy() == ""


def test_a_dead_watch_turns_the_probe_red(filled):
    filled.operator._watch.alive = lambda: False
    assert filled.operator.unhealthy() == "the watch has stopped"


def test_a_look_that_never_ends_turns_the_probe_red(filled):
    filled.operator._queue.take()
    filled.clock.advance(MISSED_RESYNCS * RESYNC_SECONDS - 10.0)
    filled.operator._resync.run()
    assert filled.operator.unhealthy() == ""
    filled.clock.advance(30.0)
    assert "has been waiting for" in filled.operator.unhealthy()


def test_the_end_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr(process, "STOP_SECONDS", 0.05)
    hangs, free, api = threading.Event(), threading.Event(), StoreApi()
    api.refuse = lambda *call: hangs.set() or free.wait(PATIENCE_SECONDS)
    settings = OperatorSettings.model_validate({"images": IMAGES, "listen": "127.0.0.1:0"})
    operator = Operator(settings, api, Metrics())
    running = threading.Thread(target=operator.run, daemon=True)
    running.start()
    assert hangs.wait(PATIENCE_SECONDS)
    operator.stop()
    running.join(PATIENCE_SECONDS)
    assert not running.is_alive() and not free.is_set()
    free.set()
