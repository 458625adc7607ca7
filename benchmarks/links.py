"""Rounds over slow links, by encoding of updates and models (``make bench-links``; Linux, root, iproute2).

Real processes, mutual TLS, a model of ResNet18's size, silos that train nothing. The script starts anew in a network namespace of its own, whose
loopback interface holds each silo to a rate, up and down, as a hospital's line does. Seconds from one commit to the next, the median; the first
interval of a run, in which processes start, is left out. Floor: the bytes that a silo received and sent in a round, at the rate of its line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from anchorage.api.files import Study
from anchorage.transport.tensors.encoded_model import MODEL_CODINGS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

import federation_processes
from federation_documents import null_study
from federation_in_process import null_step
from federation_processes import Process, Site

SHAPES = {"encoder.weight": (10_930, 1023), "classifier.weight": (7, 512), "bn.weight": (4808,)}
"""44.75 MB, all but a ten-thousandth of them in tensors of two axes."""
ENCODINGS: dict[str, dict[str, Any]] = {
    "float32": {"float32": {}},
    "bFloat16": {"bFloat16": {}},
    "int8": {"int8": {}},
    "int4": {"int4": {}},
    "topK 0.01": {"topK": {"share": "0.01"}},
}
WITHIN = "ANCHORAGE_BENCH_LINKS"
"""Set in the namespace."""
MOST_SECONDS = 7200
MTU = 1500


def address(silo: str) -> str:
    """Return the address at which a silo finds the server: its line is told by it."""
    return f"127.0.0.{11 + ord(silo) - ord('a')}"


def shape(silos: list[str], megabits: int) -> None:
    """Hold each silo's packets to a rate, up and down apart."""
    rules = ["qdisc add dev lo root handle 1: htb"]
    for number, silo in enumerate(silos):
        for way, direction in enumerate(("dst", "src")):
            line = f"1:{1 + 2 * number + way}"
            rules.append(f"class add dev lo parent 1: classid {line} htb rate {megabits}mbit burst 32kb quantum {MTU}")
            match = f"u32 match ip {direction} {address(silo)}/32 flowid {line}"
            rules.append(f"filter add dev lo parent 1: protocol ip {match}")
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True)
    subprocess.run(["tc", "-batch", "-"], input="\n".join(rules), text=True, check=True)


class SlowSite(Site):
    """A federation whose silos find the server at addresses of their own."""

    address = staticmethod(address)

    def start(self, module: str, config: Path, accident: tuple[str | int, ...]) -> Process:
        """Start a process; the server listens at every silo's address."""
        if module == "anchorage_server":
            names = [self.address(silo.metadata.name) for silo in self.study.silos]
            settings = yaml.safe_load(config.read_text())
            settings |= {"listen": "0.0.0.0:0", "enrolListen": "0.0.0.0:0", "names": [*settings["names"], *names]}
            config.write_text(yaml.safe_dump(settings))
        return super().start(module, config, accident)

    def slow_agent(self, silo: str) -> Process:
        """Start a silo's agent at its line's end."""
        step, samples = null_step(silo)
        at = {
            name: f"{self.address(silo)}:{self.endpoints[key].rsplit(':', 1)[1]}"
            for name, key in (("server", "silos"), ("enrolment", "enrolment"))
        }
        return self.agent(silo, trainer={"type": "Null", "step": str(step), "samples": samples}, **at)


@dataclass(frozen=True)
class Row:
    """One encoding over one rate of lines."""

    encoding: str
    megabits: int
    seconds: float
    """Of a round."""
    up: float
    """Bytes of one silo's update."""
    down: float
    """Bytes of the model that it fetches."""
    floor: float
    """Seconds that its line needs for model and update."""


def write_study(folder: Path, encoding: str, models: str | None, silos: int, rounds: int, copies: int = 1) -> Study:
    """Write the documents of a federation and its initial model, of so many times `SHAPES`."""
    protocol = {"minSilos": silos, "roundDeadlineSeconds": MOST_SECONDS, "modelEncoding": models}
    method = {"name": "FedAvg", "encoding": ENCODINGS[encoding]}
    study = null_study(folder, silos=silos, rounds=rounds, protocol=protocol, method=method)
    rng = np.random.default_rng(0)
    model = {
        f"copies.{copy}.{name}" if copy else name: rng.standard_normal(of, np.float32)
        for copy in range(copies)
        for name, of in SHAPES.items()
    }
    save_file(model, folder / "initial.safetensors")
    return study


def play(encoding: str, models: str | None, megabits: int, silos: int, rounds: int) -> Row:
    """Play a run."""
    with tempfile.TemporaryDirectory(prefix="anchorage-links-") as name:
        study = write_study(Path(name), encoding, models, silos, rounds)
        names = [silo.metadata.name for silo in study.silos]
        shape(names, megabits)
        with SlowSite(study) as site:
            site.finish(site.server(), *map(site.slow_agent, names))
            records = site.records()
    seconds = statistics.median([after["time"] - before["time"] for before, after in pairwise(records[1:])])
    up, down = (statistics.median(record[key] for record in records[2:]) / silos for key in ("bytesUp", "bytesDown"))
    return Row(encoding, megabits, seconds, up, down, (up + down) * 8 / (megabits * 1e6))


def enter_namespace() -> int:
    """Start this script in a network namespace, which ends with it."""
    if os.geteuid() != 0:
        sys.exit("network namespaces and tc need root; run it as root, for example in a container of your own")
    within = {**os.environ, WITHIN: "1"}
    return subprocess.run(["unshare", "--net", sys.executable, *sys.argv], env=within, check=False).returncode


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--silos", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a run, at least 2")
    parser.add_argument("--megabits", type=int, nargs="+", default=[100, 20], help="of each silo's line, up and down")
    parser.add_argument("--encodings", nargs="+", default=list(ENCODINGS), choices=ENCODINGS)
    parser.add_argument("--models", choices=MODEL_CODINGS, help="encoding of models on their way down; float32 without")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    if WITHIN not in os.environ:
        return enter_namespace()
    subprocess.run(["ip", "link", "set", "lo", "mtu", str(MTU), "up"], check=True)
    federation_processes.WAIT_SECONDS = MOST_SECONDS
    rows = []
    print(
        f"{'Mbit/s':>7} {'encoding':>10} {'round s':>8} {'MB up':>7} {'down':>7} {'floor s':>8} {'ratio':>6}",
        flush=True,
    )
    for megabits in arguments.megabits:
        for encoding in arguments.encodings:
            row = play(encoding, arguments.models, megabits, arguments.silos, arguments.rounds)
            rows.append(vars(row))
            ratio = row.seconds / row.floor
            figures = f"{row.seconds:8.1f} {row.up / 1e6:7.2f} {row.down / 1e6:7.2f} {row.floor:8.1f} {ratio:6.2f}"
            print(f"{megabits:7d} {encoding:>10} {figures}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "links", "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
