"""What documents may set in pods: one list for the operator and for the policy at the API server."""

import json
from pathlib import Path
from typing import Any

import yaml
from helm_charts import Helm, of_kind

from anchorage.api.pod_limits import FORBIDDEN_ENV_PATTERN, STATE_CLAIM_PATTERN, PodOverrideLimits
from anchorage_operator.settings import OperatorSettings, read_settings

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def settings(objects: list[dict[str, Any]], tmp_path: Path) -> OperatorSettings:
    """Read the rendered settings as the operator does."""
    file = tmp_path / "operator.yaml"
    file.write_text(of_kind(objects, "ConfigMap", "rel-anchorage-operator")["data"]["operator.yaml"], encoding="utf-8")
    return read_settings(file)


def test_the_operator_and_the_policy_have_the_same_list(helm: Helm, tmp_path: Path) -> None:
    by_default = helm.template("anchorage", {})
    assert settings(by_default, tmp_path).pod_overrides == PodOverrideLimits()
    text = yaml.safe_dump(of_kind(by_default, POLICY)["spec"], width=10_000)
    assert FORBIDDEN_ENV_PATTERN in str(of_kind(by_default, POLICY)) and STATE_CLAIM_PATTERN in text
    assert (
        '["image","imagePullPolicy","imagePullSecrets","labels","env","volumes","priorityClassName","schedulerName"]'
        in text
    )
    limits = {"fields": ["env", "annotations"], "annotationPrefixes": ["a.org/"], "secrets": ["otel-login"]}
    objects = helm.template("anchorage", {"podOverrides": limits})
    assert settings(objects, tmp_path).pod_overrides == PodOverrideLimits.model_validate_json(json.dumps(limits))
    text = yaml.safe_dump(of_kind(objects, POLICY)["spec"], width=10_000)
    assert '"env"' not in text and '"image"' in text and '["a.org/"]' in text and '["otel-login"]' in text


def test_the_policy_is_for_the_watched_namespaces(helm: Helm) -> None:
    def selectors(**values: Any) -> list[Any]:
        objects = helm.template("anchorage", values)
        name = of_kind(objects, POLICY)["metadata"]["name"]
        bindings = [each["spec"] for each in objects if each["kind"] == BINDING]
        assert {each["policyName"] for each in bindings} == {name}
        return [each.get("matchResources", {}).get("namespaceSelector") for each in bindings]

    def named(*names: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*names]}]}

    labels = {"study": "yes"}
    assert selectors() == [named("ns")]
    assert selectors(watch={"namespaces": ["a", "b"], "labels": labels}) == [named("a", "b"), {"matchLabels": labels}]
    assert selectors(watch={"labels": labels}) == [{"matchLabels": labels}]
    assert selectors(rbac={"scope": "Cluster"}) == [None]


def test_without_the_policy_the_operator_has_the_list_alone(helm: Helm, tmp_path: Path) -> None:
    objects = helm.template("anchorage", {"podOverrides": {"admissionPolicy": False}})
    assert not [each for each in objects if each["kind"] in (POLICY, BINDING)]
    assert settings(objects, tmp_path).pod_overrides == PodOverrideLimits()


def test_an_unknown_field_is_refused(helm: Helm) -> None:
    assert not helm.try_template("anchorage", {"podOverrides": {"fields": ["securityContext"]}}).ok


def test_mlflow_s_claim_is_no_claim_for_data(helm: Helm, tmp_path: Path) -> None:
    assert settings(helm.template("anchorage", {}), tmp_path).reserved_claims == ()
    objects = helm.template("anchorage", {"mlflow": {"enabled": True}})
    assert settings(objects, tmp_path).reserved_claims == ("ns/rel-anchorage-mlflow",)
    objects_with_claim = helm.template(
        "anchorage", {"mlflow": {"enabled": True, "persistence": {"existingClaim": "own"}}}
    )
    assert settings(objects_with_claim, tmp_path).reserved_claims == ("ns/own",)
