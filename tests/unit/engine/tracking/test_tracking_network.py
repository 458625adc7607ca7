"""What lies between the sender and MLflow: addresses, proxies, a limit on bodies, another process at the SQLite file."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.http_artifact_repo import HttpArtifactRepository
from mlflow.tracking import MlflowClient
from mlflow.utils.rest_utils import MlflowHostCreds, http_request
from requests.adapters import HTTPAdapter
from sqlalchemy import Engine, event
from tracked_run import NOTHING, only_run, record_of, start, write_models
from two_addresses import NAME, dead_address_first

from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.engine.events import RoundCommitted
from anchorage.engine.tracking import Sender, sender
from anchorage.engine.tracking.connecting import CONNECT_SECONDS, limit_connecting
from anchorage.engine.tracking.mlflow_run import MlflowRun
from anchorage.engine.tracking.process import what_is_sent
from anchorage.engine.tracking.sender import LAST_ATTEMPTS, LAST_ATTEMPTS_LOCKED, Sending, serve
from anchorage.transport.http_proxies import proxy_variable, without_proxy

LIMIT = 1 << 20
LOCKED = "(sqlite3.OperationalError) database is locked"


class Limited(BaseHTTPRequestHandler):
    """Answers as an ingress with a limit on bodies."""

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        self.rfile.read(length)
        self.send_response(413 if length > LIMIT else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = lambda self: self.send_error(404)

    def log_message(self, *more: object) -> None:
        """Say nothing."""


@pytest.fixture
def ingress() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Limited) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_second_address_of_mlflow_s_name_is_tried_within_seconds(
    ingress: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HTTPAdapter, "send", HTTPAdapter.send)  # is put back
    limit_connecting()
    waited = dead_address_first(monkeypatch)
    host = MlflowHostCreds(ingress.replace("127.0.0.1", NAME))
    assert http_request(host, "/health", "GET", timeout=50).status_code == 404
    assert waited == [CONNECT_SECONDS]


@pytest.mark.parametrize(
    ("uri", "before", "expected"),
    [
        ("http://mlflow:5000", {}, "mlflow"),
        ("http://mlflow.ns.svc:5000", {"no_proxy": "10.0.0.0/8", "NO_PROXY": "x"}, "10.0.0.0/8,mlflow.ns.svc"),
        ("http://mlflow.ns.svc.k8s.example:5000", {"NO_PROXY": "x"}, "x,mlflow.ns.svc.k8s.example"),
        ("https://mlflow.example.org", {}, None),
        ("http://10.0.0.7:5000", {}, None),
        ("http://[fd00::7]:5000", {}, None),
        ("http://127.0.0.1:5000", {}, "127.0.0.1"),
        ("http://[::1]:5000", {}, "::1"),
        ("sqlite:////state/mlflow.db", {}, None),
    ],
)
def test_addresses_of_the_cluster_are_reached_without_a_proxy(
    uri: str, before: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    added = without_proxy(uri, before)
    assert added == ({} if expected is None else {"no_proxy": expected, "NO_PROXY": expected})
    for name, value in added.items():
        monkeypatch.setenv(name, value)
    assert bool(proxy_variable(uri, os.environ)) == (uri.startswith("http") and expected is None)


def test_the_sender_has_the_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("subprocess.Popen", lambda command, env, **more: requests.append(env))
    requests: list[dict[str, str]] = []
    Sender(tmp_path, "http://mlflow.ns.svc:5000")
    assert [env["no_proxy"] for env in requests] == ["mlflow.ns.svc"]


def test_another_address_s_trouble_names_the_proxy_s_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = "http://mlflow.example.org:5000"
    for name in ("http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    explanation = Sending(tmp_path, uri).explain(MlflowException("API request failed"))
    assert (
        explanation.startswith("API request failed; ")
        and "HTTP_PROXY" in explanation
        and "add mlflow.example.org to NO_PROXY" in explanation
    )
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert Sending(tmp_path, uri).explain(MlflowException("API request failed")) == "API request failed"


def too_large(ingress: str, file: Path) -> Callable[..., str]:
    def upload(*arguments: object) -> str:
        file.write_bytes(bytes(5_000_000))
        HttpArtifactRepository(f"{ingress}/mlflow-artifacts/artifacts").log_artifact(str(file))
        raise AssertionError("taken")

    return upload


def test_a_model_beyond_an_ingress_s_limit_is_named_with_what_to_do(
    ingress: str, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "outbox"
    run = start(folder)
    run(RoundCommitted(record_of(1), NOTHING, None))
    run.finish("", write_models(tmp_path / "models"))
    monkeypatch.setattr(MlflowRun, "_log_model", too_large(ingress, tmp_path / "model.pt2"))
    Sending(folder, uri).send_all()
    missing = what_is_sent(folder, "").missing
    assert missing is not None and missing.failure is TRACKING_INCOMPLETE
    assert "the final model: HTTP status 413 for a file of 5.0 MB; raise the body limit" in missing.message
    assert "proxy-body-size" in missing.message
    assert only_run(uri).info.status == "FINISHED" and only_run(uri).data.metrics["accuracy"] == 0.1


@pytest.mark.parametrize(
    "error",
    [
        MlflowException("API request to endpoint /api failed with error code 413 != 200. Response body: ''"),
        requests.HTTPError("413 Client Error", response=requests.Response()),
    ],
)
def test_an_event_beyond_the_limit_does_not_hold_up_the_rest(
    error: Exception, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        error.response.status_code = 413
    folder = tmp_path / "outbox"
    run = start(folder)
    run(RoundCommitted(record_of(1), NOTHING, None))
    run.finish("", None)

    def refuse(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(MlflowRun, "log_round", refuse)
    Sending(folder, uri).send_all()
    missing = what_is_sent(folder, "").missing
    assert missing is not None and "round 1" in missing.message and "raise the body limit" in missing.message
    assert only_run(uri).info.status == "FINISHED"


@pytest.fixture
def impatient() -> Iterator[None]:
    """SQLite gives up at once where another one holds the file, and not after MLflow's 20 seconds."""

    def shorten(
        connection: object, cursor: object, statement: str, values: object, *more: object
    ) -> tuple[str, object]:
        return statement.replace("busy_timeout = 20000", "busy_timeout = 1"), values

    event.listen(Engine, "before_cursor_execute", shorten, retval=True)
    yield
    event.remove(Engine, "before_cursor_execute", shorten)


@pytest.mark.usefixtures("impatient")
def test_while_another_process_holds_the_store_nothing_is_lost_or_sent_twice(tmp_path: Path, uri: str) -> None:
    folder = tmp_path / "outbox"
    run = start(folder)
    run(RoundCommitted(record_of(1), NOTHING, None))
    sending = Sending(folder, uri)
    sending.send_all()
    run(RoundCommitted(record_of(2), NOTHING, None))
    run.finish("", None)
    other = sqlite3.connect(uri.removeprefix("sqlite:///"))
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MlflowException, match="database is locked"):
        sending.send_all()
    missing = what_is_sent(folder, "").missing
    assert missing is not None and "another process holds the file" in missing.message
    other.close()
    sending.send_all()
    mlflow_run = only_run(uri)
    history = MlflowClient(uri).get_metric_history(mlflow_run.info.run_id, "accuracy")
    assert [metric.step for metric in history] == [1, 2] and mlflow_run.info.status == "FINISHED"
    assert what_is_sent(folder, "").missing is None


class GoneOnceWaitedFor(threading.Event):
    """A server that goes while the sender waits."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return True


@pytest.mark.parametrize(
    ("error", "failures", "status"),
    [
        (MlflowException(LOCKED), LAST_ATTEMPTS_LOCKED, 0),
        (MlflowException(LOCKED), LAST_ATTEMPTS_LOCKED + 1, TRACKING_UNREACHABLE.exit_code),
        (OSError("no route"), LAST_ATTEMPTS, 0),
        (OSError("no route"), LAST_ATTEMPTS + 1, TRACKING_UNREACHABLE.exit_code),
    ],
)
def test_a_run_that_is_over_waits_longer_for_a_store_that_is_held(
    error: Exception, failures: int, status: int, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, slept = tmp_path / "outbox", []
    start(folder)
    sending, failing = Sending(folder, uri), [error] * failures

    def send_all() -> None:
        if failing:
            raise failing.pop()

    monkeypatch.setattr(sending, "send_all", send_all)
    monkeypatch.setattr(sender.time, "sleep", slept.append)
    assert serve(sending, folder, GoneOnceWaitedFor()) == status
    if failures > LAST_ATTEMPTS_LOCKED:
        assert sum(slept) + 20 * failures > 600, "with the time that each attempt takes"
