"""FixMatch, and the adjustment of its labels for a balanced head (methods reference, 6.5, 6.12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.plan import ROUNDS
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.pseudo_labels.consistency import Consistency
from anchorage.transport.messages import Announcement, AuxiliaryData

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound

RAREST = 1e-6
"""Smallest share of a class in an estimate."""


@piece("fixMatch")
class FixMatch(Consistency):
    """The model's confident label of a weak view is learnt on a strong view (Sohn et al. 2020)."""

    adjustment: Literal["None", "Local", "Labelled"] = Field(
        "None",
        description="Class shares that labels make up for, beside a balanced head.\n\nThe silo's or those of all labels.",
    )

    def facts(self) -> frozenset[str]:
        """Say that a balanced head may learn these labels."""
        return super().facts() | {"fixMatch"}

    def needs(self) -> Sequence[Need]:
        """Need a balanced head for adjusted labels, and rounds for shares of all labels."""
        if self.adjustment == "None":
            return super().needs()
        head = f"found {self.adjustment}, but labels are adjusted for a balanced head only; set secondHead: {{balanced: {{}}}}"
        needs = [Need("balancedHead", head, path=self.option("adjustment"))]
        if self.adjustment == "Labelled":
            found = "found Asynchronous, but fixMatch with adjustment Labelled needs what all silos of the round before announced"
            message = f"{found}; set Synchronous, or another adjustment"
            needs.append(Need(ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")))
        return (*super().needs(), *needs)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return class shares of the labels."""
        if self.adjustment != "Labelled":
            return super().auxiliary()
        return (
            *super().auxiliary(),
            AuxiliaryArray("prior", "[C] float64", "class shares of all silos' labelled images"),
            AuxiliaryArray("label_counts", "[C] int64", "the silo's labelled images per class", up=True),
        )

    def memory(self, num_classes: int, seed: int) -> LabelledPrior | None:
        """Remember the federation's class shares."""
        return LabelledPrior(num_classes) if self.adjustment == "Labelled" else None

    def begin(self, silo_round: SiloRound) -> LabelCounts | None:
        """Tell the silo's class counts."""
        return LabelCounts(silo_round) if self.adjustment == "Labelled" else None

    def adjusted_shares(self, silo_round: SiloRound) -> Tensor | None:
        """Return the shares that labels make up for, float64 [C]; None for the silo's own estimate."""
        import torch

        classes, device = silo_round.run.model.num_classes, silo_round.images.views.device
        if self.adjustment == "Labelled":
            return silo_round.auxiliary("prior")["prior"].clamp(min=RAREST)
        if self.adjustment == "None":
            return torch.full((classes,), 1 / classes, dtype=torch.float64, device=device)
        known = silo_round.images.labels[silo_round.images.labelled]
        if not len(known):
            return None
        shares = np.bincount(known, minlength=classes) / len(known)
        return torch.from_numpy(np.maximum(shares, RAREST)).to(device)


class LabelCounts(RoundPart):
    """Tells the silo's labelled images per class."""

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        known = silo_round.images.labels[silo_round.images.labelled]
        self._counts = np.bincount(known, minlength=silo_round.run.model.num_classes)

    def auxiliary(self) -> AuxiliaryData:
        """Return ``label_counts``, int64 [C]."""
        return {"label_counts": self._counts}


class LabelledPrior(RoundMemory):
    """Class shares of the labels of the last round that had any.

    Reads ``auxiliary_data["label_counts"]``, int64 of shape [C]. Sends ``prior``, float64 [C]; before the first counts every class has the
    same share.

    Parameters
    ----------
    num_classes : int
        Classes C.
    """

    def __init__(self, num_classes: int) -> None:
        self._counts = np.ones(num_classes, np.int64)

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Take the counts of this round; those of another shape or dtype, or negative ones, are left out."""
        counts = np.zeros_like(self._counts)
        for announcement in announcements.values():
            told = announcement.auxiliary_data.get("label_counts")
            if told is not None and told.dtype == np.int64 and told.shape == counts.shape and (told >= 0).all():
                counts += told
        if counts.any():
            self._counts = counts

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the shares, the same for every silo."""
        return {"prior": self._counts / self._counts.sum()}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts."""
        return {"counts": self._counts}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = state["counts"].astype(np.int64)
