"""Linear classifiers by which silos guess the classes of their images; they travel with the model and are no part of its outputs."""

import torch
from torch import Tensor, nn

from anchorage.learning.network import Network

NAME = "guessers"
"""Begins the names of their tensors."""


class GuessingHeads(nn.Module):
    """Several linear classifiers side by side, without a class prior: their outputs are log densities, but for a constant of each image.

    The server makes them, and nobody trains them, so all of it is buffers.

    Parameters
    ----------
    heads, width, num_outputs : int
        Heads K, features d and classes C.
    """

    weight: Tensor
    """Float [K, C, d]."""
    bias: Tensor
    """Float [K, C]."""
    confusion: Tensor
    """Of those heads that are measured, how often they take a class for each other one, float [K, C, C]."""
    chosen: Tensor
    """Number of the recipe that made the model's classifier, int64 [1]; 0 is the labels alone."""

    def __init__(self, heads: int, width: int, num_outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(heads, num_outputs, width))
        self.register_buffer("bias", torch.zeros(heads, num_outputs))
        self.register_buffer("confusion", torch.zeros(heads, num_outputs, num_outputs))
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.int64))

    @property
    def made(self) -> bool:
        """Whether the server has made them: before the first sums came they are 0."""
        return bool(self.weight.any())

    def forward(self, z: Tensor) -> Tensor:
        """Return scores [K, n, C], float64, of features [n, d]."""
        return z.double() @ self.weight.double().mT + self.bias.double()[:, None]


def guessers_of(network: Network) -> GuessingHeads | None:
    """Return the classifiers by which silos guess; None where the model's own is the only one."""
    guessers = network.find_head(NAME)
    return guessers if isinstance(guessers, GuessingHeads) else None
