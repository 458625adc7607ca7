"""Thresholds that the server's validation images set, and labels that make up for a silo's own class shares, in place of one fixed threshold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, NO_ANCHOR_DATA
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need
from anchorage.pieces.pseudo_labels.by_confidence import ByConfidence
from anchorage.pieces.slots import PseudoLabels

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from anchorage.algorithms.calibration import Acceptance
    from anchorage.api.plan import Plan
    from anchorage.learning.server_round import ServerRound
    from anchorage.learning.silo_round import LocalImages, SiloRound
    from anchorage.transport.messages import AuxiliaryData
    from anchorage.transport.tensors.model import ModelBytes

THRESHOLDS, SHARES, CONFUSION = "thresholds", "anchor_shares", "validation_confusion"


class Validated(PseudoLabels):
    """May take its thresholds from the server's validation images, class by class, or learn there which classes the model confuses."""

    needs_network: ClassVar[bool] = True

    threshold: Any
    calibration: Any

    @property
    def validated(self) -> bool:
        """Whether it uses the server's validation images."""
        return self.calibration in ("Validation", "Measured")

    @property
    def measured(self) -> bool:
        """Whether silos measure their class shares by the classes that the model confuses."""
        return bool(self.calibration == "Measured")

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need validation images."""
        yield from super().check(plan)
        if self.validated and "validation" not in plan.spec.server_data:
            message = f"found {self.calibration}, but the server has no validation images; add evaluation.validation, or set None"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("calibration"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the thresholds, or how often the model confuses classes."""
        if self.measured:
            meaning = "share of each class's validation images that the global model takes for each class, half an image more counted of each pair"
            return (AuxiliaryArray(CONFUSION, "[C, C] float64", meaning),)
        meaning = "each class's threshold by the server's validation images"
        return (AuxiliaryArray(THRESHOLDS, "[C] float64", meaning),) if self.validated else ()

    def server_scores(self, server_round: ServerRound) -> Tensor:
        """Return the scores of the server's validation images by the network at hand, float [n, C]."""
        images, network = server_round.validation, server_round.network
        assert images is not None, "checked with the documents"
        return images.views.map_batches(images.indices, lambda i: network(images.views.plain(i)).softmax(1))

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return ``thresholds``, float64 [C], of a global model, or its ``validation_confusion``, float64 [C, C]."""
        from anchorage.algorithms.calibration import validated_thresholds
        from anchorage.algorithms.guesses import confusion
        from anchorage.learning.device import calculation

        if not self.validated:
            return {}
        name = CONFUSION if self.measured else THRESHOLDS
        known = server_round.computed.get(name)
        if known is None or known[0] != model.digest:
            with calculation():
                server_round.take(model)
                scores, images = self.server_scores(server_round).cpu(), server_round.validation
                assert images is not None, "checked with the documents"
                labels = _tensor(images.labels)
                if self.measured:
                    thresholds = confusion(scores.argmax(1), labels, scores.shape[1])
                else:
                    thresholds = validated_thresholds(scores, labels, float(self.threshold))
            known = server_round.computed[name] = (model.digest, thresholds.numpy())
        return {name: known[1]}

    def thresholds(self, silo_round: SiloRound) -> float | Tensor:
        """Return the threshold of a round, or each class's, float64 [C]."""
        by_class = self.validated and not self.measured
        return silo_round.auxiliary(THRESHOLDS)[THRESHOLDS] if by_class else float(self.threshold)


class Calibrated(ByConfidence, Validated):
    """Accepts probabilities, which it may correct by the silo's class shares."""

    calibration: Literal["None", "Validation", "Alignment", "Measured"] = Field(
        "None",
        description="How thresholds are set. None: `threshold` for all classes. Validation: in each round, for each class, the lowest "
        "value from which the share `threshold` of the guesses for the server's validation images is right. Alignment, "
        "Measured: `threshold` for all classes, after probabilities are corrected to the silo's class shares. Alignment "
        "estimates these by expectation maximisation, from the anchors' class shares. Measured takes the silo's classCounts, "
        "else measures its shares by its predictions and by how the global model confuses classes on the server's validation "
        "images.",
    )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Refuse thresholds of classes of whole images where every pixel has one."""
        yield from super().check(plan)
        if plan.spec.task.gives_maps and self.calibration != "None":
            message = f"found {self.calibration}, which is for one class per image; in a {plan.spec.task.name} set None"
            yield Mistake(MEANINGLESS_OVERRIDE, self.option("calibration"), message)

    @property
    def aligned(self) -> bool:
        """Whether probabilities make up for the silo's class shares."""
        return self.calibration == "Alignment"

    def needs(self) -> Sequence[Need]:
        """Need anchors, whose class shares the model has learnt, and labels by the classifier itself."""
        if self.calibration == "None":
            return super().needs()
        head = f"found {self.calibration}, but beside secondHead balanced a head of its own labels by one threshold; set None"
        heads = Need(Fact.BALANCED_HEAD, head, refused=True, path=self.option("calibration"))
        message = "found nothing, but calibration Alignment corrects for the class shares of the server's labels; add it, or set another calibration"
        anchors_needed = Need(Fact.ANCHORS, message, failure=NO_ANCHOR_DATA, path=("spec", "anchorData"))
        return (*super().needs(), heads, *([anchors_needed] if self.aligned else []))

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the thresholds, or the anchors' class shares."""
        shares = AuxiliaryArray(
            SHARES, "[C] float64", "class shares of the server's anchors, each class counted once more"
        )
        return (*super().auxiliary(), *([shares] if self.aligned else []))

    def server_auxiliary(self, server_round: ServerRound, model: ModelBytes) -> AuxiliaryData:
        """Return ``thresholds`` or ``anchor_shares``, float64 [C]."""
        if not self.aligned:
            return super().server_auxiliary(server_round, model)
        counts = np.bincount(server_round.needed.labels, minlength=server_round.model.num_outputs) + 1.0
        return {SHARES: counts / counts.sum()}

    def acceptance(self, silo_round: SiloRound) -> Acceptance:
        """Return how a silo's images are labelled in a round, whose network is still as received."""
        from anchorage.algorithms.calibration import Acceptance, class_shares, shift_to
        from anchorage.algorithms.guesses import measured_shares

        images, network = silo_round.images, silo_round.network
        stated = images.stated_counts if self.calibration in ("None", "Measured") else None
        if not len(images.unlabelled) or (stated is None and not self.aligned and not self.measured):
            return Acceptance(self.thresholds(silo_round))
        if stated is not None or self.measured:
            logits = images.views.map_batches(images.unlabelled, lambda i: network(images.views.plain(i)))
            if stated is not None:
                shares = unlabelled_shares(images)
            else:
                shares = measured_shares(logits.argmax(1), silo_round.auxiliary(CONFUSION)[CONFUSION])
            return Acceptance(float(self.threshold), shift_to(logits, shares).to(logits))
        prior = silo_round.auxiliary(SHARES)[SHARES]
        unlabelled_probabilities = images.views.map_batches(
            images.unlabelled, lambda i: network(images.views.plain(i)).softmax(1)
        )
        return Acceptance(
            float(self.threshold),
            (class_shares(unlabelled_probabilities, prior) / prior).log().to(unlabelled_probabilities.dtype),
        )

    def label(self, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the received model's labels of plain images, int64 [b], and whether they are accepted, bool [b]."""
        views, network = silo_round.images.views, silo_round.network
        logits = views.map_batches(indices, lambda i: network(views.plain(i)))
        return self.acceptance(silo_round).labels(logits)


def unlabelled_shares(images: LocalImages) -> Tensor:
    """Return the class shares of a silo's unlabelled images, float64 [C]: of what its records count, less what has a label."""
    assert images.stated_counts is not None, "the caller saw to it"
    labelled = np.bincount(images.labels[images.labelled], minlength=len(images.stated_counts))
    missing_counts = np.maximum(images.stated_counts - labelled, 0)
    counts = missing_counts if missing_counts.any() else images.stated_counts
    return _tensor(counts / counts.sum())


def _tensor(labels: NDArray[Any]) -> Tensor:
    import torch

    return torch.from_numpy(labels)
