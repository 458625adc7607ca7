"""Linear classifiers by which silos guess the classes of their images; they travel with the model and are no part of its outputs."""

import torch
from torch import Tensor, nn


class GuessingHeads(nn.Module):
    """Several linear classifiers side by side, without a class prior: their outputs are log densities, but for a constant of each image.

    Parameters
    ----------
    heads, width, num_outputs : int
        Heads K, features d and classes C.
    """

    def __init__(self, heads: int, width: int, num_outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, num_outputs, width), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(heads, num_outputs), requires_grad=False)
        self.confusion = nn.Parameter(torch.zeros(heads, num_outputs, num_outputs), requires_grad=False)
        self.register_buffer("chosen", torch.zeros(1, dtype=torch.int64))

    @property
    def made(self) -> bool:
        """Whether the server has made them: before the first sums came they are 0."""
        return bool(self.weight.any())

    @property
    def choice(self) -> int:
        """The recipe that made the model's classifier, 0 the labels alone."""
        return int(self.get_buffer("chosen"))

    def forward(self, z: Tensor) -> Tensor:
        """Return scores [K, n, C], float64, of features [n, d]."""
        return z.double() @ self.weight.double().mT + self.bias.double()[:, None]
