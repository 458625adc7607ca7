"""Measures for comparison what training reaches without the federation, in a process of its own at low priority."""

import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from anchorage.api.files import Study
from anchorage.api.fork_server import asking
from anchorage.api.text import list_some
from anchorage.methods.alone import measured_alone
from fedctl.processes import Child, ProcessEvent, end_all
from fedctl.sites_alone import AloneScores, remaining_trainings, trainings
from fedctl.workdir import Workdir, read_json


class Comparison:
    """Trains the federation's model without the federation: same model, same seed, as many rounds, same local settings.

    Where the server trains, on its anchors alone (`fedctl.anchors_alone`); else at each labelled silo alone (`fedctl.sites_alone`). What was
    measured before is read again. A failure is said, and does not spoil the run. A context manager: its end ends the process.

    Parameters
    ----------
    run : Workdir
        The run; the metrics are kept in it.
    study : Study
        The federation and its silos. Nothing is compared where nobody has labels to train on alone, or no images to be scored on.
    data_root : Path
        Folder that claims name folders of.
    say : callable
        Tells people what is done.
    wanted : bool
        Whether anything is trained; what was measured before is read in any case.
    fork_server : int or None
        File number of the socket by which the process is asked for; None starts it.
    """

    def __init__(
        self,
        run: Workdir,
        study: Study,
        data_root: Path,
        say: Callable[[str], None],
        *,
        wanted: bool = True,
        fork_server: int | None = None,
    ) -> None:
        self._run, self._say, self._started, self._failure_shown = run, say, False, False
        self._anchors = measured_alone(study.federation.spec) == "Anchors"
        self._trainings = () if self._anchors else trainings(study.federation, study.silos)
        self._wanted = wanted
        happenings: SimpleQueue[ProcessEvent] = SimpleQueue()
        name, out = ("anchors", run.anchors_alone) if self._anchors else ("sites", run.sites_alone)
        options = ["--federation", str(run.federation), "--data-root", str(data_root), "--out", str(out)]
        _, *arguments = asking([sys.executable, "-m", f"fedctl.{name}_alone", *options], fork_server)
        self._child = Child(
            f"{name}-alone",
            arguments,
            run.root,
            run.log(f"{name}-alone"),
            happenings,
            inherited=() if fork_server is None else (fork_server,),
        )

    def __enter__(self) -> "Comparison":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all([self._child], grace_seconds=0.0)

    def start(self) -> None:
        """Start the training, unless it was started or measured before, or is not wanted."""
        remaining = self._remaining_trainings()
        if self._wanted and not self._started and remaining:
            self._started = True
            self._say(f"training {remaining}, for comparison; --no-compare leaves it out")
            self._child.start()

    @property
    def ended(self) -> bool:
        """Whether the training was started and has ended, or there was none to start."""
        return (self._started or not self._wanted or not self._remaining_trainings()) and not self._child.alive

    def scores(self) -> AloneScores:
        """Wait for the training to end and return the metrics on the test images, else the validation images, as far as there are any."""
        self.start()
        status = self._child.wait()
        if status and not self._failure_shown:
            self._failure_shown = True
            self._say(f"training {self._remaining_trainings()} failed: {self._child.failure(status)}")
        if self._anchors:
            return AloneScores(read_json(self._run.anchors_alone))
        return AloneScores.read(self._run.sites_alone) if self._trainings else AloneScores()

    def _remaining_trainings(self) -> str:
        """Say where or on what is still to be trained; empty: nothing is."""
        if self._anchors:
            return "" if self._run.anchors_alone.exists() else "on the anchors alone"
        remaining = remaining_trainings(self._trainings, AloneScores.read(self._run.sites_alone))
        sites = [each.site for each in remaining if each.site]
        parts = [f"at {'each of ' if len(sites) > 1 else ''}{list_some(sites)} alone"] if sites else []
        parts += ["on the labels alone"] if len(sites) < len(remaining) else []
        return " and ".join(parts)
