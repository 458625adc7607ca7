"""Gradient steps, for silos and server alike."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from anchorage.errors import AnchorageError
from anchorage.errors.learning import LOSS_NOT_FINITE
from anchorage.learning.models import Network
from anchorage.spec.method import Optimiser

_CHECK_EVERY = 64
_MOMENTUM = "momentum/"


def build_optimiser(
    network: Network, optimiser: Optimiser, *, learning_rate: float | None = None, decay_classifier: bool = True
) -> torch.optim.SGD:
    """Return SGD with momentum as PyTorch defines it (METHODS.md 5.3, 6.14).

    A parameter without a gradient is left alone, weight decay included, as the anchor head must be (METHODS.md KAT A11).

    Parameters
    ----------
    network : Network
        What is trained.
    optimiser : Optimiser
        Step size, momentum, decay.
    learning_rate : float, optional
        Instead of the optimiser's.
    decay_classifier : bool
        False in SemiAnAgg and FedAvg-Semi, whose classifier is not decayed (METHODS.md 6.9).
    """
    classifier = list(network.classifier.parameters())
    ids = {id(p) for p in classifier}
    rest = [p for p in network.parameters() if id(p) not in ids]
    decay = float(optimiser.weight_decay)
    groups = [
        {"params": rest, "weight_decay": decay},
        {"params": classifier, "weight_decay": decay if decay_classifier else 0.0},
    ]
    rate = float(optimiser.learning_rate) if learning_rate is None else learning_rate
    return torch.optim.SGD(groups, lr=rate, momentum=float(optimiser.momentum))


def momentum_arrays(network: Network, sgd: torch.optim.SGD) -> Mapping[str, NDArray[np.float32]]:
    """Return the momentum of every parameter that has one, by ``momentum/`` and its name."""
    buffers = {name: sgd.state[p].get("momentum_buffer") for name, p in network.named_parameters() if p in sgd.state}
    return {_MOMENTUM + name: b.cpu().numpy() for name, b in buffers.items() if b is not None}


def restore_momentum(network: Network, sgd: torch.optim.SGD, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Put back what `momentum_arrays` returned."""
    for name, parameter in network.named_parameters():
        if (array := arrays.get(_MOMENTUM + name)) is not None:
            sgd.state[parameter]["momentum_buffer"] = torch.from_numpy(array.copy()).to(parameter.device)


def take_steps(
    network: Network,
    sgd: torch.optim.SGD,
    losses: Iterable[Tensor],
    *,
    clip_norm: float = 0.0,
    after_step: Callable[[int], None] = lambda done: None,
) -> tuple[float, int]:
    """Step on every loss as it comes; each is computed in train mode from the weights that the step before left.

    Parameters
    ----------
    network : Network
        What is trained; left in eval mode.
    sgd : SGD
        Its optimiser.
    losses : iterable of Tensor
        Scalars with a graph, computed lazily.
    clip_norm : float
        Largest gradient norm, 0 for none.
    after_step : callable
        Told the number of steps done.

    Returns
    -------
    loss : float
        Mean over the steps, 0 where there were none.
    steps : int
        How many.

    Raises
    ------
    AnchorageError
        A loss is not finite; noticed at the latest 64 steps later, because every check waits for the device.
    """
    total, steps = torch.zeros((), dtype=torch.float64, device=network.classifier.weight.device), 0
    network.train()
    try:
        for loss in losses:
            sgd.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if clip_norm > 0:
                clip_grad_norm_(network.parameters(), clip_norm)
            sgd.step()
            total += loss.detach()
            steps += 1
            if steps % _CHECK_EVERY == 0:
                _check(float(total), steps)
            after_step(steps)
    finally:
        network.eval()
    _check(float(total), steps)
    return float(total) / max(steps, 1), steps


def _check(total: float, steps: int) -> None:
    if not np.isfinite(total):
        message = f"the training loss is {total} after {steps} steps: lower learningRate or set clipNorm"
        raise AnchorageError(LOSS_NOT_FINITE, message)
