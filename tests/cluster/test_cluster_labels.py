"""Namespaces that the operator watches by a label: they come and go while it runs."""

from cluster_documents import STUDY, federation
from cluster_namespace import Namespace

OPERATOR = "anchorage-operator"


def test_a_namespace_is_watched_while_it_has_the_label(namespace: Namespace) -> None:
    label = f"anchorage.example.org/{namespace.name}"
    escaped = label.replace(".", "\\.")
    quick = ("--set", "operator.resyncSeconds=2")
    try:
        namespace.install_chart("--set-string", f"watch.labels.{escaped}=yes", *quick)
        before = operators(namespace)
        with Namespace.made(namespace.site, "labelled") as study:
            role, account = f"{namespace.name}-{OPERATOR}", f"{namespace.name}:{OPERATOR}"
            study.kubectl("create", "rolebinding", OPERATOR, f"--clusterrole={role}", f"--serviceaccount={account}")
            study.kubectl("label", "namespace", study.name, f"{label}=yes")
            study.apply(federation(suspend=True))
            study.wait_for_condition("federation", STUDY, "Ready", "False", "Suspended")

            study.kubectl("label", "namespace", study.name, f"{label}-")
            gone = "the namespace is dropped"
            study.eventually(gone, lambda: study.name not in metrics(namespace))
            study.kubectl("label", "namespace", study.name, f"{label}=yes")
            study.eventually("it is watched again", lambda: study.name in metrics(namespace))
            # Not later: while a namespace is deleted, its RoleBinding may go first.
            assert "NamespaceDenied" not in {event["reason"] for pod in before for event in namespace.events(pod)}
        namespace.eventually("a namespace that is deleted is dropped", lambda: study.name not in metrics(namespace))
        assert operators(namespace) == before, "nothing was restarted"
    finally:
        namespace.site.helm("uninstall", "anchorage", namespace=namespace.name)


def operators(namespace: Namespace) -> dict[str, int]:
    """Return the operator's pods, and how often each was started again."""
    pods = namespace.objects("pods", f"app.kubernetes.io/name={OPERATOR}")
    return {each["metadata"]["name"]: each["status"]["containerStatuses"][0]["restartCount"] for each in pods}


def metrics(namespace: Namespace) -> str:
    """Return what the operator says of the namespaces that it watches."""
    (pod,) = operators(namespace)
    exposition = namespace.kubectl("get", "--raw", f"/api/v1/namespaces/{namespace.name}/pods/{pod}:8080/proxy/metrics")
    return "\n".join(
        line for line in exposition.splitlines() if line.startswith("anchorage_operator_namespace_readable")
    )
