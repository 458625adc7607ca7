"""Observed status of a silo in a cluster."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import KEY_PATTERN, Document
from anchorage.api.status import Code, Condition, Line, Number, Percentage, Timestamp, Total


class SiloCertificate(Document):
    """Certificate of a silo."""

    not_after: Timestamp | None = Field(None, description="Expiry of the certificate.")
    key: Annotated[str, StringConstraints(strict=True, pattern=KEY_PATTERN, max_length=64)] = Field(
        "", description="SHA-256 of the silo's public key."
    )


class SiloCrStatus(Document):
    """Observed status of a silo, written by the operator. The condition Approved is set by a person where admission is manual."""

    observed_generation: Total = Field(0, description="Generation that this status is of.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="Conditions of the silo, one per type: Approved, Enrolled, Connected, Ready."
    )
    role: Literal["", "Managed", "Remote"] = Field(
        "", description="Who runs the agent. Managed: the operator, in this cluster. Remote: the hospital."
    )
    state: Annotated[str, StringConstraints(strict=True, max_length=63)] = Field(
        "", description="State in the current round, such as Training or Late."
    )
    task: Literal["", "Train", "Evaluate"] = Field("", description="Kind of the current task; empty without one.")
    progress: Percentage = Field(0, description="Progress of the current task in percent.")
    rate: Total = Field(0, description="Rate of the transfer under way, bytes per second; 0 without one.")
    seconds_left: Total | None = Field(None, description="Time until the transfer's end, in seconds.")
    samples: Total = Field(0, description="Images for training, or used in the last counted update.")
    weight: Number = Field("0", description="Weight of the last counted update in the aggregation, 0 to 1.")
    epsilon: Number = Field("", description="Privacy loss of all updates so far, under a privacy budget.")
    last_seen_time: Timestamp | None = Field(None, description="Time of the last contact.")
    certificate: SiloCertificate | None = Field(None, description="Certificate of the silo.")
    code: Code = Field("", description="Code of the last failure, such as ANC-1301.")
    message: Line = Field("", description="Message of the last failure.")
