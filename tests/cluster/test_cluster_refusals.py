"""Every refusal of the table, by a real API server, and each wording once as a person at kubectl reads it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site
from kube.commands import CommandFailed
from kube.proxy import Proxy
from left_to_the_operator import LEFT_TO_THE_OPERATOR
from refusal import ANCHORED, FEDERATION, SILO, Object, Refusal, changed
from refusals import REFUSALS


@pytest.fixture(scope="module")
def room(site: Site) -> Iterator[Namespace]:
    """Give a namespace without an operator: only the API server judges here."""
    with Namespace.made(site) as made:
        yield made


def sent(room: Namespace, document: Object, *flags: str) -> str:
    """Apply an object; return what kubectl said when it was refused, and nothing when it was not."""
    try:
        room.kubectl("apply", "--filename", "-", *flags, text=json.dumps(document))
    except CommandFailed as refused:
        return str(refused)
    return ""


# A kubectl takes most of a second to start and some milliseconds to ask: the table goes over one proxy.
AT_ONCE = [case for case in REFUSALS if case.before is None]
AT_KUBECTL = [case for case in REFUSALS if case.before is not None]
AT_KUBECTL += {case.message.partition('"')[0]: case for case in reversed(AT_ONCE)}.values()  # each wording once


@pytest.fixture(scope="module")
def proxy(room: Namespace) -> Iterator[Proxy]:
    """Give a way to the API server that starts no process for a request."""
    with Proxy.started(room.site.kubectl) as started:
        yield started


def answer(room: Namespace, proxy: Proxy, document: Object) -> Object:
    """Ask the API server as `kubectl apply --dry-run=server` does; return the object, or the Status that refuses it."""
    path = f"/apis/{document['apiVersion']}/namespaces/{room.name}/{document['kind'].lower()}s"
    return proxy.create(f"{path}?dryRun=All&fieldValidation=Strict", document)


@pytest.mark.parametrize("case", AT_ONCE, ids=lambda case: case.name)
def test_refused(room: Namespace, proxy: Proxy, case: Refusal) -> None:
    answer_text = answer(room, proxy, case.document)
    assert answer_text["kind"] == "Status", "it was taken"
    assert case.message in answer_text["message"]
    assert case.path in answer_text["message"]


@pytest.mark.parametrize("case", AT_KUBECTL, ids=lambda case: case.name)
def test_refused_in_the_words_that_a_person_reads(room: Namespace, case: Refusal) -> None:
    answer_text = (
        sent(room, case.document, "--dry-run=server") if case.before is None else _after(room, case, case.before)
    )
    assert answer_text, "it was taken"
    assert case.message in answer_text
    assert case.path in answer_text


def _after(room: Namespace, case: Refusal, before: Object) -> str:
    kind, name = before["kind"].lower(), before["metadata"]["name"]
    assert sent(room, before) == ""
    try:
        return sent(room, case.document)
    finally:
        room.kubectl("delete", kind, name)


@pytest.mark.parametrize("document", [FEDERATION, ANCHORED, SILO], ids=["plain", "anchored", "silo"])
def test_what_the_table_starts_from_is_taken(room: Namespace, document: Object) -> None:
    assert sent(room, document, "--dry-run=server") == ""


@pytest.mark.parametrize("case", LEFT_TO_THE_OPERATOR, ids=lambda case: case.name)
def test_left_to_the_operator(room: Namespace, proxy: Proxy, case: Refusal) -> None:
    answer_text = answer(room, proxy, case.document)
    assert answer_text["kind"] == case.document["kind"], answer_text


EDITING = {"apiGroups": ["anchorage.dev"], "resources": ["federations", "silos"], "verbs": ["create", "get", "patch"]}
APPROVING = {"apiGroups": ["anchorage.dev"], "resources": ["silos"], "verbs": ["approve"]}
RBAC = "rbac.authorization.k8s.io"


def _user(room: Namespace, name: str, *rules: Mapping[str, Any]) -> None:
    metadata = {"name": name}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": name}]
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, "subjects": subjects}
    room.apply(role, binding | {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name}})


@pytest.fixture
def protected(room: Namespace) -> Iterator[Namespace]:
    """Give the namespace with the chart's policy that protects approvals, an editor and an approver."""
    chosen = (
        "--set",
        "rbac.protectAdmission=true",
        "--show-only",
        "templates/admission-policy.yaml",
        "--kube-version",
        "1.34.0",
    )
    chart = CHECKOUT / "charts" / "anchorage"
    policy = room.site.helm("template", "protected", chart, *chosen, namespace=room.name)
    _user(room, "editor", EDITING)
    _user(room, "approver", EDITING, APPROVING)
    room.kubectl("apply", "--filename", "-", text=policy)
    yield room
    room.kubectl("delete", "--filename", "-", text=policy)


def test_approving_in_advance_is_a_right_of_its_own(protected: Namespace) -> None:
    admitting = changed(FEDERATION, {"spec.admission": {"silos": ["hospital-a"]}})
    automatic = changed(FEDERATION, {"spec.admission": {"approval": "Automatic"}})

    def said(document: Object, user: str) -> str:
        return sent(protected, document, "--dry-run=server", f"--as={user}")

    protected.eventually("the policy is in force", lambda: "needs the verb approve" in said(SILO, "editor"))
    for document in (admitting, automatic, SILO):
        assert "needs the verb approve" in said(document, "editor")
        assert said(document, "approver") == ""
    remote = changed(SILO, {"spec.managed": None})
    for document in (FEDERATION, ANCHORED, remote):
        assert said(document, "editor") == ""
    protected.apply(admitting, SILO)
    assert said(changed(admitting, {"spec.rounds": 9}), "editor") == "", "what was granted before may stay"
    more = changed(admitting, {"spec.admission.silos": ["hospital-a", "hospital-b"]})
    assert "needs the verb approve" in said(more, "editor")
    protected.kubectl("delete", "federation,silo", "--all")


# A file without an API version, as a tuning, is for fedctl alone.
EXAMPLES = [path for path in sorted((CHECKOUT / "examples").rglob("*.yaml")) if "apiVersion:" in path.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(CHECKOUT / "examples")))
def test_examples_are_taken(room: Namespace, path: Path) -> None:
    room.kubectl("apply", "--dry-run=server", "--filename", str(path))
