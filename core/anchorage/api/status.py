"""Observed status of a federation: one typed document in a file, on the command line and in a cluster."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from anchorage.api.base import CODE_PATTERN, DIGEST_PATTERN, PACKAGE_PATTERN, TIME_PATTERN, WORD_PATTERN, Document, Name
from anchorage.api.metrics import sort_metrics
from anchorage.api.silo_state import AT_WORK, MOST_PACKAGES, SiloState
from anchorage.api.text import printable

Timestamp = Annotated[str, StringConstraints(strict=True, pattern=TIME_PATTERN, max_length=27)]
"""RFC 3339 in UTC."""

Word = Annotated[str, StringConstraints(strict=True, pattern=WORD_PATTERN, max_length=63)]
Number = Annotated[str, StringConstraints(strict=True, max_length=32), AfterValidator(printable)]
"""A number as text; ``nan`` if it is undefined."""

Line = Annotated[str, StringConstraints(strict=True, max_length=1024), AfterValidator(printable)]
"""Text for people, which may be another party's."""
Code = Annotated[str, StringConstraints(strict=True, pattern=CODE_PATTERN, max_length=8)]
Endpoint = Annotated[str, StringConstraints(strict=True, max_length=260), AfterValidator(printable)]
Identifier = Annotated[str, StringConstraints(strict=True, max_length=256), AfterValidator(printable)]
Percentage = Annotated[int, Field(ge=0, le=100)]
Total = Annotated[int, Field(ge=0, le=2**63 - 1)]
Digest = Annotated[str, StringConstraints(strict=True, pattern=DIGEST_PATTERN, max_length=160)]


Package = Annotated[str, StringConstraints(strict=True, pattern=PACKAGE_PATTERN, max_length=129)]

MOST_SILOS = 10_000
ALL_ROUNDS_COMMITTED = "AllRoundsCommitted"
"""Reason of the conditions of a run that is over."""
STORING_RESULTS = "StoringResults"
"""Reason of the conditions between the last round and its end: models and card are written, and MLflow takes the results."""


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


class ConditionType(StrEnum):
    """Types of the conditions of a Federation and of a Silo; docs/conditions.md says when each is True."""

    ACCEPTED = "Accepted"
    APPROVED = "Approved"
    CERTIFICATES_VALID = "CertificatesValid"
    SERVER_AVAILABLE = "ServerAvailable"
    AGENT_AVAILABLE = "AgentAvailable"
    ENROLLED = "Enrolled"
    CONNECTED = "Connected"
    QUORUM_MET = "QuorumMet"
    READY = "Ready"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TRACKED = "Tracked"


class Condition(Document):
    """Condition of an object."""

    type: Word = Field(description="Type of the condition, such as Ready, QuorumMet or Approved.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether the condition holds.")
    reason: Word = Field(
        description="Reason of the status, in one word; after a failure, the name of the error in docs/errors.md."
    )
    message: Line = Field("", description="Explanation for people, on one line.")
    last_transition_time: Timestamp = Field(description="Time of the last change of `status`.")
    observed_generation: Total = Field(0, description="Generation of the object that the condition is about.")


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type, None where there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: Iterable[Condition], kind: ConditionType) -> bool:
    """Return whether a condition of this type has the status True."""
    return any(condition.type == kind and condition.status == "True" for condition in conditions)


def end_of(conditions: Iterable[Condition]) -> Condition | None:
    """Return the condition that says how a run ended, None where it has not."""
    ends = (ConditionType.SUCCEEDED, ConditionType.FAILED)
    return next((condition for condition in conditions if condition.type in ends and condition.status == "True"), None)


FAST = object()
"""Mark, by ``Annotated``, of a field that changes with every round or contact: in a cluster it is written at intervals, any other at once."""
MOMENTARY = object()
"""Mark of a field that is about the silo's current task: as `FAST`, and gone with the server, while any other field lasts."""


class SiloReport(Document):
    """What the server reports of a silo, wherever a status has it: every field is here once."""

    state: Annotated[str, StringConstraints(strict=True, max_length=63), MOMENTARY] = Field(
        "", description="State of the silo in the current round, such as Training or Late."
    )
    task: Annotated[Literal["", "Train", "Evaluate"], MOMENTARY] = Field(
        "", description="Kind of the silo's current task. Empty: it has none."
    )
    progress: Annotated[Percentage, MOMENTARY] = Field(0, description="Progress of the current task, in percent.")
    rate: Annotated[Total, MOMENTARY] = Field(
        0,
        description="Rate of the current transfer of a model or update, in bytes per second.",
    )
    seconds_left: Annotated[Total | None, MOMENTARY] = Field(
        None, description="Estimated seconds until the current transfer ends."
    )
    samples: Annotated[Total, FAST] = Field(
        0, description="Number of images that the silo trains on, or of its last counted update."
    )
    weight: Annotated[Number, FAST] = Field(
        "0", description="Weight of the silo's last counted update in the aggregation, from 0 to 1."
    )
    acceptance: Annotated[Number, FAST] = Field(
        "",
        description="Share of the silo's unlabelled images whose pseudo-labels were accepted in its last counted update, from 0 to 1. "
        "Empty: there are none.",
    )
    epsilon: Annotated[Number, FAST] = Field(
        "",
        description="Privacy loss (epsilon) of all updates of the silo so far, if its policy has a privacy budget.",
    )
    packages: Annotated[tuple[Package, ...], Field(max_length=MOST_PACKAGES)] = Field(
        (),
        description=(
            "Packages of other authors that the run uses at the silo, with their versions, as its agent last said. In a cluster "
            "only the Silo has it."
        ),
    )
    last_seen_time: Annotated[Timestamp | None, FAST] = Field(
        None, description="Time of the server's last contact with the silo."
    )
    code: Code = Field("", description="Code of the silo's last failure, such as ANC-1301. Empty: none.")
    message: Line = Field("", description="Message of the silo's last failure.")


def marked_fields(*marks: object) -> tuple[str, ...]:
    """Return the fields of a `SiloReport` that have one of the marks, as a document names them."""
    fields = SiloReport.model_fields.values()
    return tuple(str(field.alias) for field in fields if any(mark in field.metadata for mark in marks))


class Member(Document):
    """A silo in a list of silos."""

    name: Name = Field(description="Name of the silo.")
    connected: bool = Field(False, description="Whether the silo's agent is connected.")


class SiloStatus(SiloReport, Member):
    """Status of one silo as the server observes it."""

    state: Word = Field(
        SiloState.WAITING, description="State of the silo in the current round, such as Training or Late."
    )


class Metric(Document):
    """Metric of a model."""

    name: Identifier = Field(description="Name of the metric, such as accuracy.")
    value: Number = Field(description="Value of the metric, as text.")


def metrics_of(values: Mapping[str, float]) -> tuple[Metric, ...]:
    """Return metrics as a status has them, the most telling first."""
    return tuple(Metric(name=name, value=repr(float(values[name]))) for name in sort_metrics(values))


Metrics = Annotated[tuple[Metric, ...], Field(max_length=256)]


class StoredModel(Document):
    """Model file that the server wrote."""

    path: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field(
        description="Path of the file at the server."
    )
    digest: Digest = Field(description="BLAKE3 digest of the model.")
    round: Total = Field(0, description="Round that the model is from.")
    metrics: Metrics = Field((), description="Metrics of the model on the test images.")


class CheckpointStatus(Document):
    """Checkpoint on the server's disk."""

    round: Total = Field(description="Round whose state the checkpoint holds.")
    path: Annotated[str, StringConstraints(strict=True, max_length=4096)] = Field(
        "", description="Path of the file at the server."
    )
    digest: Digest = Field("", description="BLAKE3 digest of the model.")
    time: Timestamp | None = Field(None, description="Time at which the round was committed.")


class TrackingStatus(Document):
    """Location of the results in MLflow."""

    uri: Annotated[str, StringConstraints(strict=True, max_length=2048)] = Field("", description="MLflow tracking URI.")
    experiment: Identifier = Field("", description="Name of the MLflow experiment.")
    run_id: Identifier = Field("", description="Id of the MLflow run.")
    registered_model: Identifier = Field("", description="Name of the registered model.")
    model_version: Identifier = Field("", description="Version of the registered model.")


class CertificateTimes(Document):
    """Expiry of the federation's certificates. In a cluster only."""

    server_not_after: Timestamp | None = Field(None, description="Time at which the server's certificate expires.")
    authority_not_after: Timestamp | None = Field(
        None, description="Time at which the certificate of the certificate authority expires."
    )


class FederationStatus(Document):
    """Observed state of a federation."""

    observed_generation: Total = Field(
        0, description="Generation of the Federation that this status is about; 0 outside a cluster."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        (), description="Conditions of the federation, one per type."
    )
    round: Total = Field(0, description="Number of the last committed round. 0: none.")
    rounds: Total = Field(0, description="Total number of rounds of the run.")
    progress_percentage: Percentage = Field(0, description="Percentage of the rounds that are committed.")
    step: Annotated[str, StringConstraints(strict=True, max_length=63)] = Field(
        "", description="Step of the current round, such as train or evaluate."
    )
    silos_summary: Annotated[str, StringConstraints(strict=True, max_length=31)] = Field(
        "", description="Number of connected silos and of all members, such as 3/3."
    )
    metric: Annotated[str, StringConstraints(strict=True, max_length=128)] = Field(
        "",
        description="Primary metric on the validation images, else on the test images, with its value, such as accuracy 0.969.",
    )
    endpoint: Endpoint = Field("", description="Address of the server for silos, host:port.")
    enrolment_endpoint: Endpoint = Field("", description="Address of the server for enrolment, host:port.")
    certificates: CertificateTimes | None = Field(
        None, description="Expiry of the federation's certificates, in a cluster."
    )
    connected_silos: Total = Field(0, description="Number of connected silos.")
    silos: Annotated[tuple[SiloStatus, ...], Field(max_length=MOST_SILOS)] = Field(
        (), description="Status of every member silo."
    )
    metrics: Metrics = Field((), description="Metrics of the last round that was evaluated.")
    last_checkpoint: CheckpointStatus | None = Field(None, description="Checkpoint of the last committed round.")
    model: StoredModel | None = Field(None, description="Model of the last round. Absent until the end of the run.")
    best_model: StoredModel | None = Field(
        None,
        description="Model of the round with the best primary metric.",
    )
    tracking: TrackingStatus = Field(TrackingStatus(), description="MLflow run that holds the results.")
    start_time: Timestamp | None = Field(None, description="Time of the run's first start.")
    completion_time: Timestamp | None = Field(
        None, description="Time at which the last round was committed. Absent until the end of the run."
    )
    last_updated_time: Timestamp | None = Field(None, description="Time at which this status was written.")
    bytes_up: Total = Field(0, description="Model bytes received from silos.")
    bytes_down: Total = Field(0, description="Model bytes sent to silos.")


def at_rest(status: FederationStatus) -> FederationStatus:
    """Return the status of a run whose server does not run any more: no silo is connected, none works, and no step is under way."""
    idle = {"connected": False, "task": "", "progress": 0, "rate": 0, "seconds_left": None}
    silos = tuple(
        silo.model_copy(update={**idle, "state": SiloState.WAITING if silo.state in AT_WORK else silo.state})
        for silo in status.silos
    )
    changes = {"silos": silos, "connected_silos": 0, "silos_summary": f"0/{len(silos)}", "step": ""}
    return status.model_copy(update=changes)
