"""FixMatch, and the adjustment of its labels for a balanced head (methods reference, 6.5, 6.12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import ONE_CLASS_EACH, Task
from anchorage.pieces.class_shares import LabelCounts, LabelledPrior, declare_arrays
from anchorage.pieces.pseudo_labels.consistency import Consistency

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound

RAREST = 1e-6
"""Smallest share of a class in an estimate."""


@piece("fixMatch")
class FixMatch(Consistency):
    """FixMatch: confident labels of weakly augmented views are learnt on strongly augmented views (Sohn et al. 2020).

    In a segmentation, the confident pixels of images as they are; of volumes, those of patches.
    """

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH
    for_volumes: ClassVar[bool] = True

    adjustment: Literal["None", "Local", "Labelled"] = Field(
        "None",
        description="Class shares for which labels are adjusted, with `secondHead: {balanced: {}}`. None: no adjustment. Local: those of "
        "the silo's labels, else estimated. Labelled: those of all silos' labels, in a synchronous protocol.",
    )

    def facts(self) -> frozenset[str]:
        """Say that a balanced head may learn these labels."""
        return super().facts() | {Fact.FIX_MATCH}

    def needs(self) -> Sequence[Need]:
        """Need a balanced head for adjusted labels, and rounds for shares of all labels."""
        if self.adjustment == "None":
            return super().needs()
        head = f"found {self.adjustment}, but labels are adjusted for a balanced head only; set secondHead: {{balanced: {{}}}}"
        needs = [Need(Fact.BALANCED_HEAD, head, path=self.option("adjustment"))]
        if self.adjustment == "Labelled":
            detail = "found Asynchronous, but fixMatch with adjustment Labelled needs what all silos of the round before announced"
            message = f"{detail}; set Synchronous, or another adjustment"
            needs.append(Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")))
        return (*super().needs(), *needs)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return class shares of the labels."""
        if self.adjustment != "Labelled":
            return super().auxiliary()
        return (
            *super().auxiliary(),
            *declare_arrays(),
        )

    def memory(self, task: Task, seed: int) -> LabelledPrior | None:
        """Remember the federation's class shares."""
        return LabelledPrior(len(task.outputs)) if self.adjustment == "Labelled" else None

    def begin(self, silo_round: SiloRound) -> LabelCounts | None:
        """Tell the silo's class counts."""
        return LabelCounts(silo_round) if self.adjustment == "Labelled" else None

    def adjusted_shares(self, silo_round: SiloRound) -> Tensor | None:
        """Return the shares that labels make up for, float64 [C]; None for the silo's own estimate."""
        import torch

        classes, device = silo_round.run.model.num_outputs, silo_round.images.views.device
        if self.adjustment == "Labelled":
            return silo_round.auxiliary("prior")["prior"].clamp(min=RAREST)
        if self.adjustment == "None":
            return torch.full((classes,), 1 / classes, dtype=torch.float64, device=device)
        known = silo_round.images.labels[silo_round.images.labelled]
        if not len(known):
            return None
        shares = np.bincount(known, minlength=classes) / len(known)
        return torch.from_numpy(np.maximum(shares, RAREST)).to(device)
