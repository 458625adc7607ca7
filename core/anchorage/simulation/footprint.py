"""How much memory the processes of a run take: each role's own program does its part of a round, cut short, in a process of its own."""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.federation import Silo
from anchorage.api.files import Study, dump_yaml, load_federation
from anchorage.api.run import RunDescription
from anchorage.learning.data import read
from anchorage.learning.data.held_out import kept_apart, trainable
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.learning.stepping import clock, trial
from anchorage.methods.composition import parts_of
from anchorage.methods.pretrained import initial_of
from anchorage.simulation.rehearsal import Trials
from anchorage.simulation.silos import section_of
from anchorage.transport.grpc.convert import decode_task, encode_task

PROGRAMS = {"server": "anchorage_server.process", "silo": "anchorage_silo.trainer"}
"""What a role's process loads in any case."""
AGENT = "anchorage_silo.agent"
MODELS_AT_SERVER = 2
"""Models that a round holds at the server beside those that its training holds: the sum of the updates, and one that is read."""
_RESIDENT = "import psutil; print(psutil.Process().memory_info().rss)"


@dataclass(frozen=True)
class Footprint:
    """Peak memory of the processes of one role."""

    nbytes: int
    """Bytes of all of them together."""
    loading_seconds: float = 0.0
    """Time that the first training of a fresh process takes longer than those after it."""


def silo_footprint(run: RunDescription, silo: Silo, data_root: Path, trials: Trials, state: Path) -> Footprint:
    """Return the memory of a silo, trainer and agent, as it does the last training of `Trials.largest` again.

    Raises
    ------
    AnchorageError
        The trial failed.
    """
    assert trials.largest is not None, "a silo has been tried"
    _, task, model = trials.largest
    folder = Path(tempfile.mkdtemp(dir=state))
    (folder / "run.json").write_text(run.to_json())
    (folder / "silo.json").write_text(silo.model_dump_json(by_alias=True, exclude_unset=True))
    (folder / "task.bin").write_bytes(encode_task(task))
    model.tofile(folder / "model.bin")
    footprint = _measure("silo", folder, data_root)
    agent = int(_output(["-c", f"import {AGENT}; {_RESIDENT}"])) + 2 * model.nbytes
    return Footprint(footprint.nbytes + agent, footprint.loading_seconds)


def server_footprint(study: Study, data_root: Path, state: Path) -> Footprint:
    """Return the memory of the server's process.

    Raises
    ------
    AnchorageError
        The trial failed.
    """
    folder = Path(tempfile.mkdtemp(dir=state))
    (folder / "federation.yaml").write_text(dump_yaml([study.federation, *study.silos]))
    return _measure("server", folder, data_root)


def _measure(role: str, folder: Path, data_root: Path) -> Footprint:
    program = f"import {PROGRAMS[role]}; from anchorage.simulation import footprint; footprint.main()"
    measurement = json.loads(_output(["-c", program, role, str(folder), str(data_root.resolve())]))
    return Footprint(measurement["bytes"], measurement["seconds"])


def _output(arguments: list[str]) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise AnchorageError(commands.PROCESS_DIED, f"a trial of memory ended with {done.returncode}: {last[0][:200]}")
    return done.stdout


def main() -> None:
    """Do the part of a role that the arguments name, and print the peak memory and the time as JSON."""
    role, folder, data_root = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    work = _of_silo(folder, data_root) if role == "silo" else _of_server(folder, data_root)
    marks, further = [clock()], 0
    for _ in range(2):
        further = work()
        marks.append(clock())
    seconds = max(0.0, 2 * marks[1] - marks[0] - marks[2])
    sys.stdout.write(json.dumps({"bytes": peak_memory() + further, "seconds": seconds}))


def peak_memory() -> int:
    """Return the most memory that this process had, bytes; of a parent's, which `getrusage` may count, nothing."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Have `peak_memory` count from now on, where the system can (Linux); elsewhere it goes on counting from the start of the process."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _of_silo(folder: Path, data_root: Path) -> Callable[[], int]:
    run = RunDescription.model_validate_json((folder / "run.json").read_text())
    silo = Silo.model_validate_json((folder / "silo.json").read_text())
    task, model = decode_task((folder / "task.bin").read_bytes()), np.fromfile(folder / "model.bin", np.uint8)
    name, labels, stage = silo.metadata.name, silo.spec.labels, run.stage(task.round)
    images, _ = read(section_of(silo), data_root, run.model, run.seed, labelled=labels != "None")
    silo_images = trainable(images, labels, name, run)
    learner = build_silo_learner(
        run=stage, silo=name, labels=labels, images=silo_images, state=folder / "state", device="auto"
    )

    def work() -> int:
        with trial(1.0):
            learner.train(task, model, lambda nbytes: np.zeros(nbytes, np.uint8), lambda done, total: 0)
        return 0

    return work


def _of_server(folder: Path, data_root: Path) -> Callable[[], int]:
    study = load_federation(folder / "federation.yaml")
    spec = study.federation.spec
    image_sets = {
        name: read(section, data_root, spec.model_description, spec.seed)[0]
        for name, section in spec.server_data.items()
    }
    images, _ = kept_apart(image_sets, "Allow", bytes(32))
    learners = [
        build_server_learner(
            model=part.model,
            method=part.method,
            seed=spec.seed,
            **images,
            device="auto",
            initial=initial_of(spec, data_root),
            rounds=part.last,
            after=part.after,
            embeddings=None,
            pictured=spec.embeddings,
        )
        for part in parts_of(spec)
    ]

    def work() -> int:
        learner = learners[-1]
        with trial(1.0):
            model = learner.initialise()
            learner.auxiliary_data(model, 1)
            trained, _ = learner.train(model, 1)
            learner.evaluate(trained, 1)
        return MODELS_AT_SERVER * learner.down.nbytes

    return work
