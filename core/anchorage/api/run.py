"""What the server tells every silo when it joins."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import Document, Name
from anchorage.api.federation import ModelCoding, SecureAggregation
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.piece import TOLD_TO_SILOS
from anchorage.api.stages import stage_model

LayoutJson = Annotated[str, StringConstraints(strict=True, min_length=2, max_length=16 * 2**20)]
"""`anchorage.transport.tensors.layout.Layout.to_json`."""


class StageDescription(Document):
    """A method's rounds within a run."""

    method: ResolvedMethod = Field(description="Method with every slot filled.")
    down: LayoutJson = Field(description="Layout of the global model, as it travels to the silos.")
    up: LayoutJson = Field(description="Layout of an update, a subset of `down`.")
    last: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="Its last round.")


Base64 = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/]*={0,2}$", max_length=16 * 2**20)]
"""Keyed digests of 8 bytes each, ascending."""


class HeldOut(Document):
    """Images that the federation is scored on, by digests with the run's key: a silo recognises its own among them, and no others."""

    images: Base64 = Field(description="Digests of the images.")
    groups: Base64 = Field(description="Digests of the names of their patients or lesions.")
    treatment: Literal["Refuse", "Skip", "Allow"] = Field(description="What becomes of an image that a silo has, too.")


class RunDescription(Document):
    """Everything a silo needs to know of a run; the same for every silo."""

    federation: Name = Field(description="Name of the federation.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        description="Seed of the run (methods reference, section 1)."
    )
    model: ModelDescription = Field(description="Network to build, and what it is for.")
    method: ResolvedMethod = Field(description="Method with every slot filled.")
    down: LayoutJson = Field(description="Layout of the global model, as it travels to the silos.")
    up: LayoutJson = Field(description="Layout of an update, a subset of `down`.")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="Rounds of the whole run.")
    mode: Literal["Synchronous", "Asynchronous"] = Field(description="Whether rounds wait for each other.")
    data_key: Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$", max_length=64)] = Field(
        "0" * 64, description="Key of digests of images in this run, drawn when it began; zeros in a simulation."
    )
    silo_percent: Annotated[int, Field(ge=0, le=50)] = Field(
        0, description="Percentage of a silo's labelled images that it scores models on and does not train on."
    )
    secure_aggregation: SecureAggregation | None = Field(
        None, description="Updates leave masked; the server learns their sum."
    )
    model_encoding: ModelCoding | None = Field(None, description="How models to train travel; absent: as float32.")
    held_out: HeldOut | None = Field(None, description="Images that no silo may train on.")
    warm_up: Annotated[tuple[StageDescription, ...], Field(max_length=8)] = Field(
        (), description="The stages before the method, in their order."
    )

    def to_json(self) -> str:
        """Return the text that silos read: what is not set is left out, so that agents of the release before can read what they do not use."""
        return self.model_dump_json(by_alias=True, exclude_none=True, context=TOLD_TO_SILOS)

    def stage(self, round_number: int) -> "RunDescription":
        """Return the run as it is told to a silo in the stage of a round: its model, method and layouts, and the stages before it."""
        if not self.warm_up:
            return self
        for index, stage in enumerate(self.warm_up):
            if round_number <= stage.last:
                stage_fields = {
                    "down": stage.down,
                    "up": stage.up,
                    "rounds": stage.last,
                    "warm_up": self.warm_up[:index],
                }
                model = stage_model(self.model, stage.method)
                return self.model_copy(update={"model": model, "method": stage.method, **stage_fields})
        return self.model_copy(update={"model": stage_model(self.model, self.method)})

    @property
    def ends(self) -> tuple[int, ...]:
        """Last rounds of the stages, ascending."""
        return (*(stage.last for stage in self.warm_up), self.rounds)

    def rounds_done(self, round_number: int) -> int:
        """Return how many of the method's rounds are over when a round of it begins."""
        return round_number - 1 - self._before

    def share_done(self, round_number: int) -> float:
        """Return the share of the method's rounds that are over when a round of it begins, from 0 on."""
        return self.rounds_done(round_number) / (self.rounds - self._before)

    @property
    def _before(self) -> int:
        return self.warm_up[-1].last if self.warm_up else 0
