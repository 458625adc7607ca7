"""A trainer's process whose learner dies, hangs or fails as the task's auxiliary data asks: ``python trainer_double.py MARKER``.

The auxiliary data holds one array whose name says what to do. ``die`` kills the process once (the file MARKER remembers), ``die-always`` each
time, ``fail`` fails with a code, ``hang`` never answers, ``slow`` steps until it is stopped, ``hear`` until 40 steps are committed.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from anchorage_silo import trainer
from anchorage_silo.frames import Setup
from anchorage_silo.null_learner import NullLearner

MARKER = Path(sys.argv[1])


class Moody(NullLearner):
    def train(self, task, model, out, progress):  # type: ignore[no-untyped-def]
        match next(iter(task.auxiliary_data), ""):
            case "die-always":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die" if not MARKER.exists():
                MARKER.touch()
                out(model.nbytes)[:] = 255
                os.kill(os.getpid(), signal.SIGKILL)
            case "raise":
                raise ZeroDivisionError("a defect")
            case "fail":
                raise AnchorageError(IMAGES_UNLABELLED, "as the test asks")
            case "hang":
                threading.Event().wait()
            case "slow":
                sys.stdout.write("printed by a library\n")
                for step in range(10**9):
                    progress(step % 100, 100)
            case "hear":
                while progress(1, 100) < 40:
                    time.sleep(0.001)
        return super().train(task, model, out, progress)


def build(setup: Setup) -> tuple[NullLearner, int, None]:
    if setup.plain["labels"] == "All":
        raise AnchorageError(IMAGES_UNLABELLED, "no images")
    learner, samples, fingerprint = build_learner(setup)
    learner.__class__ = Moody
    return learner, samples, fingerprint  # type: ignore[return-value]


build_learner = trainer.build_learner
trainer.build_learner = build  # type: ignore[assignment]
trainer.main()
