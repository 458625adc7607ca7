"""Configurations of the server and the agents on this machine; the runner acts as control plane with certificate authority and tokens."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.federation import TRUSTING_POLICY
from anchorage.api.source import write_documents
from anchorage.transport.pki import Authority, Tokens
from fedctl.workdir import Workdir
from fedctl.writing import writing

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class LocalSilo:
    """A silo whose agent runs on this machine."""

    name: str
    """Its name."""
    settings: Mapping[str, Any]
    """Its part of the agent's configuration, JSON values: ``labels``, ``data``, ``policy``, ``trainer``."""


def open_authority(workdir: Workdir, federation: str) -> Authority:
    """Return the run's certificate authority, created at the first start.

    Raises
    ------
    AnchorageError
        The folder cannot be written, or holds another federation's authority.
    """
    if not (workdir.authority / "ca.pem").exists():
        return Authority.create(workdir.authority, federation)
    authority = Authority.load(workdir.authority)
    if authority.federation != federation:
        raise AnchorageError(
            commands.WORKDIR_TAKEN,
            f"{workdir.authority} is the authority of federation {authority.federation!r}, not of {federation!r}",
        )
    return authority


def write_server_config(workdir: Workdir, data_root: Path, endpoints: Mapping[str, str] | None) -> Path:
    """Write the server's configuration and return its path.

    Parameters
    ----------
    workdir : Workdir
        The run.
    data_root : Path
        Folder that the federation's claims name folders of.
    endpoints : mapping or None
        Addresses of the server's last start, so that the agents find it again; None takes any free ports.

    Raises
    ------
    AnchorageError
        The file cannot be written.
    """
    last = endpoints or {}
    anywhere = f"{LOOPBACK}:0"
    return _write(
        workdir.server_config,
        {
            "federation": str(workdir.federation),
            "state": str(workdir.server),
            "dataRoot": str(data_root),
            "listen": last.get("silos", anywhere),
            "enrolListen": last.get("enrolment", anywhere),
            "statusListen": last.get("status", anywhere).removeprefix("http://"),
            "authority": str(workdir.authority),
            "names": ["localhost", LOOPBACK],
        },
    )


def write_silo_config(
    workdir: Workdir, silo: LocalSilo, federation: str, data_root: Path, endpoints: Mapping[str, str]
) -> Path:
    """Write an agent's configuration, with a new enrolment token beside it, and return its path.

    Raises
    ------
    AnchorageError
        A file cannot be written.
    """
    folder = workdir.silo(silo.name)
    token = folder / "token"
    settings = dict(silo.settings)
    if "policy" not in settings:
        settings["policy"] = str(_write(folder / "policy.yaml", TRUSTING_POLICY))
    _write_private(token, Tokens(workdir.authority / "tokens").create(silo.name))
    return _write(
        workdir.silo_config(silo.name),
        {
            "silo": silo.name,
            "federation": federation,
            "server": endpoints["silos"],
            "enrolment": endpoints["enrolment"],
            "authority": str(workdir.authority / "ca.pem"),
            "token": str(token),
            "state": str(folder / "state"),
            "dataRoot": str(data_root),
            **settings,
        },
    )


def to_yaml(*documents: Document | Mapping[str, Any]) -> str:
    """Write documents as YAML, fields in camelCase, without those that are absent."""
    values = [
        d.model_dump(mode="json", by_alias=True, exclude_none=True) if isinstance(d, Document) else dict(d)
        for d in documents
    ]
    return write_documents(values, explicit_start=False)


def _write(path: Path, values: Mapping[str, Any]) -> Path:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_yaml(values))
    return path


def _write_private(path: Path, content: str) -> None:
    with writing(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)
