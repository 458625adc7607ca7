"""``fedctl silo approve``, ``deny`` and ``remove``: decisions about the membership of silos, in a cluster or in a run of this machine."""

import re
import time

import typer

from anchorage.api.errors import AnchorageError, cluster
from anchorage.api.silo_status import SiloCrStatus
from anchorage.api.source import read_documents
from anchorage.api.status import ConditionType, find_condition, timestamp
from anchorage.api.text import printable
from anchorage.transport.kube.resources import kube_object
from anchorage.transport.pki import Denials
from fedctl.choice import Place, local_run
from fedctl.cluster_source import is_managed, typed_status
from fedctl.invitation import remote_federation, secret_name
from fedctl.output import Format, emit
from fedctl.workdir import Workdir
from fedctl.writing import writing

LONGEST_MESSAGE = 1024
"""Characters that a condition's message has room for."""
_KEY = re.compile(r"\b[0-9a-f]{64}\b")


def decide(federation: str, name: str, place: Place, output: Format, *, approved: bool, reason: str = "") -> None:
    """Set the condition Approved of a silo, with a reason in its message, and print the key that requests enrolment; or deny a silo of a run here.

    Raises
    ------
    AnchorageError
        There is no such silo, its agent runs in the cluster, the cluster refuses, or the run's folder cannot be written.
    """
    if not place.names_cluster and (run := local_run(federation, place)) is not None:
        _decide_here(run, name, approved=approved, reason=reason)
        _tell(federation, name, output, approved=approved)
        return
    source = remote_federation(federation, place)
    silo = source.silo(name)
    if is_managed(silo):
        raise AnchorageError(
            cluster.SILO_NOT_REMOTE,
            f"the agent of silo {name} runs in this cluster: it is a member while its object exists",
        )
    status = typed_status(silo, SiloCrStatus)
    word = "True" if approved else "False"
    before = find_condition(status.conditions, ConditionType.APPROVED)
    same = before is not None and before.status == word
    decision = {
        "type": ConditionType.APPROVED,
        "status": word,
        "reason": "ApprovedByUser" if approved else "DeniedByUser",
        "message": _message("approve" if approved else "deny", reason),
        "lastTransitionTime": before.last_transition_time if before and same else timestamp(time.time()),
        "observedGeneration": silo["metadata"].get("generation", 0),
    }
    metadata = {"name": name, "namespace": source.api.namespace}
    source.api.apply_status(kube_object("Silo", metadata, status={"conditions": [decision]}))
    key = _key(status)
    _tell(federation, name, output, approved=approved, key=key)
    if output.for_people:
        typer.echo(f"key: sha256 {key}" if key else "key: none has asked yet; the first that shows the token is taken")


def _tell(federation: str, name: str, output: Format, *, approved: bool, key: str | None = None) -> None:
    if output.for_people:
        typer.echo(f"{name} {'approved' if approved else 'denied'} in {federation}")
    else:
        emit(
            {"federation": federation, "silo": name, "approved": approved} | ({} if key is None else {"key": key}),
            output,
        )


def _decide_here(run: Workdir, name: str, *, approved: bool, reason: str) -> None:
    """Deny a silo of a run of this machine, or admit it again; the server notices within a second."""
    documents = (document.value for document in read_documents(run.federation))
    silos = [each["metadata"]["name"] for each in documents if each["kind"] == "Silo"]
    if name not in silos:
        raise AnchorageError(cluster.NO_SUCH_SILO, f"{run.federation} has the silos {', '.join(silos)}, and no {name}")
    denials = Denials(run.authority)
    with writing(run.authority):
        denials.approve(name) if approved else denials.deny(name, reason)


def _message(command: str, reason: str) -> str:
    message = f"by fedctl silo {command}" + (f": {printable(reason)}" if reason else "")
    return message[:LONGEST_MESSAGE]


def _key(status: SiloCrStatus) -> str:
    """Return the SHA-256 of the key with a certificate, or of the one that requests it; empty if there is none."""
    if status.certificate is not None and status.certificate.key:
        return status.certificate.key
    enrolled = find_condition(status.conditions, ConditionType.ENROLLED)
    asking = _KEY.findall(enrolled.message) if enrolled is not None and enrolled.reason == "PendingApproval" else []
    return ", ".join(asking)


def remove(federation: str, name: str, place: Place, output: Format) -> None:
    """Delete a Silo and its invitation.

    Raises
    ------
    AnchorageError
        There is no such silo, or the cluster refuses.
    """
    source = remote_federation(federation, place)
    source.silo(name)
    source.api.delete("Silo", source.api.namespace, name)
    source.api.delete("Secret", source.api.namespace, secret_name(name))
    if output.for_people:
        typer.echo(f"{name} removed from {federation}; an agent of it is refused from now on")
    else:
        emit({"federation": federation, "silo": name, "removed": True}, output)
