"""``fedctl plan`` of a study: what every cell will take, what is there already, and the sum."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.files import Study
from anchorage.api.single import read_document
from anchorage.api.source import read_documents
from anchorage.simulation.forecast import TRIAL_SECONDS, Forecast, forecast_simulation
from fedctl.local_run import local_silos
from fedctl.output import Format, amount, duration, emit, format_count, people, plain_table
from fedctl.plan import reservations
from fedctl.research.results import SeedResult
from fedctl.research.simulation import (
    EMBEDDINGS,
    changed_fields,
    choose_device,
    other_documents_error,
    shared_images,
    silos_at_once,
)
from fedctl.research.study import Cell, Selection, StudyFile, cells_of, study_folder

STUDY_SECONDS = 180.0
"""Time for the trials of all cells together, about; a cell has at most that of a federation."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What seeds take."""

    seconds: float = 0.0
    up: float = 0.0
    down: float = 0.0
    """Model bytes from silos to the server, and back."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.up + other.up, self.down + other.down)

    def times(self, seeds: int) -> "Cost":
        """Return what so many seeds take."""
        return Cost(self.seconds * seeds, self.up * seeds, self.down * seeds)

    def as_document(self, *, timed: bool) -> dict[str, Any]:
        """Return JSON values; `timed`: the time is known."""
        return {"seconds": self.seconds if timed else None, "up": round(self.up), "down": round(self.down)}


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell of a study, and its seeds."""

    cell: Cell
    studies: Sequence[Study]
    """The documents of each seed."""
    finished: Sequence[SeedResult]
    """Seeds that are not simulated again."""

    @property
    def study(self) -> Study:
        """The documents, of the first seed."""
        return self.studies[0]

    @property
    def missing(self) -> int:
        """How many seeds are to be simulated."""
        return len(self.studies) - len(self.finished)

    @property
    def spent(self) -> Cost:
        """What the finished seeds took."""
        return Cost(
            sum(seed.seconds for seed in self.finished),
            sum(entry.bytes_up for seed in self.finished for entry in seed.rounds),
            sum(entry.bytes_down for seed in self.finished for entry in seed.rounds),
        )


def is_study(file: Path) -> bool:
    """Return whether a file is one of `fedctl study`: a single document without a kind.

    Raises
    ------
    DocumentError
        It cannot be read.
    """
    values = [document.value for document in read_documents(file)]
    return len(values) == 1 and isinstance(values[0], dict) and "kind" not in values[0] and "methods" in values[0]


def plan_study(
    file: Path, selection: Selection, workdir: Path | None, data_root: Path | None, output: Format, *, trial: bool
) -> None:
    """Print what a study will take.

    Parameters
    ----------
    file : Path
        The study.
    selection : Selection
        Which cells and seeds, and overrides.
    workdir : Path or None
        Folder of its results; None takes the study's own.
    data_root : Path or None
        Folder that claims name folders of; None takes that of the documents.
    output : Format
        How to print.
    trial : bool
        Whether to read images and time a few steps of training; else time and memory are left out.

    Raises
    ------
    AnchorageError
        The study, its documents, the images or initial weights cannot be used, or the folder holds results of other documents.
    """
    root = study_folder(file, workdir)
    study_cells = cells_of(read_document(file, StudyFile), file, root, data_root, "auto", selection)
    cells = [plan_cell(cell) for cell in study_cells]
    missing = sum(cell.missing > 0 for cell in cells)
    if trial and output.for_people and missing:
        typer.echo(f"trying a few steps of {format_count(missing, 'cell')}; --no-trial does without", err=True)
    planned: list[tuple[PlannedCell, Forecast | None]] = []
    with tempfile.TemporaryDirectory(prefix="fedctl-plan-") as state:
        shared = {
            "decoded": shared_images(Path(state)),
            "seconds": min(TRIAL_SECONDS, STUDY_SECONDS / max(1, missing)),
            "trial": trial,
        }
        for number, cell in enumerate(cells, 1):
            if output.for_people and cell.missing:
                typer.echo(f"{cell.cell.title} ({number} of {len(cells)})", err=True)
            planned.append((cell, _forecast(cell, Path(state), number, shared) if cell.missing else None))
    document = study_document(file.stem, root, planned, trial=trial)
    if output.for_people:
        people().print(draw(document))
    else:
        emit(document, output)


def _forecast(cell: PlannedCell, state: Path, number: int, shared: Mapping[str, Any]) -> Forecast:
    root, folder = cell.cell.wanted.root, state / str(number)
    return forecast_simulation(
        cell.study, root, folder, at_once=at_once(cell.study), embeddings=state / EMBEDDINGS, **shared
    )


def plan_cell(cell: Cell) -> PlannedCell:
    """Return a cell with its documents and finished seeds.

    Raises
    ------
    AnchorageError
        Its documents have mistakes, or its folder holds results of others.
    """
    studies = cell.wanted.studies()
    local_silos(studies[0], cell.wanted.root)
    if (changed := changed_fields(cell.folder, studies[0])) and cell.folder.count_committed():
        raise other_documents_error(cell.folder, studies[0], changed)
    spec, wanted = studies[0].federation.spec, {study.federation.spec.seed for study in studies}
    finished = [] if changed else cell.folder.read_finished()
    return PlannedCell(
        cell, studies, [seed for seed in finished if seed.seed in wanted and seed.rounds[-1].round == spec.rounds]
    )


def at_once(study: Study) -> int:
    """Return how many silos of a simulation train at the same time on this machine."""
    return 1 if study.federation.spec.protocol.mode == "Asynchronous" else silos_at_once(choose_device("auto"))


def study_document(
    name: str, folder: Path, cells: Sequence[tuple[PlannedCell, Forecast | None]], *, trial: bool
) -> dict[str, Any]:
    """Return the plan of a study as JSON values.

    Parameters
    ----------
    name : str
        The study.
    folder : Path
        Where its results are.
    cells : sequence of PlannedCell and Forecast
        Every cell, with the forecast of one seed where seeds are missing.
    trial : bool
        Whether time and memory are known.
    """
    remaining_costs = [
        _of_seed(cell.study, forecast).times(cell.missing) if forecast else Cost() for cell, forecast in cells
    ]
    rows = [
        {
            "setting": cell.cell.setting,
            "method": cell.cell.method,
            "network": cell.study.federation.spec.model.network,
            "silos": len(cell.study.silos),
            "rounds": cell.study.federation.spec.rounds,
            "seeds": len(cell.studies),
            "finishedSeeds": len(cell.finished),
            **(cell.spent + rest).as_document(timed=trial or not cell.missing),
            "left": rest.as_document(timed=trial or not cell.missing),
            "memory": forecast.process_memory if forecast else None,
        }
        for (cell, forecast), rest in zip(cells, remaining_costs, strict=True)
    ]
    forecasts = [(cell.study, forecast) for cell, forecast in cells if forecast]
    timed = trial or not forecasts
    all_left = sum(remaining_costs, Cost())
    notes = (note for study, forecast in forecasts for note in reservations(study, forecast))
    return {
        "study": name,
        "workdir": str(folder),
        "cells": rows,
        "seeds": sum(len(cell.studies) for cell, _ in cells),
        "finishedSeeds": sum(len(cell.finished) for cell, _ in cells),
        **sum((cell.spent for cell, _ in cells), all_left).as_document(timed=timed),
        "left": all_left.as_document(timed=timed),
        "memory": max((row["memory"] for row in rows if row["memory"]), default=None),
        "notes": list(dict.fromkeys(notes)),
    }


def _of_seed(study: Study, expected_cost: Forecast) -> Cost:
    waiting = study.federation.spec.protocol.mode == "Synchronous"
    seconds = expected_cost.initial_seconds + expected_cost.seconds(
        min(at_once(study), len(study.silos)), waiting=waiting
    )
    return Cost(seconds, expected_cost.bytes_up, expected_cost.bytes_down)


def draw(document: Mapping[str, Any]) -> RenderableType:
    """Draw the document of `study_document` for people."""
    return Group(*_parts(document))


_NUMBERS = ("seeds", "done", "rounds", "silos", "time", "up", "down", "memory")


def _parts(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    cells, seeds, done = document["cells"], document["seeds"], document["finishedSeeds"]
    yield Text(
        f"{document['study']}: {format_count(len(cells), 'cell')}, {format_count(seeds, 'simulation')}", style="bold"
    )
    yield Text()
    several = any(cell["setting"] for cell in cells)
    table = plain_table(*(("setting",) if several else ()), "method", *_NUMBERS, right=_NUMBERS)
    for cell in cells:
        names = [cell["setting"]] if several else []
        counts = [str(cell["seeds"]), _finished_seeds(cell), str(cell["rounds"]), str(cell["silos"])]
        table.add_row(*names, cell["method"], *counts, *_cost(cell), _size(cell["memory"]))
    head = [""] if several else []
    table.add_row("in all", *head, str(seeds), str(done), "", "", *_cost(document), _size(document["memory"]))
    if done:
        table.add_row("still to do", *head, str(seeds - done), "", "", "", *_cost(document["left"]), "")
    yield table
    yield Text()
    if done:
        yield Text(f"Of finished simulations in {document['workdir']}: what they took.")
    if document["seconds"] is not None and done < seeds:
        yield Text(
            "Time of this machine, idle, one simulation after another, of a trial of a few steps; memory of the one process, "
            "with the images that it has read."
        )
    elif done < seeds:
        yield Text("No image is read here; time and memory are not known.")
    for note in document["notes"]:
        yield Text(f"note: {note}")


def _finished_seeds(cell: Mapping[str, Any]) -> str:
    finished: int = cell["finishedSeeds"]
    return "all" if finished == cell["seeds"] else str(finished)


def _cost(cost: Mapping[str, Any]) -> tuple[str, str, str]:
    seconds = cost["seconds"]
    return "?" if seconds is None else duration(seconds), amount(cost["up"]), amount(cost["down"])


def _size(nbytes: float | None) -> str:
    return "?" if nbytes is None else amount(nbytes)
