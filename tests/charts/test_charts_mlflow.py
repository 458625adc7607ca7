"""The chart's MLflow, started with the arguments, files and environment that the chart gives it."""

import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helm_charts import Helm, container, find_helm, of_kind
from ipv6 import needs_ipv6

from anchorage.api.errors import AnchorageError
from anchorage.engine.tracking import Outbox, TrackedRun
from anchorage.engine.tracking.refusal import refusal_hint
from anchorage.pieces.task.classification import Classification
from anchorage.transport.mlflow_login import federation_password, federation_user
from fedctl.registered_models import fetch_registered

PATIENCE_SECONDS = 240
NAME = "rel-anchorage-mlflow"
DERM, NEVI = (federation_user("study", name) for name in ("derm", "nevi"))


@dataclass(frozen=True)
class Running:
    """The chart's MLflow on this machine, and the Secret of its log-in."""

    port: int
    log: Path
    folder: Path
    secret: dict[str, str]

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def password(self, user: str) -> str:
        """Return what logs a user in."""
        if user == "admin":
            return self.secret["admin-password"]
        return federation_password(self.secret["federations-key"].encode(), user)

    def status(
        self,
        path: str,
        user: str = "",
        password: str = "",
        host: str = "127.0.0.1",
        sent: Mapping[str, str] | None = None,
    ) -> int:
        """Ask for a page, or send something, and return the status of the answer."""
        headers = {"Host": f"localhost:{self.port}", "Content-Type": "application/json"}
        if user:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        with closing(http.client.HTTPConnection(host, self.port, timeout=60)) as connection:
            connection.request("POST" if sent else "GET", path, json.dumps(sent) if sent else None, headers)
            return connection.getresponse().status


def secret_of(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the log-in that the chart made."""
    data = of_kind(objects, "Secret", f"{NAME}-login")["data"]
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def write_files(objects: list[dict[str, Any]], folder: Path) -> None:
    """Write what the pod mounts."""
    for mount, files in (
        ("etc/mlflow", of_kind(objects, "ConfigMap", NAME)["data"]),
        ("etc/mlflow-login", secret_of(objects)),
    ):
        (folder / mount).mkdir(parents=True)
        for name, text in files.items():
            (folder / mount / name).write_text(local(text, folder), encoding="utf-8")
    (folder / "var/lib/mlflow").mkdir(parents=True)


def local(text: str, folder: Path) -> str:
    """Return a text of the pod with its paths below a folder."""
    for place in ("/var/lib/mlflow", "/etc/mlflow"):
        text = text.replace(place, f"{folder}{place}")
    return text


def environment_of(objects: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """Return the container's environment, with the values of its Secret."""
    secret, contents = secret_of(objects), {}
    for variable in container(objects, "StatefulSet")["env"]:
        value = variable.get("value")
        contents[variable["name"]] = secret[variable["valueFrom"]["secretKeyRef"]["key"]] if value is None else value
    return {name: local(value, folder) for name, value in contents.items()} | {"HOME": str(folder)}


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start MLflow as the chart does, with everything on its default."""
    pytest.importorskip("flask_wtf", reason="MLflow's log-in needs Flask-WTF: pip install 'mlflow[auth]'")
    folder = tmp_path_factory.mktemp("mlflow")
    objects = Helm(find_helm(), folder).template("anchorage", {"mlflow": {"enabled": True}})
    write_files(objects, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    login_environment = [
        local(each, folder).replace("--port=5000", f"--port={port}")
        for each in container(objects, "StatefulSet")["args"]
    ]
    environment = {**os.environ, **environment_of(objects, folder)}
    running = Running(port, folder / "log", folder, secret_of(objects))
    command = [sys.executable, "-m", "mlflow", *login_environment]
    with running.log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as server:
        try:
            ends = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    assert running.status("/health") == 200, "probes need no log-in"
                    break
                except ConnectionRefusedError:
                    assert server.poll() is None and time.monotonic() < ends, running.log.read_text(encoding="utf-8")
                    time.sleep(0.05)
            yield running
        finally:
            server.terminate()


def log_in(monkeypatch: pytest.MonkeyPatch, running: Running, user: str) -> None:
    """Have MLflow's client send a user's name and password."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", running.password(user))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@needs_ipv6
def test_mlflow_listens_on_ipv6_and_ipv4(mlflow: Running) -> None:
    assert [mlflow.status("/health", host=host) for host in ("127.0.0.1", "::1")] == [200, 200]


CREATE_USER = "/api/2.0/mlflow/users/create"
GRANT = "/api/3.0/mlflow/users/permissions/grant"
EXPERIMENT = "/api/2.0/mlflow/experiments/get?experiment_id=0"


@pytest.mark.parametrize("path", ["/", "/version", EXPERIMENT, "/api/2.0/mlflow-artifacts/artifacts?path="])
def test_nobody_is_let_in_without_a_log_in(mlflow: Running, path: str) -> None:
    assert mlflow.status(path) == 401
    assert mlflow.status(path, "admin", "password1234") == 401, "MLflow's well-known password of before"


@pytest.mark.parametrize("user", ["admin", DERM])
def test_a_user_logs_in_with_its_own_password_alone(mlflow: Running, user: str) -> None:
    other = NEVI if user == DERM else DERM
    assert mlflow.status("/version", user, mlflow.password(user)) == 200
    for wrong in (
        "",
        "x",
        mlflow.password(other),
        mlflow.secret["federations-key"],
        mlflow.secret["session-key"],
        "\u00e9",
    ):
        assert mlflow.status("/version", user, wrong) == 401


def test_a_federation_has_its_own_experiments_and_nobody_else_s(
    mlflow: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    client = MlflowClient(mlflow.uri)
    log_in(monkeypatch, mlflow, DERM)
    made = client.create_experiment("derm")
    run = client.create_run(made).info.run_id
    client.log_metric(run, "accuracy", 0.5)
    client.log_text(run, "a card", "card.md")
    client.create_registered_model("derm")
    log_in(monkeypatch, mlflow, NEVI)
    assert client.search_experiments() == [], "not even those that MLflow made"
    attempts = (
        lambda: client.get_experiment_by_name("derm"),
        lambda: client.get_run(run),
        lambda: client.log_metric(run, "accuracy", 1.0),
        lambda: client.download_artifacts(run, "card.md", str(mlflow.folder)),
        lambda: client.create_model_version("derm", f"runs:/{run}/model"),
        lambda: client.delete_registered_model("derm"),
    )
    for attempt in attempts:
        with pytest.raises((MlflowException, OSError)) as refused:
            attempt()
        assert "somebody else's" in refusal_hint(refused.value), str(refused.value)
    user = {"username": "mallory", "password": "a long password"}
    grant = {"username": NEVI, "resource_type": "experiment", "resource_id": made, "permission": "MANAGE"}
    for path, sent in ((CREATE_USER, user), (GRANT, grant)):
        assert mlflow.status(path, NEVI, mlflow.password(NEVI), sent=sent) == 403
    log_in(monkeypatch, mlflow, "admin")
    assert client.get_run(run).data.metrics == {"accuracy": 0.5}, "the administrator sees every run"
    model = {**grant, "resource_type": "registered_model", "resource_id": "derm"}
    for sent in (grant, model):
        assert mlflow.status(GRANT, "admin", mlflow.password("admin"), sent=sent) == 200
    log_in(monkeypatch, mlflow, NEVI)
    assert client.get_registered_model("derm").name == "derm"
    assert client.get_run(run).info.run_id == run, "as docs/operations.md has it for experiments of before"


def test_a_federation_s_results_arrive(mlflow: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    from anchorage.engine.tracking.sender import Sending

    names = {"federation": "derm", "experiment": "lesions", "registered_model": "lesions"}
    task = Classification(classes=("naevus", "melanoma"))
    TrackedRun(Outbox(tmp_path), **names, rounds=1, task=task, parameters={}, document="kind: Federation\n")
    sending = Sending(tmp_path, mlflow.uri)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", DERM)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong-password")
    with pytest.raises(MlflowException) as refused:
        sending.send_all()
    explanation = sending.explain(refused.value)
    assert (
        "401" in explanation and "set MLFLOW_TRACKING_USERNAME" in explanation and "wrong-password" not in explanation
    )
    log_in(monkeypatch, mlflow, DERM)
    sending.send_all()
    client = MlflowClient(mlflow.uri)
    experiment = client.get_experiment_by_name("lesions")
    assert experiment is not None and len(client.search_runs([experiment.experiment_id])) == 1


def test_fedctl_says_how_to_log_in(mlflow: Running, tmp_path: Path) -> None:
    with pytest.raises(AnchorageError, match="set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"):
        fetch_registered("models:/derm/1", "SmallCnn", mlflow.uri, tmp_path / "weights.safetensors")


def test_a_new_password_of_the_secret_is_in_force_at_once(mlflow: Running) -> None:
    file = mlflow.folder / "etc/mlflow-login/admin-password"
    before = file.read_text(encoding="utf-8")
    try:
        file.write_text("another password\n", encoding="utf-8")
        assert mlflow.status("/version", "admin", "another password") == 200
        assert mlflow.status("/version", "admin", before) == 401
        file.write_text("\n", encoding="utf-8")
        assert mlflow.status("/version", "admin", "") >= 400, "an empty password lets nobody in"
    finally:
        file.write_text(before, encoding="utf-8")


def test_no_password_is_in_mlflow_s_log_or_arguments(mlflow: Running) -> None:
    for user in ("admin", DERM, NEVI):
        assert mlflow.status("/version", user, mlflow.password(user)) == 200
    output = mlflow.log.read_text(encoding="utf-8")
    assert "GET /version" in output, "it logs"
    arguments = " ".join(_line(process) for process in Path("/proc").glob("[0-9]*"))
    assert str(mlflow.port) in arguments
    for secret in (*mlflow.secret.values(), mlflow.password(DERM), mlflow.password(NEVI)):
        assert secret not in output and secret not in arguments


def _line(process: Path) -> str:
    try:
        return Path(process, "cmdline").read_text(errors="replace")
    except OSError:  # it has ended
        return ""
