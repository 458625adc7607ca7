"""What documents may set in pods, by the chart's ValidatingAdmissionPolicy at a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site
from kube.commands import CommandFailed
from refusal import ANCHORED, FEDERATION, SILO, Object, changed

CSV = {"format": "CsvManifest", "manifest": "a.csv"}
LISTED = "podOverrides.fields={env,volumes,imagePullSecrets,nodeSelector}"


@pytest.fixture(scope="module")
def room(site: Site) -> Iterator[Namespace]:
    """Give a namespace without an operator: only the API server judges here."""
    with Namespace.made(site) as made:
        yield made


def policy(room: Namespace, *arguments: str) -> str:
    """Render the policy for the namespace."""
    chart, shown = CHECKOUT / "charts" / "anchorage", ("--show-only", "templates/pod-overrides-policy.yaml")
    return room.site.helm(
        "template", "limited", chart, *shown, "--kube-version", "1.34.0", *arguments, namespace=room.name
    )


def said(room: Namespace, document: Object, *flags: str) -> str:
    """Return what the API server says against a document; empty where it takes it."""
    try:
        room.kubectl("apply", "--filename", "-", *flags, text=json.dumps(document))
    except CommandFailed as refused:
        return str(refused)
    return ""


@pytest.fixture(params=[(), ("--set", LISTED, "--set", "podOverrides.secrets={listed}")], ids=["default", "listed"])
def limited(room: Namespace, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Give the namespace with the policy in force, as it is by default and with further fields listed."""
    text = policy(room, *request.param)
    room.kubectl("apply", "--filename", "-", text=text)
    state = _mounting("state-other-server-0")
    room.eventually("the policy is in force", lambda: "holds the state" in said(room, state, "--dry-run=server"))
    yield room
    room.kubectl("delete", "federation,silo", "--all")
    room.kubectl("delete", "--filename", "-", text=text)
    room.eventually("the policy is gone", lambda: said(room, state, "--dry-run=server") == "")


def _mounting(claim: str) -> Object:
    return changed(FEDERATION, {"spec.anchorData": {**CSV, "claimName": claim}})


def _of_both(pod: dict[str, Any]) -> Iterator[Object]:
    yield changed(FEDERATION, {"spec.server": {"pod": pod}})
    yield changed(SILO, {"spec.managed.pod": pod})


def _env(name: str, secret: str = "") -> dict[str, Any]:
    source = {"valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}} if secret else {"value": "x"}
    return {"env": [{"name": name, **source}]}


ALWAYS = [
    (_env("LD_PRELOAD"), ("env", "env")),
    (_env("https_proxy"), ("env", "env")),
    (_env("TOKEN", "database"), ("env", "podOverrides.secrets")),
    ({"imagePullSecrets": ["database"]}, ("imagePullSecrets", "podOverrides.secrets")),
    ({"image": "evil.example.org/a:1"}, ("image", "image")),
    ({"labels": {"app": "payroll"}}, ("labels", "labels")),
    ({"priorityClassName": "system-cluster-critical"}, ("priorityClassName", "priorityClassName")),
    ({"annotations": {"vault.hashicorp.com/agent-inject": "true"}}, ("annotations", "annotations")),
    ({"volumes": [{"claimName": "state-b-silo-0", "mountPath": "/b"}]}, ("volumes", "holds the state")),
]


def test_the_list_holds_at_the_api_server(limited: Namespace, request: pytest.FixtureRequest) -> None:
    listed = "[listed]" in request.node.name
    for document in (FEDERATION, ANCHORED, SILO):
        assert said(limited, document, "--dry-run=server") == ""
    for pod, words in ALWAYS:
        for document in _of_both(pod):
            answer = said(limited, document, "--dry-run=server")
            assert "denied request" in answer, (pod, answer)
            assert words[listed] in answer
    for pod in ({"env": []}, {"nodeSelector": {"zone": "a"}}):
        for document in _of_both(pod):
            assert said(limited, document, "--dry-run=server") == ""
    for pod in (_env("OTEL_EXPORTER_OTLP_ENDPOINT"), _env("TOKEN", "listed"), {"imagePullSecrets": ["listed"]}):
        for document in _of_both(pod):
            assert (said(limited, document, "--dry-run=server") == "") is listed
    within = {"annotations": {"user.anchorage.dev/team": "derm"}, "tolerations": [{"operator": "Exists"}]}
    for document in _of_both(within):
        assert (said(limited, document, "--dry-run=server") == "") is not listed, "the list is all that there is"
    cpu = changed(FEDERATION, {"spec.server": {"resources": {"limits": {"cpu": 1}}}})
    assert (said(limited, cpu, "--dry-run=server") == "") is not listed


def test_the_state_of_others_is_no_claim_for_data(limited: Namespace) -> None:
    name = "state-other-server-0"
    for document in (
        _mounting(name),
        changed(FEDERATION, {"spec.evaluation": {"test": {**CSV, "claimName": name}}}),
        changed(FEDERATION, {"spec.evaluation": {"validation": {**CSV, "claimName": name}}}),
        changed(FEDERATION, {"spec.model.initial": f"{name}/models/1.safetensors"}),
        changed(SILO, {"spec.managed.data": {**CSV, "claimName": name}}),
        changed(SILO, {"spec.managed.policy": f"{name}/policy.yaml"}),
    ):
        assert "holds the state" in said(limited, document, "--dry-run=server")
    assert said(limited, _mounting("images"), "--dry-run=server") == ""


def test_what_was_there_before_the_policy_can_be_changed_elsewhere_and_deleted(room: Namespace) -> None:
    before = changed(FEDERATION, {"spec.server": {"pod": _env("LEVEL")}})
    room.apply(before)
    text = policy(room)
    room.kubectl("apply", "--filename", "-", text=text)
    try:
        worse = changed(FEDERATION, {"spec.server": {"pod": _env("OTHER")}})
        room.eventually("the policy is in force", lambda: "denied" in said(room, worse, "--dry-run=server"))
        assert said(room, changed(before, {"spec.rounds": 9})) == ""
        assert said(room, changed(FEDERATION, {"spec.server": {}}), "--dry-run=server") == ""
        room.kubectl("delete", "federation", "--all", "--cascade=foreground")
    finally:
        room.kubectl("delete", "--filename", "-", text=text)
