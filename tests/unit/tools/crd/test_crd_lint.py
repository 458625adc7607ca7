"""The definitions keep the conventions of the Kubernetes API, field by field."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic.alias_generators import to_camel, to_snake

from anchorage.api.method import SLOTS
from anchorage.api.piece import PIECES
from makers.crd.definitions import RESOURCES, definition

DEFINITIONS = {resource.plural: definition(resource) for resource in RESOURCES}
TYPES = {"object", "array", "string", "integer", "boolean"}
STRUCTURAL = {
    "description",
    "type",
    "format",
    "enum",
    "default",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "anyOf",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
CONDITION = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
BOOLEANS = {"suspend", "connected", "readOnly"}
"""Booleans under names that Kubernetes' users know; everything else is a word that can get company."""


def version(plural: str) -> Mapping[str, Any]:
    (only,) = DEFINITIONS[plural]["spec"]["versions"]
    return only


def schema(plural: str) -> Mapping[str, Any]:
    return version(plural)["schema"]["openAPIV3Schema"]


def nodes(place: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema with its place; a property's name follows a dot, an item's is [], a map's value's {}."""
    yield place, node
    for name, below in node.get("properties", {}).items():
        yield from nodes(f"{place}.{name}", below)
    if "items" in node:
        yield from nodes(f"{place}[]", node["items"])
    if "additionalProperties" in node:
        yield from nodes(f"{place}{{}}", node["additionalProperties"])


NODES = [pair for plural in DEFINITIONS for pair in nodes(plural, schema(plural))]
HEADS = re.compile(r"^(federations|silos)\.(apiVersion|kind|metadata|metadata\.name)$")
FIELDS = [(place, node) for place, node in NODES if not HEADS.match(place)]


def bad(condition: Any) -> list[str]:
    return [place for place, node in FIELDS if condition(place, node)]


def test_only_what_a_structural_schema_may_say() -> None:
    assert bad(lambda place, node: node.keys() - STRUCTURAL) == []
    assert bad(lambda place, node: node.get("type", "int-or-string") not in TYPES | {"int-or-string"}) == []
    assert bad(lambda place, node: "additionalProperties" in node and "properties" in node) == []


def test_no_floats_and_no_nulls() -> None:
    assert bad(lambda place, node: node.get("type") == "number") == []
    assert bad(lambda place, node: "nullable" in node) == []
    assert bad(lambda place, node: isinstance(node.get("default"), float)) == []


def test_everything_has_a_bound() -> None:
    def unbounded(place: str, node: Mapping[str, Any]) -> bool:
        if "enum" in node:
            return False
        if node.get("type") == "string":
            endless = re.search(r"[*+]|,\}", node.get("pattern", "*"))  # a pattern without such a repetition is a bound
            return "maxLength" not in node and node.get("format") != "date-time" and endless is not None
        if node.get("type") == "integer":
            return "minimum" not in node or ("maximum" not in node and node.get("format") != "int64")
        if node.get("type") == "array":
            return "maxItems" not in node
        if "additionalProperties" in node:
            return "maxProperties" not in node
        if "x-kubernetes-int-or-string" in node:
            return not {"maxLength", "pattern", "minimum", "maximum"} <= node.keys()
        return "x-kubernetes-preserve-unknown-fields" in node and not place.endswith((".plugin", ".pod"))

    assert bad(unbounded) == []


def test_a_slot_is_exactly_one_of_its_alternatives() -> None:
    """Those that the documents know, and what another package adds, which the operator reads; an alternative without options has no fields."""
    unions = {place: node for place, node in FIELDS if "minProperties" in node}
    method = "federations.spec.method"
    inner = ("local.optimiser", "serverTraining.anchors.optimiser", "serverTraining.anchors.objective")
    assert unions.keys() == {
        "federations.spec.task",
        "federations.spec.model.intensity",
        *(f"{method}.{place}" for place in (*map(to_camel, SLOTS), *inner)),
    }
    for place, node in unions.items():
        assert (node["minProperties"], node["maxProperties"], node["type"]) == (1, 1, "object"), place
        assert "required" not in node and "additionalProperties" not in node
        title = {"optimiser": "optimiser", "objective": "server_objective"}.get(place.rsplit(".", 1)[1])
        slot = title or to_snake(place.rsplit(".", 1)[1])
        assert list(node["properties"]) == [*(name for name in PIECES.of(slot) if "." not in name), "plugin"]
        for name, alternative in node["properties"].items():
            fields = (
                set()
                if name == "plugin"
                else {str(field.alias) for field in PIECES.of(slot)[name].model_fields.values()}
            )
            assert alternative.get("properties", {}).keys() == fields, (place, name)


def test_no_rule_says_what_the_operator_says() -> None:
    """Names, paths below their folder, and a silo's federation: a rule that names a method or compares fields is the operator's."""
    rules = {rule["rule"] for _, node in NODES for rule in node.get("x-kubernetes-validations", ())}
    forms = {rule for rule in rules if "matches(r'" in rule or rule == "!('..' in self.split('/'))"}
    assert rules - forms == {"self.federation == oldSelf.federation"}


def test_every_field_is_described() -> None:
    described = {place: node.get("description", "") for place, node in FIELDS}
    assert bad(lambda place, node: not described[place] and not place.endswith(("[]", "{}"))) == []
    assert bad(lambda place, node: "\n" in described[place] or "methods reference" in described[place]) == []


def test_descriptions_in_a_method_state_the_defaults_that_the_api_server_does_not_fill_in() -> None:
    method = schema("federations")["properties"]["spec"]["properties"]["method"]
    described = {place: node.get("description", "") for place, node in nodes("method", method)}
    stated = {
        place.removeprefix("method."): text.rpartition(" Default unless the preset sets another: ")[2]
        for place, text in described.items()
    }
    assert stated["pseudoLabels.uda.temperature"] == "0.4."
    assert stated["serverTraining.anchors.optimiser"] == "sgd."
    assert stated["regulariser"] == described["method.regulariser"], "a slot has no default but the preset's"


def test_no_phase_and_no_timestamp_in_a_name() -> None:
    assert bad(lambda place, node: re.search(r"(?i)\.phase$|timestamp$", place)) == []


def test_times_are_called_time_and_durations_seconds() -> None:
    def misnamed(place: str, node: Mapping[str, Any]) -> bool:
        time = place.rsplit(".", 1)[-1].lower().endswith(("time", "notafter"))
        duration = re.search(r"(?i)(timeout|deadline|interval|period|patience|duration)", place.rsplit(".", 1)[-1])
        return time != (node.get("format") == "date-time") or bool(duration and not place.endswith("Seconds"))

    assert bad(misnamed) == []


def test_words_are_camel_case_and_no_values_of_yaml() -> None:
    words = [(place, word) for place, node in FIELDS for word in node.get("enum", ()) if isinstance(word, str) and word]
    assert [pair for pair in words if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", pair[1])] == []
    yaml_1_1 = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
    reserved = {place for place, word in words if word.lower() in yaml_1_1}
    assert reserved == {"federations.status.conditions[].status", "silos.status.conditions[].status"}


def test_few_booleans() -> None:
    places = bad(lambda place, node: node.get("type") == "boolean")
    assert {place.rsplit(".", 1)[-1] for place in places} <= BOOLEANS


def test_names_are_camel_case() -> None:
    names = {part for place, _ in FIELDS for part in re.split(r"[.\[\]{}]+", place)[1:] if part}
    assert [name for name in sorted(names) if not re.fullmatch(r"[a-z][A-Za-z0-9]*", name)] == []


def test_every_list_says_how_it_is_merged() -> None:
    lists = [(place, node) for place, node in FIELDS if node.get("type") == "array"]
    assert lists
    for place, node in lists:
        kind, item = node["x-kubernetes-list-type"], node["items"]
        assert kind in ("map", "set", "atomic"), place
        assert (kind == "map") == ("x-kubernetes-list-map-keys" in node), place
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in item["required"], place
        if kind == "set":
            assert item["type"] == "string", place


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_conditions_are_those_of_the_api(plural: str) -> None:
    conditions = schema(plural)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    fields = conditions["items"]["properties"]
    assert fields.keys() == CONDITION
    assert fields["status"]["enum"] == ["True", "False", "Unknown"]
    assert fields["lastTransitionTime"]["format"] == "date-time"
    assert fields["observedGeneration"]["format"] == "int64"


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_status_is_apart_and_free(plural: str) -> None:
    """A status has no defaults, and neither it nor most of its fields is required."""
    assert version(plural)["subresources"] == {"status": {}}
    assert schema(plural)["required"] == ["spec"]
    status = schema(plural)["properties"]["status"]
    assert "required" not in status
    assert [place for place, node in nodes("status", status) if "default" in node] == []
    assert "observedGeneration" in status["properties"]


def test_nothing_is_filled_in_where_a_preset_decides() -> None:
    method = schema("federations")["properties"]["spec"]["properties"]["method"]
    assert [place for place, node in nodes("method", method) if "default" in node] == []


def test_every_rule_has_a_message_on_one_line() -> None:
    rules = [(place, rule) for place, node in NODES for rule in node.get("x-kubernetes-validations", ())]
    for place, rule in rules:
        assert rule["message"] and "\n" not in rule["message"] and len(rule["message"]) < 400, place
        assert rule.get("reason", "FieldValueInvalid") in (
            "FieldValueInvalid",
            "FieldValueForbidden",
            "FieldValueRequired",
        )


def test_names_columns_and_selectors() -> None:
    federations, silos = DEFINITIONS["federations"]["spec"], DEFINITIONS["silos"]["spec"]
    assert federations["names"]["shortNames"] == ["fed"]
    assert DEFINITIONS["silos"]["spec"]["names"]["shortNames"] == ["sl"]
    assert federations["names"]["categories"] == silos["names"]["categories"] == ["anchorage"]
    assert federations["scope"] == silos["scope"] == "Namespaced"
    assert version("silos")["selectableFields"] == [{"jsonPath": ".spec.federation"}]
    heads = {
        plural: [(column["name"], column.get("priority", 0)) for column in version(plural)["additionalPrinterColumns"]]
        for plural in DEFINITIONS
    }
    assert [name for name, priority in heads["federations"] if not priority] == (
        ["Ready", "Reason", "Round", "Silos", "Method", "Metric", "Age"]
    )
    assert ("Message", 1) in heads["federations"]
    assert [name for name, priority in heads["silos"] if not priority] == (
        [
            "Federation",
            "Role",
            "Labels",
            "Ready",
            "Reason",
            "Last Seen",
            "Samples",
            "Weight",
            "Cert Expiry",
            "Approved",
            "Age",
        ]
    )


@pytest.mark.parametrize("plural", DEFINITIONS)
def test_a_column_is_a_field_and_a_condition_is_chosen_by_type(plural: str) -> None:
    for column in version(plural)["additionalPrinterColumns"]:
        path = column["jsonPath"]
        if path == ".metadata.creationTimestamp":
            continue
        assert "[-1" not in path
        node: Mapping[str, Any] = schema(plural)
        for part in re.findall(r"\.(\w+)(?!=)", re.sub(r"\[\?\(.*?\)\]", "", path)):
            node = node.get("items", node)["properties"][part]
        assert column["type"] == ("date" if column["type"] == "date" else node["type"])
