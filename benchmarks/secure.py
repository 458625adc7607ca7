"""What secure aggregation costs a round: the same rounds with it and without, in turns (``make bench-secure``).

Real processes, mutual TLS, a model of 44.76 MB, silos that train nothing. Seconds from one commit to the next; the first two intervals of a run, from
round 0 on, are left out.
"""

import argparse
import json
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

import federation_documents
from federation_documents import null_study
from federation_processes import Site

PARAMETERS = 11_189_946


def play(silos: int, rounds: int, secure: bool) -> list[float]:
    """Play a run and return the seconds between its commits, but for the first two."""
    protocol = {"minSilos": silos, "roundDeadlineSeconds": 600}
    if secure:
        protocol["secureAggregation"] = {"fractionalBits": 22}
    with tempfile.TemporaryDirectory(prefix="anchorage-secure-") as folder:
        study = null_study(Path(folder), silos=silos, rounds=rounds, protocol=protocol)
        with Site(study) as site:
            server = site.server()
            site.finish(server, *(site.null_agent(silo.metadata.name) for silo in study.silos))
            committed = [record["time"] for record in site.records()]
    return [after - before for before, after in pairwise(committed)][2:]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--silos", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8, help="rounds of a run")
    parser.add_argument("--runs", type=int, default=2, help="runs of each kind")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    federation_documents.WEIGHTS = {"encoder.weight": np.linspace(-1, 1, PARAMETERS, dtype=np.float32)}
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(arguments.runs):
        for secure in times:
            times[secure] += play(arguments.silos, arguments.rounds, secure)
    plain, masked = (statistics.median(times[secure]) for secure in (False, True))
    print(
        f"{arguments.silos} silos: plain {plain:.2f} s, with secure aggregation {masked:.2f} s, {masked / plain:.2f} ×"
    )
    if arguments.json:
        figures = {"silos": arguments.silos, "plain_s": plain, "secure_s": masked, "ratio": masked / plain}
        arguments.json.write_text(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
