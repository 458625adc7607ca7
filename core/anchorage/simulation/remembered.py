"""What silos calculated, kept while a federation without rounds is simulated.

Engine, links and clock have no state on disk: a simulation that was stopped is played again from its beginning, to the same bits, and its
silos say again what they said, until there is something new to calculate.
"""

from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.storage import NOT_WRITABLE
from anchorage.engine.interfaces import SiloLearner
from anchorage.engine.store.checkpoints import digest_of
from anchorage.simulation.silos import Learners
from anchorage.transport.files import replacing
from anchorage.transport.grpc.convert import (
    decode_announcement,
    decode_evaluation,
    encode_announcement,
    encode_evaluation,
)
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task

KEPT_BYTES = 4 << 30
"""What is kept of one simulation; of one that needs more nothing is, and it begins anew."""
_DIGEST = "digest"


class Results:
    """Results of tasks, a file each; all of them or none.

    Parameters
    ----------
    folder : Path
        Made where it is missing. What another simulation left in it is removed, and everything where one file is damaged.
    simulation : str
        What the results depend on.

    Raises
    ------
    AnchorageError
        The folder cannot be made.
    """

    def __init__(self, folder: Path, simulation: str) -> None:
        self._folder = folder / blake3(simulation.encode()).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for other in set(folder.iterdir()) - {self._folder}:
                rmtree(other)
            paths = sorted(self._folder.glob("*.safetensors"))
            if not all(map(_is_whole, paths)):
                rmtree(self._folder)
                paths = []
            self._folder.mkdir(exist_ok=True)
            self._room = KEPT_BYTES - sum(path.stat().st_size for path in paths)
        except OSError as error:
            message = f"{folder}: {error.strerror or error}; name another --workdir, or free space"
            raise AnchorageError(NOT_WRITABLE, message) from error
        self.has_results = bool(paths)

    def read(self, silo: str, task: Task) -> dict[str, NDArray[Any]] | None:
        """Return the arrays of a task that is done, None of another one."""
        path = self._path(silo, task)
        return load_file(path) if path.exists() else None

    def write(self, silo: str, task: Task, arrays: dict[str, NDArray[Any]]) -> None:
        """Keep the arrays of a task; where there is no room, forget those of all."""
        self._room -= sum(array.nbytes for array in arrays.values())
        path = self._path(silo, task)
        try:
            if self._room >= 0:
                with replacing(path) as partial:
                    save_file(arrays, partial, metadata={_DIGEST: digest_of(arrays)})
        except (OSError, SafetensorError):
            self._room = -1
        if self._room < 0:
            rmtree(self._folder, ignore_errors=True)

    def _path(self, silo: str, task: Task) -> Path:
        return self._folder / f"{silo}.{task.id}.safetensors"


def _is_whole(path: Path) -> bool:
    try:
        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
            return bool((file.metadata() or {}).get(_DIGEST) == digest_of(arrays))
    except (OSError, SafetensorError):
        return False


class RememberedLearner:
    """A silo's learner (`SiloLearner`) that does again what it did: says how far it is, step by step, and gives what it gave.

    Parameters
    ----------
    silo : str
        The silo.
    learner : SiloLearner
        Calculates.
    results : Results
        What was calculated.
    """

    def __init__(self, silo: str, learner: SiloLearner, results: Results) -> None:
        self._silo, self._learner, self._results = silo, learner, results

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train, or say again what was said; see `anchorage.engine.interfaces.SiloLearner.train`."""
        known = self._results.read(self._silo, task)
        if known is None:
            return self._train(task, model, out, progress)
        for done, total in known["steps"].tolist():
            progress(done, total)
        if "failure" in known:
            code, _, message = known["failure"].tobytes().decode().partition(" ")
            raise AnchorageError(CATALOGUE[code], message)
        announcement = decode_announcement(known["announcement"].tobytes())
        if announcement.update is not None:
            out(announcement.update.nbytes)[:] = known["update"]
        return announcement

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Score a model, or say again what was said."""
        known = self._results.read(self._silo, task)
        if known is None:
            evaluation = self._learner.evaluate(task, model)
            known = {"evaluation": _array(encode_evaluation(evaluation))}
            self._results.write(self._silo, task, known)
        return decode_evaluation(known["evaluation"].tobytes())

    def _train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        steps: list[tuple[int, int]] = []
        written: list[Bytes] = []

        def hear_progress(done: int, total: int) -> int:
            steps.append((done, total))
            return progress(done, total)

        def give_buffer(nbytes: int) -> Bytes:
            written.append(out(nbytes))
            return written[-1]

        def keep(**arrays: NDArray[Any]) -> None:
            self._results.write(self._silo, task, {**arrays, "steps": np.array(steps, np.int64).reshape(-1, 2)})

        try:
            announcement = self._learner.train(task, model, give_buffer, hear_progress)
        except AnchorageError as error:
            keep(failure=_array(f"{error.code} {error.message}".encode()))
            raise
        update = {"update": written[-1]} if announcement.update is not None else {}
        keep(announcement=_array(encode_announcement(announcement)), **update)
        return announcement


def remember(learners: Learners, results: Results) -> Learners:
    """Return learners that calculate nothing twice."""
    return lambda silo: RememberedLearner(silo, learners(silo), results)


def _array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)
