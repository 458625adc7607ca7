"""The example, from apply to Succeeded, as a person at kubectl sees it."""

import base64
import json
import tempfile
from pathlib import Path

import pytest
from cluster_namespace import Namespace
from cluster_site import CHECKOUT

EXAMPLE = CHECKOUT / "examples" / "digits.yaml"
ROUNDS = 15


@pytest.fixture
def studied(namespace: Namespace) -> Namespace:
    """Give a namespace in which the example was applied and has succeeded, with MLflow beside it."""
    namespace.install_chart("--set", "mlflow.enabled=true")
    namespace.kubectl("apply", "--filename", EXAMPLE)
    waiting = ("wait", "--for=condition=Succeeded", "federation/digits", "--timeout=600s")
    namespace.kubectl(*waiting, seconds=630)
    return namespace


def rows(namespace: Namespace, *what: str) -> list[dict[str, str]]:
    """Return a table of `kubectl get`, each row by its headers; no cell of these tables is empty or has two spaces in it."""
    header, *lines = namespace.kubectl("get", *what).splitlines()
    starts = [header.index(name) for name in header.split()]
    ends = [*starts[1:], None]
    return [{header[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)} for line in lines]


def test_the_example_succeeds(studied: Namespace) -> None:
    (row,) = rows(studied, "fed")
    assert list(row) == ["NAME", "READY", "REASON", "ROUND", "SILOS", "METHOD", "METRIC", "AGE"]
    assert row["READY"] == "True"
    assert row["REASON"] == "Succeeded"
    assert row["ROUND"] == str(ROUNDS)
    assert row["METHOD"] == "FedAnchor"
    assert float(row["METRIC"].split()[-1]) > 0.85
    federation = studied.must_get("federation", "digits")
    status = federation["status"]
    assert status["observedGeneration"] == federation["metadata"]["generation"]
    studied.eventually("MLflow has the run", lambda: _run_in_mlflow(studied))
    _the_server_logged_in_to_mlflow(studied)
    assert {each["type"] for each in status["conditions"]} == {
        "Accepted",
        "ServerAvailable",
        "QuorumMet",
        "CertificatesValid",
        "Ready",
        "Succeeded",
        "Failed",
        "Tracked",
    }
    _silos_are_told_apart(studied)
    _the_story_is_told(studied)
    _agents_are_gone_and_the_server_stays(studied)
    _fedctl_reads_the_cluster(studied)


def _run_in_mlflow(studied: Namespace) -> str:
    tracking = studied.must_get("federation", "digits")["status"]["tracking"]
    return str(tracking["runId"] and tracking["modelVersion"])


def _the_server_logged_in_to_mlflow(studied: Namespace) -> None:
    assert "--app-name=basic-auth" in studied.kubectl("get", "statefulset", "anchorage-mlflow", "--output", "yaml")
    data = studied.must_get("secret", "digits-tracking-login")["data"]
    user, password = (base64.b64decode(data[f"MLFLOW_TRACKING_{part}"]).decode() for part in ("USERNAME", "PASSWORD"))
    assert user == f"federation.{studied.name}.digits"
    everything = ("federations,silos,pods,statefulsets,deployments,configmaps,events", "--output", "yaml")
    for shown in (
        studied.kubectl("get", *everything),
        studied.kubectl("logs", "anchorage-mlflow-0"),
        studied.kubectl("logs", "deployment/anchorage-operator"),
        studied.eventually("the server's log", lambda: studied.fedctl("logs", "digits", "--process", "server")),
    ):
        assert shown and password not in shown


def _silos_are_told_apart(studied: Namespace) -> None:
    silos = {row["NAME"]: row for row in rows(studied, "silos")}
    assert set(silos) == {"silo-a", "silo-b", "silo-c"}
    for row in silos.values():
        assert row["FEDERATION"] == "digits"
        assert row["ROLE"] == "Managed"
        assert int(row["SAMPLES"]) > 0
        assert 0 < float(row["WEIGHT"]) < 1


def _the_story_is_told(studied: Namespace) -> None:
    reasons = [each["reason"] for each in studied.events("digits")]
    for reason in (
        "Accepted",
        "ServerAvailable",
        "TrainingStarted",
        "SiloConnected",
        "QuorumMet",
        "Progress",
        "Succeeded",
    ):
        assert reason in reasons, reasons
    described = studied.kubectl("describe", "federation", "digits")
    assert "all rounds are committed" in described
    explained = studied.kubectl("explain", "federation.spec.method.pseudoLabels.anchorSimilarity")
    assert "threshold" in explained


def _agents_are_gone_and_the_server_stays(studied: Namespace) -> None:
    def no_agent_pods() -> bool:
        return not studied.names("pods", "app.kubernetes.io/component=silo")

    studied.eventually("the agents' pods are gone", no_agent_pods, 60)
    server = studied.must_get("statefulset", "digits-server")
    assert server["spec"]["replicas"] == 1


def _fedctl_reads_the_cluster(studied: Namespace) -> None:
    status = json.loads(studied.fedctl("status", "digits", "--output", "json"))
    assert status["status"]["round"] == ROUNDS
    silos = json.loads(studied.fedctl("silos", "digits", "--output", "json"))
    assert {silo["name"]: silo["role"] for silo in silos} == dict.fromkeys(("silo-a", "silo-b", "silo-c"), "Managed")
    events = json.loads(studied.fedctl("events", "digits", "--output", "json"))
    assert {"Federation/digits", "Silo/silo-a", "Pod/digits-server-0"} <= {event["about"] for event in events}

    def read(*command: str) -> str:  # the server starts anew once, with less, after its last round
        return studied.eventually(" ".join(command), lambda: studied.fedctl(*command))

    rounds = json.loads(read("rounds", "digits", "--output", "json"))
    assert [record["round"] for record in rounds] == list(range(ROUNDS + 1))
    assert read("logs", "digits", "--process", "server")
    with tempfile.TemporaryDirectory() as folder:
        read("model", "pull", "digits", "--last", "--out", folder)
        described = json.loads((Path(folder) / "model.json").read_text())
        stored = described["final"]
        assert stored["digest"] == status["status"]["model"]["digest"] and stored["round"] == ROUNDS
        page = Path(folder) / "report.html"
        read("report", "digits", "--out", str(page))
        assert "Model card: digits" in page.read_text()
