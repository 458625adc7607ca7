"""Time from `kubectl apply` to the first committed round, and the delay of `kubectl get` behind the server.

Starts a new cluster as the cluster tests do (root, Go: see tests/cluster/prepare.sh), with the images present and the chart
installed, applies examples/digits.yaml, and compares what `kubectl get --watch` showed with the times in the server's log.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "cluster"))

from cluster_namespace import Namespace
from cluster_site import CHECKOUT, Site
from kube import missing

FEDERATION = "digits"
ROUNDS = 15
TARGET_SECONDS = 60.0
TARGET_BEHIND_SECONDS = 10.0


class Shown:
    """When `kubectl get --watch` showed each round first."""

    def __init__(self, namespace: Namespace) -> None:
        kubectl = namespace.site.kubectl
        command = [*kubectl.entering, str(kubectl.program), "--namespace", namespace.name]
        columns = "custom-columns=ROUND:.status.round"
        command += ["get", "federation", FEDERATION, "--watch", "--no-headers", "--output", columns]
        self.rounds: dict[int, float] = {}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(kubectl.environment))
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().isdecimal():
                self.rounds.setdefault(int(line), time.time())

    def end(self) -> None:
        """Stop looking."""
        self._process.terminate()
        self._process.wait()
        self._thread.join()


def committed(namespace: Namespace) -> dict[int, float]:
    """Return when the server committed each round, by the log of its pod."""
    times = {}
    for line in namespace.kubectl("logs", f"{FEDERATION}-server-0").splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("message") == "round committed":
            times[int(entry["round"])] = datetime.fromisoformat(entry["time"]).timestamp()
    return times


def behind(shown: dict[int, float], rounds: dict[int, float]) -> list[float]:
    """Return for each round how long after its commit this round, or a later one, was shown (seconds)."""
    return [
        max(0.0, min(when for other, when in shown.items() if other >= number) - at)
        for number, at in rounds.items()
        if number > 0 and any(other >= number for other in shown)
    ]


def measure(namespace: Namespace) -> dict[str, float]:
    """Play the example once; return the figures in seconds."""
    namespace.install_chart()
    start = time.time()
    namespace.kubectl("apply", "--filename", CHECKOUT / "examples" / "digits.yaml")
    shown = Shown(namespace)
    try:
        namespace.wait_for_round(FEDERATION, ROUNDS, seconds=900)
        rounds = committed(namespace)
    finally:
        shown.end()
    late = behind(shown.rounds, rounds)
    return {
        "firstRoundSeconds": rounds[1] - start,
        "lastRoundSeconds": max(rounds.values()) - start,
        "behindMedianSeconds": statistics.median(late),
        "behindMostSeconds": max(late),
    }


@contextmanager
def site(name: str | None) -> Iterator[Site]:
    """Give a site with the CRDs: a cluster that is up, or one for this run only."""
    if name is None:
        with Site.started(f"bench-{os.getpid()}") as made:
            yield made.with_definitions()
    else:
        yield Site.named(name).with_definitions()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", help="one that `python -m kube up` started, with the images; default: a new one")
    parser.add_argument("--times", type=int, default=3, help="how often the example is played")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    if lacks := missing():
        raise SystemExit(f"this machine lacks {'; '.join(lacks)}")
    rows = []
    with site(arguments.cluster) as place:
        for _ in range(arguments.times):
            with Namespace.made(place, "bench") as namespace:
                rows.append(measure(namespace))
            print("  ".join(f"{name} {value:6.1f}" for name, value in rows[-1].items()), flush=True)
    first = statistics.median(row["firstRoundSeconds"] for row in rows)
    most = max(row["behindMostSeconds"] for row in rows)
    print(f"apply to first committed round: {first:.1f} s (median of {len(rows)}; target below {TARGET_SECONDS:.0f})")
    print(f"status behind the server: at most {most:.1f} s (target at most {TARGET_BEHIND_SECONDS:.0f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
