"""Silos that come and go, a pause, an upgrade of the chart and the end of a federation, while it trains."""

from typing import Any

from cluster_documents import STUDY, federation, managed_silo, two_silos
from cluster_namespace import Namespace

MANY_ROUNDS = 500
KINDS = (
    "statefulsets,services,configmaps,secrets,serviceaccounts,networkpolicies,"
    "persistentvolumeclaims,pods,federations,silos"
)


def training(namespace: Namespace, **spec: Any) -> int:
    """Start the study, and return a round once it is committed."""
    namespace.apply(federation(MANY_ROUNDS, epochs=10, **spec), *two_silos())
    return namespace.wait_for_round(STUDY, 1)


def identities(namespace: Namespace, *pods: str) -> dict[str, tuple[str, int]]:
    """Return each pod's uid and how often its container was started again."""
    conditions_by_name = {}
    for pod in pods:
        now = namespace.must_get("pod", pod)
        (container,) = now["status"]["containerStatuses"]
        conditions_by_name[pod] = (now["metadata"]["uid"], container["restartCount"])
    return conditions_by_name


def everything(namespace: Namespace) -> set[tuple[str, str]]:
    """Return kind and name of every object that a federation could leave."""
    return {(each["kind"], each["metadata"]["name"]) for each in namespace.objects(KINDS)}


def test_a_silo_joins_and_leaves_and_the_others_notice_nothing(started: Namespace) -> None:
    training(started)
    others = (f"{STUDY}-server-0", "silo-a-silo-0", "silo-b-silo-0")
    before = identities(started, *others)

    started.apply(managed_silo("silo-c", 2))
    started.wait_for_condition("silo", "silo-c", "Connected")
    started.eventually("silo-c counts", lambda: float(_status(started, "silo-c").get("weight") or 0) > 0)
    assert started.must_get("federation", STUDY)["status"]["silosSummary"] == "3/3"

    started.kubectl("delete", "silo", "silo-c")
    started.eventually("its pod is gone", lambda: "silo-c-silo-0" not in started.names("pods"))
    started.eventually("it is no member", lambda: _federation_status(started)["silosSummary"] == "2/2")
    at = started.round_of(STUDY)
    started.wait_for_round(STUDY, at + 2)
    assert identities(started, *others) == before


def _status(namespace: Namespace, silo: str) -> dict[str, Any]:
    return dict(namespace.must_get("silo", silo).get("status", {}))


def _federation_status(namespace: Namespace) -> dict[str, Any]:
    return dict(namespace.must_get("federation", STUDY)["status"])


def test_suspend_and_resume(started: Namespace) -> None:
    training(started)
    started.patch("federation", STUDY, {"spec": {"suspend": True}})
    started.wait_for_condition("federation", STUDY, "Ready", "False", "Suspended")
    managed_by = "app.kubernetes.io/managed-by=anchorage-operator"
    started.eventually("no pod runs", lambda: not started.names("pods", managed_by))
    at = started.round_of(STUDY)
    assert at >= 1
    started.patch("federation", STUDY, {"spec": {"suspend": False}})
    started.wait_for_condition("federation", STUDY, "Ready")
    reached = started.wait_for_round(STUDY, at + 1)
    assert reached < at + 30, "it went on where it was"


def test_the_chart_is_upgraded_while_training(started: Namespace) -> None:
    training(started)
    pods = (f"{STUDY}-server-0", "silo-a-silo-0", "silo-b-silo-0")
    before = identities(started, *pods)
    (operator,) = started.names("pods", "app.kubernetes.io/name=anchorage-operator")
    started.install_chart("--set", "operator.podAnnotations.upgraded=again")
    gone = started.eventually("the old operator is gone", lambda: operator not in _operators(started))
    assert gone
    at = started.round_of(STUDY)
    started.wait_for_round(STUDY, at + 2)
    assert identities(started, *pods) == before


def _operators(namespace: Namespace) -> set[str]:
    return namespace.names("pods", "app.kubernetes.io/name=anchorage-operator")


def test_deletion_keeps_the_checkpoints_and_the_authority(started: Namespace) -> None:
    before = everything(started)
    training(started)
    _delete(started)
    retained = {("PersistentVolumeClaim", f"state-{STUDY}-server-0"), ("Secret", f"{STUDY}-authority")}
    started.eventually("what may go is gone", lambda: everything(started) <= before | retained)
    assert everything(started) == before | retained

    reached = training(started)
    assert reached >= 1
    assert everything(started) >= before | retained


def test_deletion_of_everything_where_the_federation_says_so(started: Namespace) -> None:
    before = everything(started)
    training(started, deletionPolicy="Delete")
    _delete(started)
    started.eventually("all is gone", lambda: everything(started) == before)


def _delete(namespace: Namespace) -> None:
    namespace.kubectl("delete", "federation", STUDY)
    namespace.kubectl("delete", "silos", "--all")
