"""A policy of the cluster that changes what the operator wrote: the contest is told and backed off, and other wishes are carried out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_documents import STUDY, federation
from cluster_namespace import Namespace
from kube.commands import CommandFailed

MIRRORED = "mirror.example.org/server:1"


def mirror(namespace: Namespace) -> list[dict[str, Any]]:
    """Return a policy that gives every StatefulSet of the namespace another image, as Kyverno's kind does, and its binding."""
    patch = f'JSONPatch{{op: "replace", path: "/spec/template/spec/containers/0/image", value: "{MIRRORED}"}}'
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["statefulsets"],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patch}]"}}],
    }
    name = f"mirror-{namespace.name}"
    head = {"apiVersion": "admissionregistration.k8s.io/v1beta1", "metadata": {"name": name}}
    return [
        head | {"kind": "MutatingAdmissionPolicy", "spec": spec},
        head | {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}},
    ]


def _in_force(namespace: Namespace) -> bool:
    """Return whether the policy changes a StatefulSet, which is not kept; the API server needs a moment to learn of a policy."""
    labels = {"app": "probe"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "probe", "image": "probe:1"}]}}
    probe = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "probe"},
        "spec": {"serviceName": "probe", "selector": {"matchLabels": labels}, "template": template},
    }
    create = ("create", "--dry-run=server", "--output=json", "--filename", "-")
    return MIRRORED in namespace.kubectl(*create, text=json.dumps(probe))


@pytest.fixture
def mirrored(started: Namespace) -> Iterator[Namespace]:
    """Give a namespace with the operator and the policy."""
    try:
        started.site.kubectl.apply(*mirror(started))
    except CommandFailed as failed:
        if "no matches for kind" not in str(failed):
            raise
        pytest.skip("this cluster has no MutatingAdmissionPolicy (v1beta1)")
    started.eventually("the policy is in force", lambda: _in_force(started))
    yield started
    for each in mirror(started):
        started.kubectl("delete", each["kind"], each["metadata"]["name"], "--wait=false")


def _image(namespace: Namespace) -> str:
    (container,) = namespace.must_get("statefulset", f"{STUDY}-server")["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def test_a_contest_with_a_policy_is_told(mirrored: Namespace) -> None:
    mirrored.apply(federation(suspend=True))
    condition = mirrored.eventually(
        "the contest is told",
        lambda: next((each for each in mirrored.events(STUDY) if each["reason"] == "ApplyContested"), None),
    )
    assert f"containers[0].image of StatefulSet {STUDY}-server" in condition["message"]
    assert _image(mirrored) == MIRRORED
    mirrored.patch("federation", STUDY, {"spec": {"server": {"resources": {"limits": {"memory": "3Gi"}}}}})

    def limit() -> bool:
        stateful_set = mirrored.must_get("statefulset", f"{STUDY}-server")
        return bool(
            stateful_set["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "3Gi"}
        )

    mirrored.eventually("another wish is carried out", limit)
