"""Replicas of which one leads, and namespaces that are watched by their labels: the operator's loops in fake time."""

from types import SimpleNamespace

import pytest
from fake_api.clock import Clock
from fake_api.memory import StoreApi
from fake_api.operator_scene import RESYNC_SECONDS, Scene, TurningQueue
from fake_api.store import Store

from anchorage.transport.kube.client import ApiError
from anchorage_operator import process
from anchorage_operator.leadership import LEASE_SECONDS, Leadership
from anchorage_operator.process import MISSED_RESYNCS


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=clock, time=clock))
    monkeypatch.setattr(process, "WorkQueue", TurningQueue)
    return clock


class GuardedApi(StoreApi):
    """A client that asks before it writes, as `KubeClient`'s `before_write`."""

    def before_write(self):
        pass

    def _call(self, verb, *rest):
        if verb not in ("get", "list"):
            self.before_write()
        return super()._call(verb, *rest)


@pytest.fixture
def replicas(clock):
    """Two replicas of the operator over one API server."""
    store, scenes = Store(), []
    for name in ("a", "b"):
        leadership, api = Leadership(StoreApi(store), "anchorage", "operator", name, clock, clock), GuardedApi(store)
        api.before_write = leadership.require
        scenes.append(Scene(clock, api, leadership))
    yield scenes
    for each in scenes:
        each.operator._probes.server_close()


LABEL = {"team": "imaging"}


@pytest.fixture
def choosing(clock):
    """An operator that watches the namespaces with a label."""
    scene = Scene(clock, watch=(), watchLabels=LABEL)
    yield scene
    scene.operator._probes.server_close()


def test_namespaces_with_the_labels_are_watched_as_they_come_and_dropped_quietly_as_they_go(choosing):
    choosing.namespace("other")
    choosing.federation(namespace="other")
    choosing.resync(1.0)
    assert choosing.operator.unready() == "" and choosing.over == [()]
    for name in ("study", "sea"):
        choosing.namespace(name, labels={**LABEL, "more": "yes"})
        choosing.federation(namespace=name)
    choosing.resync(1.0)
    choosing.work(10.0)
    assert choosing.over[-1] == ("sea", "study")
    assert choosing.built() and choosing.built("sea") and not choosing.built("other")

    choosing.namespace("study", labels={"team": "other"})
    choosing.namespace("sea", labels=LABEL, deletionTimestamp="2027-01-15T08:00:00Z")
    choosing.api.calls.clear()
    choosing.resync(1.0)
    choosing.work(600.0)
    assert choosing.over[-1] == () and choosing.api.writes() == [], "not even a status or an Event"
    assert choosing.operator.cache.versions("Federation", ()) == {} and choosing.operator.unready() == ""
    assert b"namespace_readable{" not in choosing.metrics.exposition()
    choosing.federation("nevi")
    choosing.hear()
    assert choosing.operator.cache.versions("Federation", ()) == {}, "what a stream brought late"

    choosing.namespace("study", labels=LABEL)
    choosing.resync(1.0)
    choosing.work(10.0)
    assert {"nevi-server"} <= {body["metadata"]["name"] for body in choosing.api.store.list("statefulsets", "study")}


def test_a_labelled_namespace_without_rights_is_told_and_one_that_is_dropped_is_not(choosing):
    choosing.namespace("study", labels=LABEL)
    denied = ApiError(403, "Forbidden", "cannot list federations")
    lists = choosing.api.list

    def list_in(kind, namespace, labels):
        if namespace == "study":
            raise denied
        return lists(kind, namespace, labels)

    choosing.api.list = list_in
    choosing.resync(1.0)
    choosing.namespace("study")
    choosing.resync(1.0)
    assert [event["reason"] for event in choosing.api.store.list("events", "anchorage")] == ["NamespaceDenied"]
    assert choosing.operator.unready() == ""


def test_a_namespace_whose_rights_go_first_as_it_is_deleted_is_dropped_quietly(choosing):
    choosing.namespace("study", labels=LABEL)
    choosing.federation()
    choosing.resync(1.0)
    lists = choosing.api.list

    def list_in(kind, namespace, labels):
        if namespace == "study":
            choosing.namespace("study", labels=LABEL, deletionTimestamp="2027-01-15T08:00:00Z")
            raise ApiError(403, "Forbidden", "cannot list federations")
        return lists(kind, namespace, labels)

    choosing.api.list = list_in
    choosing.resync(1.0)
    assert choosing.over[-1] == () and choosing.operator.unready() == ""
    assert choosing.api.store.list("events", "anchorage") == []
    assert choosing.operator.cache.versions("Federation", ()) == {}


def test_namespaces_that_cannot_be_listed_leave_the_known_ones_as_they_are(choosing):
    choosing.namespace("study", labels=LABEL)
    choosing.federation()
    choosing.resync(1.0)
    lost = ApiError(403, "Forbidden", "cannot list namespaces")

    def refuse(verb, kind, name):
        if kind == "Namespace":
            raise lost

    choosing.api.refuse = refuse
    choosing.go_on(2 * MISSED_RESYNCS)
    choosing.work(10.0)
    assert choosing.built()
    choosing.hear()
    assert choosing.operator.unready() == ""
    (event,) = choosing.api.store.list("events", "anchorage")
    assert (event["reason"], event["type"]) == ("NamespacesNotListed", "Warning")
    assert "team=imaging" in event["message"]


def test_a_federation_is_looked_at_when_all_of_its_namespace_is_known(choosing):
    """One whose Silos are still to be listed would dismiss them."""
    choosing.namespace("study", labels=LABEL)
    choosing.federation()
    woken, cache = [], choosing.operator.cache
    choosing.operator._resync.wake = lambda key: woken.append((key, set(cache.silos(key))))
    choosing.refuse(choosing.clock.now + 1.0, 500, verbs=("list",))
    choosing.resync(RESYNC_SECONDS)
    assert woken and all(silos == {"a"} for _, silos in woken)


def begin(replicas):
    """Fill both, and let the first one lead."""
    for each in replicas:
        each.resync(1.0)
    for each in replicas:
        each.turns(1.0)


def test_a_standby_watches_and_is_well_and_leaves_the_work_to_the_leader(replicas):
    first, second = replicas
    first.federation()
    begin(replicas)
    second.go_on(2 * MISSED_RESYNCS)
    assert second.operator.unhealthy() == second.operator.unready() == "" and second.api.writes() == []
    assert b"is_leader 0.0" in second.metrics.exposition()
    assert b"anchorage_federation_rounds{" not in second.metrics.exposition()
    first.turns(1.0)
    first.work(10.0)
    assert first.built() and b"is_leader 1.0" in first.metrics.exposition()
    assert b"anchorage_federation_rounds{" in first.metrics.exposition()


def test_a_standby_takes_over_all_that_there_is(replicas):
    first, second = replicas
    first.federation()
    begin(replicas)
    first.operator._leadership.release()
    second.turns(1.0)
    second.work(5.0)
    assert second.built()
    assert second.operator.unready() == ""


def test_a_leader_that_lost_its_lease_writes_nothing_more_and_takes_no_more_keys(replicas):
    first, second = replicas
    first.federation()
    begin(replicas)
    first.clock.advance(LEASE_SECONDS)
    first.work(1.0)
    assert first.api.writes() == [], "it has not even noticed"
    second.turns(1.0)
    first.turns(1.0)
    first.operator._queue.add(("study", "derm"))
    first.operator._reconciler.reconcile = lambda key: pytest.fail("it looked")
    first.work(60.0)
    assert first.operator.unhealthy() == ""
    second.work(10.0)
    assert second.built()


def test_only_the_leader_tells_of_a_namespace_and_a_missing_right_to_lead_is_told_by_readiness(replicas):
    first, second = replicas
    first.turns(1.0)
    for each in replicas:
        each.refuse(float("inf"), 403, verbs=("list",))
        each.turns(1.0)
        each.resync(1.0)
    reasons = [event["reason"] for event in first.api.store.list("events", "anchorage")]
    assert reasons == ["NamespaceDenied"] * 2 and second.api.writes() == []
    second.refuse(0.0, 403)
    second.resync(RESYNC_SECONDS)
    second.operator._leadership.problem = "no such right"
    assert second.operator.unready() == "cannot hold the Lease: no such right" and second.operator.unhealthy() == ""
