"""SGD as the papers use it (methods reference, 5.3, 6.14)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction, PositiveDecimal
from anchorage.api.piece import LENGTH_MATTERS, piece
from anchorage.pieces.slots import Optimiser

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.models import Network

_MOMENTUM = "momentum/"
_BUFFER = "momentum_buffer"


@piece("sgd")
class Sgd(Optimiser):
    """SGD with momentum as PyTorch defines it."""

    learning_rate: PositiveDecimal = Field("0.03", description="Learning rate.")
    momentum: Fraction = Field("0.9", description="Momentum.")
    weight_decay: PositiveDecimal = Field("0.0005", description="Weight decay of every trained parameter.")
    clip_norm: PositiveDecimal = Field("0", description="Largest gradient norm; 0: no limit.")
    nesterov: Literal["Enabled", "Disabled"] = Field("Disabled", description="Whether the momentum is Nesterov's.")
    schedule: Literal["Constant", "Cosine", "WarmUpCosine"] = Field(
        "Constant",
        description="Learning rate over rounds. Cosine: falls to 0. WarmUpCosine: rises first.",
    )
    warm_up_epochs: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="WarmUpCosine: epochs in which the learning rate rises."
    )
    state: Literal["Reset", "Persist"] = Field(
        "Reset", description="Silo's momentum at the start of a round: zero (Reset) or as it was."
    )

    def facts(self) -> frozenset[str]:
        """Say that a round depends on how many there are in all."""
        return frozenset() if self.schedule == "Constant" else frozenset({LENGTH_MATTERS})

    @property
    def persists(self) -> bool:
        """Whether a silo keeps its momentum."""
        return self.state == "Persist"

    def factor(self, done: float, epochs: int) -> float:
        """Return the learning rate's factor, `done` of the rounds, from 0 to 1, and so many epochs being over."""
        if self.schedule == "Constant":
            return 1.0
        cosine = (1 + math.cos(math.pi * done)) / 2
        rising = min(1.0, (epochs + 1) / self.warm_up_epochs) if self.schedule == "WarmUpCosine" else 1.0
        return cosine * rising

    def build(
        self,
        network: Network,
        *,
        learning_rate: float | None = None,
        decay_classifier: bool = True,
        classifier_rate: float | None = None,
        done: float = 0.0,
        epochs: int = 0,
        buffers: dict[Tensor, Tensor] | None = None,
    ) -> torch.optim.SGD:
        """Return SGD in two groups, the classifier last.

        A parameter without a gradient is left alone, weight decay included, as the anchor head must be (KAT A11). Momentum in `buffers` is
        reset in place: the last optimiser of this network loses its own, and the next one finds its memory there.
        """
        import torch

        classifier = list(network.classifier.parameters())
        ids = {id(p) for p in classifier}
        rest = [p for p in network.parameters() if id(p) not in ids]
        decay, factor = float(self.weight_decay), self.factor(done, epochs)
        rate = factor * (float(self.learning_rate) if learning_rate is None else learning_rate)
        classifier_rate = rate if classifier_rate is None else factor * classifier_rate
        own = {"weight_decay": decay if decay_classifier else 0.0, "lr": classifier_rate}
        groups = [{"params": rest, "weight_decay": decay}, {"params": classifier, **own}]
        momentum = float(self.momentum)
        ahead = momentum > 0 and self.nesterov == "Enabled"  # without momentum both are plain SGD
        sgd = torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=ahead, fused=classifier[0].is_cuda)
        if (
            momentum > 0
        ):  # zeros step as none do, and a fused step wants a buffer even of what gets its first gradient late
            buffers = {} if buffers is None else buffers
            for parameter in network.parameters():
                if parameter not in buffers:
                    buffers[parameter] = torch.empty_like(parameter, requires_grad=False)
                sgd.state[parameter][_BUFFER] = buffers[parameter].zero_()
        return sgd

    def memory(self, network: Network, optimiser: torch.optim.Optimizer) -> Mapping[str, NDArray[Any]]:
        """Return the momentum of every parameter that has some, by ``momentum/`` and its name."""
        state = optimiser.state
        buffers = {name: state[p][_BUFFER] for name, p in network.named_parameters() if p in state}
        return {_MOMENTUM + name: b.cpu().numpy() for name, b in buffers.items() if b.any()}

    def remember(self, network: Network, optimiser: torch.optim.Optimizer, kept: Mapping[str, NDArray[Any]]) -> None:
        """Put back what `memory` returned."""
        import torch

        for name, parameter in network.named_parameters():
            if (array := kept.get(_MOMENTUM + name)) is not None:
                optimiser.state[parameter][_BUFFER].copy_(torch.from_numpy(array.copy()))
