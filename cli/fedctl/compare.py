"""``fedctl compare``: what several runs and simulations reached, side by side."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import RenderableType

from anchorage.errors import AnchorageError, commands
from fedctl.curves import PICTURES, curve, plot
from fedctl.output import Format, amount, emit, people, plain_table
from fedctl.results import Results, common_metrics, read_results
from fedctl.view import FIRST_METRICS


def compare(folders: Sequence[Path], metric: str | None, picture: Path | None, output: Format) -> None:
    """Print one line per working folder, and draw their curves.

    Parameters
    ----------
    folders : sequence of Path
        Working folders of ``fedctl simulate`` and ``fedctl run``.
    metric : str or None
        What to compare; None takes the first of `FIRST_METRICS` that all have.
    picture : Path or None
        File for the curves.
    output : Format
        How to print.

    Raises
    ------
    AnchorageError
        A folder holds no results, they have no such metric in common, or the picture cannot be drawn.
    """
    if picture is not None and picture.suffix not in PICTURES:
        raise typer.BadParameter(f"found {picture}, allowed is a name that ends with {' or '.join(PICTURES)}")
    results = [read_results(folder) for folder in dict.fromkeys(folders)]
    name = chosen_metric(results, metric)
    if picture is not None:
        labels = legend(results)
        plot({label: curve(result, name) for label, result in labels.items()}, name, picture)
    if output.for_people:
        people().print(_table(results, name, output is Format.WIDE))
    else:
        emit([_document(result, name) for result in results], output)


def chosen_metric(results: Sequence[Results], wanted: str | None) -> str:
    """Return the metric to compare by.

    Raises
    ------
    AnchorageError
        The results have not it, or none, in common.
    """
    common = common_metrics(results)
    if wanted is None and common:
        return next((name for name in FIRST_METRICS if name in common), common[0])
    if wanted is not None and wanted in common:
        return wanted
    found = "; ".join(f"{result.folder} has {', '.join(result.metrics()) or 'none'}" for result in results)
    what = "the metrics" if wanted is None else f"--metric {wanted}"
    raise AnchorageError(commands.NO_COMMON_METRIC, f"{what} must be in every folder: {found}")


def legend(results: Sequence[Results]) -> Mapping[str, Results]:
    """Name results: by their method, and by their folder too where that is not enough."""
    methods = Counter(result.federation.spec.method.name for result in results)
    names = {}
    for result in results:
        method = result.federation.spec.method.name
        names[method if methods[method] == 1 else f"{method} ({result.folder})"] = result
    return names


def _table(results: Sequence[Results], metric: str, wide: bool) -> RenderableType:
    shown = metric.replace("_", " ")
    right = ("seeds", "rounds", f"last {shown}", f"best {shown}", "moved")
    table = plain_table("method", "federation", *right, *(("model", "folder") if wide else ()), right=right)
    for name, result in legend(results).items():
        spec = result.federation.spec
        cells = [name, result.federation.metadata.name, str(len(result.seeds)), _rounds(result)]
        cells += [str(result.last(metric)), str(result.best(metric)), amount(_nbytes(result))]
        table.add_row(*cells, *((spec.model.name, str(result.folder)) if wide else ()))
    return table


def _rounds(result: Results) -> str:
    """Write how many rounds were committed, beside how many were asked for where that differs."""
    reached, wanted = min(seed.rounds[-1].round for seed in result.seeds), result.federation.spec.rounds
    return str(reached) if reached == wanted else f"{reached}/{wanted}"


def _nbytes(result: Results) -> float:
    return sum(seed.nbytes for seed in result.seeds) / len(result.seeds)


def _document(result: Results, metric: str) -> dict[str, Any]:
    spec = result.federation.spec
    return {
        "folder": str(result.folder),
        "federation": result.federation.metadata.name,
        "method": spec.method.name,
        "model": spec.model.name,
        "seeds": [seed.seed for seed in result.seeds],
        "rounds": min(seed.rounds[-1].round for seed in result.seeds),
        "metric": metric,
        "last": result.last(metric).as_document(),
        "best": result.best(metric).as_document(),
        "bytes": _nbytes(result),
        "curve": [point.as_document() for point in curve(result, metric)],
    }
