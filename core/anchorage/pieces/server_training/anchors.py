"""Cross entropy on the server's anchors (methods reference, 6.7, 6.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import PositiveDecimal
from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, NO_ANCHOR_DATA, SERVER_TRAINING_ASYNCHRONOUS
from anchorage.api.fact import Fact
from anchorage.api.method import Accumulation
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import Need, Piece, expect, piece
from anchorage.api.slot import Slot
from anchorage.learning.hooks import OptimiserHooks, ServerObjectiveHooks, ServerTrainer
from anchorage.learning.method import TrainingMethod
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.anchor_similarity import anchors_of_every_class
from anchorage.pieces.server_objective.task_loss import AnchorTaskLoss
from anchorage.pieces.slots import ServerTraining

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from anchorage.api.plan import Plan
    from anchorage.learning.local_training import Batching
    from anchorage.learning.network import Network
    from anchorage.learning.server_round import ServerRound


@piece("anchors")
class Anchors(ServerTraining):
    """Training on the server's labelled anchors.

    Before round 1 and after each aggregation.
    """

    trains: ClassVar[bool] = True
    needs_network: ClassVar[bool] = True

    pretrain_epochs: Annotated[int, Field(ge=0, le=10_000)] = Field(
        1, description="Number of epochs on the anchors before round 1. Not used with `pretrainSteps`."
    )
    pretrain_steps: Annotated[int, Field(ge=0, le=10_000_000)] = Field(
        0,
        description="Number of steps on the anchors before round 1, in place of `pretrainEpochs`, rounded down to a multiple of the steps "
        "of `epochs` epochs. 0: `pretrainEpochs` decides.",
    )
    pretrain_learning_rate: PositiveDecimal = Field(
        "0.03", description="Learning rate before round 1, whatever the optimiser's schedule."
    )
    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(
        1, description="Number of epochs of each server loss per round."
    )
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Batch size. 0 chooses 10 for up to 250 anchors, else 250."
    )
    accumulation: Accumulation = Field(
        1,
        description="Gradient accumulation: number of batches whose mean gradient makes one optimiser step. Raise it where a larger batch "
        "does not fit into memory.",
    )
    views: Literal["Strong", "Weak"] = Field(
        "Strong", description="Augmentation of the anchors in the cross-entropy epochs."
    )
    objective: Annotated[Piece, Slot("server_objective")] = Field(
        AnchorTaskLoss(),
        description="Loss with which the server trains on its anchors.",
        json_schema_extra={"default": {"taskLoss": {}}},
    )
    optimiser: Annotated[Piece, Slot("optimiser")] = Field(
        Sgd(),
        description="Optimiser of the server, with its learning rate.",
        json_schema_extra={"default": {"sgd": {}}},
    )

    def facts(self) -> frozenset[str]:
        """Say that the server trains."""
        return frozenset({Fact.SERVER_TRAINING})

    def needs(self) -> Sequence[Need]:
        """Need anchors, and rounds after which to train."""
        data = "found nothing, but server training needs labelled anchors; add it"
        rounds = (
            "found Asynchronous, but the server trains on its anchors after each round's aggregation; set Synchronous, "
            "or serverTraining: {none: {}}"
        )
        mode = ("spec", "protocol", "mode")
        return (
            Need(Fact.ANCHORS, data, failure=NO_ANCHOR_DATA, path=("spec", "anchorData")),
            Need(Fact.ROUNDS, rounds, failure=SERVER_TRAINING_ASYNCHRONOUS, path=mode),
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need an anchor of every class, and momentum that starts anew."""
        yield from anchors_of_every_class(plan)
        optimiser = expect(self.optimiser, OptimiserHooks)
        if optimiser.persists:
            state = optimiser.option("state")[len(optimiser.path) :]
            message = "found Persist, but the server's momentum starts anew in each round; remove it"
            yield Mistake(MEANINGLESS_OVERRIDE, (*self.option("optimiser"), *state), message)

    def trainer(self, method: TrainingMethod) -> AnchorTrainer:
        """Return a trainer of one run."""
        return AnchorTrainer(self)


class AnchorTrainer(ServerTrainer):
    """Epochs of cross entropy, or of mixed anchors."""

    def __init__(self, slot: Anchors) -> None:
        self._slot = slot
        self._optimiser = expect(slot.optimiser, OptimiserHooks)
        self._objective_piece = expect(slot.objective, ServerObjectiveHooks)
        self._objective = self._objective_piece.learning()

    def pretrain(self, server_round: ServerRound) -> None:
        """Train on the anchors before round 1."""
        slot, network, objective = self._slot, server_round.network, self._objective_piece
        epochs = slot.pretrain_epochs
        if slot.pretrain_steps:
            size = server_round.batching(1, slot.batch_size).size
            epochs = slot.epochs * calls_before(
                len(server_round.needed.indices), size, slot.epochs, slot.pretrain_steps
            )
        if epochs:
            optimiser = self._optimiser.build(network, learning_rate=float(slot.pretrain_learning_rate))
            batching = server_round.batching(epochs, slot.batch_size)
            steps = batching.steps(len(server_round.needed.indices))
            self._take_steps(network, optimiser, self.losses(server_round, batching), steps)
        further = self._objective.further_losses(server_round, epochs, before_rounds=True)
        if further is not None:
            losses = server_round.check_losses(objective, "further_losses", further[1])
            self._take_steps(network, self._optimiser.build(network), losses, further[2])

    def train(self, server_round: ServerRound) -> Mapping[str, float]:
        """Train on the anchors and return ``server_loss``; momentum starts anew in each round."""
        slot, network, objective = self._slot, server_round.network, self._objective_piece
        optimiser = self._optimiser.build(
            network, done=server_round.done, epochs=server_round.over * slot.epochs, buffers=server_round.momentum
        )
        batching = server_round.batching(slot.epochs, slot.batch_size)
        mixup, anchors = server_round.method.mixup, server_round.needed
        losses = (
            mixup.losses(network, anchors, anchors, batching, server_round.draws)
            if mixup.at_server
            else self.losses(server_round, batching)
        )
        loss = self._take_steps(network, optimiser, losses, batching.steps(len(anchors.indices)))
        further = self._objective.further_losses(server_round, slot.epochs, before_rounds=False)
        if further is None:
            return {"server_loss": loss}
        metric, more, steps = further
        more = server_round.check_losses(objective, "further_losses", more)
        return {"server_loss": loss, metric: self._take_steps(network, optimiser, more, steps)}

    def _take_steps(
        self, network: Network, optimiser: torch.optim.Optimizer, losses: Iterator[Tensor], expected: int
    ) -> float:
        """Step on the losses, so many at most, and return their mean."""
        from anchorage.learning.stepping import take_steps

        clip, several = float(self._optimiser.clip_norm), self._slot.accumulation
        return take_steps(network, optimiser, losses, expected=expected, clip_norm=clip, accumulation=several)[0]

    def losses(self, server_round: ServerRound, batching: Batching) -> Iterator[Tensor]:
        """Return the losses of the anchors: those of the pseudo-labels or the objective, else the task's of one view."""
        from anchorage.learning.local_training import strong_losses, weak_losses

        pseudo_labels = server_round.method.pseudo_labels
        pseudo_label_losses = pseudo_labels.server_losses(server_round, batching)
        if pseudo_label_losses is not None:
            return server_round.check_losses(pseudo_labels, "server_losses", pseudo_label_losses)
        pseudo_label_losses = self._objective.losses(server_round, batching)
        if pseudo_label_losses is not None:
            return server_round.check_losses(self._objective_piece, "losses", pseudo_label_losses)
        losses = weak_losses if self._slot.views == "Weak" else strong_losses
        return losses(server_round.network, server_round.needed, server_round.task.loss, batching, server_round.draws)

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what the objective keeps."""
        return self._objective.state()

    def restore(self, server_round: ServerRound, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what `state` returned."""
        self._objective.restore(server_round, state)


def calls_before(anchors: int, batch_size: int, epochs: int, steps: int) -> int:
    """Return how often so many epochs are taken before round 1 to reach a number of steps (methods reference, N2.3).

    Fewer anchors than a batch are one short batch; the published code divides by 0 there.
    """
    return steps // (epochs * max(1, anchors // batch_size))
