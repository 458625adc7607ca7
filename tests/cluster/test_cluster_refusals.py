"""Every refusal of the table, by a real API server, in the words that a person at kubectl reads."""

import json
from collections.abc import Iterator

import pytest
from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site
from kube.commands import CommandFailed
from left_to_the_operator import LEFT_TO_THE_OPERATOR
from refusal import ANCHORED, FEDERATION, SILO, Object, Refusal
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


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refused(room: Namespace, case: Refusal) -> None:
    said = sent(room, case.document, "--dry-run=server") if case.before is None else _after(room, case, case.before)
    assert said, "it was taken"
    assert case.message in said
    assert case.path in said


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
def test_left_to_the_operator(room: Namespace, case: Refusal) -> None:
    assert sent(room, case.document, "--dry-run=server") == ""


@pytest.mark.parametrize("path", sorted((CHECKOUT / "examples").rglob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_taken(room: Namespace, path: object) -> None:
    room.kubectl("apply", "--dry-run=server", "--filename", str(path))
