"""Converts plain values to a typed document and reports every mistake in the document's own terms."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from anchorage.api.allowed import alternatives, describe_allowed, fields, takes_decimal
from anchorage.api.base import DECIMAL_PATTERN, FORMS, Document
from anchorage.api.errors import Failure
from anchorage.api.errors.documents import (
    MISSING_FIELD,
    OUT_OF_RANGE,
    UNKNOWN_CHOICE,
    UNKNOWN_FIELD,
    UNKNOWN_VERSION,
    UNQUOTED_DECIMAL,
    WRONG_FORM,
    WRONG_TYPE,
)
from anchorage.api.mistakes import FieldPath, Mistake, format_path, suggest, without_password
from anchorage.api.slot import UNKNOWN_ALTERNATIVE, described_by
from anchorage.api.source import RawDocument

D = TypeVar("D", bound=Document)

_DECIMAL = re.compile(DECIMAL_PATTERN)
_BOUNDS = {
    "greater_than_equal",
    "greater_than",
    "less_than_equal",
    "less_than",
    "too_long",
    "too_short",
    "string_too_long",
    "string_too_short",
}
_CHOICES = {"literal_error", "enum", "union_tag_invalid", UNKNOWN_ALTERNATIVE}
_FORMS = {"string_pattern_mismatch", "value_error", "assertion_error"}
_WORDED = {"value_error", "assertion_error", UNKNOWN_ALTERNATIVE}
"""Errors that bring their own message."""
_SURE = 0.85
"""Ratio of spelling from which a field that stands elsewhere is taken for the one that is meant."""


def check_document(raw: RawDocument, kind: type[D]) -> tuple[D | None, list[Mistake]]:
    """Convert plain values to a document.

    Returns
    -------
    document : Document or None
        None if a mistake prevents the conversion; unknown fields are only left out.
    mistakes : list of Mistake
        Without file and line.
    """
    try:
        return _validate(raw.value, kind), []
    except ValidationError as error:
        details = [
            detail
            for detail in error.errors(include_url=False, include_context=True)
            if detail["type"]
            != "default_factory_not_called"  # of a field whose default goes by another one, which is wrong itself
        ]
    mistakes: dict[FieldPath, Mistake] = {}
    for detail in details:  # a value that matches none of several types is reported once
        mistake = _mistake(detail, raw, kind)
        mistakes.setdefault(mistake.path, mistake)
    if any(detail["type"] != "extra_forbidden" for detail in details):
        return None, list(mistakes.values())
    value = raw.value
    for detail in details:
        value = _without(value, _path(detail["loc"], raw.value))
    document, others = check_document(replace(raw, value=value), kind)  # rules across fields were not checked before
    return document, [*mistakes.values(), *others]


def _validate(value: Any, kind: type[D]) -> D:
    return kind.model_validate_json(json.dumps(value), by_alias=True, by_name=False)


def _without(value: Any, path: FieldPath) -> Any:
    if isinstance(value, list):
        return [_without(item, path[1:]) if index == path[0] else item for index, item in enumerate(value)]
    if len(path) == 1:
        return {key: item for key, item in value.items() if key != path[0]}
    return {key: _without(item, path[1:]) if key == path[0] else item for key, item in value.items()}


def _path(loc: FieldPath, value: Any) -> FieldPath:
    """Reduce pydantic's location to the document's path, without names of union members and dictionary keys."""
    path: list[str | int] = []
    for position, part in enumerate(loc):
        if isinstance(value, Mapping):
            if part not in value and position + 1 < len(loc):
                continue
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            break
        path.append(part)
    return tuple(path)


def _mistake(detail: ErrorDetails, raw: RawDocument, kind: type[Document]) -> Mistake:
    path = _path(detail["loc"], raw.value)
    if detail["loc"] and detail["loc"][-1] == "[key]":
        form = FORMS.get(str(detail.get("ctx", {}).get("pattern")), "a shorter one")
        return Mistake(WRONG_FORM, path, f"found the name {_show(detail['input'])}, allowed is {form}")
    kind, inner = described_by(kind, path, raw.value)
    if detail["type"] == "missing":
        return Mistake(MISSING_FIELD, path, f"found nothing, needed is {describe_allowed(kind, inner)}")
    if detail["type"] == "extra_forbidden":
        known, word = fields(kind, inner[:-1]), str(inner[-1])
        hint = suggest(word, known) or _meant_below(word, kind, inner[:-1])
        return Mistake(UNKNOWN_FIELD, path, f"found an unknown field, {hint}allowed are {', '.join(known) or 'none'}")
    shown_value = raw.numbers.get(path) or _show(detail["input"])
    failure = _failure(detail, inner, kind)
    if detail["type"] in _WORDED:
        return Mistake(failure, path, detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, "))
    needed = describe_allowed(kind, inner)
    if failure is UNQUOTED_DECIMAL:
        return Mistake(failure, path, f'found the number {shown_value}, allowed is text: write "{shown_value}"')
    choices = [str(choice) for schema in alternatives(kind, inner) for choice in schema.get("enum", ())]
    hint = suggest(detail["input"], choices) if isinstance(detail["input"], str) else ""
    return Mistake(failure, path, f"found {shown_value}, {hint}allowed is {needed}")


def _meant_below(word: str, kind: type[Document], path: FieldPath) -> str:
    """Say that a field of such a name stands one or two levels further below, such as ``local.optimiser``; empty where none does."""
    level, paths_by_word = [path], dict[str, str]()
    for _ in range(3):
        level = [(*above, name) for above in level for name in fields(kind, above)]
        paths_by_word = {str(place[-1]): format_path(place[len(path) :]) for place in level} | paths_by_word
    near = get_close_matches(word, paths_by_word, n=1, cutoff=_SURE)
    return f"did you mean {paths_by_word[near[0]]}? " if near else ""


def _failure(detail: ErrorDetails, path: FieldPath, kind: type[Document]) -> Failure:
    number = isinstance(detail["input"], (int, float)) and not isinstance(detail["input"], bool)
    if path == ("apiVersion",):
        return UNKNOWN_VERSION
    if number and takes_decimal(kind, path):
        return UNQUOTED_DECIMAL
    if detail["type"] in _BOUNDS or (takes_decimal(kind, path) and _DECIMAL.match(str(detail["input"]))):
        return OUT_OF_RANGE
    if detail["type"] in _CHOICES:
        choices = [choice for schema in alternatives(kind, path) for choice in schema.get("enum", [])]
        same = any(type(choice) is type(detail["input"]) for choice in choices)
        return UNKNOWN_CHOICE if same or isinstance(detail["input"], str) else WRONG_TYPE
    return WRONG_FORM if detail["type"] in _FORMS else WRONG_TYPE


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = without_password(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 80 else text[:76] + '..."'
