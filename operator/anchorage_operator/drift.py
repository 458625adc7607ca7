"""Detects whether an object in the cluster differs from the built one, so that only changes are written."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from anchorage.transport.kube.resources import Json
from anchorage_operator.names import APPLIED_HASH

_SUFFIXES = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "": Decimal(1),
}
_QUANTITIES = ("requests", "limits", "sizeLimit")
_ADDED_TO = ("tolerations",)
"""Lists to which policies add items that change nothing of what was asked for."""
_KEYS = ("mountPath", "uid", "name")
"""What tells the items of a list apart, where all of them have it."""


def digest(value: Any) -> str:
    """Return a short hash of JSON values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_applied_hash(built: Json) -> dict[str, Any]:
    """Return a built object with the annotation that holds its hash."""
    metadata = built["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED_HASH: digest(built)}
    return {**built, "metadata": {**metadata, "annotations": annotations}}


def needs_apply(wanted: Json, live: Json | None) -> bool:
    """Return whether an object must be applied: it is missing, its hash differs, or somebody changed one of its fields."""
    return live is None or not _contains(wanted, live)


def parse_quantity(text: str | int) -> Decimal | None:
    """Parse a Kubernetes quantity; None if it is not one."""
    word = str(text)
    suffix = word.lstrip("0123456789.")
    try:
        return Decimal(word[: len(word) - len(suffix)]) * _SUFFIXES[suffix]
    except (InvalidOperation, KeyError):
        return None


def first_difference(wanted: Any, live: Any, path: str = "") -> str:
    """Return the dotted path of the first wanted value that an object has not; of the whole object where nothing narrower differs."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key, value in wanted.items():
            if not _contains({key: value}, live):
                return first_difference(value, live.get(key), f"{path}.{key}".lstrip("."))
    if isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            if not _contains(one, other):
                return first_difference(one, other, f"{path}[{index}]")
    return path


def _contains(wanted: Any, live: Any, quantities: bool = False) -> bool:
    """Return whether all wanted values are present; the API server adds defaults and omits empty values."""
    if wanted == live:
        return True
    if isinstance(wanted, Mapping):
        have = live if isinstance(live, Mapping) else {}
        return all(
            _contains_all(value, have.get(key))
            if key in _ADDED_TO
            else _contains(value, have.get(key), quantities or key in _QUANTITIES)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return _contains_list(wanted, live if isinstance(live, list) else [], quantities)
    return (
        quantities
        and live is not None
        and parse_quantity(wanted) is not None
        and parse_quantity(wanted) == parse_quantity(live)
    )


def _contains_all(wanted: Sequence[Any], live: Sequence[Any] | None) -> bool:
    return all(any(_contains(item, other) for other in live or ()) for item in wanted)


def _contains_list(wanted: Sequence[Any], live: Sequence[Any], quantities: bool) -> bool:
    for key in _KEYS:
        if wanted and all(isinstance(item, Mapping) and key in item for item in wanted):
            by_key = {item.get(key): item for item in live if isinstance(item, Mapping)}
            return all(_contains(item, by_key.get(item[key]), quantities) for item in wanted)
    return len(wanted) == len(live) and all(
        _contains(one, other, quantities) for one, other in zip(wanted, live, strict=True)
    )
