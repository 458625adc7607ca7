"""The JSON schema by which Helm refuses values: draft 7, which every Helm 3 reads."""

import json
from typing import Any

from makers.charts.kubernetes_parts import GLOBAL, Values

Schema = dict[str, Any]


def schema_text(model: type[Values]) -> str:
    """Return ``values.schema.json``."""
    return json.dumps(schema_of(model), indent=2, ensure_ascii=False) + "\n"


def schema_of(model: type[Values]) -> Schema:
    """Return the schema of a chart's values."""
    schema = _plain(model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}"))
    definitions = schema.pop("$defs")
    properties = {**schema.pop("properties"), "global": GLOBAL}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **schema,
        "properties": properties,
        "definitions": definitions,
    }


def _plain(node: Any) -> Any:
    """Leave out what only pydantic wants, and nulls: a key that is null in values counts as left out."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    properties = {
        key: value for key, value in node.items() if key not in ("title", "default") or isinstance(value, dict)
    }
    if "default" in properties and "properties" not in node:
        del properties["default"]
    if "patternProperties" in properties:
        properties["additionalProperties"] = False
    options = [option for option in properties.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del properties["anyOf"]
        properties |= options[0]
    properties = {key: _plain(value) for key, value in properties.items()}
    if "$ref" in properties and len(properties) > 1:  # draft 7 reads nothing beside $ref
        properties["allOf"] = [{"$ref": properties.pop("$ref")}, *properties.get("allOf", ())]
    return properties
