"""The agent's configuration: one YAML document that the hospital writes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.agent import TRAINS_ALIKE, SiteOptions
from anchorage.api.base import Decimal, Document, Name
from anchorage.api.data import SiloData

Address = Annotated[
    str,
    StringConstraints(strict=True, pattern=r"^[^\s/:]+:[0-9]{1,5}$|^\[[0-9a-fA-F:]+\]:[0-9]{1,5}$"),
    Field(examples=["derm.example.org:8443"]),
]
"""``host:port``."""

Proxy = Annotated[
    str,
    StringConstraints(strict=True, pattern=r"^http://([^\s/:@]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}/?$", max_length=260),
    Field(examples=["http://proxy.example.org:3128, without user and password"]),
]
"""``http://host:port``, without user and password, because many people may read the configuration."""


class LearnerTrainer(Document):
    """Training with the federation's method."""

    type: Literal["Learner"] = Field(description="Kind of trainer: training with the federation's method.")


class NullTrainer(Document):
    """Stand-in for training that adds a constant to every number, without images, to measure the rounds themselves."""

    type: Literal["Null"] = Field(description="Kind of trainer: a stand-in that adds a constant, without images.")
    step: Decimal = Field("0.001", description="Constant that is added to every floating-point number of the model.")
    samples: Annotated[int, Field(ge=0)] = Field(100, description="Number of images that the silo reports.")


class SiloConfig(SiteOptions):
    """Configuration of an agent: identity, addresses, folders, images and policy."""

    silo: Name = Field(description="Name of the silo in the federation.")
    federation: Name = Field(description="Name of the federation.")
    server: Annotated[Address, TRAINS_ALIKE] = Field(description="Address of the server for silos, host:port.")
    enrolment: Annotated[Address, TRAINS_ALIKE] = Field(description="Address of the server for enrolment, host:port.")
    authority: Annotated[Path, TRAINS_ALIKE] = Field(
        description="Certificate of the federation's certificate authority (ca.pem)."
    )
    proxy: Annotated[Proxy | None, TRAINS_ALIKE] = Field(
        None,
        description="HTTP proxy (http://host:port) for every connection to the server; it must allow CONNECT. Left out: none; "
        "environment variables are ignored.",
    )
    patience_seconds: Annotated[int, Field(ge=0, le=31_536_000), TRAINS_ALIKE] = Field(
        120,
        description="Seconds to wait at the start for a server that does not answer. 0: without limit; then the agent also waits until "
        "the silo is a member.",
    )
    token: Annotated[Path | None, TRAINS_ALIKE] = Field(
        None, description="File with the one-time enrolment token; needed until the silo is enrolled."
    )
    state: Path = Field(
        description="Folder of the agent's own files: key, certificate, buffers, audit log and stored decoded images. It must outlive the "
        "agent."
    )
    shared_weights: Annotated[Path | None, TRAINS_ALIKE] = Field(
        None,
        description="Folder in which agents of several federations share frozen weights, so that each is fetched once. Left out: nothing "
        "is shared.",
    )
    labels: Literal["None", "All", "Partial"] = Field(
        description="Which of the images have labels that may be used. None: labels are removed after reading. All: every image must have "
        "one. Partial: at least one image must have one."
    )
    data: SiloData | None = Field(None, description="Images of the silo. Needed unless `trainer` is Null.")
    data_root: Path = Field(Path(), description="Folder below which `claimName` names a folder.")
    policy: Annotated[Path | None, TRAINS_ALIKE] = Field(
        None,
        description="File with the hospital's policy. Left out: what the shown federation needs is allowed, updates leave with relative "
        "noise, and raw images never leave.",
    )
    trainer: Annotated[LearnerTrainer | NullTrainer, Field(discriminator="type")] = Field(
        LearnerTrainer(type="Learner"),
        description="Trainer: Learner trains with the federation's method, Null measures rounds without images.",
    )
    probes_listen: Annotated[Address | None, TRAINS_ALIKE] = Field(
        None,
        description="Address for /healthz, /readyz and /metrics, host:port, without encryption and for the agent's own cluster only. Left "
        "out: no port is opened.",
    )
    stay: Annotated[bool, TRAINS_ALIKE] = Field(
        False,
        description="Whether the agent runs as a service: it stays after the run is over, and exits with code 0 on SIGTERM.",
    )

    @model_validator(mode="after")
    def _has_data(self) -> "SiloConfig":
        if self.data is None and isinstance(self.trainer, LearnerTrainer):
            raise ValueError("found no data section, needed to train on; add data")
        return self
