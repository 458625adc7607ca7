"""Gradient steps, for silos and server alike."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.learning.models import Network

_CHECK_EVERY = 64


def take_steps(
    network: Network,
    optimiser: torch.optim.Optimizer,
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
    optimiser : Optimizer
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
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            if clip_norm > 0:
                clip_grad_norm_(network.parameters(), clip_norm)
            optimiser.step()
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
