"""Federations drawn at random, half sense, half nonsense."""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic.alias_generators import to_camel
from refusal import FEDERATION, Object, changed

from anchorage.api.method import SLOTS
from anchorage.api.piece import PIECES, Piece
from anchorage.methods import PRESETS

LOCAL: tuple[Object, ...] = (
    {"epochs": 2},
    {"cycle": {"tombstones": 2}},
    {"optimiser": {"sgd": {"momentum": "0", "weightDecay": "0"}}},
    {"optimiser": {"adam": {}}},
)
STAGE_OVERRIDES: tuple[Object, ...] = (
    {},
    {},
    {"set": ["local.epochs=2"]},
    {"set": ["serverTraining={none: {}}", "serverStep={replace: {}}"]},
    {"set": ["localLoss={balancedSoftmax: {}}", "local.epoch=1"]},
)
STRANGE = (0, -1, 10**7, "0", "-1", "0.5", "7.5", "None", "Code", "", True, None, {}, [])
"""Values that few options take."""


def drawn_federations(seed: int, count: int) -> dict[str, Object]:
    """Return federations by their names."""
    draw = random.Random(seed)
    return {name: _federation(draw, name) for name in (f"drawn-{index}" for index in range(count))}


@cache
def _options_in_presets(kind: type[Piece]) -> list[dict[str, Any]]:
    own_pieces = [
        own_piece for preset in PRESETS.values() for own_piece in preset.slots.pieces() if type(own_piece) is kind
    ]
    return [own_piece.model_dump(mode="json", by_alias=True) for own_piece in own_pieces]


def _options(draw: random.Random, kind: type[Piece]) -> dict[str, Any]:
    """Set some options to values that they have in a preset or by default, few to others, and seldom one that there is not."""
    presets = _options_in_presets(kind)
    plain = draw.choice(presets) if presets else {}
    options = {name: value for name, value in plain.items() if draw.random() < 0.2}
    options |= {to_camel(name): draw.choice(STRANGE) for name in kind.model_fields if draw.random() < 0.02}
    return options | ({"share": "0.5"} if draw.random() < 0.02 else {})


def _slot(draw: random.Random, slot: str, preferred: str) -> Any:
    """Fill a slot with one alternative, mostly; with none, two, an unknown one or a word now and then."""
    known = {name: kind for name, kind in PIECES.of(slot).items() if "." not in name}
    name = preferred if draw.random() < 0.5 else draw.choice(list(known))
    filled: dict[str, Any] = {name: _options(draw, known[name])}
    other = draw.choice(list(known))
    odd: tuple[Any, ...] = ({}, {**filled, other: {}}, {name.capitalize(): {}}, name, {name: None})
    return draw.choice(odd) if draw.random() < 0.06 else filled


def _method(draw: random.Random) -> dict[str, Any]:
    """Draw a preset and overrides of some slots, many of them what another preset has."""
    name, other = draw.choices(list(PRESETS), k=2)
    own_slots, others = PRESETS[name].slots, PRESETS[other].slots
    slots = draw.sample(SLOTS, draw.choice((0, 0, 1, 1, 2)))
    slots += [slot for slot in SLOTS if getattr(own_slots, slot) != getattr(others, slot) and draw.random() < 0.25]
    method: dict[str, Any] = {"name": name}
    method |= {to_camel(slot): _slot(draw, slot, getattr(others, slot).name) for slot in slots}
    return method | ({"local": draw.choice(LOCAL)} if draw.random() < 0.15 else {})


def _section(draw: random.Random, use: str, *, silo: bool = False) -> dict[str, Any]:
    """Draw a data section that is mostly proper."""
    section: dict[str, Any] = {"format": "Digits", "use": use, "testPercent": draw.choice([0, *[20] * 9])}
    section["anchors"] = draw.choice([0, 5, *[80] * 10])
    if draw.random() < 0.15:
        extra = {"claimName": "c", "manifest": "m", "groupBy": "g", "path": "../a"}
        section |= {name: value for name, value in extra.items() if draw.random() < 0.5}
        section["format"] = draw.choice(["Digits", "ImageFolder", "CsvManifest"])
    if use == "Part" or (silo and draw.random() < 0.1):
        fields = {"parts": 3, "part": draw.choice([0, 2, 3]), "file": "f"}
        chosen_fields = {name: value for name, value in fields.items() if draw.random() < 0.8}
        section["partition"] = {"recipe": draw.choice(["Iid", "PerClient", "File"]), **chosen_fields}
    return section


def _fields(draw: random.Random) -> Iterator[tuple[str, Any]]:
    """Yield a method, stages before it, a protocol, images at the server."""
    method = _method(draw)
    yield "method", method
    modes = PRESETS[method["name"]].protocols
    if "Synchronous" not in modes or draw.random() < 0.25:
        protocol = {
            "mode": draw.choice((*modes * 3, "Synchronous", "Asynchronous")),
            "minSilos": draw.choice([1, 3, 6]),
        }
        yield "protocol", protocol | ({"silosPerRound": draw.choice([0, 2, 6])} if draw.random() < 0.2 else {})
    if draw.random() < 0.15:
        stages = draw.choices(list(PRESETS), k=draw.choice((1, 1, 2)))
        yield (
            "warmUp",
            [{"method": stage, "rounds": draw.choice((1, 2, 4)), **draw.choice(STAGE_OVERRIDES)} for stage in stages],
        )
    if draw.random() < 0.85:
        yield "anchorData", _section(draw, draw.choice(["Anchors"] * 12 + ["All", "Test"]))
    if draw.random() < 0.3:
        parts = draw.choice([("test",), ("validation",), ("validation", "test")])
        yield "evaluation", {part: _section(draw, draw.choice(["Test"] * 12 + ["All", "Anchors"])) for part in parts}


def _federation(draw: random.Random, name: str) -> Object:
    return changed(FEDERATION, {"metadata.name": name, **{f"spec.{field}": value for field, value in _fields(draw)}})
