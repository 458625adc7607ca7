"""The operator as a process: its arguments, probes, metrics, logs and its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from eventually import eventually
from fake_api.server import FakeApi
from other_thread import signal_other_thread

PATIENCE = 120.0


@pytest.fixture
def api():
    api = FakeApi().start()
    yield api
    api.stop()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def write_kubeconfig(path, url):
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "letmein"}}],
        "contexts": [context],
    }
    path.write_text(yaml.safe_dump(body))
    return path


def write_settings(path, **more):
    settings = {"images": {"server": "example.org/s:1", "agent": "example.org/a:1"}, "listen": "127.0.0.1:0", **more}
    path.write_text(yaml.safe_dump(settings))
    return path


def start(*arguments, **environment):
    command = [sys.executable, "-m", "anchorage_operator", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


def ended(*arguments):
    process = start(*arguments)
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors.splitlines()[-1]


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_life(api, tmp_path):
    port = free_port()
    more = {"resyncSeconds": 2, "watch": ["study"], "lease": "operator"}
    settings = write_settings(tmp_path / "operator.yaml", listen=f"127.0.0.1:{port}", **more)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
    process = start(
        "--config", settings, "--kubeconfig", kubeconfig, POD_NAME="pod", POD_NAMESPACE="anchorage", POD_UID="1"
    )
    try:

        def leads() -> bool:
            ready = get(port, "/readyz")[0] == 200
            return ready and "\nanchorage_operator_is_leader 1.0" in get(port, "/metrics")[1]

        eventually(lambda: process.poll() is not None or leads(), "it does not lead")
        assert process.poll() is None
        assert get(port, "/healthz") == (200, "ok\n")
        assert get(port, "/else")[0] == 404
        status, metrics = get(port, "/metrics")
        assert status == 200
        for name in (
            "last_resync_timestamp",
            "workqueue_depth",
            "watch_alive",
            "reconcile_seconds",
            "api_requests_total",
        ):
            assert f"\nanchorage_operator_{name}" in metrics
        assert api.find("leases", "operator")["spec"]["holderIdentity"] == "pod_1"
        signal_other_thread(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "holderIdentity" not in api.find("leases", "operator")["spec"], "another one takes over at once"
    finally:
        process.kill()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert "watching" in [line["message"] for line in lines]
    assert "letmein" not in errors


@pytest.mark.parametrize(
    "settings, code",
    [
        ({"images": None}, "ANC-1"),
        ({"resyncSeconds": 0}, "ANC-1"),
        ({"listen": "nowhere"}, "ANC-1"),
        ({"extra": 1}, "ANC-1"),
    ],
)
def test_settings_that_are_wrong_are_told(tmp_path, settings, code):
    returned, last = ended("--config", write_settings(tmp_path / "operator.yaml", **settings))
    assert returned == 2 and last.startswith(code)


def test_settings_that_are_missing_are_told(tmp_path):
    returned, last = ended("--config", tmp_path / "operator.yaml")
    assert returned == 2 and "operator.yaml" in last


def test_a_kubeconfig_that_cannot_be_read_is_told(tmp_path):
    settings = write_settings(tmp_path / "operator.yaml")
    returned, last = ended("--config", settings, "--kubeconfig", tmp_path / "kubeconfig")
    assert returned == 2 and last.startswith("ANC-5102 KubeconfigUnusable")


def test_outside_of_a_cluster_a_kubeconfig_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    returned, last = ended("--config", write_settings(tmp_path / "operator.yaml"))
    assert returned == 2 and "--kubeconfig" in last


def test_a_port_that_is_taken_is_told(api, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        settings = write_settings(tmp_path / "operator.yaml", listen=f"127.0.0.1:{occupied.getsockname()[1]}")
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        returned, last = ended("--config", settings, "--kubeconfig", kubeconfig)
    assert returned != 0 and "CannotListen" in last
