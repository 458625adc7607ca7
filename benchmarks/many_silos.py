"""A round with many silos beside plain gRPC of the same bytes (``make bench-many-silos``): time and memory of the server, which is the process of
production without MLflow.

The silos are threads of one process: each has a certificate and a connection of its own, checks every chunk of the model against its digest, and
sends the same update of 44.76 MB, which was made before. They write nothing to the disk and train nothing. The clients of the floor are threads of
one process, too.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from floor import Floor
from round import MODEL_BYTES, base_resident, peak_resident
from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

import federation_documents
from federation_documents import null_study
from federation_processes import Site
from federation_silos import credentials_of

from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.messages import Announcement, Assigned, Finished, Permit, Profile
from anchorage.transport.pki import Credentials
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description
from anchorage.transport.tensors.spool import check_chunk

PARAMETERS = MODEL_BYTES // 4
STEP = np.float32(0.001)
LONGEST_SECONDS = 3600
MOST_CLIENTS = 50
"""Clients of the floor: its time is taken in proportion for more, with which plain gRPC's connections are reset on two cores."""
SKIPPED = 1
"""Intervals at the start of a run that do not count: files are created."""


class CheckedSink:
    """A `ChunkSink` that checks chunks and keeps none."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._missing = set(range(manifest.count))

    def missing(self) -> tuple[int, ...]:
        """Return what has not arrived."""
        return tuple(sorted(self._missing))

    def write(self, index: int, data: bytes) -> None:
        """Check one chunk."""
        check_chunk(self.manifest, index, data)
        self._missing.discard(index)


def take_part(server: str, credentials: Credentials, update: ModelBytes) -> None:
    """Follow the server's orders until the run is over."""
    link = GrpcServerLink(server=server, credentials=credentials, profile=Profile("All", 100, "bench"))
    while (order := link.next_order(None)) is not None and not isinstance(order, Finished):
        if isinstance(order, Assigned):
            link.fetch(order.task.model, CheckedSink(order.task.model))
            link.announce(Announcement(order.task.id, {"train": 100}, {}, {}, update.manifest))
        elif isinstance(order, Permit):
            link.push(order.task, update)
    link.close()


def run_silos(server: str, initial: Path, silos: list[Credentials]) -> None:
    """Play all silos, one thread each."""
    layout, _ = read_description(initial)
    update = ModelBytes.from_arrays(layout, {name: array + STEP for name, array in load_file(initial).items()})
    threads = [threading.Thread(target=take_part, args=(server, each, update)) for each in silos]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def play(silos: int, rounds: int) -> tuple[list[float], int]:
    """Play a run; return the seconds of the rounds that count, and the server's peak resident bytes."""
    protocol = {"minSilos": silos, "roundDeadlineSeconds": LONGEST_SECONDS}
    with tempfile.TemporaryDirectory(prefix="anchorage-many-") as folder:
        study = null_study(Path(folder), silos=silos, rounds=rounds + SKIPPED, protocol=protocol)
        with Site(study) as site:
            server = site.server()
            credentials = [credentials_of(site, silo.metadata.name) for silo in study.silos]
            arguments = (site.endpoints["silos"], site.root / "initial.safetensors", credentials)
            clients = multiprocessing.get_context("spawn").Process(target=run_silos, args=arguments)
            clients.start()
            peak = 0
            while clients.is_alive():
                clients.join(0.5)
                peak = max(peak, peak_resident(server.pid))
            if clients.exitcode:
                raise SystemExit(f"the silos ended with {clients.exitcode}")
            Site.finish(server)
            committed = [record["time"] for record in site.records()]
    return [after - before for before, after in pairwise(committed)][SKIPPED:], peak


def measure(silos: int, rounds: int) -> dict[str, float]:
    """Measure one number of silos."""
    clients = min(silos, MOST_CLIENTS)
    with Floor(clients, MODEL_BYTES, in_one_process=True) as floor:
        floors = [floor.round() * silos / clients for _ in range(rounds + 1)][1:]
    seconds, peak = play(silos, rounds)
    median, floor_median = statistics.median(seconds), statistics.median(floors)
    return {
        "silos": silos,
        "round_s": median,
        "floor_s": floor_median,
        "ratio": median / floor_median,
        "server_peak_bytes": peak,
        "server_base_bytes": base_resident(),
    }


def main() -> None:
    """Print a table; with --json write the rows too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--silos", type=int, nargs="+", default=[8, 50, 200])
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds per number of silos")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    federation_documents.WEIGHTS = {"encoder.weight": np.linspace(-1, 1, PARAMETERS, dtype=np.float32)}
    rows: list[dict[str, Any]] = []
    print(f"{'silos':>5} {'round s':>9} {'floor s':>9} {'ratio':>6} {'peak MB':>8} {'base MB':>8}")
    for silos in arguments.silos:
        row = measure(silos, arguments.rounds)
        rows.append(row)
        print(
            f"{silos:5d} {row['round_s']:9.2f} {row['floor_s']:9.2f} {row['ratio']:6.2f} "
            f"{row['server_peak_bytes'] / 1e6:8.0f} {row['server_base_bytes'] / 1e6:8.0f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "many-silos", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
