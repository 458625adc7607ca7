"""What the optimisers share: the learning rate over the run, and the parameters in two groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.fact import Fact
from anchorage.pieces.slots import Optimiser

if TYPE_CHECKING:
    from anchorage.learning.network import Network

_RISING = 0.3
"""Share of the rounds in which OneCycle rises."""
_FIRST, _LAST = 1 / 25, 1 / 250_000
"""Where OneCycle begins and ends (PyTorch's defaults, after Smith 2018)."""


class ScheduledOptimiser(Optimiser):
    """An optimiser whose learning rate is a factor's, which is one throughout a round, times its own."""

    learning_rate: PositiveDecimal = Field(
        "0.03",
        description="Learning rate, which `schedule` multiplies. The default suits the small networks of the papers; for large ones try "
        "smaller values, such as 0.003.",
    )
    weight_decay: PositiveDecimal = Field(
        "0.0005", description="Weight decay of every trained parameter, as a part of the gradient."
    )
    clip_norm: PositiveDecimal = Field(
        "0", description="Maximum L2 norm of a step's gradient; larger gradients are scaled down to it. 0: no limit."
    )
    schedule: Literal["Constant", "Cosine", "WarmUpCosine", "OneCycle"] = Field(
        "Constant",
        description="Learning rate over the rounds of a run, constant within a round. Constant: always the same. Cosine: falls to 0. "
        "WarmUpCosine: rises over `warmUpEpochs`, then falls to 0. OneCycle: rises from a 25th for 30 % of the rounds, then "
        "falls to almost 0.",
    )
    warm_up_epochs: Annotated[int, Field(ge=1, le=1000)] = Field(
        10, description="Number of epochs over which WarmUpCosine raises the learning rate."
    )

    def facts(self) -> frozenset[str]:
        """Say that a round depends on how many there are in all."""
        return frozenset() if self.schedule == "Constant" else frozenset({Fact.LENGTH_MATTERS})

    def factor(self, done: float | None, epochs: int) -> float:
        """Return the learning rate's factor, `done` of the rounds, from 0 to 1, and so many epochs being over; 1 before the rounds."""
        if self.schedule == "Constant" or done is None:
            return 1.0
        if self.schedule == "OneCycle":
            if done < _RISING:
                return _between(_FIRST, 1, done / _RISING)
            return _between(1, _LAST, (done - _RISING) / (1 - _RISING))
        rising = min(1.0, (epochs + 1) / self.warm_up_epochs) if self.schedule == "WarmUpCosine" else 1.0
        return (1 + math.cos(math.pi * done)) / 2 * rising

    def groups(
        self,
        network: Network,
        learning_rate: float | None,
        decay_classifier: bool,
        classifier_rate: float | None,
        factor: float,
    ) -> list[dict[str, Any]]:
        """Return the parameters in two groups with their rate and decay, the classifier last; see `OptimiserHooks.build`."""
        classifier = list(network.classifier.parameters())
        ids = {id(p) for p in classifier}
        rest = [p for p in network.parameters() if p.requires_grad and id(p) not in ids]
        decay = float(self.weight_decay)
        rate = factor * (float(self.learning_rate) if learning_rate is None else learning_rate)
        classifier_lr = rate if classifier_rate is None else factor * classifier_rate
        return [
            {"params": rest, "weight_decay": decay, "lr": rate},
            {"params": classifier, "weight_decay": decay if decay_classifier else 0.0, "lr": classifier_lr},
        ]


def _between(first: float, last: float, share: float) -> float:
    """Go from one value to another along half a cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2
