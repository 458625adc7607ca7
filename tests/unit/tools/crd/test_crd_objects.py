"""Examples and refusals against the definitions, by the few rules of structural schemas; the API server itself has its own tests."""

import re
import runpy
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from anchorage.api.mistakes import DocumentError, format_path
from anchorage.api.silo_status import SiloCertificate, SiloCrStatus
from anchorage.api.status import Condition, FederationStatus, Metric, SiloStatus, timestamp
from anchorage.methods import PRESETS, validate_documents
from makers.crd.definitions import RESOURCES, definition

ROOT = Path(__file__).parents[4]
SCHEMAS = {
    resource.kind.__name__: definition(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for resource in RESOURCES
}
CLUSTER_TESTS = ROOT / "tests" / "cluster"
with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(CLUSTER_TESTS)
    REFUSALS = runpy.run_path(str(CLUSTER_TESTS / "refusals.py"), run_name="refusals")["REFUSALS"]
    TABLE = runpy.run_path(str(CLUSTER_TESTS / "left_to_the_operator.py"), run_name="left_to_the_operator")
    DRAWN = runpy.run_path(str(CLUSTER_TESTS / "drawn_federations.py"), run_name="drawn")["drawn_federations"](7, 400)
LEFT_TO_THE_OPERATOR, FEDERATION, SILO = TABLE["LEFT_TO_THE_OPERATOR"], TABLE["FEDERATION"], TABLE["SILO"]
EXAMPLES = sorted(path for path in (ROOT / "examples").rglob("*.yaml") if "kind: Tuning" not in path.read_text())


def problems(place: str, value: Any, node: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a structural schema refuses of a value, unknown fields included."""
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if node.get("x-kubernetes-int-or-string"):
        node = {**node, "type": "string" if isinstance(value, str) else "integer"}
    kind = node["type"]
    if not isinstance(value, kinds[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield f"{place}: must be of type {kind}"
        return
    if "enum" in node and value not in node["enum"]:
        yield f"{place}: Unsupported value"
    if kind == "integer" and not node.get("minimum", value) <= value <= node.get("maximum", value):
        yield f"{place}: out of bounds"
    if kind == "string":
        yield from (f"{place}: should match" for _ in [0] if not re.search(node.get("pattern", ""), value))
        yield from (f"{place}: too long" for _ in [0] if len(value) > node.get("maxLength", 2**20))
    if kind == "array":
        yield from (f"{place}: too many" for _ in [0] if len(value) > node["maxItems"])
        for index, item in enumerate(value):
            yield from problems(f"{place}[{index}]", item, node["items"])
    if kind == "object":
        fields = node.get("properties", {})
        yield from (f"{place}.{name}: Required value" for name in node.get("required", ()) if name not in value)
        if not node.get("minProperties", 0) <= len(value) <= node.get("maxProperties", len(value)):
            yield f"{place}: {len(value)} properties"
        open_ended = place == ".metadata" or "x-kubernetes-preserve-unknown-fields" in node
        for name, item in value.items():
            below = fields.get(name, node.get("additionalProperties"))
            if below is None and not open_ended:
                yield f'unknown field "{place}.{name}"'
            elif below is not None:
                yield from problems(f"{place}.{name}", item, below)


def filled(value: Any, node: Mapping[str, Any]) -> Any:
    """Fill in defaults as the API server does, from the outside in."""
    if isinstance(value, list):
        return [filled(item, node["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in node:
        return value
    fields = node["properties"]
    missing = {name: deepcopy(of["default"]) for name, of in fields.items() if "default" in of and name not in value}
    return {name: filled(item, fields.get(name, {})) for name, item in {**value, **missing}.items()}


def rules(node: Any) -> Iterator[Mapping[str, str]]:
    if isinstance(node, dict):
        yield from node.get("x-kubernetes-validations", ())
        for below in node.values():
            yield from rules(below)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_fit(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert [list(problems("", document, SCHEMAS[document["kind"]])) for document in documents] == [[]] * len(documents)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_what_the_api_server_fills_in_changes_nothing(path: Path) -> None:
    federation, *silos = yaml.safe_load_all(path.read_text())
    stored = [filled(document, SCHEMAS[document["kind"]]) for document in (federation, *silos)]
    assert stored[0] != federation
    plain, full = validate_documents(federation, silos), validate_documents(stored[0], stored[1:])
    assert full == plain
    assert full[0].spec.method.model_dump(exclude_unset=True) == plain[0].spec.method.model_dump(exclude_unset=True)


@pytest.mark.parametrize("name", PRESETS)
def test_kubectl_reads_every_preset_s_words_as_we_do(name: str) -> None:
    """PyYAML's own loader reads YAML 1.1, as kubectl does."""
    slots = PRESETS[name].slots.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    plain = re.sub(r"['\"]([A-Za-z]+)['\"]", r"\1", yaml.safe_dump(slots))
    method = SCHEMAS["Federation"]["properties"]["spec"]["properties"]["method"]
    assert list(problems("method", yaml.safe_load(plain), method)) == []


def test_what_is_observed_fits() -> None:
    """As the operator writes it: without what is absent, since the API server takes no null."""
    condition = Condition(type="Ready", status="True", reason="Listening", last_transition_time=timestamp(0))
    lost = SiloStatus(name="a", last_seen_time=timestamp(0), code="ANC-3004")
    metric = Metric(name="accuracy", value="0.969")
    statuses = {
        "Federation": FederationStatus(
            conditions=(condition,), silos=(lost,), metrics=(metric,), start_time=timestamp(0)
        ),
        "Silo": SiloCrStatus(conditions=(condition,), certificate=SiloCertificate(not_after=timestamp(0))),
    }
    for kind, status in statuses.items():
        values = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert list(problems("status", values, SCHEMAS[kind]["properties"]["status"])) == []
    complete_status = statuses["Silo"].model_dump(mode="json", by_alias=True)
    refused = list(problems("status", complete_status, SCHEMAS["Silo"]["properties"]["status"]))
    assert refused == ["status.secondsLeft: must be of type integer", "status.lastSeenTime: must be of type string"]


def test_every_rule_of_a_place_is_in_the_table() -> None:
    """A rule that stands at several places, such as in each data section, is refused at each."""
    missing = []
    for kind, schema in SCHEMAS.items():
        cases = [case for case in REFUSALS if case.document["kind"] == kind]
        for place, message in _placed("", schema):
            fits = (case for case in cases if case.message in message)
            if not any(re.sub(r"\[\d+\]", "", case.path) == place for case in fits):
                missing.append((kind, place, message))
    assert missing == []


def _placed(place: str, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield (place + rule.get("fieldPath", "")).removeprefix("."), rule["message"]
    for name, below in node.get("properties", {}).items():
        yield from _placed(f"{place}.{name}", below)
    if "items" in node:
        yield from _placed(place, node["items"])


def told(case: Any) -> list[tuple[str, str]]:
    """Return reason and field of every mistake in a case's document, as the operator tells them."""
    federation, silos = (case.document, ()) if case.document["kind"] == "Federation" else (FEDERATION, (case.document,))
    with pytest.raises(DocumentError) as caught:
        validate_documents(federation, silos)
    return [(mistake.failure.reason, format_path(mistake.path)) for mistake in caught.value.mistakes]


@pytest.mark.parametrize("case", [case for case in REFUSALS if case.everywhere], ids=lambda case: case.name)
def test_what_the_api_server_refuses_the_documents_refuse(case: Any) -> None:
    """At its field, or where rules across fields name the mapping around it; the API server names the field of an unknown one in its message."""
    path = case.path or case.message.split('"')[1]
    assert any(path.startswith(place) or place.startswith(path) for _, place in told(case))


@pytest.mark.parametrize(
    "case",
    [case for case in REFUSALS if case.before is None and "a name here" not in case.message],
    ids=lambda case: case.name,
)
def test_what_needs_no_cel_is_in_the_schema(case: Any) -> None:
    problem_list = list(problems("", case.document, SCHEMAS[case.document["kind"]]))
    by_cel = any(case.message in rule["message"] for rule in rules(SCHEMAS[case.document["kind"]]))
    by_key_of_list = case.message == "Duplicate value"
    assert bool(problem_list) != (by_cel or by_key_of_list), problem_list


@pytest.mark.parametrize("case", LEFT_TO_THE_OPERATOR, ids=lambda case: case.name)
def test_what_is_left_to_the_operator_it_tells_once_at_its_field(case: Any) -> None:
    assert list(problems("", case.document, SCHEMAS[case.document["kind"]])) == []
    assert told(case) == [(case.message, case.path)]


def test_what_the_schema_refuses_of_drawn_federations_the_documents_refuse() -> None:
    """And what the documents take the schema takes; many of the drawn ones only the operator refuses."""
    by_schema, by_documents = set(), set()
    for name, federation in DRAWN.items():
        if any(problems("", federation, SCHEMAS["Federation"])):
            by_schema.add(name)
        try:
            validate_documents(federation)
        except DocumentError:
            by_documents.add(name)
    assert [DRAWN[name]["spec"] for name in by_schema - by_documents] == []
    assert min(len(by_schema), len(by_documents - by_schema), len(DRAWN.keys() - by_documents)) > len(DRAWN) // 10


def test_the_tables_start_from_proper_objects() -> None:
    validate_documents(FEDERATION, [SILO])
    validate_documents(TABLE["ANCHORED"])
    names = [case.name for case in (*REFUSALS, *LEFT_TO_THE_OPERATOR)]
    assert len(set(names)) == len(names)
