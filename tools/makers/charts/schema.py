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
    found = _plain(model.model_json_schema(by_alias=True, ref_template="#/definitions/{model}"))
    definitions = found.pop("$defs")
    properties = {**found.pop("properties"), "global": GLOBAL}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **found,
        "properties": properties,
        "definitions": definitions,
    }


def _plain(node: Any) -> Any:
    """Leave out what only pydantic wants, and nulls: a key that is null in values counts as left out."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in ("title", "default") or isinstance(value, dict)}
    if "default" in kept and "properties" not in node:
        del kept["default"]
    if "patternProperties" in kept:
        kept["additionalProperties"] = False
    options = [option for option in kept.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del kept["anyOf"]
        kept |= options[0]
    kept = {key: _plain(value) for key, value in kept.items()}
    if "$ref" in kept and len(kept) > 1:  # draft 7 reads nothing beside $ref
        kept["allOf"] = [{"$ref": kept.pop("$ref")}, *kept.get("allOf", ())]
    return kept
