"""A federation (one study) and the silos that are members of it."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.agent import AgentOptions
from anchorage.api.base import (
    ADDRESS_PATTERN,
    HOST_PATTERN,
    LAYER_PATTERN,
    TITLE_PATTERN,
    TRACKING_URI_PATTERN,
    Document,
    Fraction,
    Metadata,
    Name,
)
from anchorage.api.data import PathBelow, ServerData, SiloData
from anchorage.api.method import MethodName, MethodSpec
from anchorage.api.model import ModelDescription, ModelSpec
from anchorage.api.pod import LabelKey, PodOverrides, Resources, SiloStorage, Storage
from anchorage.api.silo_status import SiloCrStatus
from anchorage.api.slot import Slot
from anchorage.api.status import FederationStatus
from anchorage.api.task import Task

TRUSTING_POLICY = {"noiseStd": "0"}
"""Policy of a silo whose images are at the coordinating site itself, which trusts its own server, unless it has a policy of its own. Stated in a
field that agents of the release before know."""

ApiVersion = Literal["anchorage.dev/v1alpha1"]
Seconds = Annotated[int, Field(ge=1, le=31_536_000)]
Silos = Annotated[int, Field(ge=1, le=10_000)]
Rounds = Annotated[int, Field(ge=1, le=1_000_000)]

TrackingUri = Annotated[
    str, StringConstraints(strict=True, pattern=TRACKING_URI_PATTERN, min_length=1, max_length=2048)
]
"""No user or password inside: MLflow takes them from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."""

Address = Annotated[str, StringConstraints(strict=True, pattern=ADDRESS_PATTERN, min_length=3, max_length=260)]
"""host:port."""

HostName = Annotated[str, StringConstraints(strict=True, pattern=HOST_PATTERN, min_length=1, max_length=253)]
"""A DNS name or an IP address."""

AnnotationValue = Annotated[str, StringConstraints(strict=True, max_length=4096)]
NodePort = Annotated[int, Field(ge=1, le=65_535)]

Title = Annotated[str, StringConstraints(strict=True, pattern=TITLE_PATTERN, min_length=1, max_length=200)]
"""A name that people read, as MLflow takes it: neither slash nor colon."""


ModelCoding = Literal["BFloat16", "Int8"]
"""How global models travel to silos that train on them: half the bytes, or a quarter."""


class SecureAggregation(Document):
    """Silos mask their updates, and the server learns their weighted sum alone."""

    fractional_bits: Annotated[int, Field(ge=8, le=28)] = Field(
        24, description="Fractional bits of sums modulo 2^32.\n\nA number may change by 2^(31 - bits) in a round."
    )


class Protocol(Document):
    """How rounds are run (methods reference, section 3, slot 12)."""

    mode: Literal["Synchronous", "Asynchronous"] = Field(
        "Synchronous",
        description="Whether rounds wait for their silos.\n\nAsynchronous: every update counts as it arrives.",
    )
    min_silos: Silos = Field(1, description="Quorum: silos that must answer for a round to count.")
    silos_per_round: Silos | None = Field(None, description="Silos sampled for each round; absent: all.")
    round_deadline_seconds: Seconds = Field(1800, description="How long a round waits for its silos.")
    idle_timeout_seconds: Seconds = Field(600, description="How long no chunk of a transfer may arrive.")
    maximum_images: Annotated[int, Field(ge=1, le=10**8)] | None = Field(
        None, description="Most images of a silo; an update of more is refused."
    )
    secure_aggregation: SecureAggregation | None = Field(
        None, description="The server learns sums of updates, and no single one; 3 silos or more."
    )
    model_encoding: ModelCoding | None = Field(
        None, description="How models to train travel; absent: float32.\n\nThe server keeps the exact model."
    )


class NodePorts(Document):
    """Ports of every node that lead to the server."""

    silos: NodePort | None = Field(None, description="For silos; absent: chosen by the cluster.")
    enrolment: NodePort | None = Field(None, description="For enrolment; absent: chosen by the cluster.")


class Service(Document):
    """How silos reach the server; without meaning outside a cluster."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field("ClusterIP", description="Kind of service.")
    annotations: Annotated[dict[LabelKey, AnnotationValue], Field(max_length=32)] = Field(
        {}, description="Annotations, as load balancers take them."
    )
    node_ports: NodePorts | None = Field(None, description="NodePort, LoadBalancer: ports of the nodes.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type == "ClusterIP" and self.node_ports is not None:
            raise ValueError("found nodePorts, but the type ClusterIP has none; set NodePort or LoadBalancer")
        return self


class Server(Document):
    """The aggregation server in a cluster."""

    resources: Resources = Field(Resources(), description="Resources of the pod.")
    storage: Storage = Field(Storage(), description="Its volume.")
    service: Service = Field(Service(), description="Its service.")
    address: Address | None = Field(
        None, description="host:port by which hospitals reach it; absent: what the service tells."
    )
    enrolment_address: Address | None = Field(
        None, description="host:port by which hospitals enrol; absent: what the service tells."
    )
    names: Annotated[tuple[HostName, ...], Field(max_length=32)] = Field(
        (), description="Further DNS names and IP addresses of its certificate."
    )
    pod: PodOverrides = Field(PodOverrides(), description="Overrides of its pod: PodOverrides in docs/federation.md.")


class Admission(Document):
    """Which hospitals that run their own agent are let in."""

    approval: Literal["Manual", "Automatic"] = Field(
        "Manual", description="Manual: by `fedctl silo approve`. Automatic: whoever has an invitation."
    )
    silos: Annotated[tuple[Name, ...], Field(max_length=1000)] = Field(
        (), description="Names of silos that are approved in advance."
    )


class Embeddings(Document):
    """Pictures of a layer's outputs on validation images, in two dimensions."""

    layer: Annotated[str, StringConstraints(strict=True, pattern=LAYER_PATTERN, max_length=200)] = Field(
        "encoder",
        description="Module of the network whose outputs are drawn: encoder, projection (input of the classifier), anchor_head, encoder.layer3.\n\n"
        "Maps are averaged over their places.",
    )
    images: Annotated[int, Field(ge=10, le=1000)] = Field(
        500, description="Number of validation images, drawn from the run's seed."
    )
    projection: Literal["PCA", "TSNE"] = Field(
        "PCA",
        description="PCA: principal components. TSNE: t-SNE.\n\nt-SNE of 500 images takes seconds of the server's time, in five rounds of a run.",
    )


class Evaluation(Document):
    """Scoring of the global model at the server."""

    validation: ServerData | None = Field(None, description="Images that score every round and choose the best one.")
    test: ServerData | None = Field(None, description="Images that score the final and best model at the end.")
    every_rounds: Rounds = Field(1, description="Rounds between validations; the last is always scored.")
    average_decay: Fraction | None = Field(
        None,
        description="Decay of the models' average.\n\nOf global models. It is what is scored, chosen by, kept and registered in each round; "
        "training goes on from the models themselves. Share that it keeps of itself in a round, 0 to 1; until `1 / (1 - averageDecay)` rounds are "
        "over they all count alike. Synchronous rounds only; absent: no average.",
    )
    silo_percent: Annotated[int, Field(ge=0, le=50)] = Field(
        0, description="Percentage of each silo's labelled images held out to score models on."
    )
    embeddings: Embeddings | None = Field(
        None,
        description="Pictures of a layer's outputs on the validation images, in five rounds; absent: MLflow has those of the classifier's input.",
    )
    on_leakage: Literal["Refuse", "Skip", "Allow"] = Field(
        "Refuse",
        description="Treatment of these images where they would also be trained on.\n\nThey end the run, are left out of training, or stay.",
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.validation is None and self.test is None and not self.silo_percent:
            raise ValueError("found neither validation, test nor siloPercent; set one, or leave evaluation out")
        if self.embeddings is not None and self.validation is None:
            raise ValueError("found embeddings without validation; set the images to draw, or remove embeddings")
        return self


class Tracking(Document):
    """Where MLflow keeps the results."""

    uri: TrackingUri | None = Field(None, description="MLflow tracking URI; absent: an SQLite file of the run.")
    experiment: Title | None = Field(None, description="MLflow experiment; absent: the federation's name.")
    registered_model: Title | None = Field(None, description="Registered model; absent: the federation's name.")


Override = Annotated[str, StringConstraints(strict=True, max_length=128)]
"""``path=value``, read by `anchorage.api.overrides`."""


class WarmUp(Document):
    """Rounds of another method before the main one (methods reference, section 3.1, stages)."""

    method: MethodName = Field(description="The preset.")
    rounds: Rounds = Field(description="How many rounds.")
    set: Annotated[tuple[Override, ...], Field(max_length=16)] = Field(
        (), description="Its overrides, as `fedctl simulate --set` takes them, from `method` on: local.epochs=1."
    )


class FederationSpec(Document):
    """What is trained, how, on what."""

    rounds: Rounds = Field(description="Rounds in all, the warm-up's included. Asynchronous: updates that count.")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(1, description="Seed of every random draw.")
    task: Annotated[Task, Slot("task")] = Field(description="What the model tells of an image.")
    model: ModelSpec = Field(description="Network to train.")
    method: MethodSpec = Field(description="Preset and overrides.")
    warm_up: Annotated[tuple[WarmUp, ...], Field(max_length=8)] = Field(
        (), description="Methods that train first, each on the model of the one before."
    )
    protocol: Protocol = Field(Protocol(), description="How rounds are run.")
    suspend: bool = Field(False, description="Stop after the last committed round; ignored outside a cluster.")
    active_deadline_seconds: Seconds | None = Field(None, description="How long the whole run may take.")
    anchor_data: ServerData | None = Field(None, description="Labelled images at the server.")
    evaluation: Evaluation | None = Field(None, description="Scoring of the global model at the server.")
    server: Server = Field(Server(), description="The server in a cluster.")
    queue_name: Name | None = Field(None, description="Kueue's LocalQueue for server and managed agents.")
    admission: Admission = Field(Admission(), description="Which hospitals are let in; ignored outside a cluster.")
    deletion_policy: Literal["Retain", "Delete"] = Field(
        "Retain", description="Whether checkpoints, models and the authority go with the Federation."
    )
    tracking: Tracking = Field(Tracking(), description="Where the results go.")

    @property
    def server_data(self) -> dict[str, ServerData]:
        """The server's data sections by what they are for: ``anchors``, ``validation``, ``test``."""
        evaluation = self.evaluation
        sections = {
            "anchors": self.anchor_data,
            "validation": evaluation.validation if evaluation else None,
            "test": evaluation.test if evaluation else None,
        }
        return {name: section for name, section in sections.items() if section is not None}

    @property
    def embeddings(self) -> Embeddings | None:
        """What is drawn of the network's outputs on validation images, where the federation asks for such pictures."""
        return self.evaluation.embeddings if self.evaluation else None

    @property
    def model_description(self) -> ModelDescription:
        """The network with the task that it is for."""
        return ModelDescription(**dict(self.model), task=self.task)


class Federation(Document):
    """One study across several silos."""

    api_version: ApiVersion = Field("anchorage.dev/v1alpha1", description="Version of the API.")
    kind: Literal["Federation"] = Field("Federation", description="Kind of document.")
    metadata: Metadata = Field(description="Name of the study.")
    spec: FederationSpec = Field(description="What is asked for.")
    status: FederationStatus | None = Field(None, description="What was observed.")


class ManagedPod(Document):
    """Images and pod of an agent that runs beside the server."""

    data: SiloData = Field(description="The silo's images.")
    resources: Resources = Field(
        Resources(),
        description="Resources of the pod.\n\nWith several `devices`, as many nvidia.com/gpu are asked for where no device is named here and `pod` "
        "claims none.",
    )
    policy: PathBelow | None = Field(None, description="The hospital's policy file, below the data root.")
    storage: SiloStorage = Field(SiloStorage(), description="The agent's volume.")
    pod: PodOverrides = Field(
        PodOverrides(), description="Overrides of the agent's pod: PodOverrides in docs/federation.md."
    )


class Managed(AgentOptions, ManagedPod):
    """An agent that runs beside the server: on this machine or in this cluster."""

    @model_validator(mode="after")
    def _a_gpu_each(self) -> Self:
        for name, amount in (*self.resources.requests.items(), *self.resources.limits.items()):
            if self.devices > 1 and name.endswith("/gpu") and str(amount) not in (str(self.devices), "0"):
                raise ValueError(
                    f"found {self.devices} devices, but {amount} of {name}; ask for one each, or for 0 to train on processors"
                )
        return self


class SiloSpec(Document):
    """A membership."""

    federation: Name = Field(description="Name of the federation.")
    labels: Literal["None", "All", "Partial"] = Field("None", description="Which of the silo's images are labelled.")
    managed: Managed | None = Field(
        None, description="Present: run the agent here; absent: the hospital runs it itself."
    )


class Silo(Document):
    """A hospital's membership in a federation."""

    api_version: ApiVersion = Field("anchorage.dev/v1alpha1", description="Version of the API.")
    kind: Literal["Silo"] = Field("Silo", description="Kind of document.")
    metadata: Metadata = Field(description="Name of the silo; its certificate is issued for it.")
    spec: SiloSpec = Field(description="What is asked for.")
    status: SiloCrStatus | None = Field(None, description="What was observed; written in a cluster.")
