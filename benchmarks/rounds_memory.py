"""Resident memory of the server over many rounds (``make bench-rounds-memory``).

Real processes, mutual TLS, silos that train nothing, a model of 2.4 MB: what grows with the number of rounds alone would show.
"""

import argparse
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

import federation_processes
from federation_documents import null_study
from federation_processes import Process, Site

SILOS = "abc"
MOST_SECONDS = 7200
MIB = 1 << 20


def sizes(server: Process, rounds: int, step: int) -> dict[int, float]:
    """Wait for the rounds, and return the server's resident MiB after every so many."""
    resident: dict[int, float] = {}
    process = psutil.Process(server.pid)
    with suppress(psutil.NoSuchProcess):
        for number in range(step, rounds, step):
            server.wait_for("round committed", round=number)
            resident[number] = process.memory_info().rss / MIB
    return resident


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--step", type=int, default=100, help="rounds between two looks")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    federation_processes.WAIT_SECONDS = MOST_SECONDS
    with tempfile.TemporaryDirectory(prefix="anchorage-rounds-memory-") as name:
        study = null_study(Path(name), silos=len(SILOS), rounds=arguments.rounds + 1)
        with Site(study) as site:
            server = site.server()
            agents = [site.null_agent(silo) for silo in SILOS]
            resident = sizes(server, arguments.rounds + 1, arguments.step)
            site.finish(server, *agents)
    for number, size in resident.items():
        print(f"round {number}: {size:.1f} MiB")
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "rounds_memory", "mib": resident}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
