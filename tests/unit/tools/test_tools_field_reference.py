"""The reference of the federation file is generated from its types."""

import re
from pathlib import Path

import pytest

from anchorage.api.federation import Federation, Silo
from anchorage.api.files import load_federation
from anchorage.api.method import SLOTS
from anchorage.api.piece import PIECES
from makers.field_reference import changes, fields

PAGE = Path(__file__).parents[3] / "docs" / "federation.md"


def section(name: str) -> list[str]:
    """Lines of one mapping's part."""
    head = f"# {name}\n"
    (part,) = [part for part in fields().split("\n#") if part.lstrip("#").startswith(head[1:])]
    return part.splitlines()


def description(name: str, field: str) -> str:
    """What the page says of a field of a mapping, where it refers to if it refers to another one."""
    lines = section(name)
    rows = [line for line in lines if re.match(rf"- \[?`{field}`", line)]
    same = [line for line in lines if line.startswith("As in ") and f"`{field}`" in line.partition(":")[2]]
    (row,) = [*rows, *same]
    if same:
        (row,) = [f"As in {part}" for part in row.removeprefix("As in ").split("; ") if f"`{field}`" in part]
    if referred := re.search(r"(?:^|: )As in \[(\w+)\]\(#\w+\)[.:]", row):
        return description(referred[1], field)
    return row.partition("): ")[2] or row.partition(": ")[2]


def test_every_field_of_every_mapping_is_described() -> None:
    for kind in (Federation, Silo):
        schema = kind.model_json_schema()
        for name, mapping in [(kind.__name__, schema), *schema["$defs"].items()]:
            for field, of in mapping["properties"].items():
                if field != "plugin":
                    assert description(name, field) == " ".join(of["description"].split()), (name, field)
    text = fields()
    assert text.count("\n### ServerData\n") == text.count("\n### SiloData\n") == 1


def test_a_long_description_stands_once() -> None:
    descriptions = [line.partition("): ")[2] for line in fields().splitlines() if line.startswith("- `")]
    long = [text for text in descriptions if len(text) > 100]
    assert len(long) == len(set(long)) > 100
    assert len(re.findall("Alternative from another Python package", fields())) == 1


def test_what_may_change_has_a_row_for_each_verdict() -> None:
    never, rounds, later, server, free = (line.split(" | ") for line in changes().splitlines()[2:])
    assert "`protocol.mode`" in never[1] and "`managed.data`" in never[2]
    assert rounds[1] == "`rounds`"
    assert "`protocol.minSilos`" in later[1] and "`tracking`" in server[1]
    assert "`deletionPolicy`" in free[1] and "`managed.data.onChange`" in free[2]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("FederationSpec", "- `rounds` (integer 1–1000000; required): "),
        ("FederationSpec", "- `model` ([ModelSpec](#modelspec); required): "),
        ("FederationSpec", "- `protocol` ([Protocol](#protocol)): "),
        ("FederationSpec", "- `anchorData` ([ServerData](#serverdata)): "),
        ("Federation", "- `status` ([FederationStatus](#federationstatus)): "),
        ("MethodSpec", "- `weighting` ([WeightingSlot](#weightingslot)): "),
        ("WeightingSlot", "- [`semiAnAgg`](#semianagg): "),
        ("WeightingSlot", "- `uniform`: The same weight for every update."),
        ("WeightingSlot", "- [`plugin`](#plugin)"),
        ("SemiAnAgg", "- `order` (Paper, Code; default `Paper`): "),
        ("Anchors", "- `objective` ([ServerObjectiveSlot](#serverobjectiveslot); default `taskLoss`): "),
        ("BothMixup", '- `alpha` (decimal > 0; default `"0.75"`): '),
        ("SiloSpec", "- `labels` (None, All, Partial; default `None`): "),
        ("ModelSpec", "- `initial` (relative path): "),
        ("VolumeSpec", "- `spacing` (list, 3 items: decimal > 0; required): "),
        (
            "Sage",
            "As in [FixMatch](#fixmatch): `threshold`; [Committee](#committee): `calibration`; [ClassAdaptive](#classadaptive): `views`.",
        ),
        (
            "ServerData",
            "- `classMap` (mapping, ≤ 1000 fields; values: text, 1–256 characters): ",
        ),
        ("SiloStatus", "- `connected`: Whether "),
        ("Condition", "- `message`: Explanation "),
        (
            "FederationStatus",
            "- `conditions` (list of [Condition](#condition)): ",
        ),
        (
            "Resources",
            "- `limits` (mapping, ≤ 16 fields; values: an amount such as 500m or 20Gi or integer 0–9007199254740992): ",
        ),
    ],
)
def test_a_row_tells_type_bounds_and_default(name: str, row: str) -> None:
    assert any(line.startswith(row) for line in section(name))


def test_a_mapping_names_every_place_where_it_stands() -> None:
    places = ", ".join(f"`spec.{place}`" for place in ("anchorData", "evaluation.validation", "evaluation.test"))
    assert places in section("ServerData")
    assert "`status.conditions[]`, `Silo` `status.conditions[]`" in section("Condition")
    assert section("Protocol")[1:5:2] == ["", ""] and section("Protocol")[2] == "`spec.protocol`", (
        "its field describes it"
    )
    assert "Alternative from another Python package" in section("Plugin")[2] and not any(
        "spec." in line for line in section("Plugin")
    )


def test_every_alternative_with_options_has_its_part() -> None:
    """A part is named after its class, so no two mappings of a document may share a name."""
    pieces = [kind for slot in (*SLOTS, "optimiser", "server_objective") for kind in PIECES.of(slot).values()]
    with_options = [kind for kind in pieces if kind.model_fields]
    kinds = {kind.__name__ for kind in with_options}
    schemas = [kind.model_json_schema() for kind in (Federation, Silo)]
    others = {name for schema in schemas for name in schema["$defs"]}
    assert len(kinds) == len(with_options) and not kinds & others
    for kind in with_options:
        lines = section(kind.__name__)
        for name in (field.alias for field in kind.model_fields.values()):
            assert sum(f"`{name}`" in line for line in lines if line.startswith((f"- `{name}` (", "As in "))) == 1, (
                kind,
                name,
            )


def test_every_link_leads_to_a_heading() -> None:
    text = fields()
    heads = {line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")}
    links = {part.split(")", 1)[0] for part in text.split("](#")[1:]}
    assert links <= heads


@pytest.mark.parametrize("page", [PAGE, PAGE.parents[1] / "README.md"])
def test_the_file_that_is_shown_first_is_valid(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "derm.yaml"
    file.write_text(page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert load_federation(file).silos
