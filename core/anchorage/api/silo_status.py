"""Observed status of a silo in a cluster."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import KEY_PATTERN, Document
from anchorage.api.status import Condition, SiloReport, Timestamp, Total


class SiloCertificate(Document):
    """Certificate of a silo."""

    not_after: Timestamp | None = Field(None, description="Time at which the certificate expires.")
    key: Annotated[str, StringConstraints(strict=True, pattern=KEY_PATTERN, max_length=64)] = Field(
        "", description="SHA-256 of the silo's public key, in hexadecimal digits."
    )


class SiloCrStatus(SiloReport):
    """Observed state of a silo, written by the operator. The condition Approved is set by a person where admission is manual."""

    observed_generation: Total = Field(0, description="Generation of the Silo that this status is about.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="Conditions of the silo, one per type: Approved, Enrolled, Connected, Ready."
    )
    role: Literal["", "Managed", "Remote"] = Field(
        "", description="Who runs the agent. Managed: the operator, in this cluster. Remote: the hospital."
    )
    certificate: SiloCertificate | None = Field(None, description="Certificate of the silo.")
