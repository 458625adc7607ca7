"""Throughput of averaging updates, compared with this machine's memory bandwidth: ``make bench-aggregate ARGS="--json FILE"``.

Every round measures, one after the other: the floor (two threads read the same bytes once, by `numpy.dot` of each chunk with itself), the
weighted sum alone, the whole weighted mean with its checks and digests, and the same from spool files.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: the floor has two threads of its own

import numpy as np

from anchorage.engine.aggregation.mean import add_weighted, weighted_mean
from anchorage.transport.grpc.allocator import keep_chunk_memory
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile

RESNET18_PARAMETERS = 11_190_000
THREADS = 2


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(silos: int, parameters: int, rounds: int, folder: Path) -> dict[str, float]:
    """Return one row: medians in seconds, bandwidths in bytes per second."""
    layout = Layout.of([("w", "F32", (parameters,))])
    draws = np.random.default_rng(0)
    updates = [
        ModelBytes.from_arrays(layout, {"w": draws.standard_normal(parameters, dtype=np.float32)}) for _ in range(silos)
    ]
    spools = [spooled(folder / f"{index}.bin", update) for index, update in enumerate(updates)]
    weights = draws.uniform(0.5, 1.5, silos).tolist()
    pool = ThreadPoolExecutor(THREADS)
    chunks = [[np.frombuffer(update.chunk(i), "<f4") for update in updates] for i in range(len(updates[0].chunks))]

    def read(values: list[np.ndarray]) -> None:
        for value in values:
            np.dot(value, value)

    def add(values: list[np.ndarray]) -> None:
        sums = np.zeros(len(values[0]))
        add_weighted(sums, values, weights)
        sums.astype("<f4")

    works: dict[str, Callable[[], object]] = {
        "floor": lambda: list(pool.map(read, chunks)),
        "sum": lambda: list(pool.map(add, chunks)),
        "mean": lambda: weighted_mean(updates, weights, layout),
        "spool": lambda: weighted_mean(spools, weights, layout),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for counted in range(-1, rounds):
        for name, work in works.items():
            elapsed = timed(work)
            if counted >= 0:
                seconds[name].append(elapsed)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    read_bytes, moved = silos * layout.nbytes, (silos + 1) * layout.nbytes
    bandwidth = read_bytes / median["floor"]
    for spool in spools:
        spool.close()
    return {
        "silos": silos,
        "model_bytes": layout.nbytes,
        "median_s": median["sum"],
        "floor_median_s": median["floor"],
        "floor_bytes_per_s": bandwidth,
        "bytes_per_s": moved / median["sum"],
        "bandwidth_share": moved / median["sum"] / bandwidth,
        "mean_median_s": median["mean"],
        "spool_mean_median_s": median["spool"],
    }


def spooled(path: Path, model: ModelBytes) -> SpoolFile:
    """Return a model in a spool file."""
    spool = SpoolFile(path, model.manifest)
    for index, data in enumerate(model.chunks):
        spool.write(index, data)
    return spool


def main() -> None:
    """Run the benchmark."""
    keep_chunk_memory()  # as the server does
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 4, 8, 16], help="numbers of updates")
    parser.add_argument("--parameters", type=int, default=RESNET18_PARAMETERS, help="float32 numbers of the model")
    parser.add_argument("--rounds", type=int, default=15, help="counted repetitions")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    rows = []
    print(f"{arguments.parameters * 4 / 1e6:.1f} MB per update, chunks of {CHUNK_BYTES >> 20} MiB, {THREADS} threads")
    print("silos  floor GB/s  sum GB/s  share   sum ms  mean ms  from spool ms")
    for silos in arguments.silos:
        with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder:
            row = measure(silos, arguments.parameters, arguments.rounds, Path(folder))
        rows.append(row)
        print(
            f"{silos:5d}  {row['floor_bytes_per_s'] / 1e9:10.1f}  {row['bytes_per_s'] / 1e9:8.1f}  {row['bandwidth_share']:5.0%}"
            f"  {row['median_s'] * 1e3:7.1f}  {row['mean_median_s'] * 1e3:7.1f}  {row['spool_mean_median_s'] * 1e3:13.1f}"
        )
        sys.stdout.flush()
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "aggregate", "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
