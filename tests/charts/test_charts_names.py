"""Names that YAML takes for something else: helm would read `no` as false, `2026` as a number, and refuse the object."""

import re
from typing import Any

import pytest
import yaml
from helm_charts import DATA, ENROLMENT, Helm, of_kind

NAMES = ["no", "y", "null", "2026", "1e3", "0x1f", "08"]


def pod(name: str) -> dict[str, Any]:
    return {"priorityClassName": name, "runtimeClassName": name, "podLabels": {"team": name}}


def anchorage(name: str) -> dict[str, Any]:
    on = {"enabled": True, "labels": {"release": name}}
    storage = {"size": "20", "storageClass": name}
    return {
        "images": {"pullSecrets": [name]},
        "rbac": {"userRoles": True, "protectAdmission": True, "federations": {name: [name]}},
        "watch": {"namespaces": [name], "labels": {"team": name}},
        "serviceAccount": {"name": name, "annotations": {"note": name}},
        "operator": pod(name),
        "authority": {"issuerRef": {"name": name}},
        "defaults": {"trackingSecret": name, "trackingUri": "http://mlflow:5000"},
        "metrics": {"serviceMonitor": on, "prometheusRule": on, "dashboard": on},
        "mlflow": {"enabled": True, "persistence": storage, **pod(name)},
    }


def silo_agent(name: str) -> dict[str, Any]:
    on = {"enabled": True, "labels": {"release": name}}
    return {
        "fullnameOverride": name,
        "enrolment": {**ENROLMENT, "federation": name, "silo": name, "token": name},
        "data": {**DATA, "claimName": name, "path": name, "classMap": {name: name}},
        "sharedWeights": name,
        "images": {"pullSecrets": [name]},
        "serviceAccount": {"name": name, "annotations": {"note": name}},
        "persistence": {"size": "5", "storageClass": name},
        "metrics": {"serviceMonitor": on, "prometheusRule": on},
        **pod(name),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("chart", "values"), [("anchorage", anchorage), ("silo-agent", silo_agent)])
def test_every_name_stays_a_text(helm: Helm, chart: str, values: Any, name: str) -> None:
    answer = helm.try_template(chart, values(name), release=name, namespace=name)
    assert answer.ok, answer.error
    plain = re.compile(rf"^.*(?::|-) {name}\s*$", re.MULTILINE)  # parsers disagree on which of them are texts
    assert plain.findall(answer.out) == []
    for each in yaml.safe_load_all(answer.out):
        metadata = each["metadata"]
        texts = [metadata["name"], metadata.get("namespace", ""), *metadata.get("labels", {}).values()]
        assert [text for text in texts if not isinstance(text, str)] == []


def test_a_claim_s_size_without_a_unit_is_a_text(helm: Helm) -> None:
    claim = of_kind(helm.template("silo-agent", silo_agent("no")), "PersistentVolumeClaim")
    assert claim["spec"]["resources"]["requests"]["storage"] == "5"
