"""Kubernetes objects are checked by the rules of files, but for the number of silos."""

from typing import Any

import pytest

from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_documents

META = {"uid": "1", "generation": 3, "managedFields": [{"manager": "kubectl"}], "namespace": "study"}


def federation(**spec: Any) -> dict[str, Any]:
    values = {
        "rounds": 5,
        "task": {"classification": {"classes": ["a", "b", "c"]}},
        "model": {"network": "SmallCnn", "imageSize": 32},
        "method": {"name": "FedAvg"},
    }
    return {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Federation",
        "metadata": {"name": "derm", **META},
        "spec": {**values, **spec},
        "status": {"round": "what an older version wrote"},
    }


def silo(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": name, **META},
        "spec": {"federation": "derm", "labels": "All", **spec},
        "status": {"conditions": "anything"},
    }


def refused(*objects: dict[str, Any]) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        validate_documents(objects[0], objects[1:])
    return caught.value


def test_metadata_and_status_of_the_cluster_are_left_out() -> None:
    made, silos = validate_documents(federation(), [silo("a"), silo("b")])
    assert (made.metadata.name, made.metadata.namespace, made.status) == ("derm", "study", None)
    assert [each.metadata.name for each in silos] == ["a", "b"]
    assert silos[0].status is None


def test_silos_may_come_later() -> None:
    made, silos = validate_documents(federation(protocol={"minSilos": 3, "silosPerRound": 4}))
    assert made.spec.protocol.min_silos == 3
    assert silos == ()


def test_slots_that_were_not_set_are_the_preset_s() -> None:
    made, _ = validate_documents(federation(method={"name": "FedAvg", "local": {"epochs": 2}}))
    assert made.spec.method.model_fields_set == {"name", "local"}


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([federation(rounds=0)], "ANC-1010 OutOfRange: spec.rounds: found 0, allowed is a whole number, 1 to 1000000"),
        (
            [federation(protocol={"minSilos": 3, "silosPerRound": 2})],
            "ANC-1106 QuorumUnreachable: spec.protocol.minSilos: found 3, but silosPerRound is 2; lower it to 2 at most",
        ),
        (
            [federation(), silo("a"), silo("b", labels="Some")],
            'ANC-1012 UnknownChoice: Silo b: spec.labels: found "Some", allowed is one of None, All, Partial',
        ),
        (
            [federation(), silo("a", federation="skin")],
            "ANC-1104 ForeignSilo: Silo a: spec.federation: found 'skin', allowed is 'derm', the federation of this file",
        ),
    ],
)
def test_a_mistake_names_field_and_silo(objects: list[dict[str, Any]], text: str) -> None:
    assert str(refused(*objects)) == text


def test_the_rules_of_methods_hold() -> None:
    assert refused(federation(method={"name": "FedAnchor"}), silo("a")).mistakes[0].failure.reason == "NoAnchorData"


def test_a_silo_s_mistake_has_its_index() -> None:
    data = {"format": "Digits", "use": "Part", "partition": {"recipe": "Iid", "parts": 2, "part": 0}}
    error = refused(federation(), silo("a", managed={"data": data}), silo("b", managed={"data": data}))
    assert [(mistake.silo, mistake.where) for mistake in error.mistakes] == [(1, "Silo b")]
