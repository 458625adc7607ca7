"""What the server tells every silo when it joins."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.spec.base import Document, Name
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.model import ModelSpec

LayoutJson = Annotated[str, StringConstraints(strict=True, min_length=2, max_length=16 * 2**20)]
"""`anchorage.tensors.layout.Layout.to_json`."""


class RunDescription(Document):
    """Everything a silo needs to know of a run; the same for every silo."""

    federation: Name = Field(description="Name of the federation.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(description="Seed of the run (METHODS.md section 1).")
    model: ModelSpec = Field(description="Network to build.")
    method: ResolvedMethod = Field(description="Method with every slot filled.")
    down: LayoutJson = Field(description="Layout of the community model, as it travels to the silos.")
    up: LayoutJson = Field(description="Layout of an update, a subset of `down`.")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = Field(description="Rounds of the whole run.")
    mode: Literal["Synchronous", "Asynchronous"] = Field(description="Whether rounds wait for each other.")
