"""Every pod of every rendering is one that a namespace with the restricted Pod Security Standard takes."""

from typing import Any

import pytest
import yaml
from helm_charts import SITE, Helm, Values, pod_templates
from restricted_pods import violations

BUSY: Values = {
    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "extraVolumes": [{"name": "venv", "persistentVolumeClaim": {"claimName": "venv", "readOnly": True}}],
    "extraVolumeMounts": [{"name": "venv", "mountPath": "/venv", "readOnly": True}],
    "nodeSelector": {"gpu": "yes"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 300}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "podLabels": {"team": "imaging"},
    "podAnnotations": {"note": "yes"},
    "resources": {"limits": {"nvidia.com/gpu": 1}},
}
RENDERINGS = [
    ("anchorage", {}),
    ("anchorage", {"mlflow": {"enabled": True}}),
    ("anchorage", {"operator": BUSY, "mlflow": {"enabled": True, **BUSY}}),
    ("silo-agent", SITE),
    ("silo-agent", {**SITE, **BUSY, "proxy": "http://proxy.example.org:3128"}),
]


@pytest.mark.parametrize(("chart", "values"), RENDERINGS)
def test_every_pod_meets_the_restricted_standard(helm: Helm, chart: str, values: Values) -> None:
    templates = dict(pod_templates(helm.template(chart, values)))
    assert len(templates) == (2 if "mlflow" in values else 1)
    assert {name: violations(template) for name, template in templates.items() if violations(template)} == {}


@pytest.mark.parametrize(("chart", "values"), RENDERINGS)
def test_openshift_may_choose_every_user(helm: Helm, chart: str, values: Values) -> None:
    """As restricted-v2 wants: no user or group is asked for, and all else is as the restricted standard has it."""
    for name, template in pod_templates(helm.template(chart, {**values, "userId": 0})):
        spec = template["spec"]
        contexts = [spec["securityContext"], *(each["securityContext"] for each in spec["containers"])]
        for context in contexts:
            assert not {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} & context.keys(), name
            assert context["runAsNonRoot"] is True
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert violations(template) == []


def test_the_operator_s_pods_follow(helm: Helm) -> None:
    (config,) = (each for each in helm.template("anchorage", {"userId": 0}) if each["kind"] == "ConfigMap")
    (text,) = config["data"].values()
    assert yaml.safe_load(text)["userId"] == 0


def test_the_check_finds_violations() -> None:
    loose: dict[str, Any] = {
        "spec": {
            "hostNetwork": True,
            "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
            "containers": [{"name": "c", "ports": [{"hostPort": 80}], "livenessProbe": {"httpGet": {"host": "x"}}}],
        }
    }
    assert [violation.partition(" ")[0] for violation in violations(loose)] == ["hostNetwork", "volume", *["c:"] * 7]


@pytest.mark.parametrize(("chart", "values"), RENDERINGS)
def test_every_pod_says_what_it_needs_and_how_it_is(helm: Helm, chart: str, values: Values) -> None:
    for name, template in pod_templates(helm.template(chart, values)):
        for each in template["spec"]["containers"]:
            assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(each), name
            assert each["resources"]["requests"]["memory"], name
            assert each["terminationMessagePolicy"] == "FallbackToLogsOnError", name
        token = template["spec"]["automountServiceAccountToken"]
        assert token == ("operator" in name), "the operator alone calls the API server"


@pytest.mark.parametrize(
    ("chart", "values", "kind"),
    [
        ("anchorage", {"operator": BUSY}, "Deployment"),
        ("anchorage", {"mlflow": {"enabled": True, **BUSY}}, "StatefulSet"),
        ("silo-agent", {**SITE, **BUSY}, "StatefulSet"),
    ],
)
def test_what_is_said_about_a_pod_is_in_it(helm: Helm, chart: str, values: Values, kind: str) -> None:
    (template,) = (each for name, each in pod_templates(helm.template(chart, values)) if name.startswith(kind))
    spec = template["spec"]
    (container,) = spec["containers"]
    for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"):
        assert spec[key] == BUSY[key]
    assert BUSY["env"][0] in container["env"]
    assert BUSY["extraVolumes"][0] in spec["volumes"]
    assert BUSY["extraVolumeMounts"][0] in container["volumeMounts"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert template["metadata"]["labels"]["team"] == "imaging"
    assert template["metadata"]["annotations"]["note"] == "yes"
