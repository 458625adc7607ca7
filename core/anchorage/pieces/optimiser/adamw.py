"""AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.piece import NEW_OPTION, piece
from anchorage.pieces.optimiser.scheduled import ScheduledOptimiser

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.learning.network import Network
    from anchorage.learning.optimisers import PlainAdamW

_MOMENTS = {"exp_avg": "adamw/first/", "exp_avg_sq": "adamw/second/", "step": "adamw/steps/"}
"""What PyTorch's state of a parameter is called among what a silo keeps."""


@piece("adamW")
class AdamW(ScheduledOptimiser):
    """AdamW, as in PyTorch (Loshchilov and Hutter 2019)."""

    follows_gradient: ClassVar[bool] = False

    learning_rate: PositiveDecimal = Field("0.001", description="Learning rate, which `schedule` multiplies.")
    weight_decay: PositiveDecimal = Field(
        "0.01", description="Weight decay of every trained parameter, apart from the gradient."
    )

    state: Annotated[Literal["Reset", "Persist"], NEW_OPTION] = Field(
        "Reset",
        description="Moment estimates at the start of a round. Reset: none. Persist: those of the silo's last round, for rounds of few "
        "steps.",
    )

    @property
    def persists(self) -> bool:
        """Whether a silo keeps its moments; they are of weights that the aggregation has moved since."""
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
    ) -> PlainAdamW:
        """Return AdamW in two groups, the classifier last; a parameter without a gradient is left alone, weight decay included."""
        from anchorage.learning.optimisers import PlainAdamW

        groups = self.groups(network, learning_rate, decay_classifier, classifier_rate, self.factor(done, epochs))
        return PlainAdamW(groups)

    def memory(self, network: Network, optimiser: torch.optim.Optimizer) -> Mapping[str, NDArray[Any]]:
        """Return both moments of every parameter that has some, and the steps that are in them, by kind and its name."""
        states = {name: optimiser.state[p] for name, p in network.named_parameters() if p in optimiser.state}
        return {
            prefix + name: np.array(state[key].cpu().numpy())
            for name, state in states.items()
            for key, prefix in _MOMENTS.items()
        }

    def remember(
        self, network: Network, optimiser: torch.optim.Optimizer, previous_state: Mapping[str, NDArray[Any]]
    ) -> None:
        """Put back what `memory` returned."""
        import torch

        from anchorage.learning.optimiser_state import put_back

        names = {parameter: name for name, parameter in network.named_parameters()}
        trained = [names[parameter] for group in optimiser.param_groups for parameter in group["params"]]
        states = {
            index: {key: torch.from_numpy(previous_state[prefix + name].copy()) for key, prefix in _MOMENTS.items()}
            for index, name in enumerate(trained)
            if all(prefix + name in previous_state for prefix in _MOMENTS.values())
        }
        if states:
            put_back(optimiser, states)
