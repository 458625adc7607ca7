"""The networks of one or several silos of this process."""

from functools import cached_property

import torch
from torch import Tensor

from anchorage.api.run import RunDescription
from anchorage.learning.device import to_device
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.learning.weights import local_arrays


class Networks:
    """A network to train with its optimiser's memory, and one to score with, made when they are needed first.

    Silos that work one after another may share them.

    Parameters
    ----------
    run : RunDescription
        The run.
    device : torch.device
        Where they are.
    """

    def __init__(self, run: RunDescription, device: torch.device) -> None:
        self._run, self._device = run, device
        self.momentum: dict[Tensor, Tensor] = {}
        """The optimiser's buffers by parameter of `training`, reset in place for every silo and round."""

    @cached_property
    def training(self) -> Network:
        """The network that is trained."""
        network = self._build()
        for piece in TrainingMethod.of(self._run.method).pieces:
            piece.before_training(network)
        self.local_part = local_arrays(network)
        return network

    @cached_property
    def scoring(self) -> Network:
        """The network that scores models."""
        return self._build()

    def _build(self) -> Network:
        return to_device(
            build_model(self._run.model, TrainingMethod.of(self._run.method), self._run.seed), self._device
        )
