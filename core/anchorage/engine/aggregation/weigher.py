"""Weighers: they skip silos without an update, and report silos whose announcement is invalid."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from anchorage.api.piece_faults import WrongResultError, describe_value, shorten
from anchorage.transport.bounds import IMAGE_COUNTS
from anchorage.transport.messages import Announcement, AuxiliaryData, Evaluation
from anchorage.transport.tensors.chunks import ChunkSource
from anchorage.transport.tensors.layout import Layout

Announcements = Mapping[str, Announcement]
Evaluations = Mapping[str, Sequence[Evaluation]]


DUE = "one finite number >= 0 per silo"


class BaseWeigher(ABC):
    """How much each update counts.

    A silo without an update weighs nothing. Where a silo announced numbers that mean nothing, its weight is NaN and every other is 1: the
    engine takes it out and weighs the rest again.
    """

    barrier = False
    """Whether weights need every announcement first."""
    evaluated = False
    """Whether weights need every update scored by the silos first (DVW)."""
    repetitions = 1
    """How many models an update may hold at most, one behind the other: a silo may be asked to train more than once (RSCFed)."""

    def most(self, images: int) -> float | None:
        """Return the largest weight of a silo with so many images, where weights depend on its own counts alone; else None."""
        return None

    def choose(self, silos: Sequence[str], seed: int, round_number: int) -> Sequence[str]:
        """Return who of a round's silos takes part, in their order: all of them, unless groups are drawn (RSCFed)."""
        return silos

    def measure(  # noqa: B027  (an override is not needed)
        self, updates: Mapping[str, ChunkSource], announcements: Announcements, layout: Layout
    ) -> None:
        """Look at the whole updates of a synchronous round before they are weighed (RSCFed's distances); most weighers need not.

        Raises
        ------
        NonFiniteUpdate
            An update holds a number that is not finite; its index is that of `updates`.
        """

    def weigh(self, announcements: Announcements, evaluations: Evaluations) -> Mapping[str, float]:
        """Return an unnormalised weight per silo: finite and not negative, all zero where nothing counts; NaN for a bad announcement.

        Raises
        ------
        WrongResultError
            A weigher's own weights are not one number per silo, or none of several is finite and not negative.
        """
        active = {silo: a for silo, a in announcements.items() if a.update is not None}
        bad = {silo for silo, a in active.items() if not self._sound(a)}
        if bad:
            return {silo: math.nan if silo in bad else 1.0 for silo in announcements}
        weights = check_weights(self._weigh(active, evaluations), list(active))
        if len(active) > 1 and not any(is_weight(weight) for weight in weights.values()):
            raise WrongResultError(
                f"no usable weight for {len(active)} silos, such as {weights[next(iter(active))]}", DUE
            )
        return {silo: weights.get(silo, 0.0) for silo in announcements}

    def _sound(self, announcement: Announcement) -> bool:
        return all(count >= 0 for count in announcement.samples.values())

    def repetitions_of(self, silo: str) -> int:
        """Return how often a silo of the round that was chosen last trains."""
        return 1

    def auxiliary_data(self, silo: str) -> AuxiliaryData:
        """Return what a silo of the round that was chosen last is told: mostly nothing."""
        return {}

    def terms(
        self, updates: Mapping[str, ChunkSource], weights: Mapping[str, float]
    ) -> Sequence[tuple[str, ChunkSource, float]]:
        """Return the terms of the mean, silo, model and weight each, from what `weigh` returned: an update is one."""
        return [(silo, updates[silo], weight) for silo, weight in weights.items()]

    @abstractmethod
    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]: ...


def check_weights(result: object, silos: Sequence[str]) -> Mapping[str, float]:
    """Return the weights of silos.

    Raises
    ------
    WrongResultError
        They are not one number per silo.
    """
    if not isinstance(result, Mapping):
        raise WrongResultError(f"{describe_value(result)} for {len(silos)} silos", DUE)
    missing, unknown = [s for s in silos if s not in result], [str(s) for s in result if s not in silos]
    if missing or unknown:
        named = [f"none for {missing[0]}"] if missing else []
        named += [f"one for the unknown {shorten(unknown[0])}"] if unknown else []
        raise WrongResultError(f"{len(result)} weights for {len(silos)} silos, {' and '.join(named)}", DUE)
    for silo in silos:
        if not isinstance(result[silo], Real):
            raise WrongResultError(f"{describe_value(result[silo])} for {silo}", DUE)
    return {silo: float(result[silo]) for silo in silos}


def is_weight(weight: float) -> bool:
    """Return whether a number can be a weight: finite and not negative."""
    return math.isfinite(weight) and weight >= 0


class CountWeigher(BaseWeigher):
    """Weight is a count of the announcement.

    Parameters
    ----------
    of : str
        Keys of `Announcement.samples`; more than one are added, one that is named several times as often.
    """

    def __init__(self, *of: str) -> None:
        self._of = of

    def most(self, images: int) -> float | None:
        """Return as many as all images in each count; None where others than images are counted."""
        return float(images * len(self._of)) if IMAGE_COUNTS.issuperset(self._of) else None

    def _weigh(self, active: Announcements, evaluations: Evaluations) -> dict[str, float]:
        return {silo: float(sum(a.samples.get(of, 0) for of in self._of)) for silo, a in active.items()}


def counts(active: Announcements, name: str) -> NDArray[np.float64]:
    """Return a count of every announcement, float64 [silos]."""
    return np.array([a.samples.get(name, 0) for a in active.values()], np.float64)
