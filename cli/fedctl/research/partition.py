"""``fedctl data partition``: shows how many images of each class every silo holds: numbers, bars, and a list."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import typer
from pydantic.alias_generators import to_camel
from rich.console import RenderableType
from rich.text import Text

from anchorage.api.data import DataSection, Partition
from anchorage.api.files import Study
from anchorage.api.piece import expect
from anchorage.learning.data import Choice, Pools, write_index
from anchorage.learning.model_hooks import TaskHooks
from anchorage.methods import validate_study
from fedctl.data import sections_of
from fedctl.output import UNBOUNDED, Format, emit, people, plain_table
from fedctl.research.pictures import check_picture_suffix, new_figure, save_figure
from fedctl.workdir import choose_data_root
from fedctl.writing import writing

BAR_WIDTH, LEAST_BAR, GAP = 32, 12, 2
"""Columns of the longest bar: at most, at least; and between two columns of the table."""
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
READ_BY = {
    "alpha": ("PerClient", "PerClass", "PerClassCapped"),
    "sizes": ("Iid", "ClassQuota"),
    "classes_per_part": ("Shards", "DistinctShards", "ClassQuota"),
    "min_size": ("PerClass", "PerClassCapped"),
    "imbalance_factor": tuple(name for name in get_args(Partition.model_fields["recipe"].annotation) if name != "File"),
}
"""Fields of a partition, and the recipes that read them."""
_NAMED_CLASSES = 20
"""So many classes have a line in a picture's legend."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The images of the server or a silo."""

    section: DataSection
    """Source of its images."""
    choice: Choice
    """Its images."""
    labels: bool
    """Whether it uses labels."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Images of each class, of labels that are known, whether or not the holder gets them."""
        return self.choice.counts()

    @property
    def unknown(self) -> int:
        """Images of no known class."""
        return len(self.choice.listing) - sum(self.counts)

    @property
    def labelled(self) -> tuple[int, ...]:
        """Images of each class whose labels the holder gets."""
        return self.choice.counts(given_only=True) if self.labels else (0,) * len(self.counts)

    def as_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "part": self.choice.name,
            "images": len(self.choice.listing),
            "counts": list(self.counts),
            "unlabelled": self.unknown,
            "labelled": list(self.labelled),
        }


def show_partition(
    file: Path,
    data_root: Path | None,
    overrides: Sequence[str],
    output: Format,
    *,
    silos: int | None = None,
    picture: Path | None = None,
    index: Path | None = None,
) -> None:
    """Print how many images of each class the server and every silo hold; draw and write it where asked.

    Parameters
    ----------
    file : Path
        The study.
    data_root : Path or None
        Folder that claims name folders of; None: the study's.
    overrides : sequence of str
        ``path=value``.
    output : Format
        How to print.
    silos : int or None
        So many are made of those that the study has.
    picture : Path or None
        A file for stacked bars.
    index : Path or None
        A file for the list of images, which the recipe File reads.

    Raises
    ------
    AnchorageError
        A section cannot be read, or cannot be divided as it says; or a file cannot be written.
    """
    check_picture_suffix(picture)
    study = validate_study(file, overrides, silos)
    holders = holders_of(study, choose_data_root(study.federation.metadata.name, file, data_root))
    for line in dict.fromkeys(_unread_fields(study)):
        typer.echo(line, err=True)
    if index is not None:
        _write(index, holders)
    if picture is not None:
        _draw(picture, holders)
    if output.for_people:
        console = people()
        console.print(partition_table(holders, console.width))
    else:
        emit({name: holder.as_document() for name, holder in holders.items()}, output)


def _unread_fields(study: Study) -> Iterator[str]:
    """Yield notes about fields of a partition that its recipe does not use; they are no errors, as a study may change the recipe alone."""
    for section in sections_of(study).values():
        if (partition := section.division) is not None:
            for field in sorted(partition.model_fields_set & READ_BY.keys()):
                if partition.recipe not in (readers := READ_BY[field]):
                    detail = f"partition.{to_camel(field)} is set, but {partition.recipe} does not read it"
                    yield f"{detail}; {', '.join(readers)} would"


def holders_of(study: Study, root: Path) -> dict[str, Holder]:
    """Divide the images of a study by who reads them: ``anchors``, ``validation``, ``test``, then the silos by name."""
    spec = study.federation.spec
    pools = Pools(volumes=spec.model.volume is not None)
    blind = {silo.metadata.name for silo in study.silos if silo.spec.labels == "None"}
    return {
        name: Holder(section, pools.choose(section, root, expect(spec.task, TaskHooks), spec.seed), name not in blind)
        for name, section in sections_of(study).items()
    }


def partition_table(holders: Mapping[str, Holder], columns: int = UNBOUNDED) -> RenderableType:
    """Draw one bar per holder of images, as long as its images are many, in one colour per class; shorter where columns are few."""
    most = max((len(holder.choice.listing) for holder in holders.values()), default=0)
    numbers = max((len(" ".join(map(str, holder.counts))) for holder in holders.values()), default=0)
    used_width = max(map(len, ("holder", *holders))) + len("images") + len("labelled") + numbers + 4 * GAP
    width = min(BAR_WIDTH, max(LEAST_BAR, columns - used_width))
    table = plain_table("holder", "images", "labelled", "classes", "per class", right=("images", "labelled"))
    for name, holder in holders.items():
        counts = holder.counts
        bar = _bar([*counts, holder.unknown], width / most if most else 0.0)
        cells = (str(len(holder.choice.listing)), str(sum(holder.labelled)), bar, " ".join(map(str, counts)))
        table.add_row(name, *cells)
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


def _draw(path: Path, holders: Mapping[str, Holder]) -> None:
    """Draw one stacked bar per holder; what a holder has without its label is pale."""
    figure = new_figure(9, 1.5 + 0.28 * len(holders))
    axes = figure.subplots()
    classes = max((holder.choice.listing.stratum_names for holder in holders.values()), key=len, default=())
    colours = _colours(len(classes))
    counts = np.array([holder.counts for holder in holders.values()])
    labelled = np.array([holder.labelled for holder in holders.values()])
    starts = np.cumsum(counts, axis=1) - counts
    for c, (name, colour) in enumerate(zip(classes, colours, strict=True)):
        places = np.flatnonzero(counts[:, c])
        solid, start = labelled[places, c], starts[places, c]
        axes.barh(places, solid, left=start, color=colour, label=name)
        axes.barh(places, counts[places, c] - solid, left=start + solid, color=colour, alpha=0.4)
    unknown = [holder.unknown for holder in holders.values()]
    axes.barh(range(len(holders)), unknown, left=counts.sum(axis=1), color="lightgrey")
    axes.set_yticks(range(len(holders)), list(holders))
    axes.invert_yaxis()
    axes.set(xlabel="images; pale: without label")
    if len(classes) <= _NAMED_CLASSES:
        from anchorage.engine.tracking.figures import legend_below

        legend_below(axes)
    save_figure(figure, path)


def _colours(classes: int) -> list[Any]:
    from matplotlib import colormaps

    if classes <= _NAMED_CLASSES:
        return list(colormaps["tab10" if classes <= 10 else "tab20"](range(classes)))
    return list(colormaps["turbo"](np.linspace(0, 1, classes)))


def _write(path: Path, holders: Mapping[str, Holder]) -> None:
    pools = {
        (holder.section.format, holder.section.claim_name, holder.section.path, holder.section.manifest)
        for holder in holders.values()
    }
    if len(pools) != 1:
        raise typer.BadParameter(f"found --write for {len(pools)} folders of images, a list is of one")
    entries = []
    for name, holder in holders.items():
        part = name if name in ("test", "validation") else "train"
        silo = "server" if name == "anchors" else name if part == "train" else ""
        for image, labelled in zip(holder.choice.listing.ids, holder.choice.labelled, strict=True):
            entries.append((image, part, silo, bool(labelled)))
    with writing(path):
        write_index(path, entries)
