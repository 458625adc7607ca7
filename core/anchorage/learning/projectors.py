"""Heads of self-supervised learning (METHODS.md 6.13): a projector on the encoder's features, and Orchestra's guess of a turn."""

from itertools import pairwise

from torch import Tensor, nn

from anchorage.api.method import ResolvedMethod

PROJECTOR = "projector."
"""Prefix of the projector's tensors."""

ROTATION = "rotation."
"""Prefix of the tensors of Orchestra's rotation head."""

TURNS = 4
"""Quarter turns that the rotation head tells apart."""

BARLOW_WIDENING = 4
"""Width of Barlow's projector by that of the encoder: 512 to 2048 (METHODS.md 5.1, KAT-M1)."""


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


def trains_classifier(method: ResolvedMethod) -> bool:
    """Whether silos or server train the classifier: they do not where silos learn without labels and the server has none either."""
    slot = method.self_supervised
    return slot.type == "None" or slot.online_classifier == "Enabled" or method.server_training.type == "Anchors"


def build_projector(method: ResolvedMethod, width: int) -> tuple[Projector | None, nn.Linear | None]:
    """Return the projector and the rotation head that a method trains, None where it has none; weights are not drawn yet.

    Parameters
    ----------
    method : ResolvedMethod
        The method.
    width : int
        Of the encoder's features.
    """
    match method.self_supervised.type:
        case "Barlow":
            return Projector(width, (BARLOW_WIDENING * width,) * 3), None
        case "Clusters":
            return Projector(width, (width, width)), nn.Linear(width, TURNS)
        case _:
            return None, None
