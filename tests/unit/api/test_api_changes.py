"""What may change once training has begun: a verdict for every field of both documents."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from anchorage.api.changes import FEDERATION, SILO, Verdict, find_changes, refusals, verdict_on
from anchorage.api.federation import Federation, Silo
from anchorage.api.objects import read_objects
from anchorage.methods import resolve

FROZEN, ROUNDS, LATER, SERVER, FREE = Verdict
DIGITS = {"format": "Digits", "use": "Test", "testPercent": 20}
STUDY: dict[str, Any] = {
    "kind": "Federation",
    "metadata": {"name": "derm"},
    "spec": {
        "rounds": 9,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1},
        "method": {"name": "FedAnchor"},
        "anchorData": {"format": "Digits", "use": "Anchors", "anchors": 80, "testPercent": 20},
        "evaluation": {"validation": {**DIGITS}, "test": {**DIGITS}},
    },
}
HOSPITAL: dict[str, Any] = {
    "kind": "Silo",
    "metadata": {"name": "a"},
    "spec": {"federation": "derm", "managed": {"data": {"format": "Digits"}}},
}
TABLE: list[tuple[str, Any, Verdict]] = [
    ("metadata.name", "skin", FROZEN),
    ("metadata.namespace", "studies", FREE),
    ("spec.rounds", 20, ROUNDS),
    ("spec.seed", 2, FROZEN),
    ("spec.model.imageSize", 16, FROZEN),
    ("spec.task.classification.classes", ["a", "b"], FROZEN),
    ("spec.method.name", "FedAvg", FROZEN),
    ("spec.method.weighting", {"uniform": {}}, FROZEN),
    ("spec.method.local", {"epochs": 7}, FROZEN),
    ("spec.warmUp", [{"method": "FedAvg", "rounds": 2}], FROZEN),
    ("spec.protocol.mode", "Asynchronous", FROZEN),
    ("spec.protocol.minSilos", 2, LATER),
    ("spec.protocol.silosPerRound", 2, LATER),
    ("spec.protocol.roundDeadlineSeconds", 5, LATER),
    ("spec.protocol.idleTimeoutSeconds", 5, SERVER),
    ("spec.protocol.maximumImages", 5000, LATER),
    ("spec.evaluation.embeddings", {"layer": "encoder.layer3", "projection": "TSNE"}, SERVER),
    ("spec.protocol.secureAggregation", {"fractionalBits": 20}, FROZEN),
    ("spec.protocol.modelEncoding", "Int8", FROZEN),
    ("spec.suspend", True, FREE),
    ("spec.activeDeadlineSeconds", 60, SERVER),
    ("spec.anchorData.anchors", 90, FROZEN),
    ("spec.evaluation.validation.use", "All", FROZEN),
    ("spec.evaluation.test.testPercent", 30, FROZEN),
    ("spec.evaluation.averageDecay", "0.9", FROZEN),
    ("spec.evaluation.siloPercent", 20, FROZEN),
    ("spec.evaluation.onLeakage", "Skip", FROZEN),
    ("spec.evaluation.everyRounds", 3, LATER),
    ("spec.server.resources", {"limits": {"cpu": 2}}, FREE),
    ("spec.server.storage.size", "1Ti", FREE),
    ("spec.admission.approval", "Automatic", FREE),
    ("spec.deletionPolicy", "Delete", FREE),
    ("spec.queueName", "gpus", FREE),
    ("spec.tracking.uri", "http://mlflow:5000", SERVER),
]
OF_SILO: list[tuple[str, Any, Verdict]] = [
    ("metadata.namespace", "studies", FREE),
    ("spec.labels", "All", FROZEN),
    ("spec.managed.data.partition", {"recipe": "Iid", "parts": 2, "part": 1}, FROZEN),
    ("spec.managed.data.onChange", "Allow", FREE),
    ("spec.managed.resources", {"limits": {"cpu": 2}}, FREE),
    ("spec.managed.devices", 2, FROZEN),
    ("spec.managed.threads", 2, FROZEN),
    ("spec.managed.release", "BetweenRounds", FREE),
    ("spec.managed.policy", "policy.yaml", FREE),
    ("spec.managed.storage.size", "1Ti", FREE),
    ("spec.managed.pod.runtimeClassName", "nvidia", FREE),
]


def federation(**changes: Any) -> Federation:
    made = read_objects(changed(STUDY, changes), ()).federation
    assert made is not None
    return made


def silo(**changes: Any) -> Silo:
    (made,) = read_objects({}, [changed(HOSPITAL, changes)]).silos
    assert made is not None
    return made


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = deepcopy(dict(document))
    for path, value in changes.items():
        *outer, last = path.split(".")
        place = copy
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = value
    return copy


def without_verdict(kind: type[BaseModel], verdicts: Mapping[str, Verdict], prefix: str = "") -> Iterator[str]:
    """Walk a document's type down to the fields that have a verdict; yield those that end without one."""
    for name, field in kind.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        if path in ("apiVersion", "kind", "status") or path in verdicts:
            continue
        parts = [field.annotation, *get_args(field.annotation)]
        below = [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        if not below:
            yield path
        for part in below:
            yield from without_verdict(part, verdicts, f"{path}.")


@pytest.mark.parametrize(("kind", "verdicts"), [(Federation, FEDERATION), (Silo, SILO)])
def test_every_field_has_a_verdict(kind: type[BaseModel], verdicts: Mapping[str, Verdict]) -> None:
    assert list(without_verdict(kind, verdicts)) == []


def test_every_verdict_is_in_the_table() -> None:
    known = {path for path in FEDERATION if any(f"{row[0]}.".startswith(f"{path}.") for row in TABLE)}
    assert known == FEDERATION.keys()
    fixed = {"metadata.name", "spec.federation"}  # by which two documents are the same silo's at all
    known = {path for path in SILO if any(f"{row[0]}.".startswith(f"{path}.") for row in OF_SILO)}
    assert known | fixed == SILO.keys()


def test_a_field_without_a_verdict_is_no_free_one() -> None:
    with pytest.raises(KeyError, match=r"spec\.new\.field"):
        verdict_on("spec.new.field", FEDERATION)


@pytest.mark.parametrize(("path", "value", "verdict"), TABLE)
def test_a_change_of_the_federation(path: str, value: Any, verdict: Verdict) -> None:
    changes = find_changes(federation(), federation(**{path: value}), resolve)
    assert changes and {change.verdict for change in changes} == {verdict}
    assert all(f"{change.field}.".startswith(f"{path}.") for change in changes) or path == "spec.method.name"
    assert bool(refusals(changes, 5, ())) == (verdict is FROZEN)
    assert refusals(changes, None, ()) == [], "nothing has begun"


@pytest.mark.parametrize(("path", "value", "verdict"), OF_SILO)
def test_a_change_of_a_silo(path: str, value: Any, verdict: Verdict) -> None:
    same = federation()
    changes = find_changes(same, same, resolve, [silo()], [silo(**{path: value})])
    assert changes and {change.verdict for change in changes} == {verdict}
    assert bool(refusals(changes, 5, ("a",))) == (verdict is FROZEN)
    assert refusals(changes, 5, ("b",)) == [], "nobody trained on its images yet"


def test_rounds_grow_and_never_fall_below_what_is_committed() -> None:
    def refused(rounds: int) -> list[str]:
        return refusals(find_changes(federation(), federation(**{"spec.rounds": rounds}), resolve), 5, ())

    assert refused(20) == refused(5) == []
    assert refused(4) == ["spec.rounds is 4, but 5 rounds are committed"]


def test_silos_come_and_go() -> None:
    same, other = federation(), silo(**{"metadata.name": "b"})
    changes = find_changes(same, same, resolve, [silo()], [other])
    assert [(change.place, change.verdict) for change in changes] == [("silo a", LATER), ("silo b", LATER)]
    assert refusals(changes, 5, ("a",)) == []


def test_what_a_preset_says_anyhow_is_no_change() -> None:
    weighting = resolve(federation().spec.method).weighting
    spelled = {weighting.name: weighting.model_dump(mode="json", by_alias=True)}
    assert find_changes(federation(), federation(**{"spec.method.weighting": spelled}), resolve) == []


def test_messages_name_the_field_and_both_values() -> None:
    lines = refusals(find_changes(federation(), federation(**{"spec.model.initial": "w"}), resolve), 0, ())
    assert lines == ["spec.model.initial is w, but training began with absent"]
    changes = find_changes(federation(), federation(), resolve, [silo()], [silo(**{"spec.labels": "All"})])
    assert refusals(changes, 0, ("a",)) == ["silo a spec.labels is All, but training began with None"]
