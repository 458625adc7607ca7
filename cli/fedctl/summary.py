"""The summary of a finished run."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.federation import Federation
from anchorage.api.metrics import shown_first
from anchorage.api.status import FederationStatus
from fedctl.output import counted, duration, people
from fedctl.view import moved
from fedctl.workdir import Workdir


def print_summary(
    run: Workdir,
    federation: Federation,
    status: FederationStatus,
    comparison: Mapping[str, float] | None,
    elapsed_seconds: float | None,
    unsent: AnchorageError | None = None,
) -> None:
    """Print the summary on stdout.

    Parameters
    ----------
    run : Workdir
        The run.
    federation : Federation
        What was run.
    status : FederationStatus
        Its final status.
    comparison : mapping or None
        Metrics of training on the anchors alone.
    elapsed_seconds : float or None
        Time of this start; None where the run was finished before.
    unsent : AnchorageError or None
        What MLflow does not have.
    """
    console = people()
    name = federation.metadata.name
    how = "finished before" if elapsed_seconds is None else f"finished in {duration(elapsed_seconds)}"
    console.print(Text(f"\n{name}: {counted(status.round, 'round')}, {how}", style="bold"))
    if status.metrics:
        console.print(_scores(status, comparison))
    uri = federation.spec.tracking.uri or run.tracking_uri
    facts = [("moved", moved(status))]
    if status.model is not None:
        facts.append(("model", status.model.path))
    facts.append(("MLflow store", status.tracking.uri or uri))
    if status.tracking.model_version:
        facts.append(("registered", f"{status.tracking.registered_model} version {status.tracking.model_version}"))
    if unsent is not None:
        again = "; the same command sends the rest" if unsent.failure is TRACKING_UNREACHABLE else ""
        facts.append(("incomplete", f"{unsent}{again}"))
    facts.append(("open it with", opening(uri)))
    for what, fact in facts:
        console.print(Text(f"{what:<14}{fact}"), soft_wrap=True)


def opening(uri: str) -> str:
    """Return the command that shows an MLflow store, or the address of a tracking server."""
    return uri if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri} --port 5000"


def _scores(status: FederationStatus, comparison: Mapping[str, float] | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("ON THE TEST IMAGES")
    table.add_column("FEDERATION", justify="right")
    if comparison is not None:
        table.add_column("ANCHORS ALONE", justify="right")
    values = {metric.name: float(metric.value) for metric in status.metrics}
    for name in shown_first(values):
        alone = [f"{comparison[name]:.4f}" if name in comparison else ""] if comparison is not None else []
        table.add_row(name.replace("_", " "), f"{values[name]:.4f}", *alone)
    return table
