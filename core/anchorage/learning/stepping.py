"""Gradient steps, for silos and server alike."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.network import Network

_CHECK_EVERY = 64


@cache
def _clock() -> Callable[[], float]:
    """Look for a GPU at the first use, not at the import: a process whose parent has looked for one can use none."""
    return time.perf_counter if torch.cuda.is_available() else time.thread_time


def clock() -> float:
    """Return the seconds of a trial: without a GPU those of the processor in this thread, which calculates alone, whatever else the machine does."""
    return _clock()()


@dataclass
class Trial:
    """Cuts trainings short, and tells how long what was left out would have taken, so that a forecast need not wait for it."""

    seconds: float
    """Time after which a training is cut."""
    least: int
    """Steps that every training takes all the same."""
    missing: float = 0.0
    """Seconds that the steps left out would have taken, all trainings together."""

    def cut(self, losses: Iterable[Tensor], total: int) -> Iterator[Tensor]:
        """Yield the first of `total` steps' losses."""
        first = begun = clock()
        for done, loss in enumerate(losses, 1):
            yield loss
            now = clock()
            first = now if done == 1 else first
            if done >= self.least and done < total and now - begun > self.seconds:
                each = (now - first) / (done - 1) if done > 1 else now - begun
                self.missing += each * (total - done)
                return


_TRIAL: ContextVar[Trial | None] = ContextVar("trial", default=None)


@dataclass
class TrainingProgress:
    """What the steps so far come to."""

    total: float | Tensor = 0.0
    """Sum of the losses."""
    losses: int = 0
    """How many."""
    steps: int = 0
    """Steps of the optimiser."""


@contextmanager
def trial(seconds: float, least: int = 2) -> Iterator[Trial]:
    """Cut the trainings of this thread short, as `Trial` says, until the block ends."""
    cutting = Trial(seconds, least)
    token = _TRIAL.set(cutting)
    try:
        yield cutting
    finally:
        _TRIAL.reset(token)


def on_trial() -> bool:
    """Return whether this thread's trainings are a trial, in which a round may have no update of a silo."""
    return _TRIAL.get() is not None


def take_steps(
    network: Network,
    optimiser: torch.optim.Optimizer,
    losses: Iterable[Tensor],
    *,
    expected: int = 0,
    clip_norm: float = 0.0,
    accumulation: int = 1,
    after_step: Callable[[int], None] = lambda done: None,
    progress: TrainingProgress | None = None,
    devices: DeviceGroup | None = None,
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
    expected : int
        How many there are at most; 0 where that is not known, so that no `trial` cuts them.
    clip_norm : float
        Largest gradient norm, 0 for none.
    accumulation : int
        Losses whose mean gradient makes one step; the last step may have fewer.
    after_step : callable
        Told the number of losses stepped on.
    progress : TrainingProgress, optional
        What came of the steps before these, kept up to date for `after_step`; none.
    devices : DeviceGroup, optional
        Processes that take the same steps, each with its part of the batches; only this one.

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
    progress, devices = progress or TrainingProgress(), devices or DeviceGroup()
    progress.total = torch.as_tensor(progress.total, dtype=torch.float64, device=network.device)
    cutting = _TRIAL.get()

    def step(summed: int) -> None:
        if summed < accumulation:
            for parameter in network.parameters():
                if parameter.grad is not None:
                    parameter.grad *= accumulation / summed
        devices.average(network)
        if clip_norm > 0:
            clip_grad_norm_(network.parameters(), clip_norm)
        optimiser.step()
        progress.steps += 1
        after_step(progress.losses)

    network.train()
    try:
        for loss in losses if cutting is None else cutting.cut(losses, expected):
            if progress.losses % accumulation == 0:
                optimiser.zero_grad(set_to_none=True)
            (loss if accumulation == 1 else loss / accumulation).backward()  # type: ignore[no-untyped-call]
            progress.total += devices.mean(loss.detach())
            progress.losses += 1
            if progress.losses % _CHECK_EVERY == 0:
                _check(float(progress.total), progress.losses)
            if progress.losses % accumulation == 0:
                step(accumulation)
        if progress.losses % accumulation:
            step(progress.losses % accumulation)
    finally:
        network.eval()
    _check(float(progress.total), progress.losses)
    return float(progress.total) / max(progress.losses, 1), progress.steps


def _check(total: float, steps: int) -> None:
    if not np.isfinite(total):
        message = f"the training loss is {total} after {steps} steps: lower learningRate or set clipNorm"
        raise AnchorageError(LOSS_NOT_FINITE, message)
