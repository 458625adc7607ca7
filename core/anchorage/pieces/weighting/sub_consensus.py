"""RSCFed's weights: random groups of silos, in each of which an update counts less the further it is from the group's mean.

Methods reference, 6.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, PositiveDecimal
from anchorage.api.errors.documents import BARRIER_ASYNCHRONOUS, TOO_FEW_SILOS
from anchorage.api.fact import Fact
from anchorage.api.method import Count
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import Need, piece
from anchorage.api.plan import Plan
from anchorage.api.task import Task
from anchorage.engine.aggregation.mean import NonFiniteUpdate, find_nonfinite
from anchorage.engine.aggregation.regions import Region, float_regions, for_each_chunk
from anchorage.engine.aggregation.weigher import Announcements, BaseWeigher, Evaluations
from anchorage.learning.randomness import generator
from anchorage.pieces.slots import Weighting
from anchorage.transport.tensors.joined import models_in
from anchorage.transport.tensors.layout import BUFFERS, Layout

if TYPE_CHECKING:
    from anchorage.transport.tensors.chunks import ChunkSource

Floats = NDArray[np.float64]


@piece("subConsensus")
class SubConsensus(Weighting):
    """Mean of the models of random groups of silos, in which distant updates count less (RSCFed)."""

    repeats: ClassVar[bool] = True

    groups: Annotated[int, Field(ge=1, le=100)] = Field(3, description="Number of groups that are drawn in each round.")
    group_size: Count = Field(5, description="Number of silos in a group, at least `protocol.minSilos`.")
    labelled_factor: AboveZero = Field(
        "6",
        description="Factor by which the images of a silo with labels count more in the mean of a group. As in the published code, it is "
        "squared in its weight.",
    )
    scale: PositiveDecimal = Field(
        "10000",
        description="Scale beta of the distances in a group without labelled silos. A larger value discounts distant updates more.",
    )
    labelled_scale: PositiveDecimal = Field(
        "100",
        description="Value of `scale` for a group with labelled silos.",
    )
    distance: Literal["Parameters", "All"] = Field(
        "Parameters",
        description="Tensors over which distances are taken. Parameters: without buffers. All: with buffers, as in the published code.",
    )

    def needs(self) -> Sequence[Need]:
        """Need rounds in which groups are drawn."""
        message = (
            "found Asynchronous, but the weighting subConsensus normalises over all silos of a round "
            "(a barrier); set Synchronous, or another weighting"
        )
        return (Need(Fact.ROUNDS, message, failure=BARRIER_ASYNCHRONOUS, path=("spec", "protocol", "mode")),)

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need groups that reach the quorum: a round may have as few silos as one group."""
        needed = plan.spec.protocol.min_silos
        if self.group_size < needed:
            message = (
                f"found {self.group_size}, but protocol.minSilos is {needed}, and all groups may draw the same silos; "
                "set groupSize to at least that, or minSilos lower"
            )
            yield Mistake(TOO_FEW_SILOS, self.option("groupSize"), message)

    def weigher(self, task: Task) -> GroupWeigher:
        """Return the weigher."""
        return GroupWeigher(self)


class GroupWeigher(BaseWeigher):
    """Weight is a silo's mean share over the round's groups, so that the weighted mean of all models is the mean of the groups' models.

    A silo that several groups drew trains as often, and its models, one behind the other in its update, belong to these groups in their order.
    A silo that sent none is left out of its groups; where one sent fewer than it was drawn, its last model stands in for the others.

    Parameters
    ----------
    weighting : SubConsensus
        Groups, and how distances count in them.
    """

    def __init__(self, weighting: SubConsensus) -> None:
        self._weighting, self.repetitions = weighting, weighting.groups
        self._groups: list[frozenset[str]] = []
        self._models: dict[str, list[ChunkSource]] = {}
        self._shares: dict[str, list[float]] = {}

    def choose(self, silos: Sequence[str], seed: int, round_number: int) -> Sequence[str]:
        """Draw the groups, each without replacement, and return the silos that are in one."""
        rng, slot = generator(seed, "sub-consensus", round_number), self._weighting
        size = min(slot.group_size, len(silos))
        drawn = [rng.choice(len(silos), size=size, replace=False) for _ in range(slot.groups)]
        self._groups = [frozenset(silos[i] for i in group) for group in drawn]
        return [silo for silo in silos if any(silo in group for group in self._groups)]

    def repetitions_of(self, silo: str) -> int:
        """Return how many groups drew a silo."""
        return max(1, sum(silo in group for group in self._groups))

    def measure(self, updates: Mapping[str, ChunkSource], announcements: Announcements, layout: Layout) -> None:
        """Compute every model's share in its group from the distances of the models.

        Raises
        ------
        NonFiniteUpdate
            An update holds a number that is not finite.
        """
        names, slot = list(updates), self._weighting
        groups = [present for group in self._groups if (present := [n for n in names if n in group])]
        self._models = {name: models_in(update, layout) for name, update in updates.items()}
        self._shares = {name: [0.0] * len(models) for name, models in self._models.items()}
        drawn = dict.fromkeys(names, 0)
        for group in groups:
            turns = [min(drawn[name], len(self._models[name]) - 1) for name in group]
            drawn |= {name: drawn[name] + 1 for name in group}
            samples = [announcements[name].samples for name in group]
            sizes = np.array([max(0, counts.get("train", 0)) for counts in samples], np.float64)
            labelled = np.array([counts.get("labelled", 0) > 0 for counts in samples])
            counted = np.where(labelled, float(slot.labelled_factor), 1.0) * sizes
            try:
                members = [self._models[name][turn] for name, turn in zip(group, turns, strict=True)]
                apart = distances(members, counted, layout, everything=slot.distance == "All")
            except NonFiniteUpdate as error:
                raise NonFiniteUpdate(names.index(group[error.index]), error.tensor) from error
            shares = group_shares(sizes, apart, labelled, slot).tolist()
            for name, turn, share in zip(group, turns, shares, strict=True):
                self._shares[name][turn] += share / len(groups)

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return {silo: sum(self._shares.get(silo, ())) for silo in active}

    def terms(
        self, updates: Mapping[str, ChunkSource], weights: Mapping[str, float]
    ) -> Sequence[tuple[str, ChunkSource, float]]:
        """Return every model with its part of its silo's weight."""
        terms: list[tuple[str, ChunkSource, float]] = []
        for silo, weight in weights.items():
            models, shares = self._models[silo], self._shares[silo]
            total = sum(shares)
            parts = [share / total if total else 1 / len(shares) for share in shares]
            terms += [(silo, model, weight * part) for model, part in zip(models, parts, strict=True)]
        return terms


def group_shares(sizes: Floats, apart: Floats, labelled: NDArray[np.bool_], slot: SubConsensus) -> Floats:
    """Return the shares of a group's members, float64 [m], which sum to one; all 0 where no member has an image (KAT-C1).

    Parameters
    ----------
    sizes : ndarray of float64, shape [m]
        Images.
    apart : ndarray of float64, shape [m]
        Distances from the group's mean.
    labelled : ndarray of bool, shape [m]
        Who has labels; the factor counts twice for them, as in the published code.
    slot : SubConsensus
        Factor and scales.
    """
    beta = float(slot.labelled_scale if labelled.any() else slot.scale)
    exponents = np.divide(-beta * apart, sizes, out=np.full(len(sizes), -np.inf), where=sizes > 0)
    if not (sizes > 0).any():
        return np.zeros(len(sizes))
    factors = np.where(labelled, float(slot.labelled_factor) ** 2, 1.0)
    values = np.exp(exponents - exponents.max()) * sizes * factors  # the largest is 1: none of them all underflows
    shares: Floats = values / values.sum()
    return shares


def distances(members: Sequence[ChunkSource], weights: Floats, layout: Layout, *, everything: bool = False) -> Floats:
    """Return how far each update is from their weighted mean, float64 [m]: the sum over tensors of the norms of the differences.

    Buffers of batch normalisation are left out. Reads every chunk twice and holds one of them and its mean at a time.

    Parameters
    ----------
    members : sequence of ChunkSource
        Whole updates.
    weights : ndarray of float64, shape [m]
        Of the mean; uniform where all are 0.
    layout : Layout
        Of every update.
    everything : bool
        Take the buffers in, counters too, as the published code does.

    Raises
    ------
    NonFiniteUpdate
        A member holds a number that is not finite.
    """
    shares = weights / weights.sum() if weights.any() else np.full(len(members), 1 / len(members))
    chunks = _tensors(layout, everything)
    squares = np.zeros((len(layout.tensors), len(members)))
    for part in for_each_chunk(lambda index: _squares(members, shares, chunks[index], index), len(chunks)):
        for tensor, values in part:
            squares[tensor] += values
    if not np.isfinite(squares).all():
        for index, member in enumerate(members):
            if (tensor_name := find_nonfinite(member, layout)) is not None:
                raise NonFiniteUpdate(index, tensor_name)
    apart: Floats = np.sqrt(squares).sum(0)
    return apart


def _tensors(layout: Layout, everything: bool) -> list[list[tuple[int, Region]]]:
    """Return the regions of every chunk by the index of their tensor, those of buffers left out unless `everything` is asked for."""
    chunks: list[list[tuple[int, Region]]] = [[] for _ in float_regions(layout)]
    for number, entry in enumerate(layout.tensors):
        if everything or not entry.name.endswith(BUFFERS):
            for index, regions in enumerate(float_regions(Layout((entry,)), counters=everything)):
                chunks[index] += [(number, region) for region in regions]
    return chunks


def _squares(
    members: Sequence[ChunkSource], shares: Floats, regions: Sequence[tuple[int, Region]], index: int
) -> list[tuple[int, Floats]]:
    """Return each region's tensor and the squared differences of the members, float64 [m], summed."""
    if not regions:
        return []
    means = [np.zeros(region.count) for _, region in regions]
    squares = [np.zeros(len(members)) for _ in regions]
    with np.errstate(all="ignore"):
        for member, share in zip(members, shares.tolist(), strict=True):
            chunk = member.chunk(index)
            for (_, region), mean in zip(regions, means, strict=True):
                mean += share * region.read(chunk).astype(np.float64)
        for position, member in enumerate(members):
            chunk = member.chunk(index)
            for (_, region), mean, square in zip(regions, means, squares, strict=True):
                difference = region.read(chunk) - mean
                square[position] = np.square(difference, out=difference).sum()
    return [(number, square) for (number, _), square in zip(regions, squares, strict=True)]
