"""The trainer process as the agent sees it: started, fed with tasks, restarted when it is lost."""

import json
import logging
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from anchorage.api import fork_server
from anchorage.api.base import Release
from anchorage.api.errors import CATALOGUE, AnchorageError, silo
from anchorage.api.text import printable
from anchorage.engine.repeating import repetitions_of
from anchorage.transport.grpc.convert import decode_announcement, decode_evaluation, encode_task
from anchorage.transport.messages import Announcement, Bytes, Evaluation, Out, Progress, Task, TaskKind
from anchorage.transport.retry import RetryPolicy
from anchorage.transport.tensors.layout import Layout
from anchorage_silo.confinement import Grants
from anchorage_silo.files import make_trainer_folder
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.kept_output import LINE_BYTES, keep_output, output_file
from anchorage_silo.trainer_environment import trainer_environment

COMMAND = (sys.executable, "-m", "anchorage_silo.trainer")
ATTEMPTS = 3
"""Number of attempts at one task if the process is lost."""
RESTART = RetryPolicy(0.5, 30.0)
"""Pauses before a lost process is started again."""
POLL_SECONDS = 0.2
"""Interval at which a running train task checks whether it was withdrawn."""
CANCEL_GRACE_SECONDS = 30.0
"""Time for a withdrawn train task to stop before its process is killed."""

_OUTCOMES = (Kind.ANNOUNCEMENT, Kind.EVALUATION, Kind.FAILURE, Kind.CANCELLED)

_log = logging.getLogger(__name__)

Frame = tuple[Kind, bytes]
T = TypeVar("T")


class TrainerLostError(Exception):
    """The trainer process ended unexpectedly."""


class _TrainerChild:
    """One trainer process and the threads that read its output. None in a queue marks the end of the process."""

    def __init__(self, command: Sequence[str], setup: bytes, environment: Mapping[str, str], state: Path) -> None:
        pipe = subprocess.PIPE
        number = fork_server.inherited_socket()
        self._process = subprocess.Popen(
            fork_server.asking(command, number),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            pass_fds=() if number is None else (number,),
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise AssertionError("Popen returned no pipes")
        self._stdin = stdin
        self._writer = FrameWriter(stdin)
        self._queues: dict[str, queue.SimpleQueue[Frame | None]] = {
            kind: queue.SimpleQueue() for kind in ("", *TaskKind)
        }
        self.lost = False
        self._readers = (
            threading.Thread(target=keep_output, args=(stderr, state), name="trainer-output", daemon=True),
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
        except (OSError, ValueError):  # the process ended or the pipe is closed; the reader thread handles it
            self.lost = True

    def receive(self, kind: str, timeout: float | None = None) -> Frame:
        """Wait for the next frame of a kind of task ('' for the set-up).

        Raises
        ------
        TrainerLostError
            The process ended.
        queue.Empty
            No frame arrived within `timeout` seconds.
        """
        frame = self._queues[kind].get(timeout=timeout)
        if frame is None:
            raise TrainerLostError(f"exit status {self._process.returncode}")
        return frame

    def stop_training(self) -> None:
        """Cancel the train task; kill the process if it does not stop in time."""
        self.send(Kind.CANCEL)
        try:
            while self.receive(TaskKind.TRAIN, CANCEL_GRACE_SECONDS)[0] not in _OUTCOMES:
                pass
        except queue.Empty:
            self.kill()
        except TrainerLostError:
            pass

    def kill(self) -> None:
        """Kill the process and join its threads."""
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
                    if frame[0] is Kind.LOG:
                        _log_line(frame[1])
                        continue
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
                _log.debug("the trainer had not read all frames")
            for waiting in self._queues.values():
                waiting.put(None)


class TrainerProcess:
    """A `SiloLearner` that trains in a separate process and restarts the process when it is lost.

    Parameters
    ----------
    setup : Setup
        Settings of the process.
    command : sequence of str
        The process.
    release : str
        BetweenRounds ends the process, and so frees its device and memory, whenever no task is at hand; nothing that a later task needs is
        in the process alone, as after its loss.
    grants : Grants or None
        What the process may touch beside the system; None confines it to nothing.
    """

    def __init__(
        self,
        setup: Setup,
        command: Sequence[str] = COMMAND,
        release: Release = "Never",
        grants: Grants | None = None,
    ) -> None:
        self._state = Path(setup.plain["state"])
        make_trainer_folder(self._state)
        self._setup = setup.to_json()
        run = json.loads(setup.run)
        sizes = [(stage["last"], Layout.from_json(stage["up"]).nbytes) for stage in run.get("warmUp", ())]
        self._update_bytes = [*sizes, (math.inf, Layout.from_json(run["up"]).nbytes)]
        self._command = command if grants is None else grants.command(command)
        self._environment = trainer_environment(os.environ) if grants is None else os.environ
        self._release = release
        self._at_hand = 0
        self._counting = threading.Lock()
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._child: _TrainerChild | None = None
        self._losses = 0
        self._ready: tuple[int, str] = 0, ""

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        child = self._child
        return child.pid if child is not None else None

    def start(self) -> tuple[int, str]:
        """Start the process and wait until it has read the images.

        Returns
        -------
        tuple of int and str
            Number of images available for training, and their fingerprint.

        Raises
        ------
        AnchorageError
            The images are unusable, or the process was lost in every attempt.
        """
        return self._with_retries("set-up", lambda child: self._ready)

    def train(self, task: Task, model: Bytes, out: Out, progress: Progress) -> Announcement:
        """Train in the process from ``model.bin`` into ``update.bin``, the files behind `model` and `out`.

        Raises
        ------
        AnchorageError
            The task failed, or the process was lost in every attempt.
        """
        out(repetitions_of(task) * next(nbytes for last, nbytes in self._update_bytes if task.round <= last))
        return self._with_retries(task.id, lambda child: self._train(child, task, progress))

    def evaluate(self, task: Task, model: Bytes) -> Evaluation:
        """Evaluate in the process the model in ``candidate.bin``, the file behind `model`.

        Raises
        ------
        AnchorageError
            The task failed, or the process was lost in every attempt.
        """

        def evaluate(child: _TrainerChild) -> Evaluation:
            child.send(Kind.TASK, encode_task(task))
            return decode_evaluation(_content_of(child.receive(TaskKind.EVALUATE)))

        return self._with_retries(task.id, evaluate)

    def close(self) -> None:
        """Kill the process; waiting calls fail."""
        self._closing.set()
        child = self._child
        if child is not None:
            child.kill()

    def _train(self, child: _TrainerChild, task: Task, progress: Callable[[int, int], int]) -> Announcement:
        child.send(Kind.TASK, encode_task(task))
        done, total, reported, working = 0, 0, 0, True
        try:
            while True:
                committed = progress(done, total)  # raises if the task was withdrawn
                if committed != reported:
                    reported = committed
                    child.send(Kind.STEPS, committed.to_bytes(8, "little"))
                try:
                    frame = child.receive(TaskKind.TRAIN, POLL_SECONDS)
                except queue.Empty:
                    continue
                except TrainerLostError:
                    working = False
                    raise
                if frame[0] is Kind.PROGRESS:
                    steps = json.loads(frame[1])
                    done, total = steps["done"], steps["total"]
                else:
                    working = False
                    return decode_announcement(_content_of(frame))
        finally:
            if working:
                child.stop_training()

    def _with_retries(self, what: str, work: Callable[[_TrainerChild], T]) -> T:
        """Call `work` with a running process; repeat with a new process if it is lost."""
        lost = ""
        with self._work_at_hand():
            for _ in range(ATTEMPTS):
                try:
                    result = work(self._running_child())
                except TrainerLostError as error:
                    lost = str(error)
                    if self._closing.is_set():
                        break
                    self._losses += 1
                    printed = output_file(self._state)
                    _log.warning(
                        "the trainer process was lost during %s: %s; %s has what it printed", what, lost, printed
                    )
                else:
                    self._losses = 0
                    return result
        raise AnchorageError(silo.TRAINER_LOST, f"{what}: the trainer process ended {ATTEMPTS} times, last with {lost}")

    @contextmanager
    def _work_at_hand(self) -> Iterator[None]:
        """Count the work; end the process after the last one where it is released between rounds."""
        with self._counting:
            self._at_hand += 1
        try:
            yield
        finally:
            with self._counting:
                self._at_hand -= 1
                if self._release == "BetweenRounds" and not self._at_hand and self._child is not None:
                    self._child.kill()
                    self._child = None
                    _log.info("no task is at hand: the trainer process has ended")

    def _running_child(self) -> _TrainerChild:
        """Return a process that is ready; start a new one if the last one was lost."""
        with self._starting:
            if self._child is not None and not self._child.lost:
                return self._child
            if self._losses:
                self._closing.wait(RESTART.pause(self._losses))
            if self._closing.is_set():
                raise TrainerLostError("the agent is closing")
            self._child = child = _TrainerChild(self._command, self._setup, self._environment, self._state)
            if self._closing.is_set():  # `close` may have run before this process was visible to it
                child.kill()
            try:
                ready = json.loads(_content_of(child.receive("")))
                self._ready = int(ready["samples"]), str(ready["fingerprint"])
            except AnchorageError:
                child.kill()
                raise
            return child


def _log_line(content: bytes) -> None:
    """Log what the trainer process says."""
    record = json.loads(content)
    _log.log(int(record["level"]), "trainer: %s", printable(str(record["message"])[:LINE_BYTES]))


def _content_of(frame: Frame) -> bytes:
    """Return a frame's content.

    Raises
    ------
    AnchorageError
        The frame reports a failure.
    """
    kind, content = frame
    if kind is Kind.FAILURE:
        failure = json.loads(content)
        raise AnchorageError(CATALOGUE[failure["code"]], failure["message"])
    return content
