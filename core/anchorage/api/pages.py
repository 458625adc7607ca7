"""Writes the tables of every field into the reference of the federation file: ``python -m anchorage.api.pages FILE [--check]``.

Only what stands between the two markers is written; the rest of the page is written by hand.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorage.api.allowed import Schema, allowed, alternatives, takes_decimal
from anchorage.api.base import Document
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import FieldPath, dotted

BEGIN = "<!-- Generated from anchorage.api by `python -m anchorage.api.pages`; do not edit from here ... -->"
END = "<!-- ... to here. -->"

_STATUSES: Mapping[str, type[Document]] = {"FederationStatus": Federation, "SiloCrStatus": Silo}

Place = tuple[type[Document], FieldPath]
"""A kind of document and the path of a mapping in it."""


def tables() -> str:
    """Return a table per mapping that a document holds: those of a federation, of a silo, and of what was observed of either."""
    found: dict[str, list[Place]] = {}
    roots: list[tuple[type[Document], str, FieldPath]] = [(Federation, "Federation", ()), (Silo, "Silo", ())]
    for kind, name, path in (*roots, *((kind, name, ("status",)) for name, kind in _STATUSES.items())):
        _walk(kind, name, path, found)
    return "\n".join(_table(name, places) for name, places in found.items())


def renewed(page: str) -> str:
    """Return a page with its generated part as it must be.

    Raises
    ------
    ValueError
        The page has not each marker once, in their order.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in before + after:
        raise ValueError(f"it must have the lines {BEGIN} and {END} once each")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def _walk(kind: type[Document], name: str, path: FieldPath, found: dict[str, list[Place]]) -> None:
    """Note where each mapping stands, depth first in the order of the fields; the status has a section of its own."""
    found.setdefault(name, []).append((kind, path))
    for field, schema in _mapping(kind, path)["properties"].items():
        inner = _held(schema)
        if inner is not None and inner not in _STATUSES:
            _walk(kind, inner, (*path, field, 0) if "items" in schema else (*path, field), found)


def _mapping(kind: type[Document], path: FieldPath) -> Schema:
    (schema,) = alternatives(kind, path)
    return schema


def _held(schema: Schema) -> str | None:
    """Name the mapping that a field holds, or holds a list of: a slot, an alternative with options, or another document's part."""
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
        lines += ["", f"Stands at {', '.join(stands)}."]
    lines += ["", "| field | takes | default | meaning |", "| --- | --- | --- | --- |"]
    for field, of in schema["properties"].items():
        default = (
            "required" if field in schema.get("required", ()) else _default(kind, (*path, field), of.get("default"))
        )
        lines.append(f"| `{field}` | {_takes(kind, (*path, field), of)} | {default} | {_cell(of['description'])} |")
    return "\n".join(lines) + "\n"


def _takes(kind: type[Document], path: FieldPath, schema: Schema) -> str:
    """Say type and bounds in the words of the messages about mistakes."""
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
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page's generated part, or with ``--check`` compare it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m anchorage.api.pages", description=__doc__)
    parser.add_argument("file", type=Path, help="page with the two markers, such as docs/federation.md")
    parser.add_argument("--check", action="store_true", help="exit 1 where the page differs, write nothing")
    options = parser.parse_args(arguments)
    try:
        page = options.file.read_text(encoding="utf-8")
        wanted = renewed(page)
        if page != wanted and not options.check:
            options.file.write_text(wanted, encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{options.file} cannot be renewed: {error}\n")
        return 2
    if page != wanted and options.check:
        sys.stderr.write(
            f"{options.file} is not what the spec says; run `python -m anchorage.api.pages {options.file}`\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
