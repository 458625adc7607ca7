"""MOON's ablation: the distance to the global model's representation (methods reference, 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.piece import piece
from anchorage.pieces.regulariser.representations import RepresentationRegulariser

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.local_training import Contrast
    from anchorage.learning.silo_round import SiloRound


@piece("featureDistance")
class FeatureDistance(RepresentationRegulariser):
    """Mean L2 distance of representations to those of the global model (an ablation of MOON)."""

    resumes: ClassVar[bool] = True

    mu: PositiveDecimal = Field(
        "0.1",
        description="Factor mu of the distance. A larger value keeps representations nearer to the global model's.",
    )

    def contrast(self, silo_round: SiloRound) -> tuple[Contrast, Callable[[], Mapping[str, NDArray[Any]]]]:
        """Return the distance; the silo keeps nothing."""
        import torch

        received, mu = silo_round.copy_received(), float(self.mu)

        def term(images: Tensor, z: Tensor) -> Tensor:
            with torch.no_grad():
                by_received = received.represent(images)
            return mu * feature_distance(z, by_received)

        return term, dict


def feature_distance(z: Tensor, received: Tensor) -> Tensor:
    """Return the mean over samples of the distance of two representations [n, d]: MOON's L2 ablation, not squared (methods reference, 6.3)."""
    return ((z - received).square().sum(1) + 1e-12).sqrt().mean()
