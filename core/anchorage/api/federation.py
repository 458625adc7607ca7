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
    FederationMetadata,
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
    """Secure aggregation: silos mask their updates, and the server learns only their weighted sum."""

    fractional_bits: Annotated[int, Field(ge=8, le=28)] = Field(
        24,
        description=(
            "Number of fractional bits of the fixed-point numbers, modulo 2^32, in which updates are summed. A parameter may "
            "change by at most 2^(30 - fractionalBits) in a round, 64 with 24 bits; lower it if larger changes are refused."
        ),
    )
    minimum_survivors: Annotated[int, Field(ge=2, le=1000)] = Field(
        3,
        description="Minimum number of silos whose sum is revealed; a round that fewer updates reach ends the run with QuorumLost. From a "
        "sum of 2, each of both silos, and a server with its help, learns the other's update: set 2 only where that is "
        "accepted.",
    )


class Protocol(Document):
    """Protocol between server and silos."""

    mode: Literal["Synchronous", "Asynchronous"] = Field(
        "Synchronous",
        description=(
            "Synchronous: the server waits for the silos of a round. Asynchronous: every update changes the global model when it "
            "arrives, for methods that allow it; choose it where some silos are much slower than others."
        ),
    )
    min_silos: Silos = Field(
        1,
        description=(
            "Quorum: number of silos that must answer for a round to count. With fewer at the deadline the run ends with QuorumLost "
            "and can be resumed. Set it to the number of silos where none may be missing."
        ),
    )
    silos_per_round: Silos | None = Field(
        None,
        description="Number of silos that are sampled for each round, from the run's seed. Absent: all.",
    )
    round_deadline_seconds: Seconds = Field(
        1800,
        description=(
            "Seconds that a silo may take for a round, which else goes on without it. An asynchronous run ends after these seconds "
            "without any update. Raise it for slow silos, and above the longest outage that a round is to survive."
        ),
    )
    idle_timeout_seconds: Seconds = Field(
        600,
        description=(
            "Seconds without any chunk (1 MiB, or less when encoded) after which the server cuts a transfer, which goes on when "
            "the silo connects again. Raise it for very slow lines."
        ),
    )
    maximum_images: Annotated[int, Field(ge=1, le=10**8)] | None = Field(
        None,
        description=(
            "Maximum number of images that an update may claim; more are refused. Set it somewhat above the largest hospital's, so "
            "that no silo can claim the whole weight of an average. Absent: the limit follows from what a silo states when it joins."
        ),
    )
    secure_aggregation: SecureAggregation | None = Field(
        None,
        description="Secure aggregation: silos mask their updates, so that the server learns the sum of a round's updates and no single "
        "one. Needs at least 3 silos in a round; absent: it is off.",
    )
    model_encoding: ModelCoding | None = Field(
        None,
        description="Encoding of global models on their way to silos that train on them, for slow lines: BFloat16 takes half, Int8 a "
        "quarter of the bytes. The server keeps the exact model. Absent: float32.",
    )


class NodePorts(Document):
    """Ports of every cluster node at which the server can be reached."""

    silos: NodePort | None = Field(
        None, description="Node port for connections of silos. Absent: chosen by the cluster."
    )
    enrolment: NodePort | None = Field(None, description="Node port for enrolment. Absent: chosen by the cluster.")


class Service(Document):
    """Kubernetes Service of the server. Ignored outside a cluster."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        "ClusterIP",
        description="Type of the Service: NodePort or LoadBalancer where hospitals connect from outside the cluster.",
    )
    annotations: Annotated[dict[LabelKey, AnnotationValue], Field(max_length=32)] = Field(
        {}, description="Annotations of the Service, such as for a load balancer."
    )
    node_ports: NodePorts | None = Field(
        None,
        description="Ports of every cluster node at which the server can be reached, for the types NodePort and LoadBalancer.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type == "ClusterIP" and self.node_ports is not None:
            raise ValueError("found nodePorts, but the type ClusterIP has none; set NodePort or LoadBalancer")
        return self


class Server(Document):
    """Pod, volume, Service and addresses of the aggregation server. Ignored outside a cluster."""

    resources: Resources = Field(Resources(), description="Compute resources of the server's pod.")
    storage: Storage = Field(Storage(), description="Volume of the server.")
    service: Service = Field(Service(), description="Kubernetes Service of the server.")
    address: Address | None = Field(
        None,
        description="Address at which hospitals reach the server; its host is also a name in the server's certificate. Absent: that of the "
        "Service.",
    )
    enrolment_address: Address | None = Field(
        None,
        description="Address at which hospitals enrol. Absent: the host of `address`, or of the Service, with its port for enrolment.",
    )
    names: Annotated[tuple[HostName, ...], Field(max_length=32)] = Field(
        (), description="Additional DNS names and IP addresses in the server's certificate."
    )
    pod: PodOverrides = Field(
        PodOverrides(),
        description="Overrides of the server's pod template. The fields are those of PodOverrides in docs/federation.md.",
    )


class Admission(Document):
    """How hospitals that run their own agent are admitted. Ignored outside a cluster."""

    approval: Literal["Manual", "Automatic"] = Field(
        "Manual",
        description="How a hospital that enrols is admitted. Manual: by `fedctl silo approve`. Automatic: with its invitation.",
    )
    silos: Annotated[tuple[Name, ...], Field(max_length=1000)] = Field(
        (), description="Names of silos that are approved in advance, without a command."
    )


class Embeddings(Document):
    """Pictures of a layer's outputs on validation images, projected to two dimensions."""

    layer: Annotated[str, StringConstraints(strict=True, pattern=LAYER_PATTERN, max_length=200)] = Field(
        "encoder",
        description="Module of the network whose outputs are drawn, such as encoder, encoder.layer3, projection (the input of the "
        "classifier) or anchor_head. Feature maps are averaged over their positions.",
    )
    images: Annotated[int, Field(ge=10, le=1000)] = Field(
        500, description="Number of validation images in a picture, drawn from the run's seed."
    )
    projection: Literal["PCA", "TSNE"] = Field(
        "PCA",
        description="Projection to two dimensions. PCA: principal components. TSNE: t-SNE, which takes seconds of the server's time for "
        "500 images.",
    )


class Evaluation(Document):
    """Evaluation of the global model."""

    validation: ServerData | None = Field(
        None,
        description="Labelled images at the server on which the global model is scored during the run, to choose the best round. Absent: "
        "the last model counts as the best.",
    )
    test: ServerData | None = Field(
        None,
        description="Labelled images at the server on which the final and the best model are scored at the end. Absent: the summary has "
        "the scores on the validation images.",
    )
    every_rounds: Rounds = Field(
        1,
        description="Number of rounds between evaluations; the last round is always evaluated. Raise it where evaluation takes long, as "
        "with `siloPercent`, for whose scores training waits.",
    )
    average_decay: Fraction | None = Field(
        None,
        description=(
            "Decay of a moving average of the global models: the share of itself that it keeps per round. The average is scored, "
            "kept and registered; training goes on from the models themselves. For the first `1 / (1 - averageDecay)` rounds it is "
            "the plain mean. Synchronous rounds only; absent: no average."
        ),
    )
    silo_percent: Annotated[int, Field(ge=0, le=50)] = Field(
        0,
        description="Percentage of each class's labelled images that every silo keeps from training, to score the global model on. 0: none.",
    )
    embeddings: Embeddings | None = Field(
        None,
        description="Pictures of a layer's outputs on the validation images, in five rounds of the run. Absent: MLflow has pictures of the "
        "classifier's input.",
    )
    on_leakage: Literal["Refuse", "Skip", "Allow"] = Field(
        "Refuse",
        description="Treatment of images in evaluation that would also be trained on, found by content. Refuse: the run ends. Skip: they "
        "are left out of training. Allow: they stay.",
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.validation is None and self.test is None and not self.silo_percent:
            raise ValueError("found neither validation, test nor siloPercent; set one, or leave evaluation out")
        if self.embeddings is not None and self.validation is None:
            raise ValueError("found embeddings without validation; set the images to draw, or remove embeddings")
        return self


class Tracking(Document):
    """MLflow tracking of a run's results."""

    uri: TrackingUri | None = Field(
        None,
        description=(
            "MLflow tracking URI; user and password are in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. Absent: in a "
            "cluster the operator's setting, else an SQLite file in the run's folder."
        ),
    )
    experiment: Title | None = Field(None, description="Name of the MLflow experiment. Absent: the federation's name.")
    registered_model: Title | None = Field(
        None, description="Name of the registered model in MLflow. Absent: the federation's name."
    )


Override = Annotated[str, StringConstraints(strict=True, max_length=128)]
"""``path=value``, read by `anchorage.api.overrides`."""


class WarmUp(Document):
    """Rounds of another method before the main one."""

    method: MethodName = Field(description="Preset that trains in these rounds.")
    rounds: Rounds = Field(description="Number of rounds of this stage, which are part of the run's `rounds`.")
    set: Annotated[tuple[Override, ...], Field(max_length=16)] = Field(
        (),
        description="Overrides of the preset, as `fedctl simulate --set` takes them but relative to `method`, such as local.epochs=1.",
    )


class FederationSpec(Document):
    """What is trained, how, and on which images."""

    rounds: Rounds = Field(
        description="Total number of rounds, warm-up included; in an asynchronous run, of updates that count. It may be raised during and "
        "after training."
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(
        1,
        description="Seed of all random draws except privacy noise. Change it to repeat a study with other draws.",
    )
    task: Annotated[Task, Slot("task")] = Field(description="Prediction task, such as classification.")
    model: ModelSpec = Field(description="Network that is trained, and the images that it takes.")
    method: MethodSpec = Field(description="Training method: a preset, and the slots that differ from it.")
    warm_up: Annotated[tuple[WarmUp, ...], Field(max_length=8)] = Field(
        (), description="Methods that train first, in this order, each from the model of the one before."
    )
    protocol: Protocol = Field(
        Protocol(), description="How rounds are run: quorum, deadlines, sampling of silos, encoding of models."
    )
    suspend: bool = Field(
        False,
        description="Whether training is suspended. With true the pods end after the last committed round, where training resumes.",
    )
    active_deadline_seconds: Seconds | None = Field(
        None,
        description="Maximum duration of the run, in seconds, after which it ends with DeadlineExceeded and can be resumed. Absent: no "
        "limit.",
    )
    anchor_data: ServerData | None = Field(
        None,
        description="Labelled images at the server to train on (anchors). Needed by methods that train at the server or label images by "
        "its anchors.",
    )
    evaluation: Evaluation | None = Field(
        None,
        description="Evaluation of the global model. Absent: no model is scored, and the last one counts as the best.",
    )
    server: Server = Field(Server(), description="Aggregation server in a cluster.")
    queue_name: Name | None = Field(
        None,
        description="Name of the Kueue LocalQueue that admits the pods of server and managed agents. Absent: no queue. A change restarts "
        "the pods.",
    )
    admission: Admission = Field(Admission(), description="Admission of hospitals that run their own agent.")
    deletion_policy: Literal["Retain", "Delete"] = Field(
        "Retain",
        description="What becomes of stored results when the Federation is deleted. Retain: checkpoints, models and the certificate "
        "authority stay. Delete: they go, too.",
    )
    tracking: Tracking = Field(Tracking(), description="MLflow tracking of the run's results.")

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
    metadata: FederationMetadata = Field(description="Name and namespace of the study.")
    spec: FederationSpec = Field(description="What is trained, how, and on which images; written by users.")
    status: FederationStatus | None = Field(None, description="Observed state, written by server and operator.")


class ManagedPod(Document):
    """Images and pod of an agent that runs beside the server."""

    data: SiloData = Field(description="Images of the silo.")
    resources: Resources = Field(
        Resources(),
        description="Compute resources of the agent's pod. With several `devices`, one nvidia.com/gpu each is requested unless a device is "
        "named here or claimed in `pod`.",
    )
    policy: PathBelow | None = Field(
        None,
        description="Hospital's policy file, a path below the data root. Absent: the server is trusted, and updates leave without noise.",
    )
    storage: SiloStorage = Field(SiloStorage(), description="Volume of the agent.")
    pod: PodOverrides = Field(
        PodOverrides(),
        description="Overrides of the agent's pod template. The fields are those of PodOverrides in docs/federation.md.",
    )


class Managed(AgentOptions, ManagedPod):
    """An agent that runs beside the server, on the same machine or in the same cluster."""

    @model_validator(mode="after")
    def _a_gpu_each(self) -> Self:
        for name, amount in (*self.resources.requests.items(), *self.resources.limits.items()):
            if self.devices > 1 and name.endswith("/gpu") and str(amount) not in (str(self.devices), "0"):
                raise ValueError(
                    f"found {self.devices} devices, but {amount} of {name}; ask for one each, or for 0 to train on processors"
                )
        return self


class SiloSpec(Document):
    """Membership of a silo in a federation."""

    federation: Name = Field(description="Name of the federation. It cannot be changed.")
    labels: Literal["None", "All", "Partial"] = Field(
        "None",
        description="Which of the silo's images have labels that may be used. None: labels are removed after reading. All: every image "
        "must have one. Partial: at least one image must have one.",
    )
    managed: Managed | None = Field(
        None,
        description="Agent that is run beside the server, on the same machine or in the same cluster. Absent: the hospital runs its own "
        "agent.",
    )


class Silo(Document):
    """A hospital's membership in a federation."""

    api_version: ApiVersion = Field("anchorage.dev/v1alpha1", description="Version of the API.")
    kind: Literal["Silo"] = Field("Silo", description="Kind of document.")
    metadata: Metadata = Field(description="Name and namespace of the silo; its certificate is issued for this name.")
    spec: SiloSpec = Field(description="Membership of a silo in a federation, written by users.")
    status: SiloCrStatus | None = Field(
        None, description="Observed state, written by the operator. Absent outside a cluster."
    )
