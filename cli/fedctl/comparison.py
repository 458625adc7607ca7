"""What training on the anchors alone reaches, beside the federation: measured in a process of its own at low priority."""

from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue

from anchorage.methods import resolve
from anchorage.spec.federation import Federation
from fedctl.processes import Child, Ended, Happening, end_all
from fedctl.workdir import Workdir, read_json


def anchors_alone(
    run: Workdir, federation: Federation, data_root: Path, say: Callable[[str], None]
) -> Mapping[str, float] | None:
    """Train the federation's model on its anchors alone and return its metrics on the test images.

    What was measured before is read again. A failure is said, and does not spoil the run.

    Parameters
    ----------
    run : Workdir
        The run; the metrics are kept in it.
    federation : Federation
        Same model, same seed, same epochs at the server.
    data_root : Path
        Folder that claims name folders of.
    say : callable
        Tells people what is done.

    Returns
    -------
    mapping of str to float, or None
        None where the server has no anchors or no test images or does not train, or the training failed.
    """
    spec = federation.spec
    if spec.anchor_data is None or spec.evaluation is None or resolve(spec.method).server_training.type == "None":
        return None
    if (known := _measured(run)) is not None:
        return known
    say("training on the anchors alone, for comparison")
    happenings: SimpleQueue[Happening] = SimpleQueue()
    options = ["--federation", str(run.federation), "--data-root", str(data_root), "--out", str(run.anchors_alone)]
    child = Child(
        "anchors-alone", ["-m", "fedctl.anchors_alone", *options], run.root, run.log("anchors-alone"), happenings
    )
    try:
        child.start()
        ended = happenings.get()
    finally:
        end_all([child], grace_seconds=0.0)
    if isinstance(ended, Ended) and ended.status:
        say(f"training on the anchors alone failed: {child.failure(ended.status)}")
    return _measured(run)


def _measured(run: Workdir) -> Mapping[str, float] | None:
    metrics: Mapping[str, float] | None = read_json(run.anchors_alone)
    return metrics
