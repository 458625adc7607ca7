"""The chart's MLflow, started with the arguments that the chart gives it."""

import http.client
import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from helm_charts import Helm, container
from ipv6 import needs_ipv6

PATIENCE_SECONDS = 240


def answer(host: str, port: int) -> int:
    with closing(http.client.HTTPConnection(host, port, timeout=60)) as connection:
        connection.request("GET", "/version", headers={"Host": f"localhost:{port}"})
        return connection.getresponse().status


@needs_ipv6
def test_mlflow_listens_on_ipv6_and_ipv4(helm: Helm, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = container(helm.template("anchorage", {"mlflow": {"enabled": True}}), "StatefulSet")["args"]
    given = [
        each.replace("/var/lib/mlflow", str(tmp_path)).replace("--port=5000", f"--port={port}") for each in arguments
    ]
    command = [sys.executable, "-m", "mlflow", *given]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    log = tmp_path / "log"
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as server:
        try:
            ends = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    assert answer("127.0.0.1", port) == 200
                    break
                except ConnectionRefusedError:
                    assert server.poll() is None and time.monotonic() < ends, log.read_text(encoding="utf-8")
                    time.sleep(0.05)
            assert answer("::1", port) == 200
        finally:
            server.terminate()
