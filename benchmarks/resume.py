"""Recovery time of a killed server, from its new process to the next dispatch, for kills at many points of a round.

`fedctl bench rounds` runs; this script kills the server (SIGKILL) at growing fractions of a round, and the runner starts it again. The
floor is a process that only imports the server.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

ROUNDS_BETWEEN = 3
"""Undisturbed rounds before each kill."""


def import_seconds() -> float:
    """Return the seconds that a process takes to import the server and end."""
    started = time.time()
    subprocess.run([sys.executable, "-c", "import anchorage_server.process"], check=True)
    return time.time() - started


def dispatched_after(log: Path, created: float, until: float) -> float:
    """Wait for the first dispatch that the server's log tells after `created`; return its time.

    Raises
    ------
    SystemExit
        None came until `until`.
    """
    while time.time() < until:
        for line in log.read_text().splitlines():
            entry = json.loads(line) if line.startswith("{") else {}
            if entry.get("message") == "round dispatched":
                moment = datetime.fromisoformat(entry["time"]).timestamp()
                if moment >= created:
                    return moment
        time.sleep(0.05)
    raise SystemExit("no dispatch after the restart")


def measure(silos: int, kills: int, work: Path) -> Iterator[dict[str, Any]]:
    """Play, kill and measure; yields a row per kill."""
    command = [str(Path(sys.executable).with_name("fedctl")), "bench", "rounds", "--silos", str(silos), "--copies", "1"]
    command += ["--rounds", str(kills * (ROUNDS_BETWEEN + 2) + ROUNDS_BETWEEN), "--work", str(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server, times, since, kill, fraction = 0, [], 0, 0, 0.0
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "process" and event["role"] == "server":
                restarted = server != 0
                server = event["pid"]
                if restarted:
                    created = time.time()  # the runner tells at once; the kernel's own figure is only good to a second
                    log = next(work.glob("*/logs/server.log"))
                    seconds = dispatched_after(log, created, time.time() + 60) - created
                    floor = import_seconds()
                    yield {
                        "fraction": fraction,
                        "median_s": seconds,
                        "floor_median_s": floor,
                        "beyond_s": seconds - floor,
                    }
                    since = 0
            elif event["event"] == "round":
                times.append(event["t"])
                since += 1
                if since > ROUNDS_BETWEEN and kill < kills:
                    usual = statistics.median(b - a for a, b in pairwise(times))
                    fraction = kill / kills
                    time.sleep(max(0.0, event["t"] + usual * (1 + fraction) - time.time()))
                    os.kill(server, signal.SIGKILL)
                    kill, since = kill + 1, -kills
            elif event["event"] == "final" and event["error"] > 1e-3:
                raise SystemExit(f"the model is wrong by {event['error']}")
    if process.returncode != 0:
        raise SystemExit(f"fedctl bench rounds ended with {process.returncode}")


def main() -> None:
    """Print a table; with --json write the rows too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, default=2)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    print(f"{'killed at':>9} {'to dispatch s':>13} {'import s':>8} {'beyond s':>8}")
    with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as work:
        for row in measure(arguments.silos, arguments.kills, Path(work)):
            rows.append({"silos": arguments.silos, **row})
            print(
                f"{row['fraction']:9.2f} {row['median_s']:13.2f} {row['floor_median_s']:8.2f} {row['beyond_s']:8.2f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "resume", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
