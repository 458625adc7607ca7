"""The whole operator, its threads and an API server over HTTP: what is written, what is not, and an API server that goes away.

Everything about time is tested in fake time: tests/unit/operator/test_operator_loops.py and test_operator_streams.py.
"""

import json
import threading
from contextlib import contextmanager

import pytest
from eventually import eventually
from fake_api.memory import plural
from fake_api.operator_world import PART, PARTITION, SPEC
from fake_api.server import FakeApi
from fake_api.store import Refused
from kubernetes.client import Configuration

from anchorage.transport.kube.access import ClusterAccess
from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage_operator.cache import ref_of
from anchorage_operator.metrics import Metrics
from anchorage_operator.process import Operator
from anchorage_operator.resync import WATCHED
from anchorage_operator.settings import OperatorSettings

PATIENCE = 120.0
"""Seconds after which what takes a moment is taken to hang."""

LOOKED = "looked"
"""An annotation of the test's own."""


@pytest.fixture
def api():
    api = FakeApi().start()
    yield api
    api.stop()


def access_to(api):
    return ClusterAccess(Configuration(host=api.url))


@contextmanager
def operating(api, resync_seconds=3600, wait=True):
    """Run an operator; by default it never compares lists, so that all it learns comes by the watch."""
    images = {"server": "example.org/s:1", "agent": "example.org/a:1"}
    operator_settings = {
        "images": images,
        "listen": "127.0.0.1:0",
        "resyncSeconds": resync_seconds,
        "watch": ("study",),
    }
    metrics = Metrics()
    client = KubeClient(access_to(api), field_manager="anchorage-operator", connections=30, count=metrics.count_request)
    settings = OperatorSettings.model_validate(operator_settings)
    operator = Operator(settings, client, metrics, pause_seconds=0.2)
    thread = threading.Thread(target=operator.run)
    thread.start()
    try:
        if wait:
            eventually(lambda: not operator.unready())
        yield operator
    finally:
        operator.stop()
        thread.join(PATIENCE)
        client.close()
    assert not thread.is_alive()


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


def settled(api, operator):
    """Wait until the operator knows all that there is and has nothing to do; return how many requests there were until then.

    What it wrote last may be on its way to it while it seems idle, so two looks in a row must find the same requests and reconciles.
    """
    before = None

    def known():
        versions = {}
        for kind, labels in WATCHED.items():
            for body in api.store.list(plural(kind), "study", labels):
                versions[ref_of(body)] = body["metadata"]["resourceVersion"]
        held = [operator.cache.versions(kind, ("study",)) for kind in WATCHED]
        return versions == {ref: version for kind in held for ref, version in kind.items()}

    def done():
        return len(api.asked), looks(operator)

    def still():
        nonlocal before
        last, before = before, done()
        idle = known() and operator.cache.lag() == 0.0 and operator._queue.overdue() == 0.0
        return idle and last == before == done()

    eventually(still)
    return before[0]


def looks(operator):
    """Count how often it has looked at a federation, all that it did about it included."""
    (line,) = [
        line
        for line in operator._metrics.exposition().decode().splitlines()
        if line.startswith("anchorage_operator_reconcile_seconds_count ")
    ]
    return float(line.split()[1])


def look_again(api, operator):
    """Change what concerns the operator in nothing, twice; return the writes that come of the second time.

    The first may bring statuses up to date: that its own objects are there now concerns nobody before something else changes, as it does at once in
    a cluster, whose controllers take them up.
    """
    for _ in range(2):
        begun, before = settled(api, operator), looks(operator)
        for body in api.store.list("federations", "study"):
            change = {"metadata": {"annotations": {LOOKED: str(before)}}}
            api.store.patch("federations", "study", body["metadata"]["name"], change)
        eventually(lambda before=before: looks(operator) >= before + len(api.store.list("federations", "study")))
        settled(api, operator)
    return api.writes(begun)


def test_documents_become_objects_and_nothing_is_written_twice(api):
    with operating(api) as operator:
        federation(api)
        eventually(lambda: built(api))
        assert look_again(api, operator) == []
        assert operator.unhealthy() == ""
    patches = [asked for asked in api.asked if asked.method == "PATCH"]
    assert {asked.content_type for asked in patches} == {"application/apply-patch+yaml"}
    assert {asked.query["fieldManager"] for asked in patches} == {"anchorage-operator"}
    for plural_of in ("federations", "silos"):
        for body in api.store.list(plural_of):
            assert "finalizers" not in body["metadata"]
            assert set(body["metadata"].get("annotations", ())) <= {LOOKED}
    for asked in api.writes():
        if "/secrets" not in asked.path:
            assert "PRIVATE KEY" not in json.dumps(asked.body)
    assert [asked for asked in api.asked if asked.path.endswith("/secrets") and asked.method == "GET"] == []
    begun = len(api.asked)
    with operating(api) as another:
        assert look_again(api, another) == []
    assert api.writes(begun) == []


def test_deleted_children_are_back_and_an_edited_spec_is_applied_at_once(api):
    with operating(api) as operator:
        federation(api)
        eventually(lambda: built(api))
        for plural_of in ("statefulsets", "services", "configmaps", "networkpolicies", "serviceaccounts"):
            settled(api, operator)
            api.store.delete(plural_of, "study", "derm-server")
            eventually(lambda plural_of=plural_of: "derm-server" in names(api, plural_of))
        settled(api, operator)
        federation(api, suspend=True)
        eventually(lambda: {body["spec"]["replicas"] for body in api.store.list("statefulsets")} == {0})


def test_many_federations_at_once(api):
    with operating(api) as operator:
        for n in range(12):
            federation(api, f"fed-{n}")
        eventually(lambda: all(built(api, f"fed-{n}") for n in range(12)))
        assert look_again(api, operator) == []


def test_an_api_server_that_is_away_for_a_while(api):
    with operating(api, resync_seconds=1) as operator:
        federation(api)
        eventually(lambda: built(api))
        settled(api, operator)
        api.stop()
        federation(api, suspend=True)
        federation(api, "nevi")
        assert "the API server has not answered" in eventually(operator.unhealthy)
        begun = len(api.asked)
        api.start()
        eventually(lambda: built(api, "nevi"))
        eventually(lambda: api.store.get("statefulsets", "study", "derm-server")["spec"]["replicas"] == 0)
        eventually(lambda: operator.unhealthy() == "")
        assert len(api.asked) - begun < 500


def test_a_wish_to_wait_reaches_the_operator(api):
    """How it is kept is tested in fake time."""
    client = KubeClient(access_to(api), field_manager="anchorage-operator")
    api.refuse = lambda asked: Refused(429, "TooManyRequests", "slow down", 4)
    with pytest.raises(ApiError) as refused:
        client.get("Federation", "study", "derm")
    client.close()
    assert (refused.value.status, refused.value.retry_after) == (429, 4.0)


def test_an_operator_that_starts_before_the_api_server(api):
    api.stop()
    with operating(api, wait=False) as operator:
        eventually(lambda: b'status="0"' in operator._metrics.exposition())
        assert operator.unready() == "nothing has been read from the API server yet"
        api.start()
        federation(api)
        eventually(lambda: built(api))
