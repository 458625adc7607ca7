"""Federations that share devices by Kueue's queues; Kueue itself is a double that gates pods and admits them while there is quota."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_documents import STUDY, federation, managed_silo
from cluster_namespace import Namespace
from kube.commands import CommandFailed

QUEUE, GATE = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/admission"
DEVICE = {"resources": {"requests": {"memory": "600Mi"}}}
"""Stands for a GPU, which the node has not: the double counts the pods that ask for as much."""
SECCOMP = {"type": "RuntimeDefault"}


class Kueue:
    """Plays Kueue: a policy of the API server gates pods with the label, as its webhook does, and the double lifts the gates."""

    def __init__(self, namespace: Namespace, quota: int) -> None:
        self.namespace = namespace
        self.quota = quota

    def objects(self) -> list[dict[str, Any]]:
        """Return the policy that gates pods of this namespace, and its binding."""
        name = f"gate-{self.namespace.name}"
        gated = f'object.metadata.?labels["{QUEUE}"].hasValue()'
        expression = f'[JSONPatch{{op: "add", path: "/spec/schedulingGates", value: [{{"name": "{GATE}"}}]}}]'
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace.name}}
        spec = {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": rules, "namespaceSelector": here},
            "matchConditions": [{"name": "queued", "expression": gated}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        }
        head = {"apiVersion": "admissionregistration.k8s.io/v1beta1", "metadata": {"name": name}}
        policy = head | {"kind": "MutatingAdmissionPolicy", "spec": spec}
        return [policy, head | {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}]

    def admit(self) -> None:
        """Lift the gates of pods without the device, and of as many others as there is quota for."""
        pods = [pod for pod in self.namespace.objects("pods", QUEUE) if "deletionTimestamp" not in pod["metadata"]]
        free = self.quota - sum(_has_device(pod) and not _is_gated(pod) for pod in pods)
        for pod in filter(_is_gated, sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))):
            if _has_device(pod):
                if free <= 0:
                    continue
                free -= 1
            self.namespace.patch("pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}})


def _has_device(pod: dict[str, Any]) -> bool:
    (container,) = pod["spec"]["containers"]
    return bool(container["resources"]["requests"].get("memory") == DEVICE["resources"]["requests"]["memory"])


def _is_gated(pod: dict[str, Any]) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", ()))


@pytest.fixture
def kueue(started: Namespace) -> Iterator[Kueue]:
    """Give a queue with quota for one federation."""
    double = Kueue(started, quota=1)
    try:
        started.site.kubectl.apply(*double.objects())
    except CommandFailed as failed:
        if "no matches for kind" not in str(failed):
            raise
        pytest.skip("this cluster has no MutatingAdmissionPolicy (v1beta1), with which the tests play Kueue")

    def is_in_force() -> bool:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try", "labels": {QUEUE: "none"}}}
        secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
        container = {"name": "try", "image": "try", "securityContext": secure | {"seccompProfile": SECCOMP}}
        sent = started.kubectl(
            *("create", "--dry-run=server", "--output=json", "--filename=-"),
            text=json.dumps(pod | {"spec": {"containers": [container]}}),
        )
        return _is_gated(json.loads(sent))

    started.eventually("pods are gated", is_in_force)
    yield double
    for each in double.objects():
        started.kubectl("delete", each["kind"], each["metadata"]["name"], "--wait=false")


def test_the_second_federation_starts_when_the_first_gives_its_device_back(started: Namespace, kueue: Kueue) -> None:
    first, second = STUDY, "later"
    for name in (first, second):
        document = federation(2, min_silos=1, queueName="gpus")
        silo = managed_silo(f"{name}-silo", 0, **DEVICE)
        document["metadata"]["name"] = silo["spec"]["federation"] = name
        started.apply(document, silo)
        started.eventually(
            f"the agent of {name} is there", lambda name=name: _agent(started, name) and (kueue.admit() or True)
        )

    def reason(name: str, kind: str = "AgentAvailable") -> str:
        return str(started.condition("silo", f"{name}-silo", kind).get("reason"))

    def admitted(done: bool) -> bool:
        kueue.admit()
        return done

    started.eventually("the second agent is queued", lambda: admitted(reason(second) == "Queued"))
    assert 'queue "gpus"' in started.condition("silo", f"{second}-silo", "Ready")["message"]
    started.eventually("the first has its device back", lambda: admitted(_agent(started, first) is None))
    assert started.round_of(second) == 0
    started.eventually("the second has trained", lambda: admitted(started.round_of(second) == 2))


def _agent(namespace: Namespace, name: str) -> dict[str, Any] | None:
    return namespace.pod(f"{name}-silo-silo-0")
