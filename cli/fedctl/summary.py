"""The summary of a finished run."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.federation import Federation
from anchorage.api.metrics import score, shown_first
from anchorage.api.model_card import ModelCard
from anchorage.api.status import FederationStatus
from anchorage.api.verdict import judge
from anchorage.engine.tracking import Progress
from fedctl.diagnosis import diagnose
from fedctl.local_source import LocalSource
from fedctl.output import duration, format_count, people
from fedctl.source import Round
from fedctl.view import format_transferred
from fedctl.workdir import Workdir

WORST_SILO = "worst_silo_"
"""What names of metrics of the worst silo begin with (`anchorage.engine.held_out`)."""
NO_BEST = "the last, as there are no validation images to choose a better one by (spec.evaluation.validation)"
"""Why the best model is the last one."""
MODEL_TRAINING = "workflowType=machine_learning"
"""Has MLflow 3 show model training in its navigation, where it begins with GenAI whatever the experiment is."""


def print_summary(
    run: Workdir,
    federation: Federation,
    status: FederationStatus,
    elapsed_seconds: float | None,
    unsent: AnchorageError | None = None,
    rounds: Sequence[Round] = (),
    report: str = "",
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
    elapsed_seconds : float or None
        Time of this start; None where the run was finished before.
    unsent : AnchorageError or None
        What MLflow does not have.
    rounds : sequence of mapping
        Committed rounds as the journal has them.
    report : str
        Path of the page about the run, or why there is none.
    """
    console = people()
    name = federation.metadata.name
    how = "finished before" if elapsed_seconds is None else f"finished in {duration(elapsed_seconds)}"
    console.print(Text(f"\n{name}: {format_count(status.round, 'round')}, {how}", style="bold"))
    card = card_of(run)
    for line in verdict_lines(card) if card is not None else ():
        console.print(line, soft_wrap=True)
    if (scores := _scores(status, _alone(card), _validated_on(federation))) is not None:
        console.print(scores)
    facts = [*_models(federation, status), *_places(run, federation, status, unsent)]
    facts += [("note", line) for line in diagnose(federation.spec.method, rounds)]
    if report:
        facts.append(("report", report))
    for what, fact in facts:
        console.print(Text(f"{what:<14}{fact}"), soft_wrap=True)


def card_of(run: Workdir) -> ModelCard | None:
    """Return the model card of a run; None where there is none that can be read, which `complete_card` says."""
    try:
        return LocalSource(run).card()
    except AnchorageError:
        return None


def verdict_lines(card: ModelCard) -> Iterator[Text]:
    """Yield what the federation gained, and each problem on a line of its own, with the page that helps."""
    gain, *problems = judge(card)
    yield Text(str(gain))
    for problem in problems:
        yield Text(f"- {problem}", style="yellow")


def _alone(card: ModelCard | None) -> dict[str, Mapping[str, float]]:
    """Return the columns of training without the federation: on the labels, and at the best site."""
    if card is None:
        return {}
    columns = {"LABELS ALONE": card.labels_alone} if card.labels_alone is not None else {}
    sites = [
        (rank, name, metrics)
        for name, metrics in (card.sites_alone or {}).items()
        if (rank := score(metrics)) is not None
    ]
    if sites:
        _, name, metrics = max(sites, key=lambda site: site[0])
        columns[f"{name.upper()} ALONE"] = metrics
    return columns


def _models(federation: Federation, status: FederationStatus) -> Iterator[tuple[str, str]]:
    yield "moved", format_transferred(status)
    if status.model is not None:
        yield "model", status.model.path
    worst = {metric.name: metric.value for metric in status.metrics if metric.name.startswith(WORST_SILO)}
    if worst:
        shown = (
            f"{name.removeprefix(WORST_SILO).replace('_', ' ')} {float(value):.4f}" for name, value in worst.items()
        )
        yield "worst silo", f"{'  '.join(shown)} (fedctl rounds -o json has every silo's)"
    if (best := status.best_model) is not None:
        yield "best model", f"{best.path}, of round {best.round}" if _validated_on(federation) else NO_BEST


def _places(
    run: Workdir, federation: Federation, status: FederationStatus, unsent: AnchorageError | None
) -> Iterator[tuple[str, str]]:
    uri = federation.spec.tracking.uri or run.tracking_uri
    yield "MLflow store", status.tracking.uri or uri
    if status.tracking.model_version:
        yield "registered", f"{status.tracking.registered_model} version {status.tracking.model_version}"
    if unsent is not None:
        retry_hint = "; the same command sends the rest" if unsent.failure is TRACKING_UNREACHABLE else ""
        yield "incomplete", f"{unsent}{retry_hint}"
    yield "open it with", opening(uri)
    sent = Progress.read(run.outbox)
    if sent.run_id:
        server = uri.rstrip("/") if uri.startswith("http") else "http://127.0.0.1:5000"
        yield "its page", f"{server}/#/experiments/{sent.experiment_id}/runs/{sent.run_id}?{MODEL_TRAINING}"


def opening(uri: str) -> str:
    """Return the command that shows an MLflow store, or the address of a tracking server."""
    return uri if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri} --port 5000"


def _validated_on(federation: Federation) -> str:
    """Return on which images rounds were scored: ``VALIDATION``, ``SILOS' OWN``, or nothing."""
    if "validation" in federation.spec.server_data:
        return "VALIDATION"
    return "SILOS' OWN" if federation.spec.evaluation and federation.spec.evaluation.silo_percent else ""


def _scores(status: FederationStatus, alone: Mapping[str, Mapping[str, float]], validated_on: str) -> Table | None:
    """Return the metrics on the test images, where there are none on the validation images, beside training without the federation."""
    final, best = status.model, status.best_model
    columns = {"LAST ROUND": final.metrics if final else ()}
    if final and best and best.metrics and best.round != final.round:
        columns[f"BEST, ROUND {best.round}"] = best.metrics
    part = "TEST" if columns["LAST ROUND"] else validated_on
    shown = {title: {metric.name: float(metric.value) for metric in column} for title, column in columns.items()}
    if part != "TEST":
        shown = {"LAST ROUND": {metric.name: float(metric.value) for metric in status.metrics}}
    shown |= {title: dict(metrics) for title, metrics in alone.items()}
    if not shown["LAST ROUND"]:
        return None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"ON THE {part} IMAGES")
    for title in shown:
        table.add_column(title, justify="right")
    for name in shown_first(shown["LAST ROUND"]):
        cells = (f"{values[name]:.4f}" if name in values else "" for values in shown.values())
        table.add_row(name.replace("_", " "), *cells)
    return table
