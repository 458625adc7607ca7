"""What a piece does in one round of a silo. Needs no torch until a hook is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.transport.messages import AuxiliaryData

    Arrays = Mapping[str, NDArray[Any]]


class RoundPart:
    """What a piece does in one round of a silo, beside the losses; every hook may be left as it is."""

    wants_pseudo_labels = False
    """Whether `pseudo_labelled` is to be called."""

    resumes = False
    """Whether training that another process began can go on: what this piece knows between two steps is what it knew when `losses` and `stepping`
    were called, before the first one. Otherwise a trainer that is killed begins the task again."""

    def losses(self, losses: Iterator[Tensor]) -> Iterator[Tensor]:
        """Return each step's loss with what this piece adds."""
        return losses

    def stepping(self) -> AbstractContextManager[None]:
        """Surround the steps."""
        return nullcontext()

    def epoch_begins(self) -> None:
        """Note that the pseudo-labeller begins another pass; only where it labels anew in each."""

    def pseudo_labelled(self, indices: Tensor, features: Tensor, labels: Tensor, confident: Tensor) -> None:
        """Look at images that the received model labelled.

        Parameters
        ----------
        indices : Tensor of int64, shape [n]
            Which of the silo's images.
        features : Tensor of float32, shape [n, d]
            The received encoder's features.
        labels : Tensor of int64, shape [n]
            Pseudo-labels.
        confident : Tensor of bool, shape [n]
            Whether they are confident.
        """

    def predicted(self, probabilities: Tensor) -> None:
        """Look at the received model's probabilities [n, C] of all images; of pseudo-labels that state the fact `predictions`."""

    def trained(self, rates: float) -> None:
        """Note that training is over; `rates` is the sum of the learning rates of its steps, above 0. Not called without a step."""

    def auxiliary(self) -> AuxiliaryData:
        """Return what is announced beside the update; after training."""
        return {}

    def kept(self) -> Arrays:
        """Return what the silo keeps for its next round; after training."""
        return {}

    def beside(self) -> Arrays:
        """Return tensors that travel with the update and are no part of the network; after training."""
        return {}
