"""Every string, list, map and number of the API has bounds, and every field a description."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from anchorage.api.base import Document
from anchorage.api.federation import Federation, Silo
from anchorage.api.run import RunDescription


def unbounded(place: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places in a JSON schema that take values of any size."""
    kind = schema.get("type")
    if "enum" in schema or "const" in schema:
        return
    if kind == "string" and "maxLength" not in schema:
        yield f"{place}: text"
    if kind == "integer" and not {"minimum", "maximum"} <= schema.keys():
        yield f"{place}: number"
    if kind == "number":
        yield f"{place}: a float"
    if kind == "array" and "maxItems" not in schema:
        yield f"{place}: list"
    if kind == "object" and "properties" not in schema and "maxProperties" not in schema:
        yield f"{place}: map"
    items = {"[]": schema["items"]} if "items" in schema else {}
    below = {**items, **schema.get("properties", {}), **schema.get("patternProperties", {})}
    for name, inner in below.items():
        yield from unbounded(f"{place}.{name}", inner)
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(key, ()):
            yield from unbounded(place, inner)


@pytest.mark.parametrize("kind", [Federation, Silo, RunDescription])
def test_everything_is_bounded(kind: type[Document]) -> None:
    schema = kind.model_json_schema()
    assert [problem for name, part in schema["$defs"].items() for problem in unbounded(name, part)] == []
    assert list(unbounded(kind.__name__, {**schema, "$defs": {}})) == []


@pytest.mark.parametrize("kind", [Federation, Silo, RunDescription])
def test_everything_is_described(kind: type[Document]) -> None:
    schema = kind.model_json_schema()
    parts = {**schema["$defs"], kind.__name__: schema}
    fields = [(f"{part}.{name}", field) for part in parts for name, field in parts[part].get("properties", {}).items()]
    assert [name for name, field in fields if not field.get("description")] == []


@pytest.mark.parametrize("kind", [Federation, Silo, RunDescription])
def test_fields_are_camel_case_and_nothing_else_is_taken(kind: type[Document]) -> None:
    schema = kind.model_json_schema()
    for name, part in {**schema["$defs"], kind.__name__: schema}.items():
        assert part.get("additionalProperties") is False, name
        assert not any("_" in field for field in part["properties"]), name
