"""A network that follows another one slowly: RSCFed's teacher, FedCon's targets at silos and server (methods reference, 6.7, 6.10)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from anchorage.learning.weights import trained_arrays


class MovingAverage:
    """The average of a network's weights over its steps; it goes on from round to round, whatever the silo receives.

    Parameters
    ----------
    network : Module
        Where it starts; frozen, and from now on the average itself.
    prefix : str
        Of its tensors in the kept state.
    stored_arrays : mapping of str to ndarray
        That state; without its tensors the average starts at `network`.
    """

    def __init__(self, network: nn.Module, prefix: str, stored_arrays: Mapping[str, NDArray[Any]]) -> None:
        self.network, self._prefix = network, prefix
        self.steps = int(stored_arrays.get(f"{prefix}steps", np.int64(0)))
        for name, tensor in network.state_dict().items():
            if (array := stored_arrays.get(f"{prefix}average/{name}")) is not None:
                tensor.copy_(torch.from_numpy(array.copy()))

    def follow(self, network: nn.Module, decay: float) -> None:
        """Take a step towards another network of the same form: its parameters by ``1 - decay``, its buffers as they are."""
        with torch.no_grad():
            average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            average(list(self.network.parameters()), list(network.parameters()), self.steps)
            for held, current in zip(self.network.buffers(), network.buffers(), strict=True):
                held.copy_(current)
        self.steps += 1

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return what the next round starts from."""
        tensors = {f"{self._prefix}average/{name}": array for name, array in trained_arrays(self.network).items()}
        return {**tensors, f"{self._prefix}steps": np.array(self.steps)}
