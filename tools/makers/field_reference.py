"""The lists of every field, and the table of what may change, in the reference of the federation file, docs/federation.md.

Only the parts between their markers are generated; the rest of the page is written by hand.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage.api.allowed import Schema, alternatives, describe_allowed, takes_decimal
from anchorage.api.base import Document
from anchorage.api.changes import FEDERATION, SILO, Verdict
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import FieldPath, format_path
from makers.markers import replace_between

PAGE = Path("docs/federation.md")
BEGIN = "<!-- Generated from anchorage.api by `make generate`; do not edit from here ... -->"
END = "<!-- ... to here. -->"
CHANGES_BEGIN = "<!-- Generated from anchorage.api.changes by `make generate`; do not edit from here ... -->"
CHANGES_END = "<!-- ... to here: what may change. -->"

_STATUSES: Mapping[str, type[Document]] = {"FederationStatus": Federation, "SiloCrStatus": Silo}

_SHARED = ("Plugin",)
"""Alternatives that stand in many slots, whose lists link to them."""

_WORDS: Mapping[str, str] = {
    "a quoted decimal number": "decimal",
    ', such as "0.6"': "",
    "a whole number": "integer",
    "one of ": "",
    "a relative path without .., at most 1024 characters": "relative path",
    "a name of lower-case letters, digits and dashes, at most 63 long": "DNS label",
    "a name of lower-case letters, digits, dashes and dots, at most 253 long": "DNS subdomain",
    "a label's value: letters, digits, dashes, dots and underscores, at most 63": "label value",
    "a list": "list",
    "a mapping": "mapping",
    "that is not negative": "≥ 0",
    "above 0": "> 0",
    "at most ": "≤ ",
}
"""Phrases of messages about mistakes, and what the page writes for them."""

_BOUNDS = re.compile(r"(integer|decimal)(?:,| from) ([\d.]+) to ([\d.]+)")
_COUNTS = re.compile(r"(\d+) to (\d+) (items|characters)")

Row = tuple[str, str, str, str]
"""A field, what it takes, its default and its meaning; only field and meaning where the others do not matter."""

Place = tuple[type[Document], FieldPath]
"""A kind of document and the path of a mapping in it."""


def fields() -> str:
    """Return a list per mapping: those of a federation, of a silo, and of the status of either. Every description stands once."""
    places_of_kinds: dict[str, list[Place]] = {}
    roots: list[tuple[type[Document], str, FieldPath]] = [(Federation, "Federation", ()), (Silo, "Silo", ())]
    for kind, name, path in (*roots, *((kind, name, ("status",)) for name, kind in _STATUSES.items())):
        _walk(kind, name, path, places_of_kinds)
    described: dict[Row, str] = {}
    return "\n".join(_section(name, places, described) for name, places in places_of_kinds.items())


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the reference of a checkout, its tables as they must be."""
    page = replace_between((root / PAGE).read_text(encoding="utf-8"), CHANGES_BEGIN, CHANGES_END, changes())
    return {PAGE: replace_between(page, BEGIN, END, fields())}


def changes() -> str:
    """Return a table of what may change once training has begun: a row per verdict."""
    lines = ["| when | of a Federation | of a Silo |", "| --- | --- | --- |"]
    for verdict in Verdict:
        federation, silo = (
            ", ".join(f"`{field.removeprefix('spec.')}`" for field, of in verdicts.items() if of is verdict)
            for verdicts in (FEDERATION, SILO)
        )
        lines.append(f"| {verdict.value} | {federation} | {silo} |")
    return "\n".join(lines)


def _walk(kind: type[Document], name: str, path: FieldPath, places: dict[str, list[Place]]) -> None:
    """Record the places of each mapping, depth first in the order of the fields; the status has a separate section."""
    places.setdefault(name, []).append((kind, path))
    for field, schema in _mapping(kind, path)["properties"].items():
        inner = _held(schema)
        if inner is not None and inner not in _STATUSES:
            _walk(kind, inner, (*path, field, 0) if "items" in schema else (*path, field), places)


def _mapping(kind: type[Document], path: FieldPath) -> Schema:
    (schema,) = alternatives(kind, path)
    return schema


def _held(schema: Schema) -> str | None:
    """Return the name of the mapping in a field or in its list, if any: a slot, an alternative with options, or a part of a document."""
    options = (schema, schema.get("items", {}), *schema.get("anyOf", ()))
    referred = [str(option["$ref"]).rsplit("/", 1)[1] for option in options if "$ref" in option]
    inline = [str(option["title"]) for option in options if option.get("properties")]
    return next(iter([*referred, *inline]), None)


def _section(name: str, places: Sequence[Place], described: dict[Row, str]) -> str:
    kind, path = places[0]
    schema = _mapping(kind, path)
    root = name in (Federation.__name__, Silo.__name__, *_STATUSES)
    lines = [f"{'##' if root else '###'} {name}"]
    if root or (
        not _is_slot(schema) and len(places) > 1
    ):  # a mapping in one place is described by the field that holds it
        lines += ["", _line(schema["description"])]
    if path and name not in _SHARED:
        lines += ["", ", ".join(_stands(*place) for place in places)]
    rows = _alternatives(schema) if _is_slot(schema) else _rows(name, kind, path, described)
    return "\n".join([*lines, *rows]) + "\n"


def _stands(kind: type[Document], path: FieldPath) -> str:
    """Return where a mapping stands; fields of a Federation are named without it."""
    field = f"`{format_path(path).replace('[0]', '[]')}`"
    return field if kind is Federation else f"`{kind.__name__}` {field}"


def _is_slot(schema: Schema) -> bool:
    return schema.get("maxProperties") == 1 and bool(schema.get("properties"))


def _alternatives(schema: Schema) -> list[str]:
    """Return the list of a slot: its alternatives, those with options as links; what stands in many slots is described in its section."""
    lines = [""]
    for name, of in schema["properties"].items():
        held = _held(of)
        title = f"[`{name}`](#{held.lower()})" if held else f"`{name}`"
        lines.append(f"- {title}" if held in _SHARED else f"- {title}: {_line(of['description'])}")
    return lines


def _rows(name: str, kind: type[Document], path: FieldPath, described: dict[Row, str]) -> list[str]:
    """Return the list of a mapping, and a line that refers to an earlier mapping for the fields that are the same there."""
    schema = _mapping(kind, path)
    rows, same = [], dict[str, list[str]]()
    for field, of in schema["properties"].items():
        place = (*path, field)
        default = "required" if field in schema.get("required", ()) else _default(kind, place, of.get("default"))
        takes = _takes(kind, place, of)
        if path[:1] == ("status",):
            default, takes = "", _holds(of)
        row = (field, takes, default, _line(of["description"]))
        meaning = (field, "", "", row[-1])
        if row in described:
            same.setdefault(described[row], []).append(f"`{field}`")
            continue
        text = f"As in {_link(described[meaning])}." if meaning in described else row[-1]
        bounds = "; ".join(filter(None, row[1:3]))
        rows.append(f"- `{field}`{f' ({bounds})' if bounds else ''}: {min(row[-1], text, key=len)}")
        described[row] = name
        described.setdefault(meaning, name)
    others = "; ".join(f"{_link(other)}: {', '.join(fields)}" for other, fields in same.items())
    return [*(["", *rows] if rows else []), *(["", f"As in {others}."] if others else [])]


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _holds(schema: Schema) -> str:
    """Return the mapping that a field of a status has; who reads it needs no bounds."""
    held = _held(schema)
    return f"list of {_link(held)}" if held and "items" in schema else _link(held) if held else ""


def _takes(kind: type[Document], path: FieldPath, schema: Schema) -> str:
    """Describe type and bounds in the words of the messages about mistakes."""
    held = _held(schema)
    link = _link(held) if held else ""
    if held and "items" not in schema:
        return link
    text = _short(describe_allowed(kind, path))
    for item, word in ((0, "items"), ("", "values")):
        if not held and alternatives(kind, (*path, item)):
            text += f"; {word}: {_short(describe_allowed(kind, (*path, item)))}"
    return (f"{text}; items: {link}" if held else text).replace("items; items: ", "items: ")


def _short(text: str) -> str:
    """Return the words of a message about allowed values as the page writes them; its notation explains them."""
    for phrase, word in _WORDS.items():
        text = text.replace(phrase, word)
    text = _COUNTS.sub(r"\1–\2 \3", text).replace("3–3 items", "3 items")
    return _BOUNDS.sub(r"\1 \2–\3", text).replace("integer 0–9223372036854775807", "integer ≥ 0")


def _default(kind: type[Document], path: FieldPath, value: Any) -> str:
    """Return what leaving a field out means; nothing where its text says it."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        if _is_slot(_mapping(kind, path)):
            return f"default `{next(iter(value))}`"
        return ""
    if value == "":
        return ""
    if isinstance(value, list):
        return f"default {', '.join(map(str, value))}" if value else ""
    quoted = isinstance(value, bool) or takes_decimal(kind, path)
    return f"default `{json.dumps(value) if quoted else value}`"


def _line(text: str) -> str:
    return " ".join(text.split())
