"""How time and memory grow: ``make bench-growth ARGS="--only rounds parameters --json FILE"``.

Each axis is measured at several sizes, each in a fresh process, and printed with the slope of a line through its points and the exponent of its last
step (0: constant, 1: in proportion). `--sizes` takes others, also beyond these, with one axis.

- *rounds*: a server and two agents that train nothing, over gRPC with mutual TLS, as with *silos* and *parameters*.
- *parameters*: the same with larger models, four rounds.
- *silos*: `fedctl bench rounds` with 44.76 MB.
- *simulated*: silos of one round of `fedctl simulate` with 100,000 numbers.
- *images*: JPEG of 224 pixels through the store, to a trainer's first step.
- *history*: one run of three rounds sent to an MLflow store in SQLite that has others in the same experiment.
- *federations*: the operator's memory and processor time, by `benchmarks/reconcile.py`; needs `KUBECONFIG`.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(HERE), str(TESTS / "integration"), str(TESTS / "unit" / "engine" / "tracking")]

Figures = dict[str, float]
"""Value by name; the name ends with its unit."""
MIB = 1 << 20
SMALL_MODEL = 100_000
"""Numbers of the model where something else grows."""
CONNECTED_ROUNDS, PARAMETER_ROUNDS, SIMULATED_ROUNDS, RESYNCS = 6, 4, 3, 2


def rounds(size: int, folder: Path) -> Figures:
    """Play rounds of two silos; time, server's memory and files at their end."""
    return _play(folder, SMALL_MODEL, size, last=max(1, size // 10))


def parameters(size: int, folder: Path) -> Figures:
    """Play a few rounds of two silos with a model of so many numbers."""
    return _play(folder, size, PARAMETER_ROUNDS, last=PARAMETER_ROUNDS - 1)


def _play(folder: Path, numbers: int, count: int, last: int) -> Figures:
    """Play rounds; their time is the median of the last ones."""
    import federation_documents
    import federation_processes
    import psutil

    federation_processes.WAIT_SECONDS = 7200
    federation_documents.WEIGHTS = {"encoder.weight": np.linspace(-1, 1, numbers, dtype=np.float32)}
    study = federation_documents.null_study(folder / "site", silos=2, rounds=count)
    with federation_processes.Site(study) as site:
        server = site.server()
        agents = [site.null_agent(silo.metadata.name) for silo in study.silos]
        watched = {"server_mib": psutil.Process(server.pid), "agent_mib": psutil.Process(agents[0].pid)}
        peaks = dict.fromkeys(watched, 0.0)
        for number in range(max(1, count // 20), count, max(1, count // 20)):
            server.wait_for("round committed", round=number)
            for name, process in watched.items():
                with suppress(psutil.NoSuchProcess):
                    peaks[name] = max(peaks[name], process.memory_info().rss / MIB)
        site.finish(server, *agents)
        committed = [record["time"] for record in site.records()]
        files = sum(file.stat().st_size for file in site.workdir.root.rglob("*") if file.is_file())
        journal = site.workdir.journal.stat().st_size
    seconds = [after - before for before, after in pairwise(committed)]
    return {"round_ms": 1000 * statistics.median(seconds[-last:]), **peaks, "files_mib": files / MIB, "journal_mib": journal / MIB}  # fmt: skip


def silos(size: int, folder: Path) -> Figures:
    """Play rounds of 44.76 MB with so many agents."""
    from round import play_block

    seconds, peak = play_block(size, 1, CONNECTED_ROUNDS)
    return {"round_ms": 1000 * statistics.median(seconds), "server_peak_mib": peak / MIB}


def simulated(size: int, folder: Path) -> Figures:
    """Simulate rounds in which each of so many silos takes part."""
    from pictures import peak_bytes
    from safetensors.numpy import save_file
    from simulate import Stopwatch, play_rounds

    before = peak_bytes()
    watch = Stopwatch(None)
    save_file({"encoder.weight": np.linspace(-1, 1, SMALL_MODEL, dtype=np.float32)}, folder / "initial.safetensors")
    play_rounds(size, size, SIMULATED_ROUNDS, folder / "initial.safetensors", watch)
    return {"round_ms": 1000 * watch.rounds[-1], "peak_mib_above_start": (peak_bytes() - before) / MIB}


def images(size: int, folder: Path) -> Figures:
    """Start a trainer twice on so many images."""
    from pictures import begin, in_process, make_images, start_trainer

    make_images(folder, size)
    begun = in_process(begin, folder / "steps.bin", {"steps": 2})
    first, second = (in_process(start_trainer, folder, begun, time.time()) for _ in range(2))
    return {
        "first_start_s": first["seconds_until_training"],
        "second_start_s": second["seconds_until_training"],
        "peak_mib": second["peak_bytes"] / MIB,
        "store_mib": sum(file.stat().st_size for file in (folder / "store").rglob("*") if file.is_file()) / MIB,
    }


def history(size: int, folder: Path) -> Figures:
    """Send a run's results to a store with so many others in its experiment."""
    from mlflow.tracking import MlflowClient
    from tracked_run import NOTHING, record_of, start, write_models

    from anchorage.engine.events import RoundCommitted
    from anchorage.engine.tracking.sender import Sending

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(uri)
    experiment = client.create_experiment("study")
    for number in range(size):
        run = client.create_run(experiment, run_name=f"earlier {number}").info.run_id
        client.log_metric(run, "accuracy", 0.5)
        client.set_terminated(run)
    tracked = start(folder / "outbox")
    for number in range(1, 4):
        tracked(RoundCommitted(record_of(number), NOTHING, None))
    tracked.finish("", write_models(folder / "model"))
    begun, used = time.perf_counter(), time.process_time()
    Sending(folder / "outbox", uri).send_all()
    return {"send_s": time.perf_counter() - begun, "processor_s": time.process_time() - used}


def federations(size: int, folder: Path) -> Figures:
    """Let an operator reconcile so many federations in the cluster of `KUBECONFIG`."""
    command = [sys.executable, str(HERE / "reconcile.py"), "--federations", str(size), "--resyncs", str(RESYNCS)]
    subprocess.run([*command, "--json", str(folder / "figures.json")], check=True)
    measured_figures: Figures = json.loads((folder / "figures.json").read_text())["figures"]
    names = {"residentMegabytes": "operator_mb", "secondsPerResync": "resync_s", "allThereSeconds": "created_s"}
    return {name: measured_figures[key] for key, name in names.items()}


@dataclass(frozen=True)
class Axis:
    """What grows.

    Parameters
    ----------
    measure : callable
        Takes a size and an empty folder.
    sizes : sequence of int
        What is measured where nobody says otherwise.
    per : int
        Units for which the slope is printed.
    """

    measure: Callable[[int, Path], Figures]
    sizes: Sequence[int]
    per: int


AXES = {
    "rounds": Axis(rounds, (10, 100, 1_000, 10_000), 1_000),
    "parameters": Axis(parameters, (100_000, 1_000_000, 10_000_000, 100_000_000), 1_000_000),
    "silos": Axis(silos, (2, 8, 32), 1),
    "simulated": Axis(simulated, (2, 20, 200, 2_000), 100),
    "images": Axis(images, (1_000, 10_000, 30_000), 10_000),
    "history": Axis(history, (1, 10, 100, 1_000), 100),
    "federations": Axis(federations, (1, 10, 100, 500), 100),
}


def slope(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """Return the slope of the line of least squares through points, and the exponent of the last step: the logarithm of the values' ratio to that
    of the sizes, NaN where a value is not above zero.
    """
    line = float(np.polyfit(sizes, values, 1)[0]) if len(sizes) > 1 else math.nan
    if len(sizes) < 2 or min(values[-2:]) <= 0:
        return line, math.nan
    return line, math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])


def measured(axis: str, size: int) -> Figures:
    """Measure one size in a fresh process."""
    command = [sys.executable, __file__, "--only", axis, "--sizes", str(size), "--here"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{axis} at {size:,}: {done.stderr}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def show(axis: str, sizes: Sequence[int], points: Sequence[Figures]) -> None:
    """Print an axis as a table of one row per figure."""
    per = AXES[axis].per
    print(f"{axis:28}" + "".join(f"{size:>13,}" for size in sizes) + f"{f'per {per:,}':>15}{'exponent':>10}")
    for name in points[0]:
        values = [point[name] for point in points]
        line, exponent = slope(sizes, values)
        print(f"  {name:26}" + "".join(f"{value:13.4g}" for value in values) + f"{line * per:15.4g}{exponent:10.2f}")
    sys.stdout.flush()


def main() -> None:
    """Measure the axes, print each when it is measured, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--sizes", nargs="+", type=int, help="of the one axis that --only names")
    parser.add_argument("--here", action="store_true", help="measure one size in this process and print JSON")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.sizes and len(arguments.only) > 1:
        parser.error("--sizes needs --only with one axis")
    if arguments.here:
        with tempfile.TemporaryDirectory(prefix="anchorage-growth-") as name:
            print(json.dumps(AXES[arguments.only[0]].measure(arguments.sizes[0], Path(name))))
        return
    rows = {}
    for axis in arguments.only:
        if axis == "federations" and "KUBECONFIG" not in os.environ:
            print("federations: not measured; KUBECONFIG names no cluster")
            continue
        sizes = arguments.sizes or AXES[axis].sizes
        rows[axis] = {size: measured(axis, size) for size in sizes}
        show(axis, sizes, list(rows[axis].values()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "growth", "axes": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
