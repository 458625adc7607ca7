"""SemiFL's labels: the received model's, once per round (methods reference, 6.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from anchorage.api.piece import piece
from anchorage.api.task import ONE_CLASS_EACH
from anchorage.pieces.pseudo_labels.calibrated import Calibrated
from anchorage.pieces.pseudo_labels.fixed_labels import FixedLabels
from anchorage.pieces.pseudo_labels.pixels import received_pixel_work
from anchorage.pieces.pseudo_labels.viewed import Viewed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.learning.silo_round import SiloRound, Work


@piece("receivedModel")
class ReceivedModel(Viewed, FixedLabels, Calibrated):
    """Labels of weak views by the received model, once per round (SemiFL).

    In a segmentation, the confident pixels of images without a mask, as these are; of volumes, of patches. Images with one are
    learnt by it.
    """

    tasks: ClassVar[frozenset[str] | None] = ONE_CLASS_EACH
    for_volumes: ClassVar[bool] = True

    def objective(self, silo_round: SiloRound) -> Work:
        """Return the losses of accepted images, or of accepted pixels beside those of labelled images."""
        if silo_round.task.gives_maps:
            return received_pixel_work(silo_round, float(self.threshold))
        return super().objective(silo_round)

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return labels of weak views, in eval mode, int64 [b], and whether they are accepted, bool [b]."""
        views, network = self.seen(silo_round), silo_round.network
        augmentation = silo_round.draws.torch("pseudo-labels")
        logits = views.map_batches(indices, lambda i: network(views.weak(i, augmentation)))
        return self.acceptance(silo_round).labels(logits)
