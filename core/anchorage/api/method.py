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
    """Settings of silos without labels; one that is absent is the same as with labels (methods reference, 5.3)."""

    epochs: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Passes over its images per round.")
    learning_rate: PositiveDecimal | None = Field(None, description="Learning rate.")
    clip_norm: PositiveDecimal | None = Field(None, description="Largest gradient norm; 0: no limit.")
    batch_size: Count | None = Field(None, description="Images per step.")


class ValidationCycle(Document):
    """Adaptive Metis: a silo trains until its validation loss stands still, or the other silos have moved on (methods reference, 6.14)."""

    plateau_percent: PositiveDecimal = Field(
        "0", description="Improvement, in percent, up to which an epoch fails.\n\nThat of the validation loss."
    )
    tombstones: Annotated[int, Field(ge=0, le=100)] = Field(4, description="Failed epochs that a cycle may have.")
    max_epochs: Annotated[int, Field(ge=1, le=100)] = Field(32, description="Longest cycle, in epochs.")
    validation_percent: Annotated[int, Field(ge=1, le=50)] = Field(
        5, description="Share of each silo's images kept for validation, in percent."
    )
    slow_silos: NamePattern | None = Field(
        None,
        description="Names of slow silos.\n\nA pattern such as cpu-*; they have bounds of their own.",
    )
    slow_plateau_percent: PositiveDecimal = Field("1", description="`plateauPercent` of slow silos.")
    slow_tombstones: Annotated[int, Field(ge=0, le=100)] = Field(1, description="`tombstones` of slow silos.")

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

    epochs: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="Passes over the silo's images per round.")
    steps: Count | None = Field(
        None,
        description="Steps per round, in place of `epochs`.\n\nThe same at every silo: passes go on until there are so many. For short rounds.",
    )
    batch_size: Count = Field(10, description="Images per step.")
    accumulation: Accumulation = Field(1, description="Batches per step.\n\nThe mean of their gradients makes it.")
    optimiser: Annotated[Piece, Slot("optimiser")] | None = Field(
        None, description="Optimiser of the silo; absent: the preset's."
    )
    cycle: ValidationCycle | None = Field(None, description="Adaptive number of epochs, in place of `epochs`.")
    unlabelled: UnlabelledWork = Field(
        UnlabelledWork(), description="Settings of silos without labels, where they differ."
    )


class MethodSpec(Document):
    """A preset, and the slots that a document fills otherwise."""

    name: MethodName = Field(description="The preset that fills every slot.")
    local_loss: Annotated[Piece, Slot("local_loss")] | None = Field(None, description="Loss on labelled images.")
    second_head: Annotated[Piece, Slot("second_head")] | None = Field(
        None, description="Second classifier beside the one that is evaluated."
    )
    self_supervised: Annotated[Piece, Slot("self_supervised")] | None = Field(
        None, description="Self-supervised loss, which needs no labels."
    )
    pseudo_labels: Annotated[Piece, Slot("pseudo_labels")] | None = Field(
        None, description="Pseudo-labels for unlabelled images."
    )
    mixup: Annotated[Piece, Slot("mixup")] | None = Field(
        None, description="Mixup of images that have labels for the round."
    )
    input_mixing: Annotated[Piece, Slot("input_mixing")] | None = Field(
        None, description="Mixing of labelled images with images of other silos."
    )
    regulariser: Annotated[Piece, Slot("regulariser")] | None = Field(
        None, description="Regulariser that holds local training near the global model."
    )
    server_training: Annotated[Piece, Slot("server_training")] | None = Field(
        None, description="Training at the server after each aggregation."
    )
    weighting: Annotated[Piece, Slot("weighting")] | None = Field(None, description="Weight of each update.")
    aggregation: Annotated[Piece, Slot("aggregation")] | None = Field(
        None, description="How updates become one.\n\nAll but `mean` withstand some silos that send anything."
    )
    batch_norm: Annotated[Piece, Slot("batch_norm")] | None = Field(
        None, description="Batch normalisation between silos and server."
    )
    server_step: Annotated[Piece, Slot("server_step")] | None = Field(
        None, description="Server optimiser.\n\nHow the aggregated update changes the global model."
    )
    encoding: Annotated[Piece, Slot("encoding")] | None = Field(
        None, description="How updates travel.\n\nFewer bits make them smaller, for slow links."
    )
    local: Local | None = Field(None, description="Local training of a silo in one round.")


SLOTS = tuple(name for name in MethodSpec.model_fields if name not in ("name", "local"))
"""The slots of a method, in the order in which their pieces act."""


class ResolvedMethod(Document):
    """A method with every slot filled; `anchorage.methods.resolve` makes it."""

    name: MethodName = Field(description="The preset it came from.")
    local_loss: Annotated[Piece, Slot("local_loss")] = Field(description="Loss on labelled images.")
    second_head: Annotated[Piece, Slot("second_head")] = Field(description="Second classifier.")
    self_supervised: Annotated[Piece, Slot("self_supervised")] = Field(description="Self-supervised loss.")
    pseudo_labels: Annotated[Piece, Slot("pseudo_labels")] = Field(description="Pseudo-labels.")
    mixup: Annotated[Piece, Slot("mixup")] = Field(description="Mixup.")
    input_mixing: Annotated[Piece, Slot("input_mixing")] = Field(description="Mixing with images of other silos.")
    regulariser: Annotated[Piece, Slot("regulariser")] = Field(description="Regulariser.")
    server_training: Annotated[Piece, Slot("server_training")] = Field(description="Training at the server.")
    weighting: Annotated[Piece, Slot("weighting")] = Field(description="Weight of each update.")
    aggregation: Annotated[Piece, Slot("aggregation")] = Field(description="Aggregation.")
    batch_norm: Annotated[Piece, Slot("batch_norm")] = Field(description="Batch normalisation.")
    server_step: Annotated[Piece, Slot("server_step")] = Field(description="Server optimiser.")
    encoding: Annotated[Piece, Slot("encoding")] = Field(description="How updates travel.")
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
