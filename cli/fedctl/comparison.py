"""Measures training on the anchors alone for comparison, in a process of its own at low priority."""

from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType

from anchorage.api.federation import Federation
from anchorage.methods import resolve
from fedctl.processes import Child, ProcessEvent, end_all
from fedctl.workdir import Workdir, read_json


class Comparison:
    """Trains the federation's model on its anchors alone: same model, same seed, same epochs at the server.

    What was measured before is read again. A failure is said, and does not spoil the run. A context manager: its end ends the process.

    Parameters
    ----------
    run : Workdir
        The run; the metrics are kept in it.
    federation : Federation
        Nothing is compared where its server has no anchors or no images to be scored on, or does not train.
    data_root : Path
        Folder that claims name folders of.
    say : callable
        Tells people what is done.
    """

    def __init__(self, run: Workdir, federation: Federation, data_root: Path, say: Callable[[str], None]) -> None:
        self._run = run
        self._say = say
        self._wanted = _comparable(federation)
        self._started = False
        happenings: SimpleQueue[ProcessEvent] = SimpleQueue()
        options = ["--federation", str(run.federation), "--data-root", str(data_root), "--out", str(run.anchors_alone)]
        self._child = Child(
            "anchors-alone", ["-m", "fedctl.anchors_alone", *options], run.root, run.log("anchors-alone"), happenings
        )

    def __enter__(self) -> "Comparison":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all([self._child], grace_seconds=0.0)

    def start(self) -> None:
        """Start the training, unless it was started or measured before."""
        if self._wanted and not self._started and not self._run.anchors_alone.exists():
            self._started = True
            self._say("training on the anchors alone, for comparison")
            self._child.start()

    def metrics(self) -> Mapping[str, float] | None:
        """Wait for the training to end and return the metrics on the test images, else the validation images; None: nothing to compare with."""
        self.start()
        status = self._child.wait()
        if status:
            self._say(f"training on the anchors alone failed: {self._child.failure(status)}")
        measured: Mapping[str, float] | None = read_json(self._run.anchors_alone) if self._wanted else None
        return measured


def _comparable(federation: Federation) -> bool:
    spec = federation.spec
    has_images = spec.anchor_data is not None and spec.evaluation is not None
    return has_images and "serverTraining" in resolve(spec.method).facts()
