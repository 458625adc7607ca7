"""Balanced softmax: labels learnt as if classes were equally frequent (methods reference, 6.12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import NEW_OPTION, AuxiliaryArray, Need, piece
from anchorage.pieces.class_shares import LabelCounts, LabelledPrior, declare_arrays
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.api.task import Task
    from anchorage.learning.local_training import Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.silo_round import SiloRound


@piece("balancedSoftmax")
class BalancedSoftmax(LocalLoss):
    """Balanced softmax: cross entropy of logits shifted by the logarithm of class shares (Ren et al. 2020)."""

    resumes: ClassVar[bool] = True

    shares: Annotated[Literal["Silo", "Federation"], NEW_OPTION] = Field(
        "Silo",
        description="Class shares by which logits are shifted. Silo: those of the silo's labels. Federation: those of all silos, which "
        "send their numbers of images per class, in synchronous rounds; equal shares in the first one.",
    )

    def needs(self) -> Sequence[Need]:
        """Need rounds for shares of all silos."""
        if self.shares == "Silo":
            return super().needs()
        detail = "found Asynchronous, but balancedSoftmax with shares Federation needs what all silos of the round before announced"
        message = f"{detail}; set Synchronous, or shares: Silo"
        return (
            *super().needs(),
            Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),
        )

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return class shares, where they are those of all silos."""
        return super().auxiliary() if self.shares == "Silo" else (*super().auxiliary(), *declare_arrays())

    def memory(self, task: Task, seed: int) -> LabelledPrior | None:
        """Remember the federation's class shares."""
        return None if self.shares == "Silo" else LabelledPrior(len(task.outputs))

    def begin(self, silo_round: SiloRound) -> LabelCounts | None:
        """Tell the silo's class counts."""
        return None if self.shares == "Silo" else LabelCounts(silo_round)

    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the mean balanced softmax over the silo's own class counts."""
        import torch

        return _over(torch.from_numpy(np.bincount(data.labels, minlength=len(task.outputs))), data)

    def round_loss(self, silo_round: SiloRound, data: Labelled) -> Loss:
        """Return the loss of a round, whose shares may be those that the server told."""
        if self.shares == "Silo":
            return super().round_loss(silo_round, data)
        return _over(silo_round.auxiliary("prior")["prior"], data)

    def log_shares(self, silo_round: SiloRound) -> Tensor | None:
        """Return the logarithm of all silos' class shares, which pseudo-labels of views are learnt with as labels are; None for the silo's own."""
        from anchorage.algorithms.losses import log_prior

        return None if self.shares == "Silo" else log_prior(silo_round.auxiliary("prior")["prior"].double()).float()


def _over(counts: Tensor, data: Labelled) -> Loss:
    """Return the loss over class counts or shares, [C]."""
    from anchorage.algorithms.losses import balanced_softmax, log_prior

    prior = log_prior(counts.double()).float().to(data.views.device)
    return lambda logits, labels: balanced_softmax(logits, labels, prior)
