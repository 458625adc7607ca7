"""A new certificate authority for a run of this machine."""

from pathlib import Path

import typer

from anchorage.api.errors import AnchorageError, commands, identity
from anchorage.api.source import read_documents
from anchorage.transport.pki import Authority, Denials, SiloKeys, key_fingerprint
from anchorage.transport.pki.succession import drop_previous_authority, introduce_authority
from fedctl.choice import Place, local_run
from fedctl.workdir import Workdir


def replace(name: str | None, workdir: Path | None) -> None:
    """Make a new authority, and say what comes next.

    Raises
    ------
    AnchorageError
        There is no such run here, it has a new authority already, or its folder cannot be read or written.
    """
    run = _run_of(name, workdir)
    made = introduce_authority(run.authority)
    typer.echo(f"new authority; SHA-256 of its key: {key_fingerprint(made.certificate_pem)}")
    typer.echo("silos that are connected have a certificate of it within ten minutes; then: fedctl authority finish")


def finish(name: str | None, workdir: Path | None) -> None:
    """Trust the new authority alone.

    Raises
    ------
    AnchorageError
        As `replace`, there is no new authority, or a silo has no certificate of it yet.
    """
    run = _run_of(name, workdir)
    if waiting := _without_certificate(run):
        found = f"{', '.join(waiting)} of {run.root} have no certificate of the new authority yet"
        raise AnchorageError(identity.AUTHORITY_IN_USE, found)
    drop_previous_authority(run.authority)
    typer.echo("the former authority is trusted no more; the server has a certificate of the new one within a second")


def _without_certificate(run: Workdir) -> list[str]:
    """Return the silos that would be shut out; those that are denied are already, and without a new authority it is none."""
    new = Authority.load(run.authority).certificate_pem
    if Authority.load(run.authority).former().certificate_pem == new:
        return []
    documents, denied = [document.value for document in read_documents(run.federation)], Denials(run.authority)
    silos = [each["metadata"]["name"] for each in documents if each["kind"] == "Silo"]
    return SiloKeys(run.authority).not_signed_by(key_fingerprint(new), [name for name in silos if name not in denied])


def _run_of(name: str | None, workdir: Path | None) -> Workdir:
    run = local_run(name, Place(workdir))
    if run is None:
        found = f"no run of {name or 'a federation'} is on this machine; in a cluster see docs/operations.md, A new authority"
        raise AnchorageError(commands.NO_RUN_HERE, found)
    return run
