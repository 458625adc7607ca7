"""``fedctl simulate --leave-one-out``: measures the value of each silo by another simulation without it (methods reference, 6.9)."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.files import Study
from anchorage.methods import check
from fedctl.output import Format, emit, format_count, people, plain_table
from fedctl.research.results import Results, SimulationFolder, Spread
from fedctl.research.simulation import DEFAULT_FOLDER, SimulationRequest, results_of, simulate_seeds
from fedctl.research.simulation_view import SHOWN_SILOS
from fedctl.view import View, view_for

METRIC = "accuracy"


@dataclass(frozen=True, slots=True)
class SiloValue:
    """Results of a federation without one of its silos."""

    silo: str
    labels: str
    """Its name, and which of its images are labelled."""
    without: Spread | None = None
    """Accuracy of the last model without it, over the seeds; None where the others cannot train alone."""
    increase: Spread | None = None
    """By how much the error (1 - accuracy) grows without it: positive for a silo that helps."""
    reason: str = ""
    """Why the others cannot train alone."""


def simulate_leaving_out(wanted: SimulationRequest, workdir: Path | None, output: Format) -> None:
    """Simulate a federation, then once without each silo, and print the value of each; resumes an interrupted simulation.

    Parameters
    ----------
    wanted : SimulationRequest
        What is simulated.
    workdir : Path or None
        Folder of the results, with ``without/SILO`` for each silo; None takes ``.anchorage/simulations/<name>``.
    output : Format
        What stdout gets.

    Raises
    ------
    AnchorageError
        There is nothing to compare, or as `fedctl.research.simulation.simulate_federation`.
    InterruptError
        A signal came; what is committed stays.
    """
    studies = wanted.studies()
    wanted = replace(wanted.with_last_root(studies[0]), keep=False)
    _require_comparable(studies[0], wanted)
    root = (workdir or DEFAULT_FOLDER / studies[0].federation.metadata.name).resolve()
    terminal = output.for_people and sys.stdout.isatty()
    unsent: list[AnchorageError] = []
    with view_for(sys.stdout if output.for_people else sys.stderr, terminal=terminal) as view:
        shown = SHOWN_SILOS if terminal else 0
        play = partial(_play, wanted, view=view, shown=shown, unsent=unsent)
        all_silos = play(studies, SimulationFolder(root))
        values = [_value(play, studies, index, all_silos, view) for index in range(len(studies[0].silos))]
    if output.for_people:
        people().print(_table(all_silos, values))
    else:
        emit(_summary(all_silos, values), output)
    if unsent:
        raise unsent[0]


def without_silo(study: Study, index: int) -> Study:
    """Return the study without one of its silos, with the quorum limited to the remaining ones."""
    silos = study.silos[:index] + study.silos[index + 1 :]
    spec = study.federation.spec
    protocol = spec.protocol.model_copy(update={"min_silos": max(1, min(spec.protocol.min_silos, len(silos)))})
    federation = study.federation.model_copy(update={"spec": spec.model_copy(update={"protocol": protocol})})
    sources = study.sources[: index + 1] + study.sources[index + 2 :]
    return replace(study, federation=federation, silos=silos, sources=sources)


def _require_comparable(study: Study, wanted: SimulationRequest) -> None:
    detail = ""
    if wanted.silos is not None:
        detail = "--leave-one-out takes silos as they are in the file; leave --silos out"
    elif len(study.silos) < 2:
        detail = f"there is {len(study.silos)} silo; add another one to leave it out"
    elif study.federation.spec.evaluation is None:
        detail = "there is no accuracy to compare; add spec.evaluation"
    if detail:
        raise AnchorageError(commands.NO_RESULTS, detail)


def _play(
    wanted: SimulationRequest,
    studies: Sequence[Study],
    folder: SimulationFolder,
    view: View,
    shown: int,
    unsent: list[AnchorageError],
) -> Results:
    simulate_seeds(wanted, studies, folder, view, shown, unsent)
    results = results_of(studies, folder)
    if METRIC not in results.metrics():
        message = f"{folder.root}: no accuracy to compare; a method that trains no classifier needs spec.anchorData"
        raise AnchorageError(commands.NO_RESULTS, message)
    return results


def _value(
    play: Callable[[Sequence[Study], SimulationFolder], Results],
    studies: Sequence[Study],
    index: int,
    all_silos: Results,
    view: View,
) -> SiloValue:
    silo = studies[0].silos[index]
    name, labels = silo.metadata.name, silo.spec.labels
    others = [without_silo(study, index) for study in studies]
    if mistakes := check(others[0].federation, others[0].silos):
        return SiloValue(name, labels, reason=mistakes[0].message)
    view.say(f"without silo {name}")
    reached = play(others, SimulationFolder(all_silos.folder / "without" / name)).last(METRIC)
    pairs = zip(all_silos.last(METRIC).values, reached.values, strict=True)
    return SiloValue(name, labels, reached, Spread(tuple(all_of_them - without for all_of_them, without in pairs)))


def _table(all_silos: Results, values: Sequence[SiloValue]) -> RenderableType:
    spec = all_silos.federation.spec
    counts = f"{format_count(len(all_silos.seeds), 'seed')}, {format_count(spec.rounds, 'round')}"
    head = f"{all_silos.federation.metadata.name}: {spec.method.name} on {spec.model.network}, {counts}"
    table = plain_table("left out", "labels", "accuracy", "error grows by", right=("accuracy", "error grows by"))
    table.add_row("nobody", "", str(all_silos.last(METRIC)), "")
    for value in values:
        table.add_row(value.silo, value.labels, str(value.without or "not possible"), str(value.increase or ""))
    reasons = [Text(f"without {value.silo}: {value.reason}") for value in values if value.reason]
    return Group(Text(head, style="bold"), table, *reasons, Text(f"results in {all_silos.folder}"))


def _summary(all_silos: Results, values: Sequence[SiloValue]) -> dict[str, Any]:
    def document(value: SiloValue) -> dict[str, Any]:
        spreads = {"accuracy": value.without, "errorIncrease": value.increase}
        metric_values = {name: spread and spread.as_document() for name, spread in spreads.items()}
        return {"name": value.silo, "labels": value.labels, **metric_values, "reason": value.reason}

    return {
        "federation": all_silos.federation.metadata.name,
        "method": all_silos.federation.spec.method.name,
        "workdir": str(all_silos.folder),
        "accuracy": all_silos.last(METRIC).as_document(),
        "silos": list(map(document, values)),
    }
