"""The process of a silo's further device: ``python -m anchorage_silo.further_device RANK``, started by the trainer process.

It reads the same images, is given the same train tasks, and takes the same steps on its part of every batch. It answers nothing but failures and
lines for the log, keeps nothing, and ends when the trainer process ends.
"""

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.convert import decode_task
from anchorage.transport.messages import Task, TaskKind
from anchorage_silo.files import MODEL_FILES, map_existing
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame
from anchorage_silo.protection import Protection
from anchorage_silo.redaction import log_to_agent
from anchorage_silo.trainer import build_learner, exit_on_exception, report_failure

if TYPE_CHECKING:
    from anchorage.engine.interfaces import SiloLearner


class FurtherDevice:
    """Executes the trainer's frames from `stream`; their end means that it has ended.

    Parameters
    ----------
    stream : IO of bytes
        Frames of the trainer process.
    writer : FrameWriter
        For failures and the log.
    rank : int
        Which device, from 1.
    """

    def __init__(self, stream: IO[bytes], writer: FrameWriter, rank: int) -> None:
        self._stream, self._writer, self._rank = stream, writer, rank
        self._state = Path()
        self._learner: SiloLearner

    def serve(self) -> None:
        """Execute frames until the trainer process ends."""
        training = ThreadPoolExecutor(1)
        while (frame := read_frame(self._stream)) is not None:
            training.submit(self._execute, *frame).add_done_callback(partial(exit_on_exception, self._writer))

    def _execute(self, kind: Kind, content: bytes) -> None:
        what = ""
        try:
            if kind is Kind.SETUP:
                setup = replace(Setup.from_json(content), protection=Protection())  # the update is not its own
                self._state = setup.folder
                self._learner = build_learner(setup, self._rank)[0]
            else:
                what = TaskKind.TRAIN
                self._train(decode_task(content))
        except AnchorageError as error:
            report_failure(self._writer, what, error)
            os._exit(1)

    def _train(self, task: Task) -> None:
        model = map_existing(self._state / MODEL_FILES[TaskKind.TRAIN], task.model.nbytes, writable=False)
        self._learner.train(task, model, _no_update, lambda done, total: 0)


def _no_update(nbytes: int) -> NDArray[np.uint8]:
    raise AssertionError("the update is the first device's")


def main() -> None:
    """Serve frames on the standard streams; other output goes to standard error, which the trainer shares."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    frames = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with os.fdopen(frames, "wb") as stream:
        writer = FrameWriter(stream)
        log_to_agent(writer)
        FurtherDevice(sys.stdin.buffer, writer, int(sys.argv[1])).serve()
        os._exit(0)


if __name__ == "__main__":
    main()
