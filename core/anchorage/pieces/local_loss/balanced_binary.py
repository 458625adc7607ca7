"""Balanced binary cross entropy: findings learnt as if half of the images had each, the counterpart of balanced softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.task import MULTI_LABEL
from anchorage.pieces.finding_counts import ALL, FindingCounts, LabelledFindings, count_findings, declare_arrays
from anchorage.pieces.slots import LocalLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.api.task import Task
    from anchorage.learning.local_training import Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.silo_round import SiloRound

LEAST_SHARE = 1e-3
"""Shares of positives are from here to 1 minus it."""


@piece("balancedBinary")
class BalancedBinary(LocalLoss):
    """Binary cross entropy of logits shifted by log(share / (1 - share)) of each finding's positives."""

    tasks: ClassVar[frozenset[str] | None] = MULTI_LABEL
    resumes: ClassVar[bool] = True

    shares: Literal["Silo", "Federation"] = Field(
        "Silo",
        description="Shares of positives by which logits are shifted. Silo: those of the silo's labels. Federation: those of all silos, "
        "which send their numbers of images with and without each finding, in synchronous rounds; no shift in the first one.",
    )

    def needs(self) -> Sequence[Need]:
        """Need rounds for shares of all silos."""
        if self.shares == "Silo":
            return super().needs()
        detail = "found Asynchronous, but balancedBinary with shares Federation needs what all silos of the round before announced"
        message = f"{detail}; set Synchronous, or shares: Silo"
        return (
            *super().needs(),
            Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),
        )

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the counts, where they are those of all silos."""
        return super().auxiliary() if self.shares == "Silo" else (*super().auxiliary(), *declare_arrays())

    def memory(self, task: Task, seed: int) -> LabelledFindings | None:
        """Remember the federation's counts."""
        return None if self.shares == "Silo" else LabelledFindings(len(task.outputs))

    def begin(self, silo_round: SiloRound) -> FindingCounts | None:
        """Tell the silo's counts."""
        return None if self.shares == "Silo" else FindingCounts(silo_round)

    def loss(self, data: Labelled, task: TaskHooks) -> Loss:
        """Return the loss over the silo's own counts."""
        return _over(shift_of(count_findings(data.labels)), data)

    def round_loss(self, silo_round: SiloRound, data: Labelled) -> Loss:
        """Return the loss of a round, whose shares may be those that the server told."""
        if self.shares == "Silo":
            return super().round_loss(silo_round, data)
        return _over(shift_of(silo_round.auxiliary(ALL)[ALL].cpu().numpy()), data)

    def log_shares(self, silo_round: SiloRound) -> Tensor | None:
        """Return the shift by all silos' shares, with which pseudo-labels are learnt, too; None for the silo's own."""
        if self.shares == "Silo":
            return None
        counts = silo_round.auxiliary(ALL)[ALL]
        return _tensor(shift_of(counts.cpu().numpy())).to(counts.device)


def shift_of(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return log(share / (1 - share)) of positives, float32 [L], of counts [2, L]; 0 for a finding that nobody has told of."""
    total = counts.sum(0)
    share = np.where(total > 0, counts[1] / np.maximum(total, 1), 0.5).clip(LEAST_SHARE, 1 - LEAST_SHARE)
    shift: NDArray[np.float32] = np.log(share / (1 - share)).astype(np.float32)
    return shift


def _tensor(values: NDArray[np.float32]) -> Tensor:
    import torch

    return torch.from_numpy(values)


def _over(shift: NDArray[np.float32], data: Labelled) -> Loss:
    from anchorage.algorithms.binary_losses import masked_cross_entropy

    added = _tensor(shift).to(data.views.device)
    return lambda logits, labels: masked_cross_entropy(logits + added, labels)
