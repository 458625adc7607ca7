"""What was observed of a federation: the same typed status in a file, on the command line and in a cluster."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from anchorage.api.base import CODE_PATTERN, DIGEST_PATTERN, TIME_PATTERN, WORD_PATTERN, Document, Name

Timestamp = Annotated[str, StringConstraints(strict=True, pattern=TIME_PATTERN, max_length=27)]
"""RFC 3339 in UTC."""

Word = Annotated[str, StringConstraints(strict=True, pattern=WORD_PATTERN, max_length=63)]
Number = Annotated[str, StringConstraints(strict=True, max_length=32)]
"""A number as text; ``nan`` where it is undefined."""

Line = Annotated[str, StringConstraints(strict=True, max_length=1024)]
Code = Annotated[str, StringConstraints(strict=True, pattern=CODE_PATTERN, max_length=8)]
Endpoint = Annotated[str, StringConstraints(strict=True, max_length=260)]
Identifier = Annotated[str, StringConstraints(strict=True, max_length=256)]
Percentage = Annotated[int, Field(ge=0, le=100)]
Total = Annotated[int, Field(ge=0, le=2**63 - 1)]
Digest = Annotated[str, StringConstraints(strict=True, pattern=DIGEST_PATTERN, max_length=160)]


MOST_SILOS = 10_000


def timestamp(seconds: float) -> str:
    """Write seconds since the epoch as a `Timestamp`, to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(moment: str) -> float:
    """Read an RFC 3339 moment as seconds since the epoch.

    Raises
    ------
    ValueError
        It is none.
    """
    return datetime.fromisoformat(moment).timestamp()


class Condition(Document):
    """One thing that is true, false or unknown of a federation, and why."""

    type: Word = Field(description="What it is about, such as Ready, QuorumMet or Approved.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Word = Field(description="One word; a failure's reason is the one of the catalogue.")
    message: Line = Field("", description="One line for people.")
    last_transition_time: Timestamp = Field(description="When `status` last changed.")
    observed_generation: Total = Field(0, description="Generation of the document that was looked at.")


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of a type, None where there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], *kinds: str) -> bool:
    """Return whether a condition of one of these types has the status True."""
    return any(condition.type in kinds and condition.status == "True" for condition in conditions)


class SiloStatus(Document):
    """One silo, as the server sees it."""

    name: Name = Field(description="Name of the silo.")
    connected: bool = Field(False, description="Whether its agent is connected now.")
    state: Word = Field("Waiting", description="Its part in the open round.")
    task: Literal["", "Train", "Evaluate"] = Field("", description="What it does now.")
    progress: Percentage = Field(0, description="How much of the task is done.")
    samples: Total = Field(0, description="Images that it can train on, or trained on in the last counted round.")
    weight: Number = Field("0", description="Share of its last counted update in the average, 0 to 1.")
    last_seen_time: Timestamp | None = Field(None, description="When the server last heard of it.")
    code: Code = Field("", description="Code of its last failure.")
    message: Line = Field("", description="Its last failure, one line.")


class Metric(Document):
    """A number of the last committed round."""

    name: Identifier = Field(description="Such as accuracy or balanced_accuracy.")
    value: Number = Field(description="The number as text.")


class StoredModel(Document):
    """A model file."""

    path: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field(description="Where it lies.")
    digest: Digest = Field(description="Content address of its bytes.")
    round: Total = Field(0, description="The round that it came from.")


class CheckpointStatus(Document):
    """The last committed round on disk."""

    round: Total = Field(description="The round.")
    path: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field("", description="Where it lies.")
    digest: Digest = Field("", description="Content address of the model.")
    time: Timestamp | None = Field(None, description="When it was committed.")


class TrackingStatus(Document):
    """Where the results are in MLflow."""

    uri: Annotated[str, StringConstraints(strict=True, max_length=2048)] = Field("", description="Tracking URI.")
    experiment: Identifier = Field("", description="Name of the experiment.")
    run_id: Identifier = Field("", description="The run.")
    registered_model: Identifier = Field("", description="Name of the registered model.")
    model_version: Identifier = Field("", description="Its version.")


class CertificateTimes(Document):
    """Until when the certificates of a federation hold; written in a cluster."""

    server_not_after: Timestamp | None = Field(None, description="When the server's certificate ends.")
    authority_not_after: Timestamp | None = Field(None, description="When the authority's certificate ends.")


class FederationStatus(Document):
    """What was observed of a federation."""

    observed_generation: Total = Field(0, description="Generation of the spec that was looked at; 0 outside a cluster.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field((), description="One per type.")
    round: Total = Field(0, description="Last committed round.")
    rounds: Total = Field(0, description="Rounds asked for.")
    progress_percentage: Percentage = Field(0, description="Committed rounds of those asked for.")
    step: Annotated[str, StringConstraints(strict=True, max_length=63)] = Field(
        "", description="Step of the open round."
    )
    silos_summary: Annotated[str, StringConstraints(strict=True, max_length=31)] = Field(
        "", description="Connected silos of those that are members, such as 3/3."
    )
    metric: Annotated[str, StringConstraints(strict=True, max_length=128)] = Field(
        "", description="First metric of the last evaluation, such as accuracy 0.969."
    )
    endpoint: Endpoint = Field("", description="Where silos reach the server, host:port.")
    enrolment_endpoint: Endpoint = Field("", description="Where silos enrol, host:port.")
    certificates: CertificateTimes | None = Field(None, description="Until when certificates hold.")
    connected_silos: Total = Field(0, description="Silos that are connected now.")
    silos: Annotated[tuple[SiloStatus, ...], Field(max_length=MOST_SILOS)] = Field((), description="Every silo.")
    metrics: Annotated[tuple[Metric, ...], Field(max_length=256)] = Field((), description="Of the last evaluation.")
    last_checkpoint: CheckpointStatus | None = Field(None, description="The last committed round on disk.")
    model: StoredModel | None = Field(None, description="The final model.")
    best_model: StoredModel | None = Field(None, description="The best model by the first metric.")
    tracking: TrackingStatus = Field(TrackingStatus(), description="Where the results are.")
    start_time: Timestamp | None = Field(None, description="When the run started first.")
    completion_time: Timestamp | None = Field(None, description="When its last round was committed.")
    last_updated_time: Timestamp | None = Field(None, description="When this status was written.")
    bytes_up: Total = Field(0, description="Model bytes from the silos.")
    bytes_down: Total = Field(0, description="Model bytes to the silos.")
