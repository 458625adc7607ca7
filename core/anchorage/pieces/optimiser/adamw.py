"""AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.piece import piece
from anchorage.pieces.optimiser.scheduled import ScheduledOptimiser

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.models import Network


@piece("adamW")
class AdamW(ScheduledOptimiser):
    """AdamW as PyTorch defines it.

    Its moments start anew in each round.
    """

    follows_gradient: ClassVar[bool] = False

    learning_rate: PositiveDecimal = Field("0.001", description="Learning rate.")
    weight_decay: PositiveDecimal = Field("0.01", description="Weight decay.\n\nNot part of the gradient.")

    @property
    def persists(self) -> bool:
        """Say that no silo keeps moments: they are of weights that the aggregation has moved."""
        return False

    def build(
        self,
        network: Network,
        *,
        learning_rate: float | None = None,
        decay_classifier: bool = True,
        classifier_rate: float | None = None,
        done: float | None = None,
        epochs: int = 0,
        buffers: dict[Tensor, Tensor] | None = None,
    ) -> torch.optim.AdamW:
        """Return AdamW in two groups, the classifier last; a parameter without a gradient is left alone, weight decay included."""
        import torch

        groups = self.groups(network, learning_rate, decay_classifier, classifier_rate, self.factor(done, epochs))
        return torch.optim.AdamW(groups, fused=groups[-1]["params"][0].is_cuda)
