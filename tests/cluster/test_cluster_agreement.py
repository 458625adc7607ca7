"""The API server and `fedctl validate` are of one mind about federations drawn at random, half sense, half nonsense."""

import json
import random
import re
from collections.abc import Sequence
from typing import Any, get_args

from cluster_site import Site
from pydantic.alias_generators import to_camel
from refusal import FEDERATION, Object, changed
from refused_methods import LEFT_TO_THE_OPERATOR

from anchorage.api.method import ResolvedMethod
from anchorage.api.mistakes import DocumentError, Mistake, dotted
from anchorage.methods import PRESETS, validate_documents
from anchorage.methods.preset import Preset

COUNT = 400
SLOTS = [name for name in ResolvedMethod.model_fields if name not in ("name", "local")]
SWITCHES = {"mixup": "at", "heads": "second", "batch_norm": "policy"}
LOCAL: tuple[Object, ...] = (
    {"epochs": 2},
    {"start": "Own"},
    {"start": "Received"},
    {"cycle": {"tombstones": 2}},
    {"optimiser": {"sgd": {"momentum": "0", "weightDecay": "0"}}},
)

STAGE_OVERRIDES: tuple[Object, ...] = (
    {},
    {},
    {"set": ["local.epochs=2"]},
    {"set": ["serverTraining.type=None", "serverStep.type=Replace"]},
    {"set": ["supervised.type=BalancedSoftmax", "local.epoch=1"]},
)


def drawn_slot(draw: random.Random, slot: str, preset: Preset) -> dict[str, Any]:
    """Set some fields of a slot: its choice to a preset's or any, other fields to words at random or their defaults."""
    kind: Any = ResolvedMethod.model_fields[slot].annotation
    plain = kind().model_dump(mode="json", by_alias=True)
    words = {to_camel(name): get_args(field.annotation) for name, field in kind.model_fields.items()}
    drawn = {name: draw.choice(words[name] or (value,)) for name, value in plain.items() if draw.random() < 0.05}
    switch = SWITCHES.get(slot, "type")
    if draw.random() < 0.8:
        drawn[switch] = draw.choice((getattr(getattr(preset.slots, slot), switch), draw.choice(words[switch])))
    return drawn


def drawn_method(draw: random.Random) -> dict[str, Any]:
    """Draw a preset and overrides of some slots, many of them what another preset has."""
    name, other = draw.choices(list(PRESETS), k=2)
    slots = draw.sample(SLOTS, draw.choice((0, 0, 1, 1, 2)))
    differing = [slot for slot in SLOTS if getattr(PRESETS[name].slots, slot) != getattr(PRESETS[other].slots, slot)]
    slots += [slot for slot in differing if draw.random() < 0.25]
    method: dict[str, Any] = {"name": name}
    method |= {to_camel(slot): drawn_slot(draw, slot, PRESETS[other]) for slot in slots}
    return method | ({"local": draw.choice(LOCAL)} if draw.random() < 0.15 else {})


def drawn_section(draw: random.Random, use: str) -> dict[str, Any]:
    """Draw a data section that is mostly proper."""
    section: dict[str, Any] = {"format": "Digits", "use": use, "testPercent": draw.choice([0, *[20] * 9])}
    section["anchors"] = draw.choice([0, 5, *[80] * 10])
    if draw.random() < 0.15:
        extra = {"claimName": "c", "manifest": "m", "groupBy": "g"}
        section |= {name: value for name, value in extra.items() if draw.random() < 0.6}
        section["format"] = draw.choice(["Digits", "ImageFolder", "CsvManifest"])
    if use == "Part" or draw.random() < 0.1:
        fields = {"parts": 3, "part": draw.choice([0, 2, 3]), "file": "f"}
        kept = {name: value for name, value in fields.items() if draw.random() < 0.8}
        section["partition"] = {"recipe": draw.choice(["Iid", "PerClient", "File"]), **kept}
    return section


def drawn_federation(draw: random.Random, name: str) -> Object:
    """Draw a federation: a method, stages before it, a protocol, images at the server."""
    method = drawn_method(draw)
    spec: dict[str, Any] = {"method": method}
    modes = PRESETS[method["name"]].protocols
    if "Synchronous" not in modes or draw.random() < 0.25:
        mode = draw.choice((*modes * 3, "Synchronous", "Asynchronous"))
        spec["protocol"] = {"mode": mode, "minSilos": draw.choice([1, 3, 6])}
        spec["protocol"] |= {"silosPerRound": draw.choice([2, 6])} if draw.random() < 0.2 else {}
    if draw.random() < 0.15:
        stages = draw.choices(list(PRESETS), k=draw.choice((1, 1, 2)))
        spec["warmUp"] = [
            {"method": stage, "rounds": draw.choice((1, 2, 4)), **draw.choice(STAGE_OVERRIDES)} for stage in stages
        ]
    if draw.random() < 0.85:
        spec["anchorData"] = drawn_section(draw, draw.choice(["Anchors"] * 12 + ["All", "Test", "Part"]))
    if draw.random() < 0.3:
        spec["evaluation"] = {"data": drawn_section(draw, draw.choice(["Test"] * 12 + ["All", "Anchors", "Part"]))}
    return changed(FEDERATION, {"metadata.name": name, **{f"spec.{field}": value for field, value in spec.items()}})


def mistakes(federation: Object) -> Sequence[Mistake]:
    """Return what the documents' own rules say, nothing when they take the federation."""
    try:
        validate_documents(federation)
    except DocumentError as refused:
        return refused.mistakes
    return ()


def left_to_the_operator(mistake: Mistake) -> bool:
    """Whether the API server does not know a rule, of this field or of one beside it."""
    folder = re.sub(r"\[\d+\]", "[0]", dotted(mistake.path[:-1]))
    cases = (case for case in LEFT_TO_THE_OPERATOR if case.path.rsplit(".", 1)[0] == folder)
    return any(case.message in mistake.message for case in cases)


def overrides_a_stage(federation: Object) -> bool:
    """Whether a stage sets something: what becomes of its preset then, only the operator finds out."""
    return any("set" in stage for stage in federation["spec"].get("warmUp", ()))


def test_both_refuse_the_same(site: Site) -> None:
    draw = random.Random(20261121)
    federations = {f"drawn-{index}": drawn_federation(draw, f"drawn-{index}") for index in range(COUNT)}
    text = "".join(f"---\n{json.dumps(federation)}\n" for federation in federations.values())
    said = site.kubectl("apply", "--dry-run=server", "--filename", "-", check=False, text=text, seconds=300)
    taken = set(re.findall(r"federation\.anchorage\.dev/(drawn-\d+) created", said))
    found = {name: mistakes(federation) for name, federation in federations.items()}
    proper = {name for name in federations if not found[name]}
    unseen = {name for name in federations if found[name] and all(map(left_to_the_operator, found[name]))}
    unseen |= {name for name in federations if found[name] and overrides_a_stage(federations[name])}
    assert COUNT // 4 < len(proper) < COUNT // 2
    assert {name: federations[name]["spec"] for name in taken - proper - unseen} == {}, (
        "taken, though fedctl validate refuses"
    )
    assert {name: federations[name]["spec"] for name in proper - taken} == {}, (
        "refused, though fedctl validate takes it"
    )
