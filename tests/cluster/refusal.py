"""One refusal, of the API server or of the operator, and the objects that refusals start from."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

DIGITS = {"format": "Digits", "testPercent": 20, "anchors": 80}
FEDERATION: Object = {
    "apiVersion": "anchorage.dev/v1alpha1",
    "kind": "Federation",
    "metadata": {"name": "derm"},
    "spec": {
        "rounds": 5,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {"name": "FedAvg"},
    },
}
ANCHORED: Object = {
    **FEDERATION,
    "spec": {**FEDERATION["spec"], "method": {"name": "FedAnchor"}, "anchorData": {**DIGITS, "use": "Anchors"}},
}
SILO: Object = {
    "apiVersion": "anchorage.dev/v1alpha1",
    "kind": "Silo",
    "metadata": {"name": "hospital-a"},
    "spec": {"federation": "derm", "labels": "All", "managed": {"data": {"format": "Digits"}}},
}


@dataclass(frozen=True)
class Refusal:
    """One object that is refused."""

    name: str
    """Of the case."""

    document: Object
    """The object, complete."""

    message: str
    """A part of what kubectl says, or the reason of the failure that the operator tells."""

    path: str = ""
    """The field that is named; empty where kubectl names none."""

    before: Object | None = None
    """The object that is there already, under the same name."""

    everywhere: bool = True
    """Whether `fedctl validate` refuses the document as well; it does not know what was there before, nor a cluster's limits."""


def changed(document: Object, changes: Mapping[str, Any]) -> Object:
    """Set fields by their dotted paths; None takes one away."""
    copy = deepcopy(document)
    for path, value in changes.items():
        *outer, last = path.split(".")
        place = copy
        for part in outer:
            place = place.setdefault(part, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return copy


def spec(name: str, changes: Mapping[str, Any], path: str, message: str, base: Object = FEDERATION) -> Refusal:
    """Change fields of a spec; these paths, and the one of the mistake, are from the spec on."""
    document = changed(base, {f"spec.{key}": value for key, value in changes.items()})
    return Refusal(name, document, message, f"spec.{path}" if path else "")
