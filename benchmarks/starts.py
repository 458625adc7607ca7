"""Starts and ends: ``make bench-starts ARGS="--json FILE"``.

Three commands of `fedctl`, and `fedctl run -f examples/digits.yaml` from the command to the prompt: when each thing was printed, what processor time
each kind of process had used by then, and what it held in memory at most. The floor, measured between the runs, is the processor time of a process
that imports torch and nothing else: five processes of a run do, on as many processors as there are. Medians of `--repeats`.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import psutil

FEDERATION = Path(__file__).parents[1] / "examples" / "digits.yaml"
FEDCTL = Path(sys.executable).with_name("fedctl")
TARGETS = {
    "fedctl --help": 0.3,
    "fedctl status -o json": 0.5,
    "fedctl validate": 1.5,
    "to round 1": 7.0,
    "last round to the prompt": 5.0,
    "whole": 22.0,
}
"""Seconds, on a quiet machine of two cores whose floor was not noted."""
FORKED = "trainers, labels alone"
"""They are forked from one process, and so have the same command."""
KINDS = {
    "fedctl.shared_imports": FORKED,
    "anchorage_silo.trainer": FORKED,
    "anchorage_silo.confinement": FORKED,
    "fedctl.anchors_alone": FORKED,
    "anchorage_silo": "agents",
    "anchorage_server": "server",
    "anchorage.engine.tracking": "results to MLflow",
}
"""What a process is, by the module that it runs; any other one is fedctl."""
MARKS = {"started the server": "server started", "started silo": "server listens", "storing the model": "rounds over"}
"""What is printed first at each moment; rounds and connections are told apart by their numbers."""
LOOK_SECONDS = 0.2

Figures = dict[str, float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    runs: list[Figures] = []
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory(prefix="anchorage-starts-") as name:
            figures = {"import torch": processor_seconds([sys.executable, "-c", "import torch"])}
            figures |= play(Path(name) / "run")
            figures |= commands(Path(name) / "run")
        runs.append(figures)
    medians = {key: statistics.median(run[key] for run in runs if key in run) for key in runs[0]}
    show(medians)
    if arguments.json:
        rows = {"benchmark": "starts", "medians": medians, "runs": runs}
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def commands(workdir: Path) -> Figures:
    """Return how long three commands take."""
    asked = {
        "fedctl --help": ["--help"],
        "fedctl status -o json": ["status", "--workdir", str(workdir), "-o", "json"],
        "fedctl validate": ["validate", "-f", str(FEDERATION)],
    }
    return {name: seconds_of([str(FEDCTL), *arguments]) for name, arguments in asked.items()}


def seconds_of(command: Sequence[str]) -> float:
    """Return how long a command takes."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def processor_seconds(command: Sequence[str]) -> float:
    """Return the processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def play(workdir: Path) -> Figures:
    """Play the run, and return its moments in seconds, and processor seconds and most megabytes by kind of process."""
    command = [str(FEDCTL), "run", "-f", str(FEDERATION), "--workdir", str(workdir)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as run:
        begun, lines = time.perf_counter(), SimpleQueue[tuple[float, str]]()
        Thread(target=_read, args=(run, lines.put), daemon=True).start()
        moments: Figures = {}
        used: dict[int, tuple[str, float, float]] = {}
        while run.poll() is None:
            look(run.pid, used)
            with suppress(Empty):
                while True:
                    at, line = lines.get(timeout=LOOK_SECONDS)
                    moments |= {name: at - begun for name in moment_of(line) if name not in moments}
        moments["whole"] = time.perf_counter() - begun
    if run.returncode:
        raise SystemExit(f"fedctl run ended with status {run.returncode}")
    moments["last round to the prompt"] = moments["whole"] - moments.pop("rounds over")
    return moments | sums_of(used.values())


def _read(run: "subprocess.Popen[str]", put: Callable[[tuple[float, str]], object]) -> None:
    assert run.stdout is not None
    for line in run.stdout:
        put((time.perf_counter(), line))


def moment_of(line: str) -> list[str]:
    """Return what a line of `fedctl run` is the moment of."""
    names = [name for start, name in MARKS.items() if line.startswith(start)]
    if line.startswith("silo ") and line.rstrip().endswith(" connected"):
        names.append("first silo connected")
    if line.startswith("round 0/"):
        names.append("round 0")
    if line.startswith("round 1/"):
        names.append("to round 1")
    return names


def look(root: int, used: dict[int, tuple[str, float, float]]) -> None:
    """Note kind, processor seconds and most resident megabytes of every process of a run."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(root)
        for process in [parent, *parent.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                times, megabytes = process.cpu_times(), process.memory_info().rss / 1e6
                most = max(megabytes, used.get(process.pid, ("", 0.0, 0.0))[2])
                if command := process.cmdline():  # one that is ending has none
                    used[process.pid] = (kind_of(command), times.user + times.system, most)


def kind_of(command: Sequence[str]) -> str:
    """Return what a process is; agents and trainers are started by way of a program that names their module last."""
    return next((kind for module, kind in KINDS.items() if any(module in part for part in command)), "fedctl")


def sums_of(processes: Iterable[tuple[str, float, float]]) -> Figures:
    """Return processor seconds of all processes of a kind, and the most megabytes of one."""
    figures: Figures = {}
    for kind, seconds, megabytes in processes:
        figures[f"processor: {kind}"] = figures.get(f"processor: {kind}", 0.0) + seconds
        figures[f"memory: {kind}"] = max(figures.get(f"memory: {kind}", 0.0), megabytes)
    return figures


def show(figures: Mapping[str, float]) -> None:
    """Print figures with their targets, and what they are to the floor."""
    floor = figures["import torch"]
    for name, value in figures.items():
        if name.startswith("memory: "):
            print(f"{name:30} {value:8.0f} MB")
            continue
        target = f"  target {TARGETS[name]:g} s" if name in TARGETS else ""
        print(f"{name:30} {value:8.2f} s  {value / floor:6.2f} times the import of torch{target}")


if __name__ == "__main__":
    main()
