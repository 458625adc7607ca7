"""The tables of every field, and of what may change, in the reference of the federation file, docs/federation.md.

Only the parts between their markers are generated; the rest of the page is written by hand.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage.api.allowed import Schema, allowed, alternatives, takes_decimal
from anchorage.api.base import Document
from anchorage.api.changes import FEDERATION, SILO, Verdict
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import FieldPath, dotted
from makers.markers import replace_between

PAGE = Path("docs/federation.md")
BEGIN = "<!-- Generated from anchorage.api by `make generate`; do not edit from here ... -->"
END = "<!-- ... to here. -->"
CHANGES_BEGIN = "<!-- Generated from anchorage.api.changes by `make generate`; do not edit from here ... -->"
CHANGES_END = "<!-- ... to here: what may change. -->"

_STATUSES: Mapping[str, type[Document]] = {"FederationStatus": Federation, "SiloCrStatus": Silo}

Place = tuple[type[Document], FieldPath]
"""A kind of document and the path of a mapping in it."""


def tables() -> str:
    """Return a table per mapping: those of a federation, of a silo, and of the status of either."""
    found: dict[str, list[Place]] = {}
    roots: list[tuple[type[Document], str, FieldPath]] = [(Federation, "Federation", ()), (Silo, "Silo", ())]
    for kind, name, path in (*roots, *((kind, name, ("status",)) for name, kind in _STATUSES.items())):
        _walk(kind, name, path, found)
    return "\n".join(_table(name, places) for name, places in found.items())


def files(root: Path) -> Mapping[Path, str | None]:
    """Return the reference of a checkout, its tables as they must be."""
    page = replace_between((root / PAGE).read_text(encoding="utf-8"), CHANGES_BEGIN, CHANGES_END, changes())
    return {PAGE: replace_between(page, BEGIN, END, tables())}


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


def _walk(kind: type[Document], name: str, path: FieldPath, found: dict[str, list[Place]]) -> None:
    """Record the places of each mapping, depth first in the order of the fields; the status has a separate section."""
    found.setdefault(name, []).append((kind, path))
    for field, schema in _mapping(kind, path)["properties"].items():
        inner = _held(schema)
        if inner is not None and inner not in _STATUSES:
            _walk(kind, inner, (*path, field, 0) if "items" in schema else (*path, field), found)


def _mapping(kind: type[Document], path: FieldPath) -> Schema:
    (schema,) = alternatives(kind, path)
    return schema


def _held(schema: Schema) -> str | None:
    """Return the name of the mapping in a field or in its list, if any: a slot, an alternative with options, or a part of a document."""
    options = (schema, schema.get("items", {}), *schema.get("anyOf", ()))
    referred = [str(option["$ref"]).rsplit("/", 1)[1] for option in options if "$ref" in option]
    inline = [str(option["title"]) for option in options if option.get("properties")]
    return next(iter([*referred, *inline]), None)


def _table(name: str, places: Sequence[Place]) -> str:
    kind, path = places[0]
    schema = _mapping(kind, path)
    root = name in (Federation.__name__, Silo.__name__, *_STATUSES)
    lines = [f"{'##' if root else '###'} {name}", "", " ".join(schema["description"].split())]
    if path:
        stands = (f"`{kind.__name__}` `{dotted(path).replace('[0]', '[]')}`" for kind, path in places)
        lines += ["", f"Used at {', '.join(stands)}."]
    lines += ["", "| field | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for field, of in schema["properties"].items():
        default = (
            "required" if field in schema.get("required", ()) else _default(kind, (*path, field), of.get("default"))
        )
        lines.append(f"| `{field}` | {_takes(kind, (*path, field), of)} | {default} | {_cell(of['description'])} |")
    return "\n".join(lines) + "\n"


def _takes(kind: type[Document], path: FieldPath, schema: Schema) -> str:
    """Describe type and bounds in the words of the messages about mistakes."""
    held = _held(schema)
    link = f"[{held}](#{held.lower()})" if held else ""
    if held and "items" not in schema:
        return link
    text = _cell(allowed(kind, path))
    for item, word in ((0, "items"), ("", "values")):
        if not held and alternatives(kind, (*path, item)):
            text += f"; its {word}: {_cell(allowed(kind, (*path, item)))}"
    return f"{text}; its items: {link}" if held else text


def _default(kind: type[Document], path: FieldPath, value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, Mapping):
        slot = _mapping(kind, path).get("maxProperties") == 1
        return f"`{next(iter(value))}`" if slot else "its own defaults" if value else "empty"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "empty"
    quoted = value == "" or isinstance(value, bool) or takes_decimal(kind, path)
    return f"`{json.dumps(value) if quoted else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
