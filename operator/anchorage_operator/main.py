"""Start of the operator's process: its arguments, signals and exit status."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from anchorage.api.errors import AnchorageError
from anchorage.api.logs import log_to_stderr
from anchorage_operator.kube import HttpKubeApi, configure, connection_of
from anchorage_operator.metrics import Metrics
from anchorage_operator.process import POLLERS, WORKERS, Operator
from anchorage_operator.settings import read_settings
from anchorage_operator.wiring import quieten


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
    quieten()
    try:
        settings = read_settings(options.config)
        configuration = configure(options.kubeconfig)
        metrics = Metrics()
        api = HttpKubeApi(configuration, WORKERS + POLLERS + 1, metrics.requested)
        operator = Operator(settings, api, connection_of(configuration), metrics)
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
