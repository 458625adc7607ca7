"""SGD as the papers use it (methods reference, 5.3, 6.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import Fraction
from anchorage.api.piece import piece
from anchorage.pieces.optimiser.scheduled import ScheduledOptimiser

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.network import Network
    from anchorage.learning.optimisers import PlainSgd

_MOMENTUM = "momentum/"
_BUFFER = "momentum_buffer"


@piece("sgd")
class Sgd(ScheduledOptimiser):
    """SGD with momentum, as in PyTorch."""

    momentum: Fraction = Field("0.9", description="Momentum. 0: none.")
    nesterov: Literal["Enabled", "Disabled"] = Field("Disabled", description="Whether the momentum is Nesterov's.")
    state: Literal["Reset", "Persist"] = Field(
        "Reset",
        description="Momentum at the start of a round. Reset: zero. Persist: that of the silo's last round, for rounds of few steps.",
    )

    @property
    def persists(self) -> bool:
        """Whether a silo keeps its momentum."""
        return self.state == "Persist"

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
    ) -> PlainSgd:
        """Return SGD in two groups, the classifier last.

        A parameter without a gradient is left alone, weight decay included, as the anchor head must be (KAT A11). Momentum in `buffers` is
        reset in place: the last optimiser of this network loses its own, and the next one finds its memory there.
        """
        import torch

        from anchorage.learning.optimisers import PlainSgd

        groups = self.groups(network, learning_rate, decay_classifier, classifier_rate, self.factor(done, epochs))
        momentum = float(self.momentum)
        ahead = momentum > 0 and self.nesterov == "Enabled"  # without momentum both are plain SGD
        fused = groups[-1]["params"][0].is_cuda
        sgd = PlainSgd(groups, momentum, nesterov=ahead, fused=fused)
        if (
            momentum > 0
        ):  # zeros step as none do, and a fused step wants a buffer even of what gets its first gradient late
            buffers = {} if buffers is None else buffers
            for parameter in (p for group in groups for p in group["params"]):
                if parameter not in buffers:
                    buffers[parameter] = torch.empty_like(parameter, requires_grad=False)
                sgd.state[parameter][_BUFFER] = buffers[parameter].zero_()
        return sgd

    def memory(self, network: Network, optimiser: torch.optim.Optimizer) -> Mapping[str, NDArray[Any]]:
        """Return the momentum of every parameter that has some, by ``momentum/`` and its name."""
        state = optimiser.state
        buffers = {name: state[p][_BUFFER] for name, p in network.named_parameters() if p in state}
        return {_MOMENTUM + name: b.cpu().numpy() for name, b in buffers.items() if b.any()}

    def remember(
        self, network: Network, optimiser: torch.optim.Optimizer, previous_state: Mapping[str, NDArray[Any]]
    ) -> None:
        """Put back what `memory` returned."""
        import torch

        for name, parameter in network.named_parameters():
            if (array := previous_state.get(_MOMENTUM + name)) is not None and parameter in optimiser.state:
                optimiser.state[parameter][_BUFFER].copy_(torch.from_numpy(array.copy()))
