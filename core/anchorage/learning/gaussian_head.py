"""A classifier of Gaussians with a covariance per class."""

import torch
from torch import Tensor, nn


class GaussianHead(nn.Linear):
    """A classifier whose classes have covariances of their own: ``bias_c - |F_c (z - mu_c)|^2 / 2``.

    The means are `weight` [C, d]; `scale` is F: [C, d] where features are independent (naive Bayes), else [C, d, d]. The square of a difference
    keeps in float32 what the difference of squares would lose.

    Parameters
    ----------
    width, num_outputs : int
        Features d and classes C.
    full_covariance : bool
        Whether `scale` is [C, d, d].
    """

    def __init__(self, width: int, num_outputs: int, *, full_covariance: bool) -> None:
        super().__init__(width, num_outputs)
        self.scale = nn.Parameter(torch.zeros(num_outputs, width, *((width,) if full_covariance else ())))

    def forward(self, z: Tensor) -> Tensor:
        """Return scores [n, C] of features [n, d]."""
        apart = z[:, None, :] - self.weight
        apart = apart * self.scale if self.scale.ndim == 2 else torch.einsum("nci,cji->ncj", apart, self.scale)
        return self.bias - apart.square().sum(2) / 2
