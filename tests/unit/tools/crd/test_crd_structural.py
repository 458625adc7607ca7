"""What the generator makes of types, and what it refuses."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, StringConstraints

from anchorage.api.base import NAME_PATTERN, Document
from anchorage.api.pod import Amount
from makers.crd.structural import NotStructuralError, described, structural

Text = Annotated[str, StringConstraints(max_length=8)]


def made(annotation: Any, default: Any = ..., description: str = "A field.") -> dict[str, Any]:
    """Return the schema of one field of this type."""
    namespace = {"__annotations__": {"one": annotation}, "one": Field(default, description=description)}
    kind = type("Example", (Document,), {**namespace, "__doc__": "An example.", "__module__": __name__})
    holder = {"__annotations__": {"inner": kind}, "inner": Field(description="The example.")}
    schema = structural(type("Holder", (Document,), {**holder, "__doc__": "A holder.", "__module__": __name__}))
    field: dict[str, Any] = schema["properties"]["inner"]["properties"]["one"]
    return field


class Inner(Document):
    """Something inside."""

    size: Text = Field("a", description="How large.")


@pytest.mark.parametrize(
    ("annotation", "default", "schema"),
    [
        (Text, "x", {"type": "string", "maxLength": 8, "default": "x"}),
        (Text | None, None, {"type": "string", "maxLength": 8}),
        (Literal["A"], "A", {"type": "string", "enum": ["A"], "default": "A"}),
        (bool, False, {"type": "boolean", "default": False}),
        (
            Annotated[int, Field(ge=1, le=9)],
            2,
            {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        ),
        (Annotated[int, Field(ge=0, le=2**63 - 1)], ..., {"type": "integer", "minimum": 0, "format": "int64"}),
        (
            Annotated[int, Field(ge=0, le=2**40)],
            ...,
            {"type": "integer", "minimum": 0, "maximum": 2**40, "format": "int64"},
        ),
    ],
)
def test_a_plain_field(annotation: Any, default: Any, schema: dict[str, Any]) -> None:
    assert made(annotation, default) == {"description": "A field.", **schema}


def test_a_number_or_text() -> None:
    schema = made(Amount)
    assert schema["x-kubernetes-int-or-string"] is True
    assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in schema
    assert (schema["maxLength"], schema["minimum"]) == (32, 0)


def test_a_map_of_free_names_has_a_rule_for_them() -> None:
    name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
    schema = made(Annotated[dict[name, Text], Field(max_length=4)])
    assert schema["maxProperties"] == 4
    assert schema["additionalProperties"] == {"type": "string", "maxLength": 8}
    (rule,) = schema["x-kubernetes-validations"]
    assert NAME_PATTERN in rule["rule"]


def test_a_mapping_inside_has_its_field_s_description_and_its_own_defaults() -> None:
    schema = made(Inner, Inner())
    assert schema["description"] == "A field."
    assert schema["default"] == {}
    assert schema["properties"]["size"]["default"] == "a"


@pytest.mark.parametrize(
    ("annotation", "default", "complaint"),
    [
        (str, ..., "Example|Holder.inner.one has no maxLength"),
        (int, ..., "has no minimum and no maximum"),
        (Annotated[int, Field(ge=0)], ..., "has no maximum"),
        (float, ..., "has the type number; decimals are text"),
        (tuple[Text, ...], (), "has no maxItems"),
        (Annotated[tuple[Text, ...], Field(max_length=3)], (), "LISTS does not say how it is merged"),
        (dict[Annotated[str, StringConstraints(pattern=NAME_PATTERN)], Text], {}, "has no maxProperties"),
        (Annotated[str, StringConstraints(max_length=8, pattern="^x$")], ..., "has no words in anchorage.api.allowed"),
        (Annotated[int, Field(gt=0, le=9)], 1, "has exclusiveMinimum, which a structural schema cannot say"),
        (Text | bool, ..., "is a choice between types"),
        (Inner | Text, ..., "is a choice between types"),
        (Inner, Inner(size="b"), "has a default that is not its type's own defaults"),
    ],
)
def test_what_cannot_be_said_is_refused(annotation: Any, default: Any, complaint: str) -> None:
    with pytest.raises(NotStructuralError, match=complaint):
        made(annotation, default)


def test_a_field_needs_a_description() -> None:
    with pytest.raises(NotStructuralError, match="inner.one has no description"):
        made(Text, description="")


def test_a_description_is_whole_and_one_line() -> None:
    assert described("Loss on\n    images.\n\n    More of it.") == "Loss on images. More of it."
