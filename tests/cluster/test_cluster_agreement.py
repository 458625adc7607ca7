"""The API server and `fedctl validate` are of one mind about federations drawn at random, half sense, half nonsense."""

import json
import random
import re
from typing import Any, get_args

from cluster_site import Site
from pydantic.alias_generators import to_camel
from refusals import FEDERATION, Object, changed

from anchorage.methods import PRESETS, validate_documents
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.mistakes import DocumentError

COUNT = 300
SLOTS = [name for name, slot in ResolvedMethod.model_fields.items() if name not in ("name", "local")]


def drawn_slot(draw: random.Random, slot: str) -> dict[str, Any]:
    """Set some fields of a slot: words at random, the rest to their defaults."""
    kind: Any = ResolvedMethod.model_fields[slot].annotation
    plain = kind().model_dump(mode="json", by_alias=True)
    words = {to_camel(name): get_args(field.annotation) for name, field in kind.model_fields.items()}
    chosen = [name for name in plain if draw.random() < 0.25]
    return {
        name: draw.choice(words[name]) if isinstance(plain[name], str) and words[name] else plain[name]
        for name in chosen
    }


def drawn_section(draw: random.Random, use: str) -> dict[str, Any]:
    """Draw a data section that is about as often proper as not."""
    section: dict[str, Any] = {"format": "Digits", "use": use, "testPercent": draw.choice([0, 20, 20])}
    section["anchors"] = draw.choice([0, 5, 80, 80])
    if draw.random() < 0.3:
        extra = {"claimName": "c", "manifest": "m", "groupBy": "g"}
        section |= {name: value for name, value in extra.items() if draw.random() < 0.6}
        section["format"] = draw.choice(["Digits", "ImageFolder", "CsvManifest"])
    if use == "Part" or draw.random() < 0.1:
        fields = {"parts": 3, "part": draw.choice([0, 2, 3]), "file": "f"}
        kept = {name: value for name, value in fields.items() if draw.random() < 0.8}
        section["partition"] = {"recipe": draw.choice(["Iid", "PerClient", "File"]), **kept}
    return section


def drawn_federation(draw: random.Random, name: str) -> Object:
    """Draw a federation: a preset, overrides of some slots, a protocol, images at the server."""
    spec: dict[str, Any] = {"method": {"name": draw.choice(list(PRESETS))}}
    spec["method"] |= {to_camel(slot): drawn_slot(draw, slot) for slot in SLOTS if draw.random() < 0.15}
    if draw.random() < 0.25:
        counts = {"minSilos": draw.choice([1, 3]), **({"silosPerRound": 2} if draw.random() < 0.4 else {})}
        spec["protocol"] = {"mode": draw.choice(["Synchronous", "Asynchronous"]), **counts}
    if draw.random() < 0.7:
        spec["anchorData"] = drawn_section(draw, draw.choice(["Anchors"] * 6 + ["All", "Test", "Part"]))
    if draw.random() < 0.3:
        spec["evaluation"] = {"data": drawn_section(draw, draw.choice(["Test"] * 6 + ["All", "Anchors", "Part"]))}
    return changed(FEDERATION, {"metadata.name": name, **{f"spec.{field}": value for field, value in spec.items()}})


def refused_by_documents(federation: Object) -> str:
    """Return what the documents' own rules say, nothing when they take the federation."""
    try:
        validate_documents(federation)
    except DocumentError as refused:
        return str(refused)
    return ""


def test_both_refuse_the_same(site: Site) -> None:
    draw = random.Random(20261121)
    federations = {f"drawn-{index}": drawn_federation(draw, f"drawn-{index}") for index in range(COUNT)}
    text = "".join(f"---\n{json.dumps(federation)}\n" for federation in federations.values())
    said = site.kubectl("apply", "--dry-run=server", "--filename", "-", check=False, text=text, seconds=300)
    taken = set(re.findall(r"federation\.anchorage\.dev/(drawn-\d+) created", said))
    ours = {name: refused_by_documents(federation) for name, federation in federations.items()}
    expected = {name for name, refusal in ours.items() if not refusal}
    assert 30 < len(expected) < COUNT - 30
    assert {name: federations[name]["spec"] for name in taken - expected} == {}, "taken, though fedctl validate refuses"
    assert {name: federations[name]["spec"] for name in expected - taken} == {}, (
        "refused, though fedctl validate takes it"
    )
