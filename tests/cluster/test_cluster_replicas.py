"""Two replicas of the operator: one acts, and the other one when the first is silent."""

import pytest
from cluster_documents import STUDY, federation
from cluster_namespace import Namespace


def leader(namespace: Namespace) -> str:
    """Return the pod that holds the Lease."""
    holder = namespace.must_get("lease", "anchorage-operator")["spec"].get("holderIdentity", "")
    return str(holder).partition("_")[0]


def leads(namespace: Namespace, pod: str) -> bool:
    """Ask a pod itself whether it leads."""
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}:8080/proxy/metrics"
    (line,) = (
        line
        for line in namespace.kubectl("get", "--raw", path).splitlines()
        if line.startswith("anchorage_operator_is_leader ")
    )
    return float(line.split()[1]) == 1.0


def test_another_replica_takes_over_and_gives_nothing_back(namespace: Namespace) -> None:
    cluster = namespace.site.cluster
    if cluster is None:
        pytest.skip("the processes of a given cluster are not here")
    namespace.install_chart("--set", "operator.replicas=2")
    pods = namespace.names("pods", "app.kubernetes.io/name=anchorage-operator")
    assert len(pods) == 2
    first = namespace.eventually("one replica leads", lambda: leader(namespace))
    (second,) = pods - {first}
    assert leads(namespace, first) and not leads(namespace, second)

    with cluster.silent("anchorage_operator", first):
        namespace.apply(federation(suspend=True))
        namespace.wait_for_condition("federation", STUDY, "Ready", "False", "Suspended")
        assert leader(namespace) == second and leads(namespace, second)

    namespace.eventually(
        "the first one answers", lambda: namespace.kubectl("get", "pod", first) and not leads(namespace, first)
    )
    assert leads(namespace, second)
    namespace.kubectl("delete", "pod", second)
    namespace.eventually("another one leads", lambda: leader(namespace) not in ("", second))
    assert namespace.must_get("lease", "anchorage-operator")["spec"]["leaseTransitions"] == 2
