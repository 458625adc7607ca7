"""FedCoPL's budget: how many images of each class a silo trains on, so that all silos' images together are of even, or given, shares.

Methods reference, N6, equations N32 and N33; the method's prompts are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.pseudo_labels.class_adaptive import previous_round
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels
from anchorage.pieces.pseudo_labels.viewed import Viewed
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.plan import Plan
    from anchorage.learning.silo_round import SiloRound

STORED_COUNTS = "class-budget/counts"
"""In the silo's kept state: what it counted last, int64 [C]."""
COUNTS, TOTALS = "guessed_counts", "guessed_totals"
_ROUNDING = 1e-6
"""How far a sum of shares may be from 1."""


@piece("classBudget")
class ClassBudget(Viewed, FixedLabels):
    """The most confident labels of each class, as many as keep all silos' images together at given class shares (FedCoPL).

    The received model labels plain images once per round; of each class the most probable ones are accepted.
    """

    every: Annotated[int, Field(ge=1, le=10_000)] = Field(
        5, description="Number of rounds between counts of the confident guesses per class."
    )
    mix: Annotated[tuple[Fraction, ...], Field(max_length=1000)] = Field(
        (),
        description="Target class shares of all silos' images together, in the order of the classes, with sum 1. Empty: equal shares.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need a share of every class."""
        yield from super().check(plan)
        classes, total = len(plan.spec.task.outputs), sum(map(float, self.mix))
        if self.mix and (len(self.mix) != classes or abs(total - 1) > _ROUNDING):
            message = f"found {len(self.mix)} shares of sum {total:g}, but the task has {classes} classes; give one for each, of sum 1"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("mix"), message)

    def needs(self) -> Sequence[Need]:
        """Need rounds, and the counts of the one before."""
        return (*super().needs(), previous_round(self.name))

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the counts."""
        of = "confident guesses per class"
        return (
            AuxiliaryArray(COUNTS, "[C] int64", f"class histogram: the silo's {of}", up=True),
            AuxiliaryArray(TOTALS, "[C] int64", f"{of}, those of all silos; 0 before the first"),
        )

    def memory(self, task: Task, seed: int) -> GuessedTotals:
        """Remember every silo's last counts."""
        return GuessedTotals(len(task.outputs))

    def begin(self, silo_round: SiloRound) -> GuessedCounts:
        """Guess, and count where it is time."""
        return GuessedCounts(silo_round, self.every)

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of plain images, int64 [b], and whether they are within the budget, bool [b]."""
        confidence, labels = probabilities_of(silo_round, indices).max(1)
        (part,) = (part for part in silo_round.parts if isinstance(part, GuessedCounts))
        totals = silo_round.auxiliary(TOTALS)[TOTALS].cpu().numpy()
        wanted = (
            part.silo_counts
            if part.fresh
            else budget(part.silo_counts, totals, target_counts(totals, tuple(map(float, self.mix))))
        )
        return labels, within_budget(confidence, labels, wanted)


class GuessedCounts(RoundPart):
    """A silo's confident guesses per class: counted by the received model where it is time, else those that were kept."""

    def __init__(self, silo_round: SiloRound, every: int) -> None:
        classes, train = silo_round.run.model.num_outputs, silo_round.images.train
        previous_counts = silo_round.kept.get(STORED_COUNTS)
        self.fresh = previous_counts is None or not np.any(previous_counts)
        """Whether no total has this silo's counts in it yet, so that they are its budget."""
        self._announces = self.fresh or (silo_round.draws.round - 1) % every == 0
        self.silo_counts: NDArray[np.int64] = (
            np.zeros(classes, np.int64) if previous_counts is None else previous_counts
        )
        """Counts that the budget is made of, int64 [C]."""
        self._now = self.silo_counts
        if self._announces and len(train):
            probabilities = probabilities_of(silo_round, train).double()
            chosen = estimation_set(probabilities.amax(1), entropies(probabilities))
            self._now = np.bincount(probabilities.argmax(1)[chosen].cpu().numpy(), minlength=classes)
            self.silo_counts = self._now if self.fresh else self.silo_counts

    def auxiliary(self) -> AuxiliaryData:
        """Return the counts, where they are new."""
        return {COUNTS: self._now} if self._announces else {}

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {STORED_COUNTS: self._now}


class GuessedTotals(RoundMemory):
    """Every silo's last counts; sends their sum to all.

    Parameters
    ----------
    num_classes : int
        Classes C.
    """

    def __init__(self, num_classes: int) -> None:
        self._num_classes = num_classes
        self._counts: dict[str, NDArray[np.int64]] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, negative ones, or more than its images, are left out."""
        for silo, announcement in announcements.items():
            silo_counts, most = announcement.auxiliary_data.get(COUNTS), announcement.samples.get("train", 0)
            if silo_counts is None or silo_counts.dtype != np.int64 or silo_counts.shape != (self._num_classes,):
                continue
            if ((silo_counts >= 0) & (silo_counts <= most)).all() and silo_counts.sum() <= most:
                self._counts[silo] = silo_counts

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the sum of all silos' counts."""
        return {TOTALS: sum(self._counts.values(), np.zeros(self._num_classes, np.int64))}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts by silo."""
        return dict(self._counts)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = {silo: array.astype(np.int64) for silo, array in state.items()}


def probabilities_of(silo_round: SiloRound, indices: NDArray[np.int64]) -> Tensor:
    """Return the received model's probabilities of plain images, float32 [b, C]."""
    views, network = silo_round.images.views, silo_round.network
    return views.map_batches(indices, lambda i: network(views.plain(i)).softmax(1))


def entropies(probabilities: Tensor) -> Tensor:
    """Return the entropy of each row of probabilities [n, C], in nats."""
    import torch

    entropy: Tensor = -torch.special.xlogy(probabilities, probabilities).sum(1)
    return entropy


def estimation_set(confidence: Tensor, entropy: Tensor) -> Tensor:
    """Return which images are counted, bool [n]: of more confidence and less entropy than the medians."""
    return (confidence > confidence.quantile(0.5)) & (entropy < entropy.quantile(0.5))


def budget(
    silo_counts: NDArray[np.int64], totals: NDArray[np.int64], per_class: float | NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many images of each class a silo trains on, int64 [C] (equation N33).

    Parameters
    ----------
    silo_counts, totals : ndarray of int64, shape [C]
        Counts of the silo and of all silos.
    per_class : float or ndarray of float64, shape [C]
        Images of each class that all silos train on, such as `target_counts`.
    """
    share = np.divide(silo_counts, totals, out=np.zeros(len(silo_counts)), where=totals > 0)
    return np.ceil(np.minimum(share, 1) * per_class).astype(np.int64)


def target_counts(totals: NDArray[np.int64], mix: Sequence[float]) -> NDArray[np.float64]:
    """Return the images of each class that all silos are to train on, float64 [C]: their counts' sum by class shares [C].

    Without shares it is the mean of the counts (equation N32).
    """
    targets: NDArray[np.float64] = np.full(len(totals), totals.mean()) if not mix else totals.sum() * np.array(mix)
    return targets


def within_budget(confidence: Tensor, labels: Tensor, most: NDArray[np.int64]) -> Tensor:
    """Return which images are among the most probable ones of their class, as many as the budget [C] has, bool [n]; ties by position."""
    import torch

    chosen = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    for c, count in enumerate(most.tolist()):
        of_class = (labels == c).nonzero()[:, 0]
        chosen[of_class[torch.argsort(confidence[of_class], descending=True, stable=True)[:count]]] = True
    return chosen
