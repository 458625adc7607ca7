"""Tracks simulated seeds in MLflow: one run per seed, as for a federation's server."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine.events import Observer
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.tracking import Outbox, Sender, TrackedRun
from fedctl.processes import InterruptError
from fedctl.view import View
from fedctl.workdir import Workdir
from fedctl.writing import writing

LEAVE_SECONDS = 10.0
"""How long a seed that failed or was interrupted waits for MLflow; another one waits as long as that makes progress."""

INTERNAL = "internal"
"""What stands for the code of a failure that is not in the catalogue."""


class SeedTracking:
    """Sends seeds to MLflow. What MLflow does not accept stays in the folder and is sent at the next start.

    Parameters
    ----------
    folder : Path
        Gets a folder of events per seed, until they are sent.
    uri : str
        MLflow tracking URI.
    view : View
        Told what could not be sent.
    """

    def __init__(self, folder: Path, uri: str, view: View) -> None:
        self._folder, self.uri, self._view = folder, uri, view
        self.unsent: list[AnchorageError] = []
        """What MLflow does not have of the seeds that are finished."""

    @contextmanager
    def seed(self, study: Study, run: RunDescription, history: Sequence[RoundRecord]) -> Iterator[Observer]:
        """Yield the observer that records a seed's rounds, and send them until the block ends.

        Raises
        ------
        AnchorageError
            The folder cannot be written.
        """
        folder = self._folder / str(study.federation.spec.seed)
        with writing(folder):
            outbox = Outbox(folder)
        tracked = TrackedRun.of(outbox, study.federation, run.method, study.to_yaml())
        tracked.catch_up(history)
        sender, code = Sender(folder, self.uri), INTERNAL
        try:
            yield tracked
            code = ""
        except AnchorageError as error:
            code = error.code
            raise
        except InterruptError:
            code = STOPPED.code
            raise
        finally:
            tracked.finish(code, None)
            self._send(folder, sender, LEAVE_SECONDS if code else math.inf, keep=bool(code))
            outbox.close()

    def send_rest(self, seed: int) -> None:
        """Send the remaining records of a finished seed."""
        folder = self._folder / str(seed)
        if folder.exists():
            self._send(folder, Sender(folder, self.uri), math.inf, keep=False)

    def _send(self, folder: Path, sender: Sender, at_most_seconds: float, *, keep: bool) -> None:
        """Wait until everything is sent; the folder is removed then, unless its seed goes on."""
        self._view.say("sending the results to MLflow")
        missing = sender.finish(at_most_seconds=at_most_seconds).missing
        if missing is not None and not keep:
            self.unsent.append(missing)
        if missing is not None and missing.failure is TRACKING_UNREACHABLE:
            self._view.say(f"{missing}; the same command sends the rest")
        elif not keep:
            rmtree(folder, ignore_errors=True)


def tracking_of(study: Study, run: Workdir, wanted: bool | None, view: View) -> SeedTracking | None:
    """Return the sender of seeds to MLflow; None if tracking is off.

    Parameters
    ----------
    study : Study
        Names the tracking URI; without one, results go to an SQLite file in the working folder.
    run : Workdir
        The working folder.
    wanted : bool or None
        None: where the study names a tracking URI.
    view : View
        Told what could not be sent.

    Raises
    ------
    AnchorageError
        The working folder has a character that no MLflow store may have.
    """
    uri = study.federation.spec.tracking.uri
    if wanted is False or (wanted is None and uri is None):
        return None
    if uri is None and re.search(r"[@?#\s]", run.tracking_uri):
        message = f"{run.root} has a character (space, @, ? or #) that no MLflow store may have"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message)
    return SeedTracking(run.root / "tracking", uri or run.tracking_uri, view)
