"""FedRoD's personal head: kept at the silo, beside the generic one that is evaluated (methods reference, 6.12)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.second_head.beside_labels import BesideLabels

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.local_training import HeadLoss, Labelled, Loss
    from anchorage.learning.model_hooks import TaskHooks
    from anchorage.learning.network import Network


_NAME = "local"
"""Under which a head stays at its silo."""


class PersonalHead(BesideLabels):
    """A head that stays at the silo and learns on top of the generic head's outputs."""

    def add_heads(self, network: Network) -> None:
        """Add the personal head, of the classifier's shape."""
        from torch import nn

        network.add_head(_NAME, nn.Linear(network.linear.in_features, network.linear.out_features))

    def head_loss(self, loss: Loss, data: Labelled, task: TaskHooks) -> HeadLoss:
        """Return `loss` of the generic head, and cross entropy of both heads, of which the personal one learns (KAT N3)."""

        def term(network: Network, z: Tensor, labels: Tensor) -> Tensor:
            generic = network.classifier(z)
            return loss(generic, labels) + personal_cross_entropy(generic, personal_logits(network, z), labels).mean()

        return term


@piece("personal")
class Personal(PersonalHead):
    """A personal head at each silo that learns from labels only (FedRoD; Chen and Chao 2022)."""

    def needs(self) -> Sequence[Need]:
        """Need FlexMatch where there are pseudo-labels."""
        message = (
            "found personal beside pseudo-labels, beside which no second head learns; set pseudoLabels: none or flexMatch, "
            "or secondHead: {none: {}}"
        )
        return (*super().needs(), Need(Fact.PSEUDO_LABELS_OF_ONE_HEAD, message, refused=True))


def personal_logits(network: Network, z: Tensor) -> Tensor:
    """Return the personal head's logits [n, C] of representations [n, d], to which no gradient goes."""
    logits: Tensor = network.head(_NAME)(z.detach())
    return logits


def personal_cross_entropy(generic: Tensor, personal: Tensor, labels: Tensor) -> Tensor:
    """Return each image's cross entropy of both heads together, of which only the personal one learns (KAT N3).

    Parameters
    ----------
    generic, personal : Tensor of float, shape [n, C]
        Logits of the two heads.
    labels : Tensor of int64, shape [n]
        Classes.
    """
    from torch.nn import functional

    return functional.cross_entropy(generic.detach() + personal, labels, reduction="none")
