"""The trainer process: ``python -m anchorage_silo.trainer``, started and ended by the agent.

It reads the images once, then trains in one thread and evaluates in another. Models and updates are in files that the agent also maps. A catalogued
failure is reported to the agent; any other exception ends the process, and the agent starts a new one.
"""

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import IMAGES_EXCEED_MEMORY
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.imports import import_large
from anchorage.transport.grpc.convert import decode_task, encode_announcement, encode_evaluation
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.files import (
    IMAGES_FILE,
    LEARNER_FOLDER,
    MODEL_FILES,
    UPDATE_FILE,
    forget_pictures,
    map_allocated,
    map_existing,
    pictures_folder,
    state_unusable,
)
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.further_devices import RENDEZVOUS_FILE, FurtherDevices
from anchorage_silo.null_learner import NullLearner
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.redaction import log_to_agent, redacted_message, report_exception
from anchorage_silo.usage import MeasuredLearner

if TYPE_CHECKING:  # a null trainer imports neither pydantic nor the engine nor torch
    from anchorage.api.run import RunDescription
    from anchorage.engine.interfaces import SiloLearner
    from anchorage.learning.data import ImageSet
    from anchorage.learning.data.fingerprints import Fingerprint
    from anchorage.learning.data.picture_store import PictureStore
    from anchorage.learning.data.pseudonyms import Pseudonyms
    from anchorage.learning.device_group import DeviceGroup
    from anchorage_silo.config import SiloConfig

NO_POLICY = "{}"
"""A policy that states nothing."""

T = TypeVar("T")


class StoppedError(Exception):
    """The agent cancelled the train task."""


class Trainer:
    """Executes the agent's frames from `stream` and answers through `writer`; the end of `stream` means that the agent has ended."""

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
        self._fingerprint: Fingerprint | None = None
        self._further = FurtherDevices(writer)

    def serve(self) -> None:
        """Execute frames until the agent ends."""
        while (frame := read_frame(self._stream)) is not None:
            match frame:
                case (Kind.SETUP, content):
                    self._submit(TaskKind.TRAIN, self._set_up, Setup.from_json(content))
                case (Kind.TASK, content):
                    task = decode_task(content)
                    if task.kind is TaskKind.TRAIN:
                        self._stop.clear()
                        self._further.send(Kind.TASK, content)
                    self._submit(task.kind, self._work, task)
                case (Kind.CANCEL, _):
                    self._stop.set()
                case (Kind.STEPS, content):
                    self._committed_steps = int.from_bytes(content, "little")

    def _submit(self, kind: TaskKind, job: Callable[[T], None], what: T) -> None:
        self._threads[kind].submit(job, what).add_done_callback(partial(exit_on_exception, self._writer))

    def _set_up(self, setup: Setup) -> None:
        try:
            self._state = setup.folder
            self._further.start(setup)
            learner, samples, self._fingerprint = build_learner(setup)
            self._learner = MeasuredLearner(learner) if _is_usage_reported(setup) else learner
        except AnchorageError as error:
            report_failure(self._writer, "", error)
        else:
            digest = self._fingerprint.digest if self._fingerprint else ""
            self._writer.write_json(Kind.READY, samples=samples, fingerprint=digest)

    def _work(self, task: Task) -> None:
        try:
            model = self._mapped_file(MODEL_FILES[task.kind], task.model.nbytes, writable=False)
            if task.kind is TaskKind.TRAIN:
                self._percent = -1
                self._note_images()
                announcement = self._learner.train(task, model, self._update_buffer, self._report_progress)
                self._writer.write(Kind.ANNOUNCEMENT, encode_announcement(announcement))
            else:
                self._writer.write(Kind.EVALUATION, encode_evaluation(self._learner.evaluate(task, model)))
        except StoppedError:
            self._writer.write(Kind.CANCELLED)
            self._further.end_with_training()
        except AnchorageError as error:
            report_failure(self._writer, task.kind, error)
            if task.kind is TaskKind.TRAIN:
                self._further.end_with_training()

    def _note_images(self) -> None:
        """Keep what the images are when training begins."""
        if self._fingerprint is not None:
            file = self._state / IMAGES_FILE
            try:
                self._fingerprint.keep(file)
            except OSError as error:
                raise state_unusable(file, error) from error
            self._fingerprint = None

    def _update_buffer(self, nbytes: int) -> NDArray[np.uint8]:
        """Map the update's file, shape [nbytes]; made longer or shorter where large auxiliary data comes behind the update or no longer does."""
        path = self._state / UPDATE_FILE
        if not path.exists() or path.stat().st_size != nbytes:
            self._mapped[UPDATE_FILE] = map_allocated(path, nbytes)
        return self._mapped_file(UPDATE_FILE, nbytes, writable=True)

    def _mapped_file(self, name: str, nbytes: int, *, writable: bool) -> NDArray[np.uint8]:
        """Map a file of the state folder, or return the existing mapping, shape [nbytes]."""
        mapped = self._mapped.get(name)
        if mapped is None or mapped.nbytes != nbytes:
            mapped = self._mapped[name] = map_existing(self._state / name, nbytes, writable=writable)
        return mapped

    def _report_progress(self, done: int, total: int) -> int:
        if self._stop.is_set():
            raise StoppedError
        percent = 100 * done // max(total, 1)
        if percent != self._percent:
            self._percent = percent
            self._writer.write_json(Kind.PROGRESS, done=done, total=total)
        return self._committed_steps


def build_learner(setup: Setup, rank: int = 0) -> "tuple[SiloLearner, int, Fingerprint | None]":
    """Read the images and build the configured learner; with several devices wait for the process of each.

    Parameters
    ----------
    setup : Setup
        Settings of the process.
    rank : int
        Which of the silo's devices this process trains on, from 0.

    Returns
    -------
    tuple of SiloLearner, int, and Fingerprint or None
        The learner, the number of images available for training, and what they are; a null learner has none.

    Raises
    ------
    AnchorageError
        The images are unusable.
    """
    if not setup.trains:
        trainer = setup.plain["trainer"]
        return _null_learner(setup, float(trainer["step"]), trainer["samples"]), trainer["samples"], None
    import_large("anchorage.learning.learners")
    from anchorage.api.run import RunDescription
    from anchorage.engine.stages import stage_learner
    from anchorage.learning.data.fingerprints import Fingerprint
    from anchorage_silo.config import SiloConfig
    from anchorage_silo.wrong_documents import told_in_one_line

    with told_in_one_line():
        run, config = RunDescription.model_validate_json(setup.run), SiloConfig.model_validate_json(setup.config)
    images = _named_images(setup, config, run, keep=not rank)
    fingerprint = Fingerprint.of(images, bytes.fromhex(run.data_key))
    if config.data is not None and config.data.on_change == "Refuse":
        remedy = "restore them, or set onChange: Allow in its data section"
        fingerprint.compare(setup.folder / IMAGES_FILE, f"the images of silo {config.silo}", remedy=remedy)
    devices = _devices(setup, config, rank)

    def build(run: RunDescription) -> "SiloLearner":
        learner = _build_silo_learner(setup, config, run, images, devices)
        return _with_protection(setup, learner, Layout.from_json(run.down), Layout.from_json(run.up))

    return stage_learner(run, build), len(images.ids), fingerprint


def _is_usage_reported(setup: Setup) -> bool:
    """Return whether the policy lets the server learn what training uses."""
    if setup.policy == NO_POLICY:
        return False
    from anchorage_silo.policy import Policy

    return Policy.model_validate_json(setup.policy).system_metrics


def _null_learner(setup: Setup, step: float, samples: int) -> "SiloLearner":
    """Build the null learner; with a warm-up or repeated training, one per stage with the layouts of that stage."""

    def build(down: str, up: str) -> "SiloLearner":
        layouts = Layout.from_json(down), Layout.from_json(up)
        return _with_protection(setup, NullLearner(*layouts, step, samples), *layouts)

    run = json.loads(setup.run)
    weighting = run.get("method", {}).get("weighting", {})  # read plainly: needs no pydantic
    if not run.get("warmUp") and not weighting.keys() & {"subConsensus", "plugin"}:
        return build(run["down"], run["up"])
    from anchorage.api.run import RunDescription
    from anchorage.engine.stages import stage_learner

    return stage_learner(RunDescription.model_validate_json(setup.run), lambda stage: build(stage.down, stage.up))


def _with_protection(setup: Setup, learner: "SiloLearner", down: Layout, up: Layout) -> "SiloLearner":
    """Wrap the learner with what is done to its updates before they leave."""
    return PrivateLearner(learner, down, up, setup.protection) if setup.protection.changes_updates else learner


def store_of(setup: Setup) -> "PictureStore | None":
    """Return where decoded images are stored that are too many for memory; None, and nothing is left there, where the policy forbids it."""
    from anchorage.learning.data.picture_store import PictureStore
    from anchorage_silo.policy import Policy

    state = Path(setup.plain["state"])
    if Policy.model_validate_json(setup.policy).store_pictures:
        return PictureStore(pictures_folder(state))
    forget_pictures(state)
    return None


def _named_images(setup: Setup, config: "SiloConfig", run: "RunDescription", *, keep: bool) -> "ImageSet":
    """Read the silo's images, and where asked keep what the fingerprints stand for by which they are called.

    Raises
    ------
    AnchorageError
        As `read_images`, or the trainer's folder is not writable.
    """
    from anchorage.learning.data.pseudonyms import Pseudonyms
    from anchorage_silo.known_images import image_key, keep_known_images

    pseudonyms = Pseudonyms(image_key(setup.folder))
    try:
        return read_images(config, run, store_of(setup), pseudonyms)
    except AnchorageError as error:
        pseudonyms.remarks.append(str(error))
        raise
    finally:
        if keep:
            keep_known_images(setup.folder, pseudonyms)


def read_images(
    config: "SiloConfig", run: "RunDescription", store: "PictureStore | None", pseudonyms: "Pseudonyms"
) -> "ImageSet":
    """Read the silo's images, under pseudonyms; decoded, they stay in memory, or where they are many, in `store`.

    Raises
    ------
    AnchorageError
        The images are unreadable, there are none, they lack labels that the configuration declares, or the federation is scored on some.
        IMAGES_EXCEED_MEMORY: they are volumes, and may not be stored.
    """
    from anchorage.learning.data import read
    from anchorage.learning.data.held_out import trainable

    if config.data is None:
        raise AssertionError("a configuration without images trains nothing")
    if run.model.volume is not None and store is None:
        detail = "volumes are learnt from the agent's disk, but the policy has storePictures: false"
        remedy = "allow it, or leave this federation"
        raise AnchorageError(IMAGES_EXCEED_MEMORY, f"{detail}; {remedy}", redacted=f"{detail}; {remedy}")
    labelled = config.labels != "None"
    images, _ = read(
        config.data, config.data_root, run.model, run.seed, labelled=labelled, store=store, pseudonyms=pseudonyms
    )
    return trainable(images, config.labels, config.silo, run, pseudonyms).rename(pseudonyms.digest)


def _devices(setup: Setup, config: "SiloConfig", rank: int) -> "DeviceGroup":
    from anchorage.learning.device_group import DeviceGroup

    return DeviceGroup.join(rank, setup.devices, setup.folder / RENDEZVOUS_FILE, config.device)


def _build_silo_learner(
    setup: Setup, config: "SiloConfig", run: "RunDescription", images: "ImageSet", devices: "DeviceGroup"
) -> "SiloLearner":
    from anchorage.learning.device import use_threads
    from anchorage.learning.dp_sgd import DpSgd
    from anchorage.learning.learners import Checkpointing, build_silo_learner
    from anchorage_silo.policy import Policy

    use_threads(config.threads)
    state = setup.folder / LEARNER_FOLDER
    state.mkdir(parents=True, exist_ok=True)
    budget = Policy.model_validate_json(setup.policy).privacy_budget
    image = budget.dp_sgd if budget is not None else None
    return build_silo_learner(
        run=run,
        silo=config.silo,
        labels=config.labels,
        images=images,
        state=state,
        device=config.device,
        dp_sgd=DpSgd(float(image.clip_norm), float(image.noise_multiplier)) if image is not None else None,
        checkpointing=Checkpointing() if devices.leads else Checkpointing(math.inf),
        devices=devices,
    )


def report_failure(writer: FrameWriter, kind: str, error: AnchorageError) -> None:
    """Send the agent a failure of a kind of task ('' for the set-up), without what may tell of images; print it whole."""
    if error.failure is PIECE_WRONG and error.__cause__ is not None:
        report_exception(error, writer)
    message = redacted_message(error)
    if message != error.message:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
    writer.write_json(Kind.FAILURE, kind=kind, code=error.code, message=message)


def exit_on_exception(writer: FrameWriter, finished: "Future[None]") -> None:
    """Exit where a job ended by an uncaught exception, a defect or the loss of a device, and send the agent its places for the log."""
    error = finished.exception()
    if error is not None:
        report_exception(error, writer)
        os._exit(70)


def main() -> None:
    """Serve frames on the standard streams; other output goes to standard error, which the agent keeps in a file of its state folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the agent ends this process
    frames = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with os.fdopen(frames, "wb") as stream:
        writer = FrameWriter(stream)
        log_to_agent(writer)
        Trainer(sys.stdin.buffer, writer).serve()
        os._exit(0)  # without waiting for threads: the agent has ended


if __name__ == "__main__":
    main()
