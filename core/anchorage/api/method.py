"""A method: a preset's name and the slots that a document sets (methods reference, section 3).

A slot holds exactly one alternative, named in the document, with that alternative's options and no others. The pieces that can stand there
are registered in `anchorage.api.piece`; this module knows none of them.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, StringConstraints

from anchorage.api.base import NAMES_PATTERN, WORD_PATTERN, Document, PositiveDecimal
from anchorage.api.piece import AuxiliaryArray, Piece
from anchorage.api.slot import Slot

MethodName = Annotated[str, StringConstraints(strict=True, pattern=WORD_PATTERN, max_length=63)]
"""A preset's name. `anchorage.methods.PRESETS` knows which ones exist; a package may add its own."""

Accumulation = Annotated[int, Field(ge=1, le=1000)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]

NamePattern = Annotated[str, StringConstraints(strict=True, pattern=NAMES_PATTERN, max_length=63)]
"""Names of silos, with * for any characters and ? for one."""


class UnlabelledWork(Document):
    """Local training of silos without labels, where it differs from that of silos with labels."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None,
        description="Number of passes over the images per round. Absent: as at silos with labels.",
    )
    learning_rate: PositiveDecimal | None = Field(None, description="Learning rate. Absent: as at silos with labels.")
    clip_norm: PositiveDecimal | None = Field(
        None,
        description="Maximum L2 norm of a step's gradient; larger gradients are scaled down to it. 0: no limit. Absent: as at silos with "
        "labels.",
    )
    batch_size: Count | None = Field(None, description="Batch size. Absent: as at silos with labels.")


class ValidationCycle(Document):
    """Adaptive number of epochs (Adaptive Metis): a silo trains until its validation loss stops falling or the other silos have moved on."""

    plateau_percent: PositiveDecimal = Field(
        "0",
        description="Fall of the validation loss, in percent, up to which an epoch counts as failed.",
    )
    tombstones: Annotated[int, Field(ge=0, le=100)] = Field(
        4, description="Number of failed epochs, in a row or not, after which one more ends the cycle."
    )
    max_epochs: Annotated[int, Field(ge=1, le=100)] = Field(32, description="Maximum number of epochs in a cycle.")
    validation_percent: Annotated[int, Field(ge=1, le=50)] = Field(
        5, description="Percentage of each silo's images that is kept from training for validation."
    )
    slow_silos: NamePattern | None = Field(
        None,
        description="Names of slow silos, for which `slowPlateauPercent` and `slowTombstones` hold. Absent: all silos have the same limits.",
    )
    slow_plateau_percent: PositiveDecimal = Field(
        "1", description="Value of `plateauPercent` for slow silos, whose cycles a larger value ends earlier."
    )
    slow_tombstones: Annotated[int, Field(ge=0, le=100)] = Field(
        1, description="Value of `tombstones` for slow silos, whose cycles a smaller value ends earlier."
    )

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return what travels beside the model because of the cycle."""
        return (
            AuxiliaryArray("committed_steps", "[] int64", "training steps that all committed updates are made of"),
            AuxiliaryArray("staleness", "[] int64", "steps committed between the silo's last download and its commit"),
            AuxiliaryArray("steps", "[] int64", "training steps of the update", up=True),
        )

    def of(self, silo: str) -> "ValidationCycle":
        """Return a silo's cycle: its plateau and tombstones are those of its group."""
        if self.slow_silos is None or not fnmatchcase(silo, self.slow_silos):
            return self
        return self.model_copy(
            update={"plateau_percent": self.slow_plateau_percent, "tombstones": self.slow_tombstones}
        )


class Local(Document):
    """Local training of a silo in one round."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(
        5, description="Number of passes over the silo's images per round. Not used with `steps` or `cycle`."
    )
    steps: Count | None = Field(
        None,
        description="Number of batches per round at every silo, in place of `epochs`. Set it for short rounds, after which models are "
        "averaged often.",
    )
    batch_size: Count = Field(10, description="Number of images per batch.")
    accumulation: Accumulation = Field(
        1,
        description="Gradient accumulation: number of batches whose mean gradient makes one optimiser step. Raise it where a larger batch "
        "does not fit into memory.",
    )
    optimiser: Annotated[Piece, Slot("optimiser")] | None = Field(
        None, description="Optimiser of the silos, with its learning rate. Absent: the preset's."
    )
    cycle: ValidationCycle | None = Field(
        None,
        description="Adaptive number of epochs (Adaptive Metis), in place of `epochs`: a silo trains until its validation loss stops "
        "falling or the other silos have moved on. Needs an asynchronous protocol; absent: every round has the same number.",
    )
    unlabelled: UnlabelledWork = Field(
        UnlabelledWork(), description="Settings for silos without labels, where they differ."
    )


class MethodSpec(Document):
    """Training method: a preset, and the slots that differ from it. A slot that is left out is the preset's."""

    name: MethodName = Field(description="Name of the preset, which fills every slot; `fedctl methods list` shows all.")
    local_loss: Annotated[Piece, Slot("local_loss")] | None = Field(
        None, description="Loss on labelled images. Change it where classes are imbalanced."
    )
    second_head: Annotated[Piece, Slot("second_head")] | None = Field(
        None, description="Second classifier beside the one that is evaluated."
    )
    self_supervised: Annotated[Piece, Slot("self_supervised")] | None = Field(
        None, description="Self-supervised loss, which needs no labels."
    )
    pseudo_labels: Annotated[Piece, Slot("pseudo_labels")] | None = Field(
        None, description="Pseudo-labels: how unlabelled images get labels to train on."
    )
    mixup: Annotated[Piece, Slot("mixup")] | None = Field(
        None, description="Mixup of images whose labels are fixed for a round."
    )
    input_mixing: Annotated[Piece, Slot("input_mixing")] | None = Field(
        None, description="Mixing of labelled images with each other or with images of other silos."
    )
    regulariser: Annotated[Piece, Slot("regulariser")] | None = Field(
        None,
        description="Regulariser that keeps local training near the global model, for silos that differ strongly.",
    )
    server_training: Annotated[Piece, Slot("server_training")] | None = Field(
        None, description="Training at the server after each aggregation."
    )
    weighting: Annotated[Piece, Slot("weighting")] | None = Field(
        None, description="Weight of each silo's update in the average."
    )
    aggregation: Annotated[Piece, Slot("aggregation")] | None = Field(
        None,
        description="How the updates of a round are aggregated. Where some silos may send wrong updates, median, trimmedMean, multiKrum, "
        "normBounding and zeno limit what those can do.",
    )
    batch_norm: Annotated[Piece, Slot("batch_norm")] | None = Field(
        None,
        description="How batch-normalisation layers are aggregated. Change it where scanners or stains differ between silos.",
    )
    server_step: Annotated[Piece, Slot("server_step")] | None = Field(
        None, description="Server optimiser: how the aggregated update changes the global model."
    )
    encoding: Annotated[Piece, Slot("encoding")] | None = Field(
        None, description="Encoding in which silos send their updates, for fewer bytes over slow lines."
    )
    local: Local | None = Field(
        None, description="Local training of a silo in one round: epochs or steps, batch size, optimiser."
    )


SLOTS = tuple(name for name in MethodSpec.model_fields if name not in ("name", "local"))
"""The slots of a method, in the order in which their pieces act."""


class ResolvedMethod(Document):
    """A method with every slot filled; `anchorage.methods.resolve` makes it."""

    name: MethodName = Field(description="Name of the preset that filled the slots.")
    local_loss: Annotated[Piece, Slot("local_loss")] = Field(description="Loss on labelled images.")
    second_head: Annotated[Piece, Slot("second_head")] = Field(
        description="Second classifier beside the one that is evaluated."
    )
    self_supervised: Annotated[Piece, Slot("self_supervised")] = Field(description="Self-supervised loss.")
    pseudo_labels: Annotated[Piece, Slot("pseudo_labels")] = Field(description="Pseudo-labels.")
    mixup: Annotated[Piece, Slot("mixup")] = Field(description="Mixup of images whose labels are fixed for a round.")
    input_mixing: Annotated[Piece, Slot("input_mixing")] = Field(description="Mixing with images of other silos.")
    regulariser: Annotated[Piece, Slot("regulariser")] = Field(description="Regulariser.")
    server_training: Annotated[Piece, Slot("server_training")] = Field(description="Training at the server.")
    weighting: Annotated[Piece, Slot("weighting")] = Field(description="Weight of each silo's update in the average.")
    aggregation: Annotated[Piece, Slot("aggregation")] = Field(description="How the updates of a round are aggregated.")
    batch_norm: Annotated[Piece, Slot("batch_norm")] = Field(
        description="How batch-normalisation layers are aggregated."
    )
    server_step: Annotated[Piece, Slot("server_step")] = Field(description="Server optimiser.")
    encoding: Annotated[Piece, Slot("encoding")] = Field(description="Encoding in which silos send their updates.")
    local: Local = Field(description="Local training.")

    def facts(self) -> frozenset[str]:
        """Return the facts that the pieces state about themselves."""
        return frozenset(fact for piece in self.pieces() for fact in piece.facts())

    def pieces(self) -> Iterator[Piece]:
        """Yield the piece of every slot with the pieces inside it, and the silo's optimiser."""
        for piece in (*(getattr(self, slot) for slot in SLOTS), self.local.optimiser):
            if piece is not None:
                yield piece
                yield from (inner for _, inner in piece if isinstance(inner, Piece))
