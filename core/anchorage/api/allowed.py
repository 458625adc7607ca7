"""Describes the allowed values of a document's field in words, from the JSON schema of its type."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from anchorage.api.base import CLASS_COUNTS_PATTERN, DECIMALS, FORMS, Document
from anchorage.api.mistakes import FieldPath

Schema = Mapping[str, Any]

_TYPES = {"object": "a mapping", "array": "a list", "boolean": "true or false", "string": "text", "null": "nothing"}


@cache
def _schema_of(kind: type[Document]) -> Schema:
    return kind.model_json_schema(by_alias=True)


def alternatives(kind: type[Document], path: FieldPath) -> list[Schema]:
    """Return the schemas of a field, without null; empty if the field does not exist."""
    root_schema = _schema_of(kind)
    schemas = _expand(root_schema, root_schema)
    for part in path:
        schemas = [option for schema in schemas for option in _below(root_schema, schema, part)]
    return schemas


def describe_allowed(kind: type[Document], path: FieldPath) -> str:
    """Describe a field's allowed values in a phrase such as ``1 to 1000`` or ``one of None, All, Partial``."""
    phrases = dict.fromkeys(_phrase(schema) for schema in alternatives(kind, path))
    return " or ".join(phrases) or "nothing"


def fields(kind: type[Document], path: FieldPath) -> list[str]:
    """Return the names of a mapping's fields."""
    return list(dict.fromkeys(name for schema in alternatives(kind, path) for name in schema.get("properties", {})))


def takes_decimal(kind: type[Document], path: FieldPath) -> bool:
    """Return whether a field takes a number as text: a quoted decimal, or numbers of classes."""
    return any(schema.get("pattern") in (*DECIMALS, CLASS_COUNTS_PATTERN) for schema in alternatives(kind, path))


def _expand(root_schema: Schema, schema: Schema) -> list[Schema]:
    if "$ref" in schema:
        return _expand(root_schema, root_schema["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [option for choice in schema[key] for option in _expand(root_schema, choice)]
    return [] if schema.get("type") == "null" else [schema]


def _below(root_schema: Schema, schema: Schema, part: str | int) -> list[Schema]:
    rest = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    below = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part, rest)
    return _expand(root_schema, below) if isinstance(below, Mapping) else []


def _phrase(schema: Schema) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("type") in ("integer", "number"):
        return _range_words("a whole number", schema, "minimum", "maximum", "")
    if "examples" in schema:
        return f"text such as {', '.join(schema['examples'])}"
    if "pattern" in schema:
        return FORMS.get(schema["pattern"], f"text of the form {schema['pattern']}")
    if schema.get("type") == "string":
        return _range_words("text", schema, "minLength", "maxLength", " characters")
    if schema.get("type") == "array":
        return _range_words("a list", schema, "minItems", "maxItems", " items")
    if schema.get("maxProperties") == 1 and "properties" in schema:
        return f"a mapping of exactly one of {', '.join(schema['properties'])}"
    if schema.get("type") == "object" and "properties" not in schema:
        return _range_words("a mapping", schema, "minProperties", "maxProperties", " fields")
    return _TYPES.get(str(schema.get("type")), "another value")


def _range_words(noun: str, schema: Schema, low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None:
        return f"{noun}, {least} to {most}{unit}"
    if most is not None:
        return f"{noun}, at most {most}{unit}"
    if least is not None:
        return f"{noun}, at least {least}{unit}"
    return noun
