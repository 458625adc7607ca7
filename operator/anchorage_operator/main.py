"""Start of the operator's process: its arguments, signals and exit status."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from anchorage.api.errors import AnchorageError
from anchorage.api.logs import log_to_stderr
from anchorage.transport.kube.access import ClusterAccess, read_kubeconfig, read_service_account
from anchorage.transport.kube.client import KubeClient
from anchorage.transport.kube.resources import RESOURCES, Json
from anchorage_operator.leadership import READ_SECONDS as LEASE_READ_SECONDS
from anchorage_operator.leadership import Leadership
from anchorage_operator.metrics import Metrics
from anchorage_operator.names import FIELD_MANAGER
from anchorage_operator.process import Operator
from anchorage_operator.settings import read_settings

READ_SECONDS = 20.0
"""How long the API server may take over an answer; it gives up by itself after a minute."""
CONNECTIONS = 100
"""Connections that are kept while nothing uses them: threads that reconcile, poll and resync, and streams between two attempts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator until it is told to stop.

    Returns
    -------
    int
        0 after SIGTERM or SIGINT, else the exit code of the failure, whose line is the last on standard error.
    """
    parser = argparse.ArgumentParser(prog="anchorage-operator", description="Runs federations on Kubernetes.")
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the operator's settings")
    parser.add_argument("--kubeconfig", type=Path, help="instead of the pod's service account, for development")
    options = parser.parse_args(arguments)
    log_to_stderr()
    try:
        settings = read_settings(options.config)
        access = read_kubeconfig(str(options.kubeconfig)) if options.kubeconfig else read_service_account()
        metrics, pod = Metrics(), _own_pod()
        elected = _leadership(settings.lease, pod, access, metrics)
        api = KubeClient(
            access,
            field_manager=FIELD_MANAGER,
            connections=CONNECTIONS,
            read_seconds=READ_SECONDS,
            count=metrics.count_request,
            before_write=elected.require if elected else lambda: None,
        )
        operator = Operator(settings, api, metrics, pod=pod, leadership=elected)
    except AnchorageError as error:
        sys.stderr.write(f"{error}\n")
        return error.failure.exit_code

    def stop(number: int, frame: FrameType | None) -> None:
        operator.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    operator.run()
    api.close()
    return 0


def _leadership(lease: str | None, pod: Json | None, access: ClusterAccess, metrics: Metrics) -> Leadership | None:
    """Return this replica's part in the election; None where there is none, or outside a cluster."""
    if lease is None or pod is None:
        return None
    api = KubeClient(
        access,
        field_manager=FIELD_MANAGER,
        connections=1,
        read_seconds=LEASE_READ_SECONDS,
        count=metrics.count_request,
    )
    identity = f"{pod['name']}_{pod['uid']}"
    return Leadership(api, pod["namespace"], lease, identity, time.monotonic, time.time)


def _own_pod() -> Json | None:
    """Return the operator's pod as the chart tells it by the downward API; None outside a cluster."""
    fields = {field: os.environ.get(f"POD_{field.upper()}", "") for field in ("name", "namespace", "uid")}
    return {"apiVersion": RESOURCES["Pod"].api_version, "kind": "Pod", **fields} if all(fields.values()) else None
