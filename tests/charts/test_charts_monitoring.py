"""Every series that an alert or the dashboard asks for is exported, with the labels by which it is asked for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helm_charts import SITE, Helm
from prometheus_client.parser import text_string_to_metric_families

from anchorage_operator.metrics import Metrics
from anchorage_server.clock import SystemClock
from anchorage_server.metrics import exposition
from anchorage_server.status import StatusStore
from anchorage_silo.metrics import prometheus_text
from anchorage_silo.state import AgentState

TARGET = {"namespace", "job", "pod", "anchorage_dev_federation"}
"""Labels that Prometheus adds."""
CONDITION = {"type": "Ready", "status": "True", "reason": "Training", "lastTransitionTime": "2026-11-21T12:00:00Z"}
FEDERATION = {
    "metadata": {"namespace": "study", "name": "derm"},
    "spec": {"rounds": 9, "protocol": {"roundDeadlineSeconds": 60}},
    "status": {
        "round": 3,
        "conditions": [CONDITION, {**CONDITION, "type": "Failed", "status": "False"}],
        "lastCheckpoint": {"round": 3, "time": "2026-11-21T12:00:00Z"},
        "bytesUp": 5,
        "connectedSilos": 1,
        "certificates": {"serverNotAfter": "2027-11-21T12:00:00Z", "authorityNotAfter": "2036-11-21T12:00:00Z"},
    },
}
SILO = {
    "metadata": {"namespace": "study", "name": "a"},
    "spec": {"federation": "derm"},
    "status": {
        "conditions": [{**CONDITION, "type": "Connected"}],
        "state": "Training",
        "lastSeenTime": "2026-11-21T12:00:00Z",
        "samples": 12,
        "weight": "0.25",
        "epsilon": "1.5",
        "certificate": {"notAfter": "2027-11-21T12:00:00Z"},
    },
}


def operator_text(**objects: Any) -> str:
    metrics = Metrics()
    metrics.observe_depth(lambda: 0, lambda: 0)
    metrics.observe_watch(lambda: True, lambda: 0.0)
    metrics.observe_leadership(lambda: True)
    metrics.observe_federations(lambda kind: iter([objects[kind]]))
    metrics.count_reconcile("success", 0.1)
    metrics.count_request("GET", 200)
    metrics.namespace("study", readable=True)
    return metrics.exposition().decode()


@pytest.fixture
def exported(tmp_path: Path) -> dict[str, set[str]]:
    """Give the labels of every series by its name."""
    statuses = StatusStore(
        file=tmp_path / "status.json",
        clock=SystemClock(),
        rounds=9,
        started=0.0,
        silos=["a"],
        round_deadline_seconds=60.0,
        history=(),
        checkpoint=lambda round: tmp_path / str(round),
    )
    texts = (
        operator_text(Federation=FEDERATION, Silo=SILO),
        exposition(statuses, 0).decode(),
        prometheus_text(AgentState(tmp_path / "silo.crt")).decode(),
    )
    families = [family for text in texts for family in text_string_to_metric_families(text)]
    labels_by_sample = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    scored = {"anchorage_metric": {"name"}, "anchorage_step_seconds": {"step"}}  # none before the first round
    enrolled: dict[str, set[str]] = {"anchorage_silo_certificate_expiry_timestamp_seconds": set()}
    names = {family.name for family in families}
    assert scored.keys() <= names
    return labels_by_sample | scored | enrolled


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    for name, selector in re.findall(r"\b(anchorage_(?!dev_)\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", selector))


def alerts(objects: list[dict[str, Any]]) -> Iterator[str]:
    for each in objects:
        for group in each["spec"]["groups"] if each["kind"] == "PrometheusRule" else ():
            yield from (rule["expr"] for rule in group["rules"])


def test_no_series_of_alerts_and_dashboard_is_missing(helm: Helm, exported: dict[str, set[str]]) -> None:
    on = {"metrics": {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}}
    objects = helm.template("anchorage", on)
    (board,) = (
        json.loads(each["data"]["anchorage.json"])
        for each in objects
        if each["metadata"].get("labels", {}).get("grafana_dashboard") == "1"
    )
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    rules = [
        *alerts(objects),
        *alerts(helm.template("silo-agent", {**SITE, "metrics": {"prometheusRule": {"enabled": True}}})),
    ]
    wanted = [series for query in (*queries, *rules) for series in asked(query)]
    assert len(wanted) > 40
    assert [name for name, _ in wanted if name not in exported] == []
    assert [(name, labels) for name, labels in wanted if labels - exported[name] - TARGET] == []
    shown = {name for query in queries for name, _ in asked(query)}
    unshown = {name for name in exported if name.startswith("anchorage_federation_")} - shown
    assert unshown == {
        "anchorage_federation_round_deadline_seconds",
        "anchorage_federation_ready_since_timestamp_seconds",
    }


def test_figures_of_a_federation_and_its_silos() -> None:
    text = operator_text(Federation=FEDERATION, Silo=SILO)
    of = 'federation="derm",namespace="study"'
    for line in (
        f"anchorage_federation_round{{{of}}} 3.0",
        f"anchorage_federation_last_commit_timestamp_seconds{{{of}}} 1.7952624e+09",
        f'anchorage_federation_model_bytes_total{{direction="up",{of}}} 5.0',
        f'anchorage_federation_condition{{{of},reason="Training",type="Failed"}} 0.0',
        f'anchorage_federation_silo_state{{{of},silo="a",state="Training"}} 1.0',
        f'anchorage_federation_silo_epsilon{{{of},silo="a"}} 1.5',
    ):
        assert line in text.splitlines(), line


def test_what_a_status_does_not_say_or_says_wrongly_is_left_out() -> None:
    young = {"metadata": FEDERATION["metadata"], "spec": {"rounds": 9}}
    odd = {**SILO, "status": {"weight": "heavy", "epsilon": ""}}
    text = operator_text(Federation=young, Silo=odd)
    assert 'anchorage_federation_rounds{federation="derm",namespace="study"} 9.0' in text
    assert not re.search(r"^anchorage_federation_(silo_(weight|epsilon)|last_commit)\w*\{", text, re.MULTILINE)
