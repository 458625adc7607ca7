"""What surrounds the templates: tables, lint, notes, the chart's own examples."""

import re
from typing import Any

import pytest
import yaml
from helm_charts import CHARTS, ENROLMENT, SITE, Helm, Values

import anchorage


def test_every_value_has_a_description() -> None:
    for chart in ("anchorage", "silo-agent"):
        table = (CHARTS / chart / "README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `(\S+)` \| (.+?) \| (.*) \|$", table, re.MULTILINE)
        assert len(rows) > 30
        assert [name for name, _, meaning in rows if not meaning.endswith((".", "…"))] == []


@pytest.mark.parametrize("chart", ["anchorage", "silo-agent"])
def test_charts_pass_the_strict_lint(helm: Helm, chart: str) -> None:
    examples = sorted((CHARTS / chart / "ci").glob("*-values.yaml"))
    assert examples
    for example in examples:
        answer = helm.run("lint", "--strict", CHARTS / chart, "--values", example)
        assert answer.ok, answer.out + answer.error


def test_the_versions_are_those_of_the_project() -> None:
    version = re.search(r'^version = "(.+)"$', (CHARTS.parent / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert anchorage.__version__ == version[1]
    for chart in ("anchorage", "silo-agent"):
        chart_file = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text(encoding="utf-8"))
        assert (chart_file["version"], chart_file["appVersion"]) == (version[1], version[1])


@pytest.mark.parametrize(
    ("values", "expected", "unsaid"),
    [
        ({}, ["kubectl -n sea apply -f examples/digits.yaml", "deployment/rel-anchorage-operator", "mlflow.enabled=true"], ["port-forward", "crds"]),
        ({}, ["Give operator.resources (and", "events --field-selector reason=FailedCreate"], ["mlflow.resources"]),
        ({"mlflow": {"enabled": True}}, ["operator.resources, mlflow.resources"], []),
        ({"mlflow": {"enabled": True}}, ["port-forward service/rel-anchorage-mlflow 5000:5000"], ["No MLflow"]),
        ({"defaults": {"trackingUri": "http://m:1"}}, [], ["No MLflow", "port-forward"]),
        ({"watch": {"namespaces": ["b", "a"]}}, ["federations in a, b", "kubectl -n a apply"], []),
        ({"rbac": {"scope": "Cluster"}}, ["every namespace", "kubectl -n sea apply"], []),
        ({"crds": {"enabled": False}}, ["crds.enabled is false"], []),
        ({"crds": {"keep": False}}, ["deletes every Federation"], []),
    ],
)  # fmt: skip
def test_notes_of_anchorage_say_the_next_command(
    helm: Helm, values: Values, expected: list[str], unsaid: list[str]
) -> None:
    notes = helm.notes("anchorage", values, namespace="sea")
    assert [each for each in expected if each not in notes] == []
    assert [each for each in unsaid if each in notes] == []


@pytest.mark.parametrize(
    ("changes", "expected", "unsaid"),
    [
        ({}, ["fedctl silo approve derm hospital-a", "logs statefulset/rel-silo-agent", "uninstall` keeps"], ["through"]),
        ({}, ["No policy is set", "states no noise", "from 16 images", 'relativeNoise: "0"\n', "token is used"], []),
        ({}, ["events --field-selector reason=FailedCreate", "No memory limit is set", "resources.limits.memory"], []),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, ["No memory limit is set"], []),
        ({"resources": {"limits": {"memory": "4Gi"}}}, ["Give `resources`"], ["No memory limit"]),
        ({"resources": None}, ["No memory limit is set"], []),
        ({}, ["A run of more than one update begins after `anchorage_silo approve DIGEST`"], ["has requireApproval"]),
        ({"policy": {"relativeNoise": "1"}}, ["A run of more than one update"], []),
        ({"policy": {"clipNorm": "1", "noiseStd": "0.1"}}, [], ["A run of more than one update"]),
        ({"policy": {"noiseStd": "0"}}, [], ["A run of more than one update"]),
        ({"policy": {"minimumSamples": 4}}, ["The policy states no noise", "from 4 images or more"], ["from 16 images"]),
        ({"policy": {"maximumRounds": 5}, "persistence": {"retain": False}}, ["uninstall` deletes"], ["No policy", "Approval", "more than one"]),
        ({"policy": {"requireApproval": True}}, ["approve DIGEST", "anchorage_silo review --config"], ["No policy"]),
        ({"policy": {"relativeNoise": "1.25"}}, ["anchorage_silo review --config"], ["states no noise", "No policy"]),
        ({"policy": {"relativeNoise": "0"}}, ["anchorage_silo review --config"], ["states no noise", "No policy", "more than one update"]),
        ({"persistence": {"existingClaim": "mine"}, "proxy": "http://p:3128"}, ["volume claim mine.", "through http://p:3128"], []),
    ],
)  # fmt: skip
def test_notes_of_silo_agent_say_the_next_command(
    helm: Helm, changes: dict[str, Any], expected: list[str], unsaid: list[str]
) -> None:
    notes = helm.notes("silo-agent", {**SITE, **changes})
    assert [each for each in expected if each not in notes] == []
    assert [each for each in unsaid if each in notes] == []
    assert ENROLMENT["token"] not in notes


def test_the_readmes_example_is_taken(helm: Helm) -> None:
    page = (CHARTS / "silo-agent" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    answer = helm.try_template("silo-agent", {"enrolment": ENROLMENT, **yaml.safe_load(example)})
    assert answer.ok, answer.error
