"""The supervised bound of a run: another run, or a simulation, that had every label."""

from collections.abc import Mapping
from pathlib import Path

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.model_card import CARD, Assessment, ModelCard
from fedctl.local_source import read_card_at
from fedctl.workdir import Workdir


def read_bound(folder: Path, card: ModelCard) -> Mapping[str, float]:
    """Return the metrics of the bound's last model.

    Parameters
    ----------
    folder : Path
        Working folder of the run or of the simulation, of which the seed of `card` is taken.
    card : ModelCard
        Of the run that is held against it.

    Raises
    ------
    AnchorageError
        There is no card of a finished run, it is no bound, or it was scored on other images.
    """
    places = (Workdir(folder).model / CARD, folder / "models" / str(card.seed) / CARD, folder / CARD)
    bound = next((card_at for place in places if (card_at := read_card_at(place)) is not None), None)
    if bound is None:
        raise AnchorageError(commands.NO_RESULTS, f"{folder} has no model card of a finished run of seed {card.seed}")
    if any(silo.labels != "All" for silo in bound.silos) or not bound.silos:
        message = f"{folder} is no supervised bound: that has labels: All at every silo"
        raise AnchorageError(commands.NO_RESULTS, message)
    assessment, other = card.final.assessment, bound.final.assessment
    if assessment is None or other is None or _scored_on(assessment) != _scored_on(other):
        message = f"{folder} was not scored on the images of this run: part, classes or their numbers of images differ"
        raise AnchorageError(commands.NO_RESULTS, message)
    return other.metrics


def _scored_on(scored: Assessment) -> tuple[str, list[tuple[str, int]]]:
    return scored.part, [(result.name, result.images) for result in scored.classes] + [
        (result.name, result.positives) for result in scored.findings
    ]
