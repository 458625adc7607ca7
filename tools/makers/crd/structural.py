"""From the JSON schema of a document to a structural schema, as a CustomResourceDefinition takes it.

Structural schemas have no references, constants, property names or nulls: references are put in place, what may be null is optional, and
what has no counterpart is refused. So is whatever has no bound, since the API server would take any amount of it, and a list without
its kind, since server-side apply would not know how to merge it.
"""

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from anchorage.api.allowed import Schema
from anchorage.api.base import (
    DECIMAL_PATTERN,
    FORMS,
    FRACTION_PATTERN,
    PATH_PATTERN,
    POSITIVE_DECIMAL_PATTERN,
    TIME_PATTERN,
    Document,
)
from anchorage.api.piece import PLUGIN
from makers.crd.rule import Rule
from makers.crd.rules import NO_PARENT_FOLDER, RULES

_FOLLOWED = {"$ref", "anyOf", "properties", "required", "items", "patternProperties", "propertyNames"}
_KEYWORDS = {"type", "enum", "minimum", "maximum", "minLength", "maxLength", "maxItems", "minItems", "pattern"}
_KNOWN = (
    _FOLLOWED
    | _KEYWORDS
    | {
        *("title", "description", "default", "const", "examples"),
        *("minProperties", "maxProperties", "additionalProperties"),
    }
)

_BOUNDED = (POSITIVE_DECIMAL_PATTERN, FRACTION_PATTERN, DECIMAL_PATTERN)
"""Patterns that bound the length themselves."""
_LARGEST = 2**63 - 1
_BOUNDS = {"string": ("maxLength",), "array": ("maxItems",), "integer": ("minimum", "maximum"), "boolean": ()}

LISTS: Mapping[tuple[str, str], str] = {
    ("FederationStatus", "conditions"): "type",
    ("FederationStatus", "silos"): "name",
    ("FederationStatus", "metrics"): "name",
    ("StoredModel", "metrics"): "name",
    ("SiloStatus", "packages"): "atomic",
    ("SiloCrStatus", "conditions"): "type",
    ("SiloCrStatus", "packages"): "atomic",
    ("Admission", "silos"): "set",
    ("Server", "names"): "set",
    ("FederationSpec", "warmUp"): "atomic",
    ("WarmUp", "set"): "atomic",
    ("Classification", "classes"): "atomic",
    ("MultiLabel", "labels"): "atomic",
    ("ServerData", "channelFiles"): "atomic",
    ("ServerData", "labelColumns"): "atomic",
    ("ServerData", "noFinding"): "atomic",
    ("ServerData", "unannotated"): "atomic",
    ("SiloData", "channelFiles"): "atomic",
    ("SiloData", "labelColumns"): "atomic",
    ("SiloData", "noFinding"): "atomic",
    ("SiloData", "unannotated"): "atomic",
    ("Segmentation", "classes"): "atomic",
    ("VolumeSpec", "spacing"): "atomic",
    ("VolumeSpec", "patch"): "atomic",
    ("ClassBudget", "mix"): "atomic",
}
"""How server-side apply merges a list: by a key of its items, as a set, or not at all."""

SMALLER: Mapping[tuple[str, str], int] = {("FederationStatus", "silos"): 1000}
"""Lists that are shorter in a cluster, where the whole object has to fit into 1.5 MiB."""

OPAQUE: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""What the operator checks: an alternative that another package adds, and the mappings `UNTOLD`."""
UNTOLD = {"PodOverrides"}
"""Mappings with parts in Kubernetes' own form, which would fill a definition."""


class Defaults(Enum):
    """What a definition does with the defaults of fields."""

    FILLED_IN = auto()
    """The API server fills them in."""
    DESCRIBED = auto()
    """Descriptions state them, and the API server fills in nothing."""
    LEFT_OUT = auto()
    """They are not in the definition."""


WITHOUT_DEFAULTS: Mapping[str, Defaults] = {
    "MethodSpec": Defaults.DESCRIBED,
    "FederationStatus": Defaults.LEFT_OUT,
    "SiloCrStatus": Defaults.LEFT_OUT,
}
"""Mappings where the API server must fill in nothing.

In a method what is not set is the preset's, or else the default; a status is the operator's to write.
"""


class NotStructuralError(ValueError):
    """A schema has something that a CustomResourceDefinition cannot say, or that this project does not want in one."""


def structural(kind: type[Document]) -> dict[str, Any]:
    """Return the structural schema of a document, without apiVersion, kind and metadata.

    Raises
    ------
    NotStructuralError
        With the place of what cannot be said.
    """
    schema = kind.model_json_schema(by_alias=True)
    return _Converter(schema["$defs"]).mapping(
        kind.__name__, {**schema, "properties": _own(schema["properties"])}, kind.__name__, Defaults.FILLED_IN
    )


def _own(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: schema for name, schema in properties.items() if name not in ("apiVersion", "kind", "metadata")}


class _Converter:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self.definitions = definitions

    def mapping(self, name: str, schema: Schema, place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert a mapping with named fields; `name` is its type's."""
        defaults = WITHOUT_DEFAULTS.get(name, defaults)
        fields = {}
        for field, of in schema["properties"].items():
            fields[field] = self.field(name, field, of, f"{place}.{field}", defaults)
        required = [field for field in schema.get("required", ()) if field in fields]
        rules = [rule.as_mapping() for rule in RULES.get(name, ())]
        return {
            "description": described(schema.get("description", "")),
            "type": "object",
            **({"required": required} if required else {}),
            **({"properties": fields} if fields else {}),
            **({"x-kubernetes-validations": rules} if rules else {}),
        }

    def field(self, owner: str, name: str, schema: Schema, place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert one field: its schema, its own description, its default, how it is merged."""
        if not schema.get("description"):
            raise NotStructuralError(f"{place} has no description")
        converted = self.value(schema, place, defaults)
        converted = {
            "description": described(schema["description"]),
            **{key: item for key, item in converted.items() if key != "description"},
        }
        if converted.get("type") == "array":
            converted |= _merged(owner, name, place)
            if (owner, name) in SMALLER:
                converted["maxItems"] = SMALLER[owner, name]
        if defaults is Defaults.FILLED_IN:
            converted |= _default(schema.get("default"), converted, place)
        if defaults is Defaults.DESCRIBED:
            converted["description"] += _default_in_words(schema.get("default"))
        return converted

    def value(self, schema: Schema, place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert what a field, an item or a map's value takes."""
        if unknown := schema.keys() - _KNOWN:
            raise NotStructuralError(f"{place} has {', '.join(sorted(unknown))}, which a structural schema cannot say")
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            if name in UNTOLD:
                return dict(OPAQUE)
            return self.mapping(name, self.definitions[name], place, defaults)
        if "anyOf" in schema:
            return self.choice(schema["anyOf"], place, defaults)
        if "const" in schema:
            return {"type": schema["type"], "enum": [schema["const"]]}
        if schema.get("maxProperties") == 1 and "properties" in schema:
            return self.slot(schema, place, defaults)
        if "properties" in schema:
            return self.mapping(schema["title"], schema, place, defaults)
        if schema.get("type") == "object":
            return self.dictionary(schema, place, defaults)
        converted = {key: schema[key] for key in schema if key in _KEYWORDS}
        if schema.get("type") == "array":
            converted["items"] = self.value(schema["items"], f"{place}[]", defaults)
        _refuse_unbounded(converted, place)
        formed = _with_form(converted, words="examples" in schema)
        if "pattern" in formed:
            formed["pattern"] = formed["pattern"].replace("[0-9]", r"\d")  # the same to the API server, and shorter
        return formed

    def slot(self, schema: Schema, place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert a slot: a mapping of exactly one alternative, with that alternative's options."""
        members = {}
        for name, of in schema["properties"].items():
            value = OPAQUE if name == PLUGIN else self.value(of, f"{place}.{name}", defaults)
            members[name] = {"description": described(of["description"]), **value}
        return {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": members}

    def choice(self, options: list[Schema], place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert what may be absent, or is a whole number or text."""
        options = [option for option in options if option.get("type") != "null"]
        if len(options) == 1:
            return self.value(options[0], place, defaults)
        text, number = sorted(options, key=lambda option: option.get("type") != "string")
        if {text.get("type"), number.get("type")} != {"string", "integer"}:
            raise NotStructuralError(
                f"{place} is a choice between types; use one mapping with optional fields and a rule"
            )
        both = {**self.value(number, place, defaults), **self.value(text, place, defaults)}
        common = {key: item for key, item in both.items() if key not in ("type", "format")}
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True, **common}

    def dictionary(self, schema: Schema, place: str, defaults: Defaults) -> dict[str, Any]:
        """Convert a map from free names; their form, where one is asked for, is checked by a rule."""
        if "maxProperties" not in schema:
            raise NotStructuralError(f"{place} has no maxProperties")
        if "patternProperties" not in schema:
            values = self.value(schema["additionalProperties"], f"{place}{{}}", defaults)
            return {"type": "object", "maxProperties": schema["maxProperties"], "additionalProperties": values}
        ((pattern, values),) = schema["patternProperties"].items()
        names = Rule(f"self.all(name, name.matches(r'{pattern}'))", f"a name here is {FORMS[pattern]}")
        return {
            "type": "object",
            "maxProperties": schema["maxProperties"],
            "additionalProperties": self.value(values, f"{place}{{}}", defaults),
            "x-kubernetes-validations": [names.as_mapping()],
        }


def described(text: str) -> str:
    """Return a description on one line."""
    return " ".join(text.split())


def _default_in_words(value: Any) -> str:
    """Return what a description adds about a method's default; nothing where a field is absent or empty, or a mapping has its own defaults."""
    if value in (None, "", [], {}) or (isinstance(value, Mapping) and len(value) > 1):
        return ""
    return f" Default unless the preset sets another: {next(iter(value)) if isinstance(value, Mapping) else value}."


def _refuse_unbounded(schema: Schema, place: str) -> None:
    kind = schema.get("type")
    if kind not in _BOUNDS:
        raise NotStructuralError(f"{place} has the type {kind}; decimals are text")
    missing = [bound for bound in _BOUNDS[kind] if bound not in schema]
    if missing and "enum" not in schema:
        raise NotStructuralError(f"{place} has no {' and no '.join(missing)}")


def _with_form(schema: dict[str, Any], *, words: bool) -> dict[str, Any]:
    """Give a field the format that says its form, instead of a bound or a pattern where it says as much; `words`: it has examples for messages.

    The API server holds bounds as floats: 2**63 - 1 becomes 2**63, which it then takes for -2**63.
    """
    if schema["type"] == "integer" and "enum" not in schema:
        if schema["maximum"] == _LARGEST:
            return {**{key: item for key, item in schema.items() if key != "maximum"}, "format": "int64"}
        return schema if schema["maximum"] < 2**31 else {**schema, "format": "int64"}
    pattern = schema.get("pattern")
    if pattern is not None and not re.match(pattern, ""):
        schema = {key: item for key, item in schema.items() if key != "minLength"}
    if pattern == TIME_PATTERN:
        return {"type": "string", "format": "date-time"}
    if pattern == PATH_PATTERN:
        return {**schema, "x-kubernetes-validations": [NO_PARENT_FOLDER.as_mapping()]}
    if pattern in _BOUNDED:
        return {key: item for key, item in schema.items() if key != "maxLength"}
    if pattern is not None and pattern not in FORMS and not words:
        raise NotStructuralError(f"the pattern {pattern} has no words in anchorage.api.allowed")
    return schema


def _merged(owner: str, name: str, place: str) -> dict[str, Any]:
    if (owner, name) not in LISTS:
        raise NotStructuralError(f"{place} is a list, and LISTS does not say how it is merged")
    kind = LISTS[owner, name]
    if kind in ("set", "atomic"):
        return {"x-kubernetes-list-type": kind}
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [kind]}


def _default(value: Any, schema: Schema, place: str) -> dict[str, Any]:
    """Give a field its default; what is absent, empty, or has only such fields, needs none."""
    if isinstance(value, Mapping) and "properties" in schema:
        if _without_empty(value) != _filled(schema):
            raise NotStructuralError(f"{place} has a default that is not its type's own defaults")
        return {"default": {}} if _filled(schema) else {}
    return {} if value in (None, "", [], {}) or OPAQUE.items() <= schema.items() else {"default": value}


def _filled(schema: Schema) -> dict[str, Any]:
    """Return what the API server makes of an empty mapping."""
    defaults = {name: of["default"] for name, of in schema["properties"].items() if "default" in of}
    return {name: _filled(schema["properties"][name]) if item == {} else item for name, item in defaults.items()}


def _without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    filled = {name: _without_empty(item) if isinstance(item, Mapping) else item for name, item in value.items()}
    return {name: item for name, item in filled.items() if item not in (None, "", [], {})}
