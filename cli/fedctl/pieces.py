"""``fedctl methods describe`` of a piece: its options, what it needs, what it sends."""

from collections.abc import Sequence
from typing import Any

from pydantic.alias_generators import to_camel
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.allowed import describe_allowed, fields
from anchorage.api.piece import PIECES, Piece
from fedctl.output import plain_table

MEMBER = "member"
"""Field of every network that only those of libraries use: which of theirs it is."""


def pieces_called(name: str) -> list[type[Piece]]:
    """Return the pieces of every slot that have a name, whatever its case."""
    return [
        piece
        for slot in PIECES.slots()
        for member_name, piece in PIECES.of(slot).items()
        if member_name.lower() == name.lower()
    ]


def draw_pieces(pieces: Sequence[type[Piece]]) -> RenderableType:
    """Draw pieces for people."""
    return Group(*(part for piece in pieces for part in _parts(piece)))


def document(piece: type[Piece]) -> dict[str, Any]:
    """Return a piece for machines."""
    return {
        "slot": to_camel(piece.slot),
        "name": piece.name,
        "summary": _summary(piece),
        "options": {
            name: {"takes": describe_allowed(piece, (name,)), "default": default, "description": text}
            for name, default, text in _options(piece)
        },
        "needs": [need.message for need in _plain(piece).needs()],
        "auxiliaryData": [
            {"name": a.name, "shape": a.shape, "meaning": a.meaning, "direction": "up" if a.up else "down"}
            for a in _plain(piece).auxiliary()
        ],
        "module": piece.__module__,
    }


def _parts(piece: type[Piece]) -> list[RenderableType]:
    description = document(piece)
    lines: list[RenderableType] = [
        Text(f"{description['slot']}: {piece.name}", style="bold"),
        Text(description["summary"]),
        Text(),
    ]
    if description["options"]:
        table = plain_table("option", "takes", "default", "meaning")
        for name, option in description["options"].items():
            table.add_row(name, option["takes"], str(option["default"]), Text(option["description"]))
        lines += [table, Text()]
    if description["auxiliaryData"]:
        table = plain_table("beside the model", "direction", "shape", "meaning")
        for array in description["auxiliaryData"]:
            table.add_row(array["name"], array["direction"], Text(array["shape"]), array["meaning"])
        lines += [table, Text()]
    return [*lines, Text(f"defined in {piece.__module__}"), Text()]


def _options(piece: type[Piece]) -> list[tuple[str, Any, str]]:
    schema = piece.model_json_schema(by_alias=True)["properties"]
    values = _plain(piece).model_dump(mode="json", by_alias=True)
    option_names = [name for name in fields(piece, ()) if name != MEMBER or "/" in piece.name]
    return [(name, values[name], " ".join(schema[name].get("description", "").split())) for name in option_names]


def _plain(piece: type[Piece]) -> Piece:
    """Return a piece with its defaults; an option without one is left out."""
    return piece.model_construct()


def _summary(piece: type[Piece]) -> str:
    return " ".join((piece.__doc__ or "").split("\n\n", 1)[0].split())
