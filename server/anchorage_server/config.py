"""What a server is given: its own configuration, of where things lie and where it listens, and the documents of what is trained."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from anchorage.api.base import Document
from anchorage.api.errors.documents import NOT_A_DOCUMENT
from anchorage.api.files import Study
from anchorage.api.mistakes import DocumentError, Mistake
from anchorage.api.single import read_document
from anchorage.api.source import read_documents
from anchorage.methods import validate_study
from anchorage.methods.validation import validate_documents

Address = Annotated[
    str,
    StringConstraints(strict=True, pattern=r"^[^\s/]+:[0-9]{1,5}$", max_length=260),
    Field(examples=["[::]:8443"]),
]
"""Host and port; port 0 takes any free one. ``[::]`` is every address of the machine, of IPv4 too."""

HostName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=253)]


class ServerConfig(Document):
    """Configuration of one server process."""

    federation: Path = Field(description="File with the federation and its silos.")
    state: Path = Field(
        description="Folder for journal, checkpoints, updates while they arrive, and results. It must outlive the process."
    )
    data_root: Path = Field(Path(), description="Folder below which claims and initial weights are looked up.")
    listen: Address = Field(
        "127.0.0.1:0", description="Address at which silos connect, host:port; port 0 takes any free one."
    )
    enrol_listen: Address = Field(
        "127.0.0.1:0", description="Address at which silos enrol, host:port; port 0 takes any free one."
    )
    status_listen: Address = Field(
        "127.0.0.1:0", description="Address at which the status is served, host:port, without encryption."
    )
    control_listen: Address | None = Field(
        None,
        description="Address at which the operator of a cluster connects over HTTPS with certificates on both sides. If set, the operator "
        "decides who is a member and answers requests for certificates, and `statusListen` serves only probes and metrics. "
        "Left out: no operator.",
    )
    authority: Path | None = Field(
        None,
        description="Folder of the federation's certificate authority. Left out: `tls` names the server's certificate.",
    )
    tls: Path | None = Field(
        None,
        description="Folder with tls.key, tls.crt and ca.pem, in place of `authority`. The files are read again when they change.",
    )
    stay: bool = Field(
        False,
        description="Whether the server goes on serving status and models after the last round, until SIGTERM.",
    )
    names: Annotated[tuple[HostName, ...], Field(min_length=1, max_length=64)] = Field(
        ("localhost", "127.0.0.1"),
        description="Host names and addresses by which silos reach this server, for its certificate.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.authority is None) == (self.tls is None):
            raise ValueError("found neither or both of authority and tls, needed is one of them")
        if self.authority is None and self.control_listen is None:
            raise ValueError("found no authority and no controlListen, so that nobody could answer who enrols")
        return self


def read_config(path: Path) -> ServerConfig:
    """Read a configuration; relative paths in it start at its own folder.

    Raises
    ------
    DocumentError
        The file cannot be read, or a field is wrong; with every mistake.
    """
    config = read_document(path, ServerConfig)
    base = path.resolve().parent
    paths = {name: getattr(config, name) for name in ("federation", "state", "data_root", "authority", "tls")}
    return config.model_copy(update={name: base / path for name, path in paths.items() if path is not None})


def read_study(config: ServerConfig) -> Study:
    """Read the federation with its silos; in a cluster without silos, which come and go while the server runs.

    Raises
    ------
    DocumentError
        With every mistake.
    """
    if config.control_listen is None:
        return validate_study(config.federation)
    documents = [d for d in read_documents(config.federation) if d.value.get("kind") == "Federation"]
    if len(documents) != 1:
        message = f"found {len(documents)} documents with kind: Federation, allowed is one"
        raise DocumentError([Mistake(NOT_A_DOCUMENT, (), message, where=str(config.federation))])
    federation, _ = validate_documents(documents[0].value)
    return Study(federation, (), config.federation, tuple(documents))
