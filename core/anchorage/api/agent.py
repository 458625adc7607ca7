"""Options of a silo's agent that mean the same wherever they are written: in its own configuration, in a Silo, and in the chart's values.

An option is a field here and the place that uses it. Configuration (`anchorage_silo.config`), local run, operator, CRD, chart and what may change
during a run are made from these fields.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from anchorage.api.base import Devices, Document, Release

TRAINS_ALIKE = object()
"""Mark, by ``Annotated``, of a field that does not change what an agent trains on, or how: it may change at any time."""


class AgentOptions(Document):
    """Options that a federation's file may set for a managed silo, too."""

    devices: Devices = Field(
        1,
        description="Number of devices that train one model together, each on its part of every batch: GPUs, or processes on the CPU. More "
        "shorten training if batches are large. Another number gives another model in its last digits.",
    )
    threads: Annotated[int, Field(ge=1, le=256)] = Field(
        1,
        description=(
            "Number of CPU threads of each device. More make training of large networks faster and take processors from other "
            "programs. Another number gives another model in its last digits."
        ),
    )
    release: Annotated[Release, TRAINS_ALIKE] = Field(
        "Never",
        description=(
            "When the trainer process, which holds the device's memory and the images, ends. Never: with the agent. BetweenRounds: "
            "whenever there is no task, so that another program can use the GPU's memory; each task then starts it again, which "
            "takes seconds and reads the images anew. A pod keeps its resource request."
        ),
    )

    def changed_options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as a document has them: an agent of the release before does not know every one."""
        values: dict[str, Any] = self.model_dump(
            mode="json", by_alias=True, include=set(AgentOptions.model_fields), exclude_defaults=True
        )
        return values

    @classmethod
    def deciding(cls) -> set[str]:
        """Return the names of the fields that change what an agent trains on, or how."""
        return {name for name, field in cls.model_fields.items() if TRAINS_ALIKE not in field.metadata}


class SiteOptions(AgentOptions):
    """Options that a hospital sets for the agent that it runs."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device for training. auto: a GPU if there is one, else the CPU."
    )


def option_names(kind: type[AgentOptions] = AgentOptions, *, deciding: bool | None = None) -> Iterator[str]:
    """Yield the options as documents name them; with `deciding` only those that change what is trained, or how, or only the others."""
    for name, field in kind.model_fields.items():
        if deciding is None or deciding is (name in kind.deciding()):
            yield field.alias or name
