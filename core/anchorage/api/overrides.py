"""Overrides, from the command line and in stages: ``spec.rounds=5``."""

import decimal
from typing import Any

from anchorage.api.allowed import takes_decimal
from anchorage.api.base import Document
from anchorage.api.errors.documents import OVERRIDE_REFUSED
from anchorage.api.mistakes import DocumentError, FieldPath, Mistake, without_password
from anchorage.api.source import RawDocument, parse_documents


def path_of(override: str) -> FieldPath:
    """Return the path of an override's field; a part is empty if the override names no field."""
    name = override.partition("=")[0].strip()
    return tuple(int(part) if part.isdigit() else part for part in name.split("."))


def apply_override(
    document: RawDocument, kind: type[Document], override: str, example: str = "spec.rounds=5"
) -> Mistake | None:
    """Set one field of a document; the value itself is checked with the document.

    Parameters
    ----------
    document : RawDocument
        Changed in place.
    kind : type
        The document's type; where it takes a decimal, a plain number is converted to text.
    override : str
        ``path=value``: names and list indices joined by dots, then a value in YAML.
    example : str
        Example for the message about a malformed override.

    Returns
    -------
    Mistake or None
        The override has no path or no value, its value is not YAML, or its path leads through a value that is no mapping or list.
    """
    where = f"--set {without_password(override)}"
    _, equals, text = override.partition("=")
    path = path_of(override)
    if not equals or "" in path:
        return Mistake(OVERRIDE_REFUSED, (), f"found no path=value; write it like {example}", where=where)
    try:
        values = parse_documents(text, where)
    except DocumentError as error:
        return Mistake(OVERRIDE_REFUSED, path, f"{error.mistakes[0].message}; quote the value", where=where)
    raw = values[0] if values else RawDocument()
    value = _with_decimals(raw, raw.value, (), kind, path)
    if not _put(document.value, path, value):
        return Mistake(OVERRIDE_REFUSED, path, "found a path that leads through a single value", where=where)
    document.overridden[path] = where
    outside = {place: number for place, number in document.numbers.items() if place[: len(path)] != path}
    document.numbers = outside | {path + place: number for place, number in raw.numbers.items()}
    return None


def _with_decimals(raw: RawDocument, value: Any, inner: FieldPath, kind: type[Document], outer: FieldPath) -> Any:
    if isinstance(value, dict):
        return {key: _with_decimals(raw, item, (*inner, key), kind, outer) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_decimals(raw, item, (*inner, index), kind, outer) for index, item in enumerate(value)]
    if inner in raw.numbers and takes_decimal(kind, outer + inner):
        return format(decimal.Decimal(raw.numbers[inner]), "f")
    return value


def _put(value: Any, path: FieldPath, new: Any) -> bool:
    for part in path[:-1]:
        if isinstance(value, dict):
            if value.get(str(part)) is None:
                value[str(part)] = {}
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return False
    last = path[-1]
    if isinstance(value, dict):
        value[str(last)] = new
    elif isinstance(value, list) and isinstance(last, int) and last <= len(value):
        value[last : last + 1] = [new]
    else:
        return False
    return True
