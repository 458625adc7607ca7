"""Class moments of frozen features, and the classifiers that they give in closed form (methods reference, N3).

All in float64: in float32 a variance that is small beside the mean is lost. Moments are sums over images, so those of a federation are the
sum of its silos', however the images are divided. Class c of C; row C is that of images without a label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MOMENTS_UNUSABLE

Second = Literal["Pooled", "Diagonal", "PerClass"]
"""Which second moments there are: of all images together [d, d], the squares per class [C, d], or all per class [C, d, d]."""

ABSENT = -1e30
"""Score of a class without images: it never wins, and is finite, unlike the logarithm of its share."""

JITTER = 1e-6
"""Added to the diagonal of a shrunk covariance; nothing where there is no shrinkage."""
_MOST_JITTER = 1e-2
"""Share of the mean variance up to which the diagonal is raised before a covariance counts as unusable."""
_ALIKE = 1e-12
"""Share of the mean square that the variance of features has at least: below it they differ by little more than float32 rounds off."""


def second_shape(second: Second, num_classes: int, width: int) -> tuple[int, ...]:
    """Return the shape in which second moments travel: of a symmetric matrix the upper triangle alone."""
    triangle = width * (width + 1) // 2
    return {"Pooled": (triangle,), "Diagonal": (num_classes, width), "PerClass": (num_classes, triangle)}[second]


@dataclass(frozen=True)
class Moments:
    """Counts [C + 1], sums [C + 1, d] and second moments of features, float64 on the CPU."""

    counts: Tensor
    sums: Tensor
    seconds: Tensor
    second: Second

    @classmethod
    def of(cls, features: Tensor, labels: Tensor, num_classes: int, second: Second) -> Moments:
        """Sum over images.

        Parameters
        ----------
        features : Tensor of float, shape [n, d]
            Added in float64.
        labels : Tensor of int64, shape [n]
            Classes, -1 without; only pooled second moments are of those images, too.
        num_classes : int
            Classes C.
        second : Second
            Which second moments.
        """
        members = functional.one_hot(torch.where(labels < 0, num_classes, labels), num_classes + 1).double()
        return cls.weighted(features, members, second)

    @classmethod
    def weighted(cls, features: Tensor, members: Tensor, second: Second) -> Moments:
        """Sum over images that count to several classes in part.

        Parameters
        ----------
        features : Tensor of float, shape [n, d]
            Added in float64.
        members : Tensor of float64, shape [n, C + 1]
            How much of an image each class has, the last column that without a label; rows of sum 1, or all 0: such an image does not count.
        second : Second
            Which second moments.
        """
        z = features.double()
        seconds = second_moments(z, members, second)
        return cls(members.sum(0).cpu(), (members.T @ z).cpu(), seconds.cpu(), second)

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both parties' images."""
        return Moments(self.counts + other.counts, self.sums + other.sums, self.seconds + other.seconds, self.second)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what travels: ``counts``, ``sums`` and ``seconds``, the last as `second_shape` says."""
        seconds = self.seconds
        if self.second != "Diagonal":
            rows, columns = torch.triu_indices(self.width, self.width)
            seconds = seconds[..., rows, columns]
        return {"counts": self.counts.numpy(), "sums": self.sums.numpy(), "seconds": seconds.numpy()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], second: Second) -> Moments:
        """Return what `arrays` was made of."""
        counts, sums, seconds = (torch.from_numpy(np.array(arrays[name])) for name in ("counts", "sums", "seconds"))
        if second != "Diagonal":
            width = sums.shape[1]
            rows, columns = torch.triu_indices(width, width)
            matrices = seconds.new_zeros((*seconds.shape[:-1], width, width))
            matrices[..., rows, columns] = seconds
            matrices[..., columns, rows] = seconds
            seconds = matrices
        return cls(counts, sums, seconds, second)

    @property
    def width(self) -> int:
        """Width d of the features."""
        return self.sums.shape[1]

    @property
    def labelled(self) -> Tensor:
        """Images per class, [C]."""
        return self.counts[:-1]

    def means(self) -> Tensor:
        """Return the mean of every class, [C, d]; 0 for one without images."""
        return self.sums[:-1] / self.labelled.clamp(min=1)[:, None]

    def log_prior(self, *, uniform: bool = False) -> Tensor:
        """Return the logarithm of each class's share, [C]: of the labelled images, or the same for all that have some; minus infinity without."""
        counts = (self.labelled > 0).double() if uniform else self.labelled
        return (counts / counts.sum()).log()

    def within(self) -> Tensor:
        """Return the covariance within classes, [d, d], or its diagonal, [d], where there is no more; of labelled images alone."""
        means, counts = self.means(), self.labelled
        freedom = (counts.sum() - len(counts)).clamp(min=1)
        if self.second == "Diagonal":
            return (self.seconds.sum(0) - (counts[:, None] * means.square()).sum(0)) / freedom
        seconds = self.seconds if self.second == "Pooled" else self.seconds.sum(0)
        return (seconds - means.T @ (counts[:, None] * means)) / freedom

    def total(self) -> Tensor:
        """Return the covariance of all images about their common mean, [d, d], those without a label included; of pooled moments."""
        count, mean = self.counts.sum(), self.mean()
        return (self.seconds - count * torch.outer(mean, mean)) / (count - 1).clamp(min=1)

    def of_classes(self) -> Tensor:
        """Return each class's own covariance, [C, d, d]; that within classes for a class of fewer than two images."""
        means, counts = self.means(), self.labelled[:, None, None]
        class_covariances = (self.seconds - counts * means[:, :, None] * means[:, None, :]) / (counts - 1).clamp(min=1)
        return torch.where(counts < 2, self.within(), class_covariances)

    def variances(self, fewest: int) -> Tensor:
        """Return each class's variances, [C, d], at least 1e-6; those within classes for a class of fewer than so many images."""
        counts = self.labelled[:, None]
        class_variances = self.seconds / counts.clamp(min=1) - self.means().square()
        return torch.where(counts < fewest, self.within(), class_variances).clamp(min=JITTER)

    def mean(self) -> Tensor:
        """Return the mean of all images, [d]."""
        return self.sums.sum(0) / self.counts.sum().clamp(min=1)

    def variance(self) -> float:
        """Return the variance of a feature over the images that count, the mean of all features."""
        count, mean = self._common()
        return self._square() / count - float(mean.square().mean())

    def alike(self) -> bool:
        """Return whether the features of all images are the same but for what float32 rounds off."""
        return self.variance() <= _ALIKE * self._square() / self._common()[0]

    def unit(self) -> float:
        """Return a power of two near the standard deviation of features so small that `JITTER` would hide their variance; 1 of others."""
        variance = self.variance()
        return 1.0 if not 0 < variance * _MOST_JITTER < JITTER else 2.0 ** round(math.log2(variance) / 2)

    def in_units(self, unit: float) -> Moments:
        """Return the moments of features that are divided by a unit."""
        return Moments(self.counts, self.sums / unit, self.seconds / unit**2, self.second)

    def _common(self) -> tuple[float, Tensor]:
        """Return the number of images of which there are second moments, at least 1, and their mean, [d]."""
        rows = slice(None) if self.second == "Pooled" else slice(-1)
        count = self.counts[rows].sum().clamp(min=1)
        return float(count), self.sums[rows].sum(0) / count

    def _square(self) -> float:
        """Return the sum over images of the square of a feature, the mean of all features."""
        squares = self.seconds if self.second == "Diagonal" else self.seconds.diagonal(dim1=-2, dim2=-1)
        return float(squares.sum()) / self.width

    def ridge(self, penalty: float) -> tuple[Tensor, Tensor]:
        """Return weight [C, d] and bias [C] of a ridge regression on one-hot labels, its intercept without penalty; of pooled moments."""
        count, mean = self.counts.sum(), self.mean()
        scatter = self.seconds - count * torch.outer(mean, mean) + penalty * torch.eye(self.width, dtype=mean.dtype)
        weight = torch.cholesky_solve((self.sums[:-1] - self.labelled[:, None] * mean).T, root_of(scatter, 0.0)).T
        return weight, self.labelled / count - weight @ mean


def second_moments(z: Tensor, members: Tensor, second: Second) -> Tensor:
    """Return the second moments of features, float64 [n, d], whose images count as `Moments.weighted` says."""
    if second == "Pooled":
        used = z[members.any(1)]
        return used.T @ used
    classes = members[:, :-1]
    if second == "Diagonal":
        return classes.T @ z.square()
    return torch.stack([_weighted_square(z, weights) for weights in classes.T])


def _weighted_square(z: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum of w_i z_i z_i'``, [d, d], over features [n, d] with weights [n], most of them 0."""
    used = weights > 0
    rows = z[used]
    return (rows * weights[used, None]).T @ rows


def shrunk(covariance: Tensor, share: float) -> Tensor:
    """Return ``(1 - share) S + share (tr S / d) I`` of the symmetric part S of matrices [..., d, d]: the trace stays."""
    symmetric = (covariance + covariance.mT) / 2
    mean = symmetric.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return (1 - share) * symmetric + share * mean * torch.eye(covariance.shape[-1], dtype=covariance.dtype)


def shrunk_root(covariance: Tensor, share: float) -> Tensor:
    """Return `root_of` what `shrunk` returns of a matrix [d, d], with a little on the diagonal where there is shrinkage."""
    return root_of(shrunk(covariance, share), JITTER if share else 0.0)


def root_of(covariance: Tensor, jitter: float) -> Tensor:
    """Return the lower Cholesky factor of a matrix [d, d] with a small multiple of the identity: as much as it needs, up to a bound.

    Raises
    ------
    AnchorageError
        MOMENTS_UNUSABLE: it is not positive definite even so.
    """
    most = max(JITTER, _MOST_JITTER * float(covariance.diagonal().mean()))
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    while True:
        factor: Tensor
        factor, failed = torch.linalg.cholesky_ex(covariance + jitter * identity)
        if not failed:
            return factor
        jitter = max(10 * jitter, JITTER)
        if not jitter <= most:  # also where the covariance is not finite
            message = (
                "the covariance of the features is not positive definite; raise shrinkage of serverTraining.moments"
            )
            raise AnchorageError(MOMENTS_UNUSABLE, message)


def discriminant(means: Tensor, covariance: Tensor, log_prior: Tensor, shrinkage: float) -> tuple[Tensor, Tensor]:
    """Return weight [C, d] and bias [C] of the linear discriminant ``mu' S^-1 z - mu' S^-1 mu / 2 + log prior``, S shrunk."""
    weight = torch.cholesky_solve(means.T, shrunk_root(covariance, shrinkage)).T
    return weight, -(weight * means).sum(1) / 2 + log_prior


def naive_bayes(moments: Moments, log_prior: Tensor, fewest: int) -> dict[str, Tensor]:
    """Return the parameters of a `GaussianHead` of independent features; `fewest` as `Moments.variances` takes it."""
    variances = moments.variances(fewest)
    return {
        "weight": moments.means(),
        "bias": log_prior - variances.log().sum(1) / 2,
        "scale": variances.rsqrt(),
    }


def quadratic_discriminant(moments: Moments, log_prior: Tensor, shrinkage: float) -> dict[str, Tensor]:
    """Return the parameters of a `GaussianHead` of full covariances, each shrunk, and drawn to that within classes where images are few."""
    within, identity = moments.within(), torch.eye(moments.width, dtype=torch.float64)
    scales, bias = [], log_prior.clone()
    for index, (count, class_covariance) in enumerate(
        zip(moments.labelled.tolist(), moments.of_classes(), strict=True)
    ):
        few = moments.width / (moments.width + count) if count <= moments.width else 0.0
        root = shrunk_root((1 - few) * class_covariance + few * within, shrinkage)
        scales.append(torch.linalg.solve_triangular(root, identity, upper=False))
        bias[index] -= root.diagonal().log().sum()
    return {"weight": moments.means(), "bias": bias, "scale": torch.stack(scales)}
