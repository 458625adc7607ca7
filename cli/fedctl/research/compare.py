"""``fedctl compare``: compares the results of several runs and simulations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.changes import Fields, fields_of
from anchorage.api.errors import AnchorageError, commands
from anchorage.methods import resolve
from fedctl.output import Format, amount, emit, people, plain_table
from fedctl.published import NAMES, PublishedResult, find_published
from fedctl.research.curves import curve, plot
from fedctl.research.paper_pictures import draw_paper_pictures
from fedctl.research.paper_setting import compare_settings
from fedctl.research.pictures import check_picture_suffix
from fedctl.research.results import Results, common_metrics, read_results

MOST_DIFFERENCES = 3
"""So many fields that differ fit into a label."""

IMAGES = {
    "test": "spec.evaluation.test",
    "validation": "spec.evaluation.validation",
    "silos' own": "spec.evaluation.siloPercent",
}
"""Fields that decide on which images a metric is, by the names of `Results.images_of`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison."""

    method: str
    """The name in the legend."""
    results: Results
    """The results."""
    setting: str = ""
    """What the rows of one picture have in common; empty where there is only one."""
    published: PublishedResult | None = None
    """What the method's paper reports."""


def compare(
    folders: Sequence[Path],
    metric: str | None,
    picture: Path | None,
    published: Sequence[str],
    output: Format,
) -> None:
    """Print one line per working folder, and draw their curves.

    Parameters
    ----------
    folders : sequence of Path
        Working folders of ``fedctl simulate`` and ``fedctl run``.
    metric : str or None
        What to compare; None takes the first in `anchorage.api.metrics.ORDER` that all have.
    picture : Path or None
        File for the curves.
    published : sequence of str
        ``COLUMN=VALUE`` of the published results beside which the methods are put; without any, none are shown.
    output : Format
        How to print.

    Raises
    ------
    AnchorageError
        A folder holds no results, they have no such metric in common, or the picture cannot be drawn.
    """
    check_picture_suffix(picture)
    results = [read_results(folder) for folder in dict.fromkeys(folders)]
    name = chosen_metric(results, metric)
    _require_comparable(results, name)
    wanted = dict(_pair(text) for text in published)
    rows = [
        Row(label, result, published=published_beside(wanted, result.federation.spec.method.name, name))
        for label, result in legend(results).items()
    ]
    show_rows(rows, name, picture, output)


def _require_comparable(results: Sequence[Results], metric: str) -> None:
    """Refuse results of different tasks, or a metric on different images.

    Raises
    ------
    AnchorageError
        Two of them cannot be compared.
    """
    images = {result.images_of(metric): result.folder for result in results}
    if len(images) > 1:
        places = ", ".join(f"{folder} on its {name} images" for name, folder in images.items())
        message = f"results on different images cannot be compared: {places}; set spec.evaluation alike"
        raise AnchorageError(commands.NO_COMMON_METRIC, message)
    for field in ("spec.task", *(IMAGES[name] for name in images if name in IMAGES)):
        first = results[0]
        for other in results[1:]:
            if _below(field, other) != _below(field, first):
                message = f"{first.folder} and {other.folder} differ in {field}, so that their metrics say nothing of each other; compare them apart"
                raise AnchorageError(commands.NO_COMMON_METRIC, message)


def _below(field: str, result: Results) -> Fields:
    """Return the values of a field of a result's federation and all below it."""
    values = fields_of(result.federation, resolve)
    return {name: value for name, value in values.items() if name == field or name.startswith(f"{field}.")}


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"found --published {text}, allowed is COLUMN=VALUE")
    return column, value


def published_beside(wanted: Mapping[str, str], method: str, metric: str) -> PublishedResult | None:
    """Return a method's published results; None if none are requested or available.

    Raises
    ------
    BadParameter
        What is wanted is in no paper, or several results fit.
    """
    try:
        name = wanted.get("method", method)
        published = (
            find_published({"metric": metric, **wanted, "method": known}) for known in NAMES.get(name, (name,))
        )
        return next(filter(None, published), None) if wanted else None
    except ValueError as error:
        raise typer.BadParameter(f"published results: {error}") from error


def show_rows(rows: Sequence[Row], metric: str, picture: Path | None, output: Format) -> None:
    """Print rows, and draw a picture per setting.

    Raises
    ------
    AnchorageError
        A picture cannot be drawn.
    """
    if picture is not None:
        draw(rows, metric, picture)
    if output.for_people:
        people().print(_table(rows, metric, output is Format.WIDE))
        if output is Format.WIDE:
            people().print(Group(Text(), _all_metrics(rows), Text()))
        people().print(f"{_words(metric)} on the {rows[0].results.images_of(metric)} images", style="dim")
    else:
        emit([_document(row, metric) for row in rows], output)


def draw(rows: Sequence[Row], metric: str, picture: Path) -> None:
    """Draw the curves of each setting, and `draw_paper_pictures`; with several settings, each file name contains its setting.

    Raises
    ------
    AnchorageError
        matplotlib is missing, or the file cannot be written.
    """
    settings = dict.fromkeys(row.setting for row in rows)
    for setting in settings:
        curves = {row.method: curve(row.results, metric) for row in rows if row.setting == setting}
        file = picture if len(settings) == 1 else picture.with_stem(f"{picture.stem}-{slug(setting)}")
        plot(curves, metric, rows[0].results.images_of_rounds(metric), file)
        draw_paper_pictures({row.method: row.results for row in rows if row.setting == setting}, file)


def slug(text: str) -> str:
    """Return text as a part of a file's name."""
    return "-".join("".join(c if c.isalnum() or c in "._" else " " for c in text).split())


def chosen_metric(results: Sequence[Results], wanted: str | None) -> str:
    """Return the metric to compare by.

    Raises
    ------
    AnchorageError
        The results have not it, or none, in common.
    """
    common = common_metrics(results)
    if wanted is None and common:
        return common[0]
    if wanted is not None and wanted in common:
        return wanted
    metrics_by_folder = "; ".join(f"{result.folder} has {', '.join(result.metrics()) or 'none'}" for result in results)
    what = "the metrics" if wanted is None else f"--metric {wanted}"
    raise AnchorageError(commands.NO_COMMON_METRIC, f"{what} must be in every folder: {metrics_by_folder}")


def legend(results: Sequence[Results]) -> Mapping[str, Results]:
    """Return labels of results: the method; of one method what differs in the method and the protocol, or else the folder."""
    names: dict[str, Results] = {}
    for method in dict.fromkeys(result.federation.spec.method.name for result in results):
        alike = [result for result in results if result.federation.spec.method.name == method]
        labels = [_difference(result, alike) for result in alike]
        unique = len(set(labels)) == len(labels) and "" not in labels
        for result, label in zip(alike, labels, strict=True):
            name = label if unique else str(result.folder)
            names[method if len(alike) == 1 else f"{method} ({name})"] = result
    return names


def _difference(result: Results, alike: Sequence[Results]) -> str:
    """Write the few fields of the method and the protocol in which results of one method differ, such as ``local.epochs 5``."""
    each = [
        {**_below("spec.method", one), **_below("spec.protocol", one), **_below("spec.rounds", one)} for one in alike
    ]
    differences = each[alike.index(result)]
    differing = [
        name for name in dict.fromkeys(n for one in each for n in one) if len({str(one.get(name)) for one in each}) > 1
    ]
    if not 0 < len(differing) <= MOST_DIFFERENCES:
        return ""
    return ", ".join(
        f"{name.removeprefix('spec.').removeprefix('method.')} {differences.get(name)}" for name in differing
    )


def _table(rows: Sequence[Row], metric: str, wide: bool) -> RenderableType:
    shown = _words(metric)
    several, papers = any(row.setting for row in rows), any(row.published for row in rows)
    names = ("federation",) if wide or len({row.results.federation.metadata.name for row in rows}) > 1 else ()
    right = ("seeds", "rounds", f"last {shown}", f"best {shown}", *(("published",) if papers else ()), "moved")
    paper = ("paper's setting",) if papers else ()
    more = (*(("source",) if papers else ()), "model", "folder") if wide else ()
    table = plain_table(*(("setting",) if several else ()), "method", *names, *right, *paper, *more, right=right)
    for row in rows:
        result, spec = row.results, row.results.federation.spec
        cells = [row.setting] if several else []
        cells += [row.method, *([result.federation.metadata.name] if names else [])]
        cells += [str(len(result.seeds)), _rounds(result)]
        cells += [str(result.last(metric)), str(result.best(metric))]
        cells += [str(row.published or "")] if papers else []
        cells.append(amount(_nbytes(result)))
        cells += [str(compare_settings(row.published, result)) if row.published else ""] if papers else []
        if wide:
            cells += [row.published.source if row.published else ""] if papers else []
            cells += [spec.model.network, str(result.folder)]
        table.add_row(*cells)
    return table


def _all_metrics(rows: Sequence[Row]) -> RenderableType:
    """Return a table with a line for every metric of every row."""
    several = any(row.setting for row in rows)
    heads = (*(("setting",) if several else ()), "method", "metric", "images")
    table = plain_table(*heads, "last", "best", right=("last", "best"))
    for row in rows:
        for name in row.results.metrics():
            cells = [row.method, _words(name), row.results.images_of(name)]
            values = str(row.results.last(name)), str(row.results.best(name))
            table.add_row(*([row.setting] if several else []), *cells, *values)
    return table


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _rounds(result: Results) -> str:
    """Format the number of committed rounds, and of the requested ones if it differs."""
    reached, wanted = min(seed.rounds[-1].round for seed in result.seeds), result.federation.spec.rounds
    return str(reached) if reached == wanted else f"{reached}/{wanted}"


def _nbytes(result: Results) -> float:
    return sum(seed.nbytes for seed in result.seeds) / len(result.seeds)


def _document(row: Row, metric: str) -> dict[str, Any]:
    result, spec = row.results, row.results.federation.spec
    return {
        **({"setting": row.setting} if row.setting else {}),
        "folder": str(result.folder),
        "federation": result.federation.metadata.name,
        "method": spec.method.name,
        "model": spec.model.network,
        "seeds": [seed.seed for seed in result.seeds],
        "rounds": min(seed.rounds[-1].round for seed in result.seeds),
        "metric": metric,
        "images": result.images_of(metric),
        "last": result.last(metric).as_document(),
        "best": result.best(metric).as_document(),
        "metrics": {
            name: {"last": result.last(name).as_document(), "best": result.best(name).as_document()}
            for name in result.metrics()
        },
        **({"published": _compare_published(row.published, result)} if row.published else {}),
        "bytes": _nbytes(result),
        "curve": [point.as_document() for point in curve(result, metric)],
    }


def _compare_published(published: PublishedResult, result: Results) -> dict[str, Any]:
    values = {name: float(value) for name in ("value", "std") if (value := getattr(published, name))}
    when = {"reachedAt": published.reached_at} if published.reached_at else {}
    return {**values, **when, "source": published.source, **asdict(compare_settings(published, result))}
