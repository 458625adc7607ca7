"""The trainer's process: ``python -m anchorage_silo.trainer``, started by the agent and ended with it.

It reads the images once, then trains in one thread and evaluates in another, from and into files that the agent maps too. A failure of the
catalogue is told to the agent; any other exception ends the process, and the agent starts it anew.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.convert import decode_task, encode_announcement, encode_evaluation
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.files import MODEL_FILES, UPDATE_FILE, attach
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.null import NullLearner
from anchorage_silo.privacy import PrivateLearner

if TYPE_CHECKING:  # pydantic, the engine and torch are no part of a null trainer's process
    from anchorage.api.run import RunDescription
    from anchorage.engine.interfaces import SiloLearner
    from anchorage.learning.data import ImageSet


T = TypeVar("T")


class StoppedError(Exception):
    """The agent asked to stop the train task."""


class Trainer:
    """Does what the agent's frames ask.

    Parameters
    ----------
    stream : binary file
        Frames from the agent; its end means that the agent is gone.
    writer : FrameWriter
        Frames to the agent.
    """

    def __init__(self, stream: IO[bytes], writer: FrameWriter) -> None:
        self._stream = stream
        self._writer = writer
        self._threads = {kind: ThreadPoolExecutor(1, thread_name_prefix=kind) for kind in TaskKind}
        self._stop = threading.Event()
        self._percent = -1
        self._committed_steps = 0
        self._mapped: dict[str, NDArray[np.uint8]] = {}
        self._state = Path()
        self._learner: SiloLearner

    def serve(self) -> None:
        """Work until the agent is gone."""
        while (frame := read_frame(self._stream)) is not None:
            match frame:
                case (Kind.SETUP, content):
                    self._submit(TaskKind.TRAIN, self._set_up, Setup(**json.loads(content)))
                case (Kind.TASK, content):
                    task = decode_task(content)
                    if task.kind is TaskKind.TRAIN:
                        self._stop.clear()
                    self._submit(task.kind, self._work, task)
                case (Kind.CANCEL, _):
                    self._stop.set()
                case (Kind.STEPS, content):
                    self._committed_steps = int.from_bytes(content, "little")

    def _submit(self, kind: TaskKind, job: Callable[[T], None], what: T) -> None:
        self._threads[kind].submit(job, what).add_done_callback(_end_on_fault)

    def _set_up(self, setup: Setup) -> None:
        try:
            self._state = Path(setup.state)
            self._learner, samples = build_learner(setup)
        except AnchorageError as error:
            self._tell("", error)
        else:
            self._writer.write_json(Kind.READY, samples=samples)

    def _work(self, task: Task) -> None:
        try:
            model = self._attached(MODEL_FILES[task.kind], task.model.nbytes, writable=False)
            if task.kind is TaskKind.TRAIN:
                self._percent = -1
                announcement = self._learner.train(task, model, self._out, self._progress)
                self._writer.write(Kind.ANNOUNCEMENT, encode_announcement(announcement))
            else:
                self._writer.write(Kind.EVALUATION, encode_evaluation(self._learner.evaluate(task, model)))
        except StoppedError:
            self._writer.write(Kind.CANCELLED)
        except AnchorageError as error:
            self._tell(task.kind, error)

    def _tell(self, kind: str, error: AnchorageError) -> None:
        self._writer.write_json(Kind.FAILURE, kind=kind, code=error.code, message=error.message)

    def _out(self, nbytes: int) -> NDArray[np.uint8]:
        return self._attached(UPDATE_FILE, nbytes, writable=True)

    def _attached(self, name: str, nbytes: int, *, writable: bool) -> NDArray[np.uint8]:
        """Map a file of the state folder, or return the mapping of the task before, shape [nbytes]."""
        mapped = self._mapped.get(name)
        if mapped is None or mapped.nbytes != nbytes:
            mapped = self._mapped[name] = attach(self._state / name, nbytes, writable=writable)
        return mapped

    def _progress(self, done: int, total: int) -> int:
        if self._stop.is_set():
            raise StoppedError
        percent = 100 * done // max(total, 1)
        if percent != self._percent:
            self._percent = percent
            self._writer.write_json(Kind.PROGRESS, done=done, total=total)
        return self._committed_steps


def build_learner(setup: Setup) -> "tuple[SiloLearner, int]":
    """Read the images and build the learner that the configuration asks for.

    Returns
    -------
    tuple of SiloLearner and int
        The learner and the number of images that can be trained on.

    Raises
    ------
    AnchorageError
        The images cannot be used.
    """
    trainer = json.loads(setup.trainer)
    if trainer["type"] == "Null":
        return _null(setup, float(trainer["step"]), trainer["samples"]), trainer["samples"]
    from anchorage.api.run import RunDescription
    from anchorage.engine.stages import staged

    images = read_images(setup)

    def build(run: RunDescription) -> "SiloLearner":
        learner = _build_silo_learner(setup, run, images)
        return _private(setup, learner, Layout.from_json(run.down), Layout.from_json(run.up))

    return staged(RunDescription.model_validate_json(setup.run), build), len(images.ids)


def _null(setup: Setup, step: float, samples: int) -> "SiloLearner":
    """Return the null trainer, of every stage's layouts where the run has a warm-up; it trains as often as a task says."""

    def build(run: "RunDescription | Setup") -> "SiloLearner":
        down, up = Layout.from_json(run.down), Layout.from_json(run.up)
        return _private(setup, NullLearner(down, up, step, samples), down, up)

    run = json.loads(setup.run)
    if not run.get("warmUp") and run.get("method", {}).get("weighting", {}).get("type") != "SubConsensus":
        return build(setup)
    from anchorage.api.run import RunDescription
    from anchorage.engine.stages import staged

    return staged(RunDescription.model_validate_json(setup.run), build)


def _private(setup: Setup, learner: "SiloLearner", down: Layout, up: Layout) -> "SiloLearner":
    """Return the learner with what the policy asks to be done to its updates."""
    if setup.clip_norm is None and setup.noise_std is None:
        return learner
    return PrivateLearner(
        learner, down, up, clip_norm=setup.clip_norm, noise_std=setup.noise_std, noise_seed=setup.noise_seed
    )


def read_images(setup: Setup) -> "ImageSet":
    """Read the silo's images once; they stay decoded in memory.

    Raises
    ------
    AnchorageError
        They cannot be read, there are none, or they lack the labels that the silo is said to have.
    """
    from anchorage.api.data import DataSection
    from anchorage.api.run import RunDescription
    from anchorage.methods.study import read_images as read_section

    run = RunDescription.model_validate_json(setup.run)
    images = read_section(DataSection.model_validate_json(setup.data), Path(setup.data_root), run.model, run.seed)
    return images.as_said(setup.labels, setup.silo)


def _build_silo_learner(setup: Setup, run: "RunDescription", images: "ImageSet") -> "SiloLearner":
    from anchorage.learning.learners import build_silo_learner

    state = Path(setup.state, "learner")
    state.mkdir(exist_ok=True)
    return build_silo_learner(
        run=run, silo=setup.silo, labels=setup.labels, images=images, state=state, device=setup.device
    )


def _end_on_fault(done: "Future[None]") -> None:
    """End the process with a traceback for the agent's log: what a thread let through is a defect or the loss of a device."""
    fault = done.exception()
    if fault is not None:
        traceback.print_exception(fault)
        sys.stderr.flush()
        os._exit(70)


def main() -> None:
    """Serve frames on the standard streams; whatever else is printed goes to the agent's log."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the agent decides what becomes of this process
    frames = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with os.fdopen(frames, "wb") as stream:
        Trainer(sys.stdin.buffer, FrameWriter(stream)).serve()
        os._exit(0)  # whatever the threads do: the agent is gone


if __name__ == "__main__":
    main()
