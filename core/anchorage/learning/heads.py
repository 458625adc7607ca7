"""Layers behind the encoder that ``model.json`` can describe (`anchorage.api.inference.Head`): the classifier, and what stands before it."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE

PROJECTION_WIDTH = 256
"""Width of a projection head (methods reference, 6.3)."""


def before_classifier(
    width: int, *, projection: bool = False, hidden: int | None = None, components: int | None = None
) -> tuple[nn.Module | None, int]:
    """Return what stands between embeddings of a width and the classifier, and the width that the classifier sees; at most one of them is there.

    Parameters
    ----------
    width : int
        Of the embeddings.
    projection : bool
        Two linear maps, to `PROJECTION_WIDTH`.
    hidden : int, optional
        Units of a rectified layer, of embeddings that are scaled to mean 0 and variance 1.
    components : int, optional
        Principal components of the embeddings.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: there are more components than features.
    """
    if components is not None:
        if components > width:
            message = f"found {components} principalComponents, but the encoder has {width} features; set {width} or fewer, or leave it out"
            raise AnchorageError(NETWORK_UNUSABLE, message)
        return PrincipalComponents(width, components), components
    if projection:
        head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION_WIDTH))
        return head, PROJECTION_WIDTH
    if hidden is None:
        return None, width
    layers = {
        "scaled": nn.LayerNorm(width, elementwise_affine=False),
        "hidden": nn.Linear(width, hidden),
        "rectified": nn.ReLU(),
    }
    return nn.Sequential(OrderedDict(layers)), hidden


class EmbeddingHead(nn.Linear):
    """A linear map of embeddings [n, width], beside the classifier."""


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


class PixelClassifier(nn.Linear):
    """A linear map of the features of each pixel: a convolution of one pixel, [n, d, ...] to [n, C, ...] with two or three sides."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of maps."""
        if x.ndim == 4:
            return nn.functional.conv2d(x, self.weight[:, :, None, None], self.bias)
        return nn.functional.conv3d(x, self.weight[:, :, None, None, None], self.bias)


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
