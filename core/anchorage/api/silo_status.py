"""What was observed of a silo in a cluster."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import KEY_PATTERN, Document
from anchorage.api.status import Code, Condition, Line, Number, Percentage, Timestamp, Total


class SiloCertificate(Document):
    """The silo's certificate."""

    not_after: Timestamp | None = Field(None, description="When it ends.")
    key: Annotated[str, StringConstraints(strict=True, pattern=KEY_PATTERN, max_length=64)] = Field(
        "", description="SHA-256 of its public key."
    )


class SiloCrStatus(Document):
    """What was observed of a silo; written by the operator, but for the condition Approved of a silo that a person decides on."""

    observed_generation: Total = Field(0, description="Generation of the spec that was looked at.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="One per type: Approved, Enrolled, Connected, Ready."
    )
    role: Literal["", "Managed", "Remote"] = Field(
        "", description="Managed: the agent runs in this cluster. Remote: the hospital runs it."
    )
    state: Annotated[str, StringConstraints(strict=True, max_length=63)] = Field(
        "", description="Its part in the open round."
    )
    task: Literal["", "Train", "Evaluate"] = Field("", description="What it does now.")
    progress: Percentage = Field(0, description="How much of the task is done.")
    samples: Total = Field(0, description="Images that it can train on, or trained on in the last counted round.")
    weight: Number = Field("0", description="Share of its last counted update in the average, 0 to 1.")
    last_seen_time: Timestamp | None = Field(None, description="When the server last heard of it.")
    certificate: SiloCertificate | None = Field(None, description="Its certificate.")
    code: Code = Field("", description="Code of its last failure.")
    message: Line = Field("", description="Its last failure, one line.")
