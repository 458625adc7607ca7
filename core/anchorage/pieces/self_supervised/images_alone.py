"""What self-supervised losses share: they are of all images, labelled or not."""

from collections.abc import Sequence
from typing import ClassVar

from anchorage.api.fact import Fact
from anchorage.api.piece import Need
from anchorage.pieces.slots import SelfSupervised


class ImagesAlone(SelfSupervised):
    """Learns from images alone."""

    needs_network: ClassVar[bool] = True

    @property
    def leaves_classifier(self) -> bool:
        """Whether no silo trains the classifier."""
        return True

    def facts(self) -> frozenset[str]:
        """Say that silos learn without labels."""
        untrained = (
            {Fact.CLASSIFIER_UNTRAINED, Fact.LABELS_UNREAD, Fact.LABELS_UNNEEDED} if self.leaves_classifier else set()
        )
        return frozenset({Fact.SELF_SUPERVISION, *untrained})

    def needs(self) -> Sequence[Need]:
        """Need to be the only loss."""
        message = (
            f"found {self.name}, which learns from images alone, with pseudoLabels; set one of them to {{none: {{}}}}"
        )
        frozen = f"found {self.name}, which trains the encoder, but model.trainable freezes it; set All"
        return (Need(Fact.PSEUDO_LABELS, message, refused=True), Need(Fact.FROZEN_PARTS, frozen, refused=True))
