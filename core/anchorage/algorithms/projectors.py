"""Heads of self-supervised learning (methods reference, 6.13): a projector on the encoder's features, and Orchestra's guess of a turn."""

from itertools import pairwise

from torch import Tensor, nn


class Projector(nn.Module):
    """Linear maps without bias, each but the last followed by batch normalisation and ReLU; the output is standardised over the batch.

    Parameters
    ----------
    width : int
        Of the features.
    widths : tuple of int
        Of each map's output, at least two.
    """

    def __init__(self, width: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        *hidden, last = widths
        layers: list[nn.Module] = []
        for before, after in pairwise((width, *hidden)):
            layers += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden[-1], last, bias=False))
        self.standardise = nn.BatchNorm1d(last, affine=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map features [n, width] to projections [n, last width], with zero mean and unit variance in each column in train mode."""
        z: Tensor = self.standardise(self.layers(features))
        return z


class Siamese(nn.Module):
    """SimSiam's projector and the predictor on it (methods reference, N8.2), each two linear maps with batch normalisation between.

    Parameters
    ----------
    width : int
        Of the features; 8 times as wide inside, 4 times as wide outside (ResNet-18: 4096 and 2048).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inside, outside = 8 * width, 4 * width
        self.project, self.predict = (
            nn.Sequential(nn.Linear(before, inside), nn.BatchNorm1d(inside), nn.ReLU(), nn.Linear(inside, outside))
            for before in (width, outside)
        )

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features [n, width] to projections and predictions [n, 4 width] each."""
        projected = self.project(features)
        return projected, self.predict(projected)
