"""What traces cost a round: the same federation with spans sent to a collector on this machine, and without, in turns.

`fedctl bench rounds` plays the rounds with the production server and agents; the collector takes every request and keeps nothing. Where other work
runs, the times of rounds differ by more than spans cost: the processor time of a server's spans alone is measured as well.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from anchorage.engine.events import RoundCommitted, RoundStarted, Step, StepBegan
from anchorage.transport.otlp import open_spans
from anchorage_server.spans import RoundObserver

SKIPPED = 2
"""Rounds at the start of a block that do not count: files are created, connections warm up."""
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Collector(ThreadingHTTPServer):
    """Counts the bytes of spans that come to an address of this machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Export)
        self.received = 0

    @property
    def endpoint(self) -> str:
        """Return its address, as a process is told it."""
        return f"http://127.0.0.1:{self.server_port}"


class Export(BaseHTTPRequestHandler):
    """Takes one request."""

    def do_POST(self) -> None:
        """Read the spans and say that they arrived."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.received += len(content)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def play_block(silos: int, rounds: int, variables: Mapping[str, str]) -> list[float]:
    """Play one block; return the seconds of its counted rounds."""
    work = Path(tempfile.mkdtemp(prefix="anchorage-bench-"))
    command = [sys.executable, "-m", "fedctl.main", "bench", "rounds", "--silos", str(silos)]
    command += ["--rounds", str(rounds + SKIPPED), "--work", str(work)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | variables
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(work)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    times = [event["t"] for event in events if event["event"] == "round"]
    return [after - before for before, after in pairwise(times)][SKIPPED:]


def processor_seconds(rounds: int = 300) -> float:
    """Return the processor time of a server's spans of one round, made and sent; the collector's own is included."""
    spans = open_spans("anchorage-server", "bench", "5" * 64)
    if spans is None:
        raise SystemExit("no spans are made: pip install 'anchorage[otel]'")
    observer = RoundObserver(spans)
    observer(StepBegan(Step.SELECT))
    before = time.process_time()
    for number in range(1, rounds + 1):
        observer(RoundStarted(number, ["a", "b"]))
        for step in (Step.TRAIN, Step.WEIGH, Step.AGGREGATE, Step.EVALUATE, Step.COMMIT):
            observer(StepBegan(step))
        observer(RoundCommitted(cast(Any, None), cast(Any, None), None))
    spans.close()
    return (time.process_time() - before) / rounds


def main() -> None:
    """Print both medians and their ratio; with --json write them too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="counted rounds per block")
    parser.add_argument("--blocks", type=int, default=3, help="blocks with, and as many without")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        os.environ[ENDPOINT] = collector.endpoint
        processor = processor_seconds()  # ends here where the package for it is not installed
        alone = collector.received
        for _ in range(arguments.blocks):
            seconds["without"] += play_block(arguments.silos, arguments.rounds, {})
            seconds["with"] += play_block(arguments.silos, arguments.rounds, {ENDPOINT: collector.endpoint})
        received = collector.received - alone
        collector.shutdown()
    medians = {name: statistics.median(durations) for name, durations in seconds.items()}
    result = {
        "silos": arguments.silos,
        "rounds": len(seconds["with"]),
        **{f"median_{name}_s": value for name, value in medians.items()},
        **{f"min_{name}_s": min(durations) for name, durations in seconds.items()},
        "ratio": medians["with"] / medians["without"],
        "ratio_of_minima": min(seconds["with"]) / min(seconds["without"]),
        "processor_s": processor,
        "bytes_per_round": received / (arguments.blocks * (arguments.rounds + SKIPPED)),
    }
    for name, value in result.items():
        print(f"{name:>20} {value:.4g}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "traces", **result}, indent=2) + "\n")


if __name__ == "__main__":
    main()
