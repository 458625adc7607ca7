"""``fedctl data``: what a federation's images are like, before anything is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.data import DataReport, Part, check, describe
from anchorage.errors import AnchorageError
from anchorage.errors.data import BAD_IMAGES
from anchorage.errors.documents import UNKNOWN_CHOICE
from anchorage.methods import validate_study
from anchorage.spec.data import DataSection
from anchorage.spec.files import Study
from fedctl.output import Format, emit, people, plain_table

BAR_WIDTH = 32
SHOWN_BAD = 20
COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
    "white",
)


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
    reports = {
        name: check(section, root, num_classes=spec.model.num_classes, seed=spec.seed)
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
    """Return every data section of a study by who reads it: ``anchors``, ``test``, then the silos by name."""
    spec, sections = study.federation.spec, {}
    if spec.anchor_data is not None:
        sections["anchors"] = spec.anchor_data
    if spec.evaluation is not None:
        sections["test"] = spec.evaluation.data
    for silo in study.silos:
        if silo.spec.managed is not None:
            sections[silo.metadata.name] = silo.spec.managed.data
    return sections


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
        for bad in report.bad[:SHOWN_BAD]:
            lines.append(Text(f"{name}: {bad.id}: {bad.reason}: {bad.detail}", style="red"))
        if len(report.bad) > SHOWN_BAD:
            lines.append(Text(f"{name}: and {len(report.bad) - SHOWN_BAD} more; -o json lists all", style="red"))
        for title, families in (("the same image", report.duplicates), ("same image, other label", report.conflicts)):
            if families:
                lines.append(Text(f"{name}: {title}: {len(families)} times, such as {', '.join(families[0])}"))
    return Group(*lines)


def show_partition(file: Path, data_root: Path | None, overrides: Sequence[str], output: Format) -> None:
    """Print how many images of each class the server and every silo hold.

    Raises
    ------
    AnchorageError
        A section cannot be read, or cannot be divided as it says.
    """
    study = validate_study(file, overrides)
    root, spec = data_root or file.parent, study.federation.spec
    parts = {
        name: _own_part(section, root, spec.model.num_classes, spec.seed)
        for name, section in sections_of(study).items()
    }
    if output.for_people:
        people().print(partition_table(parts))
    else:
        emit({name: _values(part) for name, part in parts.items()}, output)


def _own_part(section: DataSection, root: Path, classes: int, seed: int) -> Part:
    parts = {part.name: part for part in describe(section, root, num_classes=classes, seed=seed)}
    if section.use == "All":
        counts = tuple(map(sum, zip(*(part.counts for part in parts.values()), strict=True)))
        return Part("all", counts, sum(part.unlabelled for part in parts.values()))
    return parts[_part_name(section, parts)]


def _part_name(section: DataSection, parts: dict[str, Part]) -> str:
    partition = section.partition
    if len(parts) == 1:
        return next(iter(parts))
    if partition is not None and partition.recipe == "File":
        return partition.silo or {"Test": "test", "Anchors": "server"}.get(section.use, "")
    if section.use == "Part" and partition is not None:
        return str(partition.part)
    return {"Test": "test", "Anchors": "anchors"}.get(section.use, "rest")


def _values(part: Part) -> dict[str, Any]:
    return {"part": part.name, "images": part.images, "counts": list(part.counts), "unlabelled": part.unlabelled}


def partition_table(parts: dict[str, Part]) -> RenderableType:
    """Draw one bar per holder of images, as long as its images are many, in one colour per class."""
    most = max((part.images for part in parts.values()), default=0)
    table = plain_table("holder", "images", "classes", "per class", right=("images",))
    for name, part in parts.items():
        bar = _bar([*part.counts, part.unlabelled], BAR_WIDTH / most if most else 0.0)
        table.add_row(name, str(part.images), bar, " ".join(map(str, part.counts)))
    return table


def _bar(counts: Sequence[int], width_per_image: float) -> Text:
    """Draw counts side by side; the last one, images without a label, in grey. Rounding never changes the whole length."""
    bar, end, drawn = Text(), 0, 0
    for index, count in enumerate(counts):
        end += count
        width = round(end * width_per_image) - drawn
        drawn += width
        unlabelled = index == len(counts) - 1
        bar.append(
            "░" * width if unlabelled else "█" * width, style="" if unlabelled else COLOURS[index % len(COLOURS)]
        )
    return bar
