"""The agent's configuration: one YAML document of the hospital's own."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.base import Decimal, Document, Name
from anchorage.api.data import DataSection

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
"""``http://host:port``; no user and no password, which do not belong into a configuration that is read by many."""


class LearnerTrainer(Document):
    """Trains with the federation's method."""

    type: Literal["Learner"] = Field(description="Train with the federation's method.")


class NullTrainer(Document):
    """Adds a constant to every number, without images: for measuring the rounds themselves."""

    type: Literal["Null"] = Field(description="Add a constant, without images.")
    step: Decimal = Field("0.001", description="What is added to every float.")
    samples: Annotated[int, Field(ge=0)] = Field(100, description="What is reported as the number of images.")


class SiloConfig(Document):
    """Who the silo is, where the server is, where things lie, and what may be trained on."""

    silo: Name = Field(description="The silo's name in the federation.")
    federation: Name = Field(description="The federation's name.")
    server: Address = Field(description="Where the server takes silos.")
    enrolment: Address = Field(description="Where the server enrols silos.")
    authority: Path = Field(description="The certificate of the federation's authority (ca.pem).")
    proxy: Proxy | None = Field(
        None,
        description="HTTP proxy (http://host:port) for every connection to the server; it must allow CONNECT. Left out: none, "
        "whatever the environment says.",
    )
    patience_seconds: Annotated[int, Field(ge=0, le=31_536_000)] = Field(
        120,
        description="How long the agent waits at its start for a server that does not answer. 0: for ever, then also until a silo "
        "that is no member becomes one.",
    )
    token: Path | None = Field(
        None, description="File with the one-time enrolment token; needed until the silo is enrolled."
    )
    state: Path = Field(description="Folder of the agent's own: its key, certificate, buffers and audit log.")
    labels: Literal["None", "All", "Partial"] = Field(description="Which images have labels that may be used.")
    data: DataSection | None = Field(None, description="The images.")
    data_root: Path = Field(Path(), description="Folder below which claimName names a folder.")
    policy: Path | None = Field(None, description="File with the hospital's policy; left out: no limits.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where to train.")
    trainer: Annotated[LearnerTrainer | NullTrainer, Field(discriminator="type")] = Field(
        LearnerTrainer(type="Learner"), description="How to train."
    )
    probes_listen: Address | None = Field(
        None,
        description="Where /healthz, /readyz and /metrics are answered, without encryption, for the agent's own cluster only. "
        "Left out: nowhere.",
    )
    stay: bool = Field(
        False, description="Run as a service: when the run is over stay until SIGTERM, and end with exit code 0 then."
    )

    @model_validator(mode="after")
    def _has_data(self) -> "SiloConfig":
        if self.data is None and isinstance(self.trainer, LearnerTrainer):
            raise ValueError("found no data section, needed to train on; add data")
        return self
