"""The whole operator against an API server that goes silent, closes, forgets, refuses or goes away: nothing lost, no hot loop."""

import json
import threading
import time
from contextlib import contextmanager

import pytest
from fake_api.operator_world import PART, PARTITION, SPEC
from fake_api.server import FakeApi
from fake_api.store import Refused
from kubernetes.client import Configuration

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.client import KubeClient
from anchorage_operator.metrics import Metrics
from anchorage_operator.process import Operator
from anchorage_operator.resync import WATCHED
from anchorage_operator.settings import OperatorSettings

PATIENCE = 40.0
"""Seconds that a busy machine may take over what takes a moment."""


@pytest.fixture
def api():
    api = FakeApi().start()
    yield api
    api.stop()


@contextmanager
def operating(api, resync_seconds=3600, **watch):
    """Run an operator; by default it never compares lists, so that all it learns comes by the watch."""
    access = ClusterAccess(Configuration(host=api.url))
    images = {"server": "example.org/s:1", "agent": "example.org/a:1"}
    given = {"images": images, "listen": "127.0.0.1:0", "resyncSeconds": resync_seconds, "watch": ("study",)}
    metrics = Metrics()
    client = KubeClient(access, field_manager="anchorage-operator", connections=13, count=metrics.requested)
    settings = {"silent_seconds": 5.0, "pause_seconds": 0.2} | watch
    operator = Operator(OperatorSettings.model_validate(given), client, access, metrics, **settings)
    thread = threading.Thread(target=operator.run)
    thread.start()
    try:
        eventually(lambda: not operator.unready())
        yield operator
    finally:
        operator.stop()
        thread.join(20.0)
        client.close()
    assert not thread.is_alive()


def eventually(probe, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not (found := probe()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return found


def federation(api, name="derm", **spec):
    body = {"metadata": {"name": name}, "spec": {**SPEC, **spec}}
    api.store.apply("federations", "study", name, body, "user")
    for k in range(2):
        managed = {"data": {**PART, "partition": {**PARTITION, "part": k}}}
        spec_of_silo = {"federation": name, "labels": "None", "managed": managed}
        silo = f"{name}-{k}"
        api.store.apply("silos", "study", silo, {"metadata": {"name": silo}, "spec": spec_of_silo}, "user")


def names(api, plural):
    return {body["metadata"]["name"] for body in api.store.list(plural, "study")}


def built(api, name="derm"):
    return {f"{name}-server", f"{name}-0-silo", f"{name}-1-silo"} <= names(api, "statefulsets")


def quiet(api):
    """Wait until nothing is written for a while; return how many requests there were until then."""

    def still():
        before = len(api.writes())
        time.sleep(0.7)
        return len(api.writes()) == before

    eventually(still)
    return len(api.asked)


def watches(api, since):
    return [asked for asked in api.asked[since:] if asked.watch]


def test_documents_become_objects_and_nothing_is_written_twice(api):
    with operating(api) as operator:
        federation(api)
        eventually(lambda: built(api))
        begun = quiet(api)
        time.sleep(1.0)
        assert api.writes(begun) == []
        assert operator.unhealthy() == ""
    patches = [asked for asked in api.asked if asked.method == "PATCH"]
    assert {asked.content_type for asked in patches} == {"application/apply-patch+yaml"}
    assert {asked.query["fieldManager"] for asked in patches} == {"anchorage-operator"}
    for plural in ("federations", "silos"):
        for body in api.store.list(plural):
            assert not {"finalizers", "annotations"} & set(body["metadata"])


def test_a_second_operator_that_starts_writes_nothing(api):
    with operating(api):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
    begun = len(api.asked)
    with operating(api):
        time.sleep(1.5)
    assert api.writes(begun) == []


@pytest.mark.parametrize("plural", ["statefulsets", "services", "configmaps", "networkpolicies", "serviceaccounts"])
def test_a_deleted_child_is_back_at_once(api, plural):
    with operating(api):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
        api.store.delete(plural, "study", "derm-server")
        eventually(lambda: "derm-server" in names(api, plural))


def test_an_edited_spec_is_applied_at_once(api):
    with operating(api):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
        federation(api, suspend=True)
        eventually(lambda: {body["spec"]["replicas"] for body in api.store.list("statefulsets")} == {0})


@pytest.mark.slow
def test_many_federations_at_once(api):
    with operating(api):
        for n in range(12):
            federation(api, f"fed-{n}")
        eventually(lambda: all(built(api, f"fed-{n}") for n in range(12)))
        begun = quiet(api)
        time.sleep(1.0)
        assert api.writes(begun) == []


def test_a_silent_stream_is_begun_again(api):
    with operating(api, silent_seconds=1.0):
        api.watching = "silent"
        api.cut_watches()
        begun = len(api.asked)
        federation(api)
        eventually(lambda: len(watches(api, begun)) >= 3 * len(WATCHED))
        api.watching = "normal"
        eventually(lambda: built(api))


def test_a_stream_that_closes_at_once_makes_no_hot_loop(api):
    with operating(api, pause_seconds=0.5) as operator:
        api.watching = "closing"
        api.cut_watches()
        begun = len(api.asked)
        eventually(lambda: len(watches(api, begun)) >= len(WATCHED))
        begun = len(api.asked)
        time.sleep(3.0)
        assert len(watches(api, begun)) <= len(WATCHED) * (3.0 / 0.5 + 2)
        assert operator.unhealthy() == ""
        api.watching = "normal"
        federation(api)
        eventually(lambda: built(api))


def test_versions_that_expired_are_listed_again_without_a_hot_loop(api):
    with operating(api, pause_seconds=0.5):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
        api.watching = "gone"
        api.cut_watches()
        begun = len(api.asked)
        time.sleep(3.0)
        assert len(api.asked) - begun <= 2 * len(WATCHED) * (3.0 / 0.5 + 2)
        federation(api, suspend=True)
        api.watching = "normal"
        eventually(lambda: {body["spec"]["replicas"] for body in api.store.list("statefulsets")} == {0})


def test_old_events_that_were_compacted_are_made_up_for(api):
    with operating(api):
        api.watching = "silent"
        api.cut_watches()
        federation(api)
        api.store.compact()
        api.watching = "normal"
        eventually(lambda: built(api))


def test_an_error_in_a_stream_does_not_end_the_operator(api):
    with operating(api) as operator:
        begun = len(api.asked)
        api.watching = "failing"
        api.cut_watches()
        time.sleep(2.0)
        assert len(api.asked) - begun < 200
        assert operator.unhealthy() == ""
        api.watching = "normal"
        federation(api)
        eventually(lambda: built(api))


def test_what_was_deleted_while_the_watch_was_away_is_found_by_the_resync(api):
    """A list tells what is there, not what is gone; the watch engine never learns of it."""
    with operating(api, resync_seconds=1):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
        api.watching = "silent"
        api.cut_watches()
        api.store.delete("services", "study", "derm-server")
        api.store.compact()
        eventually(lambda: "derm-server" in names(api, "services"))


def test_a_dead_watch_turns_the_probe_red_while_work_goes_on(api):
    with operating(api, resync_seconds=1, silent_seconds=60.0) as operator:
        api.watching = "silent"
        api.cut_watches()
        federation(api)
        eventually(lambda: built(api))  # the resync finds it
        assert "the watch is" in eventually(operator.unhealthy)
        api.watching = "normal"
        api.cut_watches()
        eventually(lambda: operator.unhealthy() == "")


def test_an_api_server_that_is_away_for_a_while(api):
    with operating(api, resync_seconds=1) as operator:
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
        api.stop()
        federation(api, suspend=True)
        federation(api, "nevi")
        assert "the last successful resync" in eventually(operator.unhealthy)
        begun = len(api.asked)
        api.start()
        eventually(lambda: built(api, "nevi"))
        eventually(lambda: api.store.get("statefulsets", "study", "derm-server")["spec"]["replicas"] == 0)
        eventually(lambda: operator.unhealthy() == "")
        assert len(api.asked) - begun < 500


def test_an_operator_that_starts_before_the_api_server(api):
    api.stop()
    access = ClusterAccess(Configuration(host=api.url))
    images = {"server": "example.org/s:1", "agent": "example.org/a:1"}
    settings = OperatorSettings.model_validate({"images": images, "listen": "127.0.0.1:0", "resyncSeconds": 5})
    metrics = Metrics()
    client = KubeClient(access, field_manager="anchorage-operator")
    operator = Operator(settings, client, access, metrics, pause_seconds=0.2)
    thread = threading.Thread(target=operator.run)
    thread.start()
    time.sleep(1.0)
    assert operator.unready() == "nothing has been read from the API server yet"
    api.start()
    federation(api)
    eventually(lambda: built(api))
    operator.stop()
    thread.join(20.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_writes_that_are_refused_for_a_while_are_done_in_the_end(api, status):
    with operating(api) as operator:
        api.refuse = lambda asked: (
            Refused(status, "Reason", "no", 1 if status == 429 else None) if asked.write else None
        )
        federation(api)
        time.sleep(3.0)
        refused = len(api.writes())
        assert 1 <= refused < 60  # back-off: a look that fails is repeated after 0.2, 0.4, 0.8 ... seconds
        api.refuse = lambda asked: None
        eventually(lambda: built(api))
        begun = quiet(api)
        time.sleep(0.5)
        assert api.writes(begun) == [] and operator.unhealthy() == ""


def test_the_wish_to_wait_is_kept(api):
    with operating(api):
        api.refuse = lambda asked: Refused(429, "TooManyRequests", "slow down", 4) if asked.write else None
        federation(api)
        first = eventually(api.writes)[0].time
        time.sleep(3.0)
        looks = [asked.time - first for asked in api.writes()]
        assert [late for late in looks if 1.5 < late < 3.9] == []


def test_everything_refused_for_a_while(api):
    with operating(api, resync_seconds=1) as operator:
        api.refuse = lambda asked: Refused(500, "InternalError", "etcd leader changed")
        api.cut_watches()
        federation(api)
        begun = len(api.asked)
        time.sleep(3.0)
        assert len(api.asked) - begun < 200
        api.refuse = lambda asked: None
        eventually(lambda: built(api))
        eventually(lambda: operator.unhealthy() == "")


def test_one_federation_that_cannot_be_digested_does_not_hold_up_the_others(api):
    with operating(api) as operator:
        api.store.create("federations", "study", {"metadata": {"name": "odd"}, "spec": "no mapping at all"})
        federation(api)
        eventually(lambda: built(api))
        assert operator.unhealthy() == ""


def test_tokens_and_keys_are_written_to_secrets_only(api):
    with operating(api):
        federation(api)
        eventually(lambda: built(api))
        quiet(api)
    for asked in api.writes():
        if "/secrets" not in asked.path:
            assert "PRIVATE KEY" not in json.dumps(asked.body)
    listed = [asked for asked in api.asked if asked.path.endswith("/secrets") and asked.method == "GET"]
    assert listed == []
