"""Principal components of a frozen encoder's features, which a classifier sees in their place."""

import torch
from torch import Tensor, nn


class PrincipalComponents(nn.Module):
    """A linear map of features [n, d] to their principal components [n, k], of mean 0; nobody trains it, so all of it is buffers.

    Parameters
    ----------
    width, components : int
        Features d and components k, at most d. Before they are found, components are 0.
    """

    weight: Tensor
    """Float [k, d], orthonormal rows, the direction of most variance first."""
    bias: Tensor
    """Float [k]."""

    def __init__(self, width: int, components: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(components, width))
        self.register_buffer("bias", torch.zeros(components))

    def forward(self, z: Tensor) -> Tensor:
        """Return components [n, k] of features [n, d]."""
        return nn.functional.linear(z, self.weight, self.bias)

    def find(self, mean: Tensor, covariance: Tensor) -> float:
        """Take the components of features with this mean, float64 [d], and covariance, [d, d]; return the share of their variance that these have.

        The largest number of a row is positive: of an eigenvector only the line is given.
        """
        variances, vectors = torch.linalg.eigh(covariance)
        rows = vectors[:, -len(self.bias) :].flip(1).T
        rows = rows * rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()
        with torch.no_grad():
            self.weight.copy_(rows)
            self.bias.copy_(-rows @ mean)
        return float(variances[-len(self.bias) :].sum() / variances.sum())
