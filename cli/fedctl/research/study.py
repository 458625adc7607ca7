"""``fedctl study``: simulates every method in every setting with several seeds, and compares the results with published numbers."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.api.single import read_document
from fedctl.output import Format
from fedctl.published import PublishedResult
from fedctl.research.compare import Row, chosen_metric, published_beside, show_rows, slug
from fedctl.research.pictures import check_picture_suffix
from fedctl.research.results import Results, SimulationFolder
from fedctl.research.simulation import EMBEDDINGS, SimulationRequest, results_of, shared_images, simulate_seeds
from fedctl.view import View, view_for
from fedctl.workdir import DEFAULT_PARENT

DEFAULT_FOLDER = DEFAULT_PARENT / "studies"

OF_ONE_CELL = frozenset({3, 5, 8})
"""Exit codes of failures after which a study goes on with its other cells: images or labels, rounds, training."""

Overrides = Annotated[tuple[str, ...], Field(max_length=100)]


class Case(Document):
    """A method or a setting of a study."""

    set: Overrides = Field((), description="Overrides, as --set takes them; silo.path=value goes to every silo.")
    federation: str | None = Field(None, description="A setting's own documents instead of the study's.")
    published: dict[str, str] = Field({}, description="Columns of the published result beside which it is put.")


class StudyFile(Document):
    """A grid of methods, settings and seeds."""

    federation: str = Field(description="File of the documents, beside this one.")
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(1, description="How many, from spec.seed on.")
    silos: Annotated[int, Field(ge=1, le=100_000)] | None = Field(None, description="As fedctl simulate --silos.")
    metric: str | None = Field(None, description="What is compared; absent: the first that all have.")
    set: Overrides = Field((), description="Overrides of every cell.")
    published: dict[str, str] = Field({}, description="Columns of the published results of every cell.")
    methods: Annotated[dict[str, Case], Field(min_length=1)] = Field(description="Rows, by their names.")
    settings: Annotated[dict[str, Case], Field(min_length=1)] = Field(
        {"": Case()}, description="Grids, by their names."
    )


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a study that a command is for, and overrides from the command line."""

    overrides: Sequence[str] = ()
    """As ``--set`` takes them, of every cell, after those of the file."""
    seeds: int | None = None
    """How many seeds, from spec.seed on; None takes the file's number."""
    methods: Sequence[str] = ()
    settings: Sequence[str] = ()
    """Names; empty takes all."""

    def of(self, study: StudyFile) -> "Selection":
        """Return it with the names that it takes of a study.

        Raises
        ------
        BadParameter
            A name is in no cell of the study.
        """
        methods = _select("--method", self.methods, study.methods)
        settings = _select("--setting", self.settings, study.settings)
        return replace(self, methods=methods, settings=settings, seeds=self.seeds or study.seeds)


EVERYTHING = Selection()
"""A study as its file has it."""


def _select(option: str, wanted: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    if unknown := [name for name in wanted if name not in names]:
        there = "; ".join(filter(None, names))
        raise typer.BadParameter(
            f"found {option} {unknown[0]}, " + (f"the study has: {there}" if there else "the study has no settings")
        )
    return tuple(wanted or names)


@dataclass(frozen=True, slots=True)
class Cell:
    """One method in one setting."""

    setting: str
    method: str
    """Their names."""
    wanted: SimulationRequest
    """What is simulated."""
    folder: SimulationFolder
    """Where its results are."""
    published: dict[str, str]
    """Columns of the published result; empty where none is wanted."""

    @property
    def title(self) -> str:
        """Title for people."""
        return f"{self.method}, {self.setting}" if self.setting else self.method

    def paper(self, metric: str) -> PublishedResult | None:
        """Return the published result."""
        return published_beside(self.published, self.method, metric)


def run_study(
    file: Path,
    selection: Selection,
    workdir: Path | None,
    data_root: Path | None,
    device: str,
    picture: Path | None,
    output: Format,
) -> None:
    """Simulate the missing cells of a study, and print its table.

    Parameters
    ----------
    file : Path
        The study.
    selection : Selection
        Which cells and seeds, and overrides.
    workdir : Path or None
        Folder of the results; None takes ``.anchorage/studies/<name of the file>``.
    data_root : Path or None
        Folder that claims name folders of; None takes that of the documents.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    picture : Path or None
        File for the curves, one per setting.
    output : Format
        How to print.

    Raises
    ------
    AnchorageError
        The study, its documents, the machine or a folder refuses; what is committed stays. After the table was printed: cells failed by their
        images, rounds or training, or MLflow does not have everything.
    InterruptError
        A signal came; what is committed stays.
    """
    check_picture_suffix(picture)
    study = read_document(file, StudyFile)
    root = study_folder(file, workdir)
    wanted = cells_of(study, file, root, data_root, device, selection)
    cells = [(cell, cell.wanted.studies()) for cell in wanted]
    for cell, _ in cells:
        cell.paper(study.metric or "balanced_accuracy")
    unsent: list[AnchorageError] = []
    failed: list[AnchorageError] = []
    finished: list[tuple[Cell, Results]] = []
    decoded = shared_images(root)
    with view_for(sys.stdout if output.for_people else sys.stderr, terminal=False) as view:
        for number, (cell, studies) in enumerate(cells):
            cell = replace(cell, wanted=replace(cell.wanted, decoded=decoded))
            try:
                _play(cell, studies, f"{cell.title} ({number + 1} of {len(cells)})", view, unsent)
            except AnchorageError as error:
                if error.failure.exit_code not in OF_ONE_CELL or not finished:
                    raise  # the first cell's mistake is most often that of all, such as a wrong data root
                failed.append(error)
                view.say(f"{cell.title} failed: {error}")
                continue
            finished.append((cell, results_of(studies, cell.folder)))
    metric = chosen_metric([results for _, results in finished], study.metric)
    rows = [Row(cell.method, results, cell.setting, cell.paper(metric)) for cell, results in finished]
    show_rows(rows, metric, picture, output)
    if failed:
        message = f"{len(failed)} of {len(cells)} cells failed, and the same command plays them again; the first one: {failed[0].message}"
        raise AnchorageError(failed[0].failure, message)
    if unsent:
        raise unsent[0]


def _play(cell: Cell, studies: list[Study], title: str, view: View, unsent: list[AnchorageError]) -> None:
    if not all(cell.folder.result(study.federation.spec.seed).exists() for study in studies):
        view.say(title)
    simulate_seeds(cell.wanted, studies, cell.folder, view, 0, unsent)


def study_folder(file: Path, workdir: Path | None) -> Path:
    """Return the folder of a study's results, absolute; `workdir` None: ``.anchorage/studies/<name of the file>``."""
    return (workdir or DEFAULT_FOLDER / file.stem).resolve()


def cells_of(
    study: StudyFile, file: Path, root: Path, data_root: Path | None, device: str, selection: Selection = EVERYTHING
) -> list[Cell]:
    """Return the selected methods of the selected settings.

    Parameters
    ----------
    study : StudyFile
        The grid.
    file : Path
        Where it is written; its documents lie beside it.
    root : Path
        Folder of the results.
    data_root, device
        As `run_study` takes them.
    selection : Selection
        Which cells and seeds, and overrides.

    Raises
    ------
    BadParameter
        Two cells of the study would have the same folder, or a selected name is in none.
    """
    selected, folders, cells = selection.of(study), dict[str, str](), list[Cell]()
    for setting, grid in study.settings.items():
        for method, case in study.methods.items():
            folder = slug(f"{setting} {method}")
            if folder in folders:
                raise typer.BadParameter(f'"{setting}", "{method}" and {folders[folder]} have the same letters')
            folders[folder] = f'"{setting}", "{method}"'
            if setting not in selected.settings or method not in selected.methods:
                continue
            wanted = SimulationRequest(
                file=file.parent / (grid.federation or study.federation),
                overrides=(*study.set, *grid.set, *case.set, *selection.overrides),
                seeds=selected.seeds or study.seeds,
                silos=study.silos,
                device=device,
                data_root=data_root,
                keep=False,
                embeddings=root / EMBEDDINGS,
            )
            published = {**study.published, **grid.published, **case.published}
            cells.append(Cell(setting, method, wanted, SimulationFolder(root / folder), published))
    return cells
