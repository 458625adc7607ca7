"""The agent's end of the trainer's process."""

import json
import logging
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import CATALOGUE, AnchorageError, silo
from anchorage.engine.repeating import repetitions_of
from anchorage.transport.grpc.convert import decode_announcement, decode_evaluation, encode_task
from anchorage.transport.messages import Announcement, Evaluation, Task, TaskKind
from anchorage.transport.retry import RetryPolicy
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.surroundings import trainer_environment

COMMAND = (sys.executable, "-m", "anchorage_silo.trainer")
ATTEMPTS = 3
"""Times that one task is tried when the process is lost."""
RESTART = RetryPolicy(0.5, 30.0)
"""Pauses before a lost process is started again."""
LOOK_SECONDS = 0.2
"""How often a waiting train task looks whether it was withdrawn."""
GRACE_SECONDS = 30.0
"""Time that a train task has to stop when it was withdrawn, before its process is killed."""
LINE_BYTES = 4096

_OUTCOMES = (Kind.ANNOUNCEMENT, Kind.EVALUATION, Kind.FAILURE, Kind.CANCELLED)

_log = logging.getLogger(__name__)

Frame = tuple[Kind, bytes]
T = TypeVar("T")


class LostError(Exception):
    """The trainer's process ended."""


class _Child:
    """One process with the threads that read from it. A None in a queue says that it ended."""

    def __init__(self, command: Sequence[str], setup: bytes) -> None:
        pipe = subprocess.PIPE
        surroundings = trainer_environment(os.environ)
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=surroundings)
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise AssertionError("the pipes were asked for")
        self._stdin = stdin
        self._writer = FrameWriter(stdin)
        self._queues: dict[str, queue.SimpleQueue[Frame | None]] = {
            kind: queue.SimpleQueue() for kind in ("", *TaskKind)
        }
        self.lost = False
        self._readers = (
            threading.Thread(target=self._read_log, args=(stderr,), name="trainer-log", daemon=True),
            threading.Thread(target=self._read_frames, args=(stdout,), name="trainer-frames", daemon=True),
        )
        for reader in self._readers:
            reader.start()
        self.send(Kind.SETUP, setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, kind: Kind, content: bytes = b"") -> None:
        try:
            self._writer.write(kind, content)
        except (OSError, ValueError):  # ended, or closed at this end; the reader notices
            self.lost = True

    def receive(self, kind: str, timeout: float | None = None) -> Frame:
        """Wait for the next frame that belongs to a kind of task ('' for the set-up).

        Raises
        ------
        LostError
            The process ended.
        queue.Empty
            Nothing came in time.
        """
        frame = self._queues[kind].get(timeout=timeout)
        if frame is None:
            raise LostError(f"exit status {self._process.returncode}")
        return frame

    def stop_training(self) -> None:
        """Have the train task stop; kill the process where it does not."""
        self.send(Kind.CANCEL)
        try:
            while self.receive(TaskKind.TRAIN, GRACE_SECONDS)[0] not in _OUTCOMES:
                pass
        except queue.Empty:
            self.kill()
        except LostError:
            pass

    def kill(self) -> None:
        """End the process and its threads."""
        self.lost = True
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()

    def _read_frames(self, stdout: IO[bytes]) -> None:
        kinds = {Kind.READY: "", Kind.EVALUATION: TaskKind.EVALUATE}
        try:
            with stdout:
                while (frame := read_frame(stdout)) is not None:
                    kind = (
                        json.loads(frame[1])["kind"]
                        if frame[0] is Kind.FAILURE
                        else kinds.get(frame[0], TaskKind.TRAIN)
                    )
                    self._queues[kind].put(frame)
        finally:
            self.lost = True
            self._process.kill()
            self._process.wait()
            try:
                self._stdin.close()
            except OSError:
                _log.debug("the trainer did not read everything")
            for waiting in self._queues.values():
                waiting.put(None)

    def _read_log(self, stderr: IO[bytes]) -> None:
        with stderr:
            while line := stderr.readline(LINE_BYTES):
                _log.warning("trainer: %s", line.decode(errors="replace").rstrip())


class TrainerProcess:
    """A `SiloLearner` whose work is done by a process of its own, which is started again when it is lost.

    Parameters
    ----------
    setup : Setup
        What the process is told.
    command : sequence of str
        How it is started.
    """

    def __init__(self, setup: Setup, command: Sequence[str] = COMMAND) -> None:
        self._setup = json.dumps(vars(setup)).encode()
        stages = json.loads(setup.run).get("warmUp", ()) if setup.run else ()
        sizes = [(stage["last"], Layout.from_json(stage["up"]).nbytes) for stage in stages]
        self._update_bytes = [*sizes, (math.inf, Layout.from_json(setup.up).nbytes)]
        self._command = command
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._child: _Child | None = None
        self._losses = 0
        self._samples = 0

    @property
    def pid(self) -> int | None:
        """The process that works now."""
        return self._child.pid if self._child is not None else None

    def start(self) -> int:
        """Start the process and wait until it has read the images.

        Returns
        -------
        int
            Images that can be trained on.

        Raises
        ------
        AnchorageError
            The images cannot be used, or the process ends again and again.
        """
        return self._tried("set-up", lambda child: self._samples)

    def train(
        self,
        task: Task,
        model: NDArray[np.uint8],
        out: Callable[[int], NDArray[np.uint8]],
        progress: Callable[[int, int], int],
    ) -> Announcement:
        """Have the process train from ``model.bin`` into ``update.bin``; `model` and what `out` returns are these files.

        Raises
        ------
        AnchorageError
            The task failed, or the process was lost in every attempt.
        """
        out(repetitions_of(task) * next(nbytes for last, nbytes in self._update_bytes if task.round <= last))
        return self._tried(task.id, lambda child: self._train(child, task, progress))

    def evaluate(self, task: Task, model: NDArray[np.uint8]) -> Evaluation:
        """Have the process score the model in ``candidate.bin``, which is `model`.

        Raises
        ------
        AnchorageError
            The task failed, or the process was lost in every attempt.
        """

        def evaluate(child: _Child) -> Evaluation:
            child.send(Kind.TASK, encode_task(task))
            return decode_evaluation(_unless_failed(child.receive(TaskKind.EVALUATE)))

        return self._tried(task.id, evaluate)

    def close(self) -> None:
        """End the process; calls that wait for it fail."""
        self._closing.set()
        if self._child is not None:
            self._child.kill()

    def _train(self, child: _Child, task: Task, progress: Callable[[int, int], int]) -> Announcement:
        child.send(Kind.TASK, encode_task(task))
        done, total, told, working = 0, 0, 0, True
        try:
            while True:
                committed = progress(done, total)  # raises where the task was withdrawn
                if committed != told:
                    told = committed
                    child.send(Kind.STEPS, committed.to_bytes(8, "little"))
                try:
                    frame = child.receive(TaskKind.TRAIN, LOOK_SECONDS)
                except queue.Empty:
                    continue
                except LostError:
                    working = False
                    raise
                if frame[0] is Kind.PROGRESS:
                    steps = json.loads(frame[1])
                    done, total = steps["done"], steps["total"]
                else:
                    working = False
                    return decode_announcement(_unless_failed(frame))
        finally:
            if working:
                child.stop_training()

    def _tried(self, what: str, work: Callable[[_Child], T]) -> T:
        """Do `work` with a running process, again with a new one where it was lost."""
        lost = ""
        for _ in range(ATTEMPTS):
            try:
                result = work(self._running())
            except LostError as error:
                lost = str(error)
                if self._closing.is_set():
                    break
                self._losses += 1
                _log.warning("the trainer's process was lost in %s: %s", what, lost)
            else:
                self._losses = 0
                return result
        raise AnchorageError(
            silo.TRAINER_LOST, f"{what}: the trainer's process ended {ATTEMPTS} times, at last with {lost}"
        )

    def _running(self) -> _Child:
        """Return a process that is ready, started anew where the last one was lost."""
        with self._starting:
            if self._child is not None and not self._child.lost:
                return self._child
            if self._losses:
                self._closing.wait(RESTART.pause(self._losses))
            if self._closing.is_set():
                raise LostError("the agent ends")
            self._child = child = _Child(self._command, self._setup)
            if self._closing.is_set():  # `close` may have come before it could see this process
                child.kill()
            try:
                self._samples = int(json.loads(_unless_failed(child.receive("")))["samples"])
            except AnchorageError:
                child.kill()
                raise
            return child


def _unless_failed(frame: Frame) -> bytes:
    """Return a frame's content.

    Raises
    ------
    AnchorageError
        The frame tells of a failure.
    """
    kind, content = frame
    if kind is Kind.FAILURE:
        told = json.loads(content)
        raise AnchorageError(CATALOGUE[told["code"]], told["message"])
    return content
