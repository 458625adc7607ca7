"""Gradient steps, for silos and server alike."""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.method import Sgd
from anchorage.learning.models import Network

WARM_UP_EPOCHS = 10
"""Epochs in which the step size rises (METHODS.md 5.3, FedBarlow)."""

_CHECK_EVERY = 64
_MOMENTUM = "momentum/"
_BUFFER = "momentum_buffer"


def build_optimiser(
    network: Network,
    optimiser: Sgd,
    *,
    learning_rate: float | None = None,
    decay_classifier: bool = True,
    classifier_rate: float | None = None,
    done: float = 0.0,
    epochs: int = 0,
    buffers: dict[Tensor, Tensor] | None = None,
) -> torch.optim.SGD:
    """Return SGD with momentum as PyTorch defines it (METHODS.md 5.3, 6.14).

    A parameter without a gradient is left alone, weight decay included, as the anchor head must be (METHODS.md KAT A11).

    Parameters
    ----------
    network : Network
        What is trained.
    optimiser : Sgd
        Step size, momentum, decay.
    learning_rate : float, optional
        Instead of the optimiser's.
    decay_classifier : bool
        False in SemiAnAgg and FedAvg-Semi, whose classifier is not decayed (METHODS.md 6.9), and in FedCLR (6.13).
    classifier_rate : float, optional
        Step size of the classifier, where it is another one.
    done : float
        Share of the rounds that are over, 0 to 1: with the cosine schedule the step sizes fall from 1 to 0 times what they are.
    epochs : int
        Epochs that are over; with a warm-up the step sizes rise in the first ten, from a tenth.
    buffers : dict of Tensor to Tensor, optional
        Momentum by parameter, kept by the caller and reset in place: the last optimiser of this network loses its own, and the next one finds
        its memory here.
    """
    classifier = list(network.classifier.parameters())
    ids = {id(p) for p in classifier}
    rest = [p for p in network.parameters() if id(p) not in ids]
    decay = float(optimiser.weight_decay)
    factor = 1.0 if optimiser.schedule == "Constant" else (1 + math.cos(math.pi * done)) / 2
    if optimiser.schedule == "WarmUpCosine":
        factor *= min(1.0, (epochs + 1) / WARM_UP_EPOCHS)
    rate = factor * (float(optimiser.learning_rate) if learning_rate is None else learning_rate)
    classifier_rate = rate if classifier_rate is None else factor * classifier_rate
    own = {"weight_decay": decay if decay_classifier else 0.0, "lr": classifier_rate}
    groups = [{"params": rest, "weight_decay": decay}, {"params": classifier, **own}]
    momentum = float(optimiser.momentum)
    ahead = momentum > 0 and optimiser.nesterov == "Enabled"  # without momentum both are plain SGD
    sgd = torch.optim.SGD(groups, lr=rate, momentum=momentum, nesterov=ahead, fused=classifier[0].is_cuda)
    if momentum > 0:  # zeros step as none do, and a fused step wants a buffer even of what gets its first gradient late
        buffers = {} if buffers is None else buffers
        for parameter in network.parameters():
            if parameter not in buffers:
                buffers[parameter] = torch.empty_like(parameter, requires_grad=False)
            sgd.state[parameter][_BUFFER] = buffers[parameter].zero_()
    return sgd


def momentum_arrays(network: Network, sgd: torch.optim.SGD) -> Mapping[str, NDArray[np.float32]]:
    """Return the momentum of every parameter that has some, by ``momentum/`` and its name."""
    buffers = {name: sgd.state[p][_BUFFER] for name, p in network.named_parameters() if p in sgd.state}
    return {_MOMENTUM + name: b.cpu().numpy() for name, b in buffers.items() if b.any()}


def restore_momentum(network: Network, sgd: torch.optim.SGD, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Put back what `momentum_arrays` returned."""
    for name, parameter in network.named_parameters():
        if (array := arrays.get(_MOMENTUM + name)) is not None:
            sgd.state[parameter][_BUFFER].copy_(torch.from_numpy(array.copy()))


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
