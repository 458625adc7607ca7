"""A method as the learners of silos and server see it."""

from __future__ import annotations

from dataclasses import dataclass

from anchorage.api.method import Local, ResolvedMethod
from anchorage.api.piece import expect
from anchorage.learning.hooks import (
    InputMixingHooks,
    LearningHooks,
    LocalLossHooks,
    MixupHooks,
    OptimiserHooks,
    PseudoLabelHooks,
    RegulariserHooks,
    SecondHeadHooks,
    SelfSupervisedHooks,
    ServerTrainingHooks,
    WeightingHooks,
)


@dataclass(frozen=True)
class TrainingMethod:
    """A method as the learners see it."""

    resolved: ResolvedMethod
    local: Local
    local_loss: LocalLossHooks
    second_head: SecondHeadHooks
    self_supervised: SelfSupervisedHooks
    pseudo_labels: PseudoLabelHooks
    mixup: MixupHooks
    input_mixing: InputMixingHooks
    regulariser: RegulariserHooks
    server_training: ServerTrainingHooks
    weighting: WeightingHooks
    optimiser: OptimiserHooks
    pieces: tuple[LearningHooks, ...]

    @classmethod
    def of(cls, method: ResolvedMethod) -> TrainingMethod:
        """Return the learners' view of a method."""
        return cls(
            method,
            method.local,
            expect(method.local_loss, LocalLossHooks),
            expect(method.second_head, SecondHeadHooks),
            expect(method.self_supervised, SelfSupervisedHooks),
            expect(method.pseudo_labels, PseudoLabelHooks),
            expect(method.mixup, MixupHooks),
            expect(method.input_mixing, InputMixingHooks),
            expect(method.regulariser, RegulariserHooks),
            expect(method.server_training, ServerTrainingHooks),
            expect(method.weighting, WeightingHooks),
            expect(method.local.optimiser, OptimiserHooks),
            tuple(piece for piece in method.pieces() if isinstance(piece, LearningHooks)),
        )

    @property
    def loss_pieces(self) -> tuple[LearningHooks, ...]:
        """The pieces that have a part in a silo's loss."""
        loss_slots = (self.local_loss, self.second_head, self.self_supervised, self.pseudo_labels)
        return (*loss_slots, self.mixup, self.input_mixing, self.regulariser)

    @property
    def trains_classifier(self) -> bool:
        """Whether silos or server train the classifier."""
        return not self.self_supervised.leaves_classifier or self.server_training.trains
