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
    accumulation: int = 1,
    after_step: Callable[[int], None] = lambda done: None,
) -> tuple[float, int]:
    """Step on every loss as it comes, or on the mean of several; each is computed in train mode from the weights that the step before left.

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
    accumulation : int
        Losses whose mean gradient makes one step; the last step may have fewer.
    after_step : callable
        Told the number of losses stepped on.

    Returns
    -------
    loss : float
        Their mean, 0 where there were none.
    steps : int
        How many steps were taken.

    Raises
    ------
    AnchorageError
        A loss is not finite; noticed at the latest 64 losses later, because every check waits for the device.
    """
    total, count, steps = torch.zeros((), dtype=torch.float64, device=network.classifier.weight.device), 0, 0

    def step(summed: int) -> int:
        if summed < accumulation:
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter.grad *= accumulation / summed
        if clip_norm > 0:
            clip_grad_norm_(network.parameters(), clip_norm)
        optimiser.step()
        after_step(count)
        return steps + 1

    network.train()
    try:
        for loss in losses:
            if count % accumulation == 0:
                optimiser.zero_grad(set_to_none=True)
            (loss if accumulation == 1 else loss / accumulation).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            count += 1
            if count % _CHECK_EVERY == 0:
                _check(float(total), count)
            if count % accumulation == 0:
                steps = step(accumulation)
        if count % accumulation:
            steps = step(count % accumulation)
    finally:
        network.eval()
    _check(float(total), count)
    return float(total) / max(count, 1), steps


def _check(total: float, steps: int) -> None:
    if not np.isfinite(total):
        message = f"the training loss is {total} after {steps} steps: lower learningRate or set clipNorm"
        raise AnchorageError(LOSS_NOT_FINITE, message)
