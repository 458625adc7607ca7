"""``fedctl data``: checks a federation's images before training."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES
from anchorage.api.errors.documents import UNKNOWN_CHOICE
from anchorage.api.files import Study
from anchorage.learning.data import DataReport, check
from anchorage.methods import validate_study
from fedctl.output import Format, emit, people, plain_table

SHOWN_BAD = 20
SHOWN_CLASSES = 20


def check_data(file: Path, silo: str | None, data_root: Path | None, overrides: Sequence[str], output: Format) -> None:
    """Open every image of the server's and the silos' sections and print what was found.

    Raises
    ------
    AnchorageError
        A section cannot be read, or images cannot be used (after everything was printed).
    """
    study = validate_study(file, overrides)
    root, spec = data_root or file.parent, study.federation.spec
    sections = sections_of(study)
    if silo is not None:
        if silo not in sections:
            found = f"found --silo {silo}, allowed are {', '.join(sections)}"
            raise AnchorageError(UNKNOWN_CHOICE, found)
        sections = {silo: sections[silo]}
    blind = {silo.metadata.name for silo in study.silos if silo.spec.labels == "None"}
    reports = {
        name: check(section, root, spec.task.classes, spec.seed, labelled=name not in blind)
        for name, section in sections.items()
    }
    if output.for_people:
        people().print(_reports_table(reports))
    else:
        emit({name: report.as_document() for name, report in reports.items()}, output)
    bad = {name: len(report.bad) for name, report in reports.items() if report.bad}
    if bad:
        where = ", ".join(f"{count} of {name}" for name, count in bad.items())
        raise AnchorageError(BAD_IMAGES, f"{sum(bad.values())} images cannot be used ({where}); mend or remove them")


def sections_of(study: Study) -> dict[str, DataSection]:
    """Return every data section of a study by who reads it: ``anchors``, ``validation``, ``test``, then the silos by name."""
    silos = {silo.metadata.name: silo.spec.managed.data for silo in study.silos if silo.spec.managed is not None}
    return {**study.federation.spec.server_data, **silos}


def _reports_table(reports: dict[str, DataReport]) -> RenderableType:
    table = plain_table(
        "data", "images", "usable", "unlabelled", "groups", "sizes", "modes", right=("images", "usable")
    )
    lines: list[RenderableType] = [table]
    for name, report in reports.items():
        sizes = ", ".join(list(report.sizes)[:3]) + (
            f" and {len(report.sizes) - 3} more" if len(report.sizes) > 3 else ""
        )
        cells = [report.listed, report.usable, report.unlabelled, report.groups, sizes, ", ".join(report.modes)]
        table.add_row(name, *map(str, cells))
        if any(report.counts):
            lines.append(Text(f"{name}: {_counted(report)}"))
        alike: dict[tuple[str, str], list[str]] = {}
        for bad in report.bad:
            alike.setdefault((bad.reason, bad.detail), []).append(bad.id)
        for (reason, detail), ids in islice(alike.items(), SHOWN_BAD):
            others = f" and {len(ids) - 1} others" if len(ids) > 1 else ""
            lines.append(Text(f"{name}: {ids[0]}{others}: {reason}: {detail}", style="red"))
        if hidden := sum(map(len, islice(alike.values(), SHOWN_BAD, None))):
            lines.append(Text(f"{name}: and {hidden} more; -o json lists all", style="red"))
        for title, families in (("the same image", report.duplicates), ("same image, other label", report.conflicts)):
            if families:
                lines.append(Text(f"{name}: {title}: {len(families)} times, such as {', '.join(families[0])}"))
    return Group(*lines)


def _counted(report: DataReport) -> str:
    """Write how many images each class has, such as ``MEL 12, NV 30``."""
    named = [f"{name} {count}" for name, count in zip(report.classes, report.counts, strict=True)]
    more = f" and {len(named) - SHOWN_CLASSES} more classes" if len(named) > SHOWN_CLASSES else ""
    return ", ".join(named[:SHOWN_CLASSES]) + more
