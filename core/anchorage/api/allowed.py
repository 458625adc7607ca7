"""Describes the allowed values of a document's field in words, from the JSON schema of its type."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from anchorage.api.base import (
    ABOVE_ZERO_PATTERN,
    ADDRESS_PATTERN,
    CLASS_COUNTS_PATTERN,
    CLASS_PATTERN,
    CODE_PATTERN,
    DECIMAL_PATTERN,
    DIGEST_PATTERN,
    ENV_NAME_PATTERN,
    FRACTION_PATTERN,
    HOST_PATTERN,
    IMAGE_PATTERN,
    KEY_PATTERN,
    LABEL_KEY_PATTERN,
    LABEL_VALUE_PATTERN,
    MOUNT_PATH_PATTERN,
    NAME_PATTERN,
    NAMES_PATTERN,
    PATH_PATTERN,
    POSITIVE_DECIMAL_PATTERN,
    QUANTITY_PATTERN,
    RESOURCE_PATTERN,
    SECRET_KEY_PATTERN,
    SHARE_PATTERN,
    SUBDOMAIN_PATTERN,
    TIME_PATTERN,
    TITLE_PATTERN,
    TRACKING_URI_PATTERN,
    TRAINABLE_PATTERN,
    WEIGHTS_PATTERN,
    WORD_PATTERN,
    Document,
)
from anchorage.api.mistakes import FieldPath

Schema = Mapping[str, Any]

_DECIMALS = {
    DECIMAL_PATTERN: 'a quoted decimal number such as "0.6"',
    POSITIVE_DECIMAL_PATTERN: 'a quoted decimal number that is not negative, such as "0.6"',
    ABOVE_ZERO_PATTERN: 'a quoted decimal number above 0, such as "0.6"',
    FRACTION_PATTERN: 'a quoted decimal number from 0 to 1, such as "0.6"',
    SHARE_PATTERN: 'a quoted decimal number above 0, at most 1, such as "0.6"',
}
FORMS: Mapping[str, str] = {
    **_DECIMALS,
    NAME_PATTERN: "a name of lower-case letters, digits and dashes, at most 63 long",
    NAMES_PATTERN: "names of silos such as cpu-*, with * for any characters and ? for one",
    CLASS_PATTERN: 'the name of a class on one line; quote a number: "0"',
    CLASS_COUNTS_PATTERN: 'quoted numbers of classes such as "5", or "8x1,7x1,5x8" by number of parts',
    WEIGHTS_PATTERN: "a name such as IMAGENET1K_V1 (letters, digits, dots, dashes, underscores), models:/NAME/VERSION or models:/NAME@ALIAS",
    QUANTITY_PATTERN: "an amount such as 500m or 20Gi",
    TRACKING_URI_PATTERN: "a URI such as http://mlflow:5000 or sqlite:///mlflow.db, without user and password",
    SUBDOMAIN_PATTERN: "a name of lower-case letters, digits, dashes and dots, at most 253 long",
    RESOURCE_PATTERN: "a resource such as cpu or nvidia.com/gpu",
    LABEL_KEY_PATTERN: "a label's key such as zone or example.org/zone",
    LABEL_VALUE_PATTERN: "a label's value: letters, digits, dashes, dots and underscores, at most 63",
    IMAGE_PATTERN: "an image such as example.org/anchorage-server:0.2",
    SECRET_KEY_PATTERN: "a key of a Secret: letters, digits, dashes, dots and underscores",
    ENV_NAME_PATTERN: "a variable's name such as OMP_NUM_THREADS",
    MOUNT_PATH_PATTERN: "an absolute path without colon, at most 512 characters",
    HOST_PATTERN: "a DNS name or an IP address",
    ADDRESS_PATTERN: "host:port, such as derm.example.org:8443",
    PATH_PATTERN: "a relative path without .., at most 1024 characters",
    TITLE_PATTERN: "text without slash and colon, at most 200 characters",
    WORD_PATTERN: "a word such as FedAnchor: a capital, then letters and digits, at most 63",
    TRAINABLE_PATTERN: "All, Head, or names such as encoder.layer4,encoder.norm*",
    TIME_PATTERN: "a time in UTC such as 2026-11-21T12:00:00Z",
    DIGEST_PATTERN: "a digest: lower-case letters, digits, dashes and colons, at most 160",
    CODE_PATTERN: "a code such as ANC-3004, or nothing",
    KEY_PATTERN: "64 hexadecimal digits, or nothing",
}
"""Descriptions of the API's patterns in words."""

_TYPES = {"object": "a mapping", "array": "a list", "boolean": "true or false", "string": "text", "null": "nothing"}


@cache
def _whole(kind: type[Document]) -> Schema:
    return kind.model_json_schema(by_alias=True)


def alternatives(kind: type[Document], path: FieldPath) -> list[Schema]:
    """Return the schemas of a field, without null; empty if the field does not exist."""
    whole = _whole(kind)
    found = _expanded(whole, whole)
    for part in path:
        found = [option for schema in found for option in _below(whole, schema, part)]
    return found


def allowed(kind: type[Document], path: FieldPath) -> str:
    """Describe a field's allowed values in a phrase such as ``1 to 1000`` or ``one of None, All, Partial``."""
    phrases = dict.fromkeys(_phrase(schema) for schema in alternatives(kind, path))
    return " or ".join(phrases) or "nothing"


def fields(kind: type[Document], path: FieldPath) -> list[str]:
    """Return the names of a mapping's fields."""
    return list(dict.fromkeys(name for schema in alternatives(kind, path) for name in schema.get("properties", {})))


def takes_decimal(kind: type[Document], path: FieldPath) -> bool:
    """Return whether a field takes a number as text: a quoted decimal, or numbers of classes."""
    return any(schema.get("pattern") in (*_DECIMALS, CLASS_COUNTS_PATTERN) for schema in alternatives(kind, path))


def _expanded(whole: Schema, schema: Schema) -> list[Schema]:
    if "$ref" in schema:
        return _expanded(whole, whole["$defs"][schema["$ref"].rsplit("/", 1)[1]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [option for choice in schema[key] for option in _expanded(whole, choice)]
    return [] if schema.get("type") == "null" else [schema]


def _below(whole: Schema, schema: Schema, part: str | int) -> list[Schema]:
    rest = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
    below = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part, rest)
    return _expanded(whole, below) if isinstance(below, Mapping) else []


def _phrase(schema: Schema) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("type") in ("integer", "number"):
        return _bounded("a whole number", schema, "minimum", "maximum", "")
    if "examples" in schema:
        return f"text such as {', '.join(schema['examples'])}"
    if "pattern" in schema:
        return FORMS.get(schema["pattern"], f"text of the form {schema['pattern']}")
    if schema.get("type") == "string":
        return _bounded("text", schema, "minLength", "maxLength", " characters")
    if schema.get("type") == "array":
        return _bounded("a list", schema, "minItems", "maxItems", " items")
    if schema.get("maxProperties") == 1 and "properties" in schema:
        return f"a mapping of exactly one of {', '.join(schema['properties'])}"
    if schema.get("type") == "object" and "properties" not in schema:
        return _bounded("a mapping", schema, "minProperties", "maxProperties", " fields")
    return _TYPES.get(str(schema.get("type")), "another value")


def _bounded(noun: str, schema: Schema, low: str, high: str, unit: str) -> str:
    least, most = schema.get(low), schema.get(high)
    if least is not None and most is not None:
        return f"{noun}, {least} to {most}{unit}"
    if most is not None:
        return f"{noun}, at most {most}{unit}"
    if least is not None:
        return f"{noun}, at least {least}{unit}"
    return noun
