"""The reference of the federation file is generated from its types."""

from pathlib import Path

import pytest

from anchorage.api.federation import Federation, Silo
from anchorage.api.files import load_federation
from anchorage.api.method import SLOTS
from anchorage.api.piece import PIECES
from makers.field_reference import changes, tables

PAGE = Path(__file__).parents[3] / "docs" / "federation.md"


def section(name: str) -> list[str]:
    """Lines of one mapping's part."""
    head = f"# {name}\n"
    (part,) = [part for part in tables().split("\n#") if part.lstrip("#").startswith(head[1:])]
    return part.splitlines()


def test_every_field_of_every_mapping_has_a_row() -> None:
    text = tables()
    for kind in (Federation, Silo):
        schema = kind.model_json_schema()
        for name, mapping in [(kind.__name__, schema), *schema["$defs"].items()]:
            lines = section(name)
            for field, of in mapping["properties"].items():
                (row,) = [line for line in lines if line.startswith(f"| `{field}` |")]
                assert row.endswith(f"| {' '.join(of['description'].split())} |"), row
    assert text.count("\n### ServerData\n") == text.count("\n### SiloData\n") == 1


def test_what_may_change_has_a_row_for_each_verdict() -> None:
    never, rounds, later, server, free = (line.split(" | ") for line in changes().splitlines()[2:])
    assert "`protocol.mode`" in never[1] and "`managed.data`" in never[2]
    assert rounds[1] == "`rounds`"
    assert "`protocol.minSilos`" in later[1] and "`tracking`" in server[1]
    assert "`deletionPolicy`" in free[1] and "`managed.data.onChange`" in free[2]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("FederationSpec", "| `rounds` | a whole number, 1 to 1000000 | required |"),
        ("FederationSpec", "| `model` | [ModelSpec](#modelspec) | required |"),
        ("FederationSpec", "| `protocol` | [Protocol](#protocol) | its own defaults |"),
        ("FederationSpec", "| `anchorData` | [ServerData](#serverdata) | absent |"),
        ("Federation", "| `status` | [FederationStatus](#federationstatus) | absent |"),
        ("MethodSpec", "| `weighting` | [WeightingSlot](#weightingslot) | absent |"),
        ("WeightingSlot", "| `semiAnAgg` | [SemiAnAgg](#semianagg) | absent |"),
        ("WeightingSlot", "| `uniform` | a mapping | absent | The same weight for every update. |"),
        ("WeightingSlot", "| `plugin` | [Plugin](#plugin) | absent |"),
        ("SemiAnAgg", "| `order` | one of Paper, Code | `Paper` |"),
        ("Anchors", "| `objective` | [ServerObjectiveSlot](#serverobjectiveslot) | `taskLoss` |"),
        ("ClientMixup", '| `alpha` | a quoted decimal number above 0, such as "0.6" | `"0.75"` |'),
        ("SiloSpec", "| `labels` | one of None, All, Partial | `None` |"),
        ("ModelSpec", "| `initial` | a relative path without .., at most 1024 characters | absent |"),
        (
            "SiloData",
            "| `classMap` | a mapping, at most 1000 fields; its values: text, 1 to 256 characters | empty |",
        ),
        ("SiloStatus", "| `connected` | true or false | `false` |"),
        ("Condition", '| `message` | text, at most 1024 characters | `""` |'),
        ("FederationStatus", "| `conditions` | a list, at most 16 items; its items: [Condition](#condition) | empty |"),
        (
            "Resources",
            "| `limits` | a mapping, at most 16 fields; its values: an amount such as 500m or 20Gi or a whole number, "
            "0 to 9007199254740992 | empty |",
        ),
    ],
)
def test_a_row_tells_type_bounds_and_default(name: str, row: str) -> None:
    assert any(line.startswith(row) for line in section(name))


def test_a_mapping_names_every_place_where_it_stands() -> None:
    places = ", ".join(
        f"`Federation` `spec.{place}`" for place in ("anchorData", "evaluation.validation", "evaluation.test")
    )
    assert f"Used at {places}." in section("ServerData")
    assert "Used at `Federation` `status.conditions[]`, `Silo` `status.conditions[]`." in section("Condition")


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
            assert sum(line.startswith(f"| `{name}` |") for line in lines) == 1, (kind, name)


def test_every_link_leads_to_a_heading() -> None:
    text = tables()
    heads = {line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")}
    links = {part.split(")", 1)[0] for part in text.split("](#")[1:]}
    assert links <= heads


@pytest.mark.parametrize("page", [PAGE, PAGE.parents[1] / "README.md"])
def test_the_file_that_is_shown_first_is_valid(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "derm.yaml"
    file.write_text(page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0], encoding="utf-8")
    assert load_federation(file).silos
