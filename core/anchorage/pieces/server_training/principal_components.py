"""Principal components of frozen features, found of all silos' images, so that later stages send and calculate less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.errors.learning import MOMENTS_UNUSABLE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, piece
from anchorage.api.task import CLASSIFICATION
from anchorage.learning.hooks import ServerTrainer
from anchorage.learning.method import TrainingMethod
from anchorage.pieces.server_training.sums import SumsOfFeatures
from anchorage.transport.tensors.layout import MOMENTS

if TYPE_CHECKING:
    from anchorage.api.plan import Plan
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import LocalImages, SiloRound, Work

IMAGES, SUM, PRODUCTS = (MOMENTS + part for part in ("images", "sum", "products"))
"""Names of the sums: pooled moments without classes (`anchorage.algorithms.moments.Moments`)."""


@piece("principalComponents")
class FindComponents(SumsOfFeatures):
    """Principal components of frozen features, found of sums over all images, with or without labels."""

    tasks: ClassVar[frozenset[str] | None] = CLASSIFICATION
    finds_components: ClassVar[bool] = True

    minimum_count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        20,
        description="Minimum number of images for which a silo sends sums; with fewer it waits for the next stage.",
    )

    def facts(self) -> frozenset[str]:
        """Say that the server finds the components, of images without labels, too, and that no silo trains."""
        return frozenset(
            {
                Fact.SERVER_TRAINING,
                Fact.LABELS_UNREAD,
                Fact.LABELS_UNNEEDED,
                Fact.UNTRAINED,
                Fact.UNLABELLED_MOMENTS,
                Fact.PRINCIPAL_COMPONENTS,
            }
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need a model with components, and a stage after this one that makes a classifier."""
        if not plan.warms_up:
            message = (
                "found principalComponents, which make no classifier; set them in spec.warmUp, before another method"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, self.path, message)
        elif plan.spec.model.principal_components is None:
            message = "found principalComponents, but a model without; set spec.model.principalComponents: 256, or remove the stage"
            yield Mistake(MEANINGLESS_OVERRIDE, self.path, message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the sums."""
        return (
            AuxiliaryArray(IMAGES, "[1] float64", "number of images", up=True),
            AuxiliaryArray(SUM, "[1, d] float64", "features, summed over all images", up=True),
            AuxiliaryArray(
                PRODUCTS, "[d (d + 1) / 2] float64", "products of two features, summed over images", up=True
            ),
        )

    def shapes(self, network: Network) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of the sums."""
        from anchorage.algorithms.moments import second_shape

        return {IMAGES: (1,), SUM: (1, network.width), PRODUCTS: second_shape("Pooled", 0, network.width)}

    @property
    def counted(self) -> Sequence[str]:
        """Name of the number of images."""
        return (IMAGES,)

    def miscounted(self, samples: Mapping[str, int], counts: Mapping[str, NDArray[np.float64]]) -> str | None:
        """Return how a count is not the number of images that was announced."""
        announced = samples.get("train", 0)
        if any(count.tolist() != [announced] for count in counts.values()):
            return f"the sums are not over the {announced} images announced"
        return None

    def silo_work(self, silo_round: SiloRound) -> Work:
        """Return the sums over the silo's images, without a step."""
        from anchorage.learning.silo_round import Work

        images = silo_round.images
        enough = len(images.train) >= self.minimum_count
        labels = images.labels[images.train] if enough else np.zeros(0, np.int64)
        samples = {
            "train": len(labels),
            "labelled": int((labels >= 0).sum()),
            "unlabelled": int((labels < 0).sum()),
            "smallest_group": len(labels),
        }
        return Work(iter(()), 0, samples, untrained=_sum_features(images, silo_round.network) if enough else None)

    def trainer(self, method: TrainingMethod) -> ServerTrainer:
        """Return what finds the components."""
        return ComponentsFinder()


def _sum_features(images: LocalImages, network: Network) -> Mapping[str, NDArray[np.float64]]:
    """Return the sums over a silo's images by the names of their tensors."""
    from anchorage.pieces.server_training.closed_form import pooled_moments

    moment_arrays = pooled_moments(network, images.views, images.train).arrays()
    return {IMAGES: moment_arrays["counts"], SUM: moment_arrays["sums"], PRODUCTS: moment_arrays["seconds"]}


class ComponentsFinder(ServerTrainer):
    """Finds the components of a round's sums and those of the server's own anchors."""

    def train(self, server_round: ServerRound) -> Mapping[str, float]:
        """Set the components and return the share of the variance that they have.

        Raises
        ------
        AnchorageError
            MOMENTS_UNUSABLE: there are fewer than two images, or their features do not differ.
        """
        from anchorage.algorithms.moments import Moments
        from anchorage.learning.heads import PrincipalComponents
        from anchorage.learning.stepping import on_trial
        from anchorage.pieces.server_training.closed_form import pooled_moments, require_difference

        network, anchors = server_round.network, server_round.anchors
        parts = dict(zip(("counts", "sums", "seconds"), (IMAGES, SUM, PRODUCTS), strict=True))
        moments = Moments.from_arrays(
            {part: server_round.extra_tensors[name] for part, name in parts.items()}, "Pooled"
        )
        if anchors is not None:
            moments += pooled_moments(network, anchors.views, anchors.indices)
        count = int(moments.counts.sum())
        if count < 2 and on_trial():
            return {}
        if count < 2:
            message = (
                f"the features of {count} images have no components; give silos more images, at least minimumCount each"
            )
            raise AnchorageError(MOMENTS_UNUSABLE, message)
        require_difference(moments)
        components = network.projection
        assert isinstance(components, PrincipalComponents), "checked with the documents"
        return {"explained_variance": components.find(moments.mean(), moments.total())}
