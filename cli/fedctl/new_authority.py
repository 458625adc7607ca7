"""A new certificate authority for a run of this machine, or, by an annotation that the operator follows, for a federation in a cluster."""

import typer

from anchorage.api.errors import AnchorageError, identity
from anchorage.api.source import read_documents
from anchorage.transport.kube.resources import NEW_AUTHORITY
from anchorage.transport.pki import Authority, Denials, SiloKeys, key_fingerprint
from anchorage.transport.pki.succession import drop_previous_authority, introduce_authority
from fedctl.choice import Place, in_cluster, run_here
from fedctl.workdir import Workdir


def replace(name: str | None, place: Place) -> None:
    """Make a new authority, or have the operator make it, and say what comes next.

    Raises
    ------
    AnchorageError
        There is no such federation, it has a new authority already, its folder cannot be read or written, or the cluster refuses.
    """
    run = run_here(name, place)
    if run is None:
        federation = _ask_operator(name, place, "yes")
        typer.echo(
            f"asked for a new authority; fedctl status {federation} says when every silo has a certificate of it"
        )
        return
    made = introduce_authority(run.authority)
    typer.echo(f"new authority; SHA-256 of its key: {key_fingerprint(made.certificate_pem)}")
    typer.echo("silos that are connected have a certificate of it within ten minutes; then: fedctl authority finish")


def finish(name: str | None, place: Place) -> None:
    """Trust the new authority alone; in a cluster the operator does as soon as every silo has a certificate of it.

    Raises
    ------
    AnchorageError
        As `replace`, there is no new authority, or a silo of a run of this machine has no certificate of it yet.
    """
    run = run_here(name, place)
    if run is None:
        federation = _ask_operator(name, place, None)
        typer.echo(f"the former authority is dropped when no silo needs it; fedctl status {federation} names who does")
        return
    if waiting := _without_certificate(run):
        detail = f"{', '.join(waiting)} of {run.root} have no certificate of the new authority yet"
        raise AnchorageError(identity.AUTHORITY_IN_USE, detail)
    drop_previous_authority(run.authority)
    typer.echo("the former authority is trusted no more; the server has a certificate of the new one within a second")


def _ask_operator(name: str | None, place: Place, asked: str | None) -> str:
    """Set or remove the annotation by which the operator knows, and return the federation's name."""
    source = in_cluster(name, place)
    annotations = source.federation()["metadata"].get("annotations", {})
    if asked is None and NEW_AUTHORITY not in annotations:
        detail = f"nobody has asked for a new authority of {source.name}, or it is being finished; fedctl status tells"
        raise AnchorageError(identity.AUTHORITY_UNUSABLE, detail)
    changed = {"metadata": {"annotations": {NEW_AUTHORITY: asked}}}
    source.api.patch("Federation", source.api.namespace, source.name, changed)
    return source.name


def _without_certificate(run: Workdir) -> list[str]:
    """Return the silos that would be shut out; those that are denied are already, and without a new authority it is none."""
    new = Authority.load(run.authority).certificate_pem
    if Authority.load(run.authority).former().certificate_pem == new:
        return []
    documents, denied = [document.value for document in read_documents(run.federation)], Denials(run.authority)
    silos = [each["metadata"]["name"] for each in documents if each["kind"] == "Silo"]
    return SiloKeys(run.authority).not_signed_by(key_fingerprint(new), [name for name in silos if name not in denied])
