"""``fedctl silo invite``: creates an invitation with which a hospital's agent enrols."""

import base64
import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

import typer
import yaml

from anchorage.api.base import API_VERSION
from anchorage.api.errors import AnchorageError, cluster
from anchorage.api.source import TextDumper
from anchorage.api.status import timestamp
from anchorage.transport.kube.client import KubeClient
from anchorage.transport.kube.resources import Json, kube_object
from fedctl.arguments import Labels
from fedctl.choice import Place, in_cluster, local_run
from fedctl.cluster_source import ClusterSource, is_managed

ENROLMENT_PORT = 8444
FEDERATION_LABEL = "anchorage.dev/federation"
"""Label of every Secret of a federation, with its name; others' are left alone."""
IN_CLUSTER = re.compile(r"\.svc(\.[a-z0-9.-]+)?:\d+$")
_ADDRESS = re.compile(r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][-A-Za-z0-9.]*):([0-9]{1,5})$")
_SPAN = re.compile(r"^([0-9]{1,4})([mhd])$")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True)
class InvitationRequest:
    """The options of an invitation."""

    silo: str
    """Name of the silo."""
    labels: Labels | None
    """None keeps the Silo object's, or takes ``None`` for a new one."""
    valid: str
    """How long the token may be used, such as ``12h`` or ``7d``."""
    address: str | None
    enrolment_address: str | None
    """host:port; None takes what the federation says."""
    replace: bool
    """Whether an enrolled silo may be invited again."""


def invite(name: str, place: Place, request: InvitationRequest) -> None:
    """Write ``enrolment.yaml`` to standard output, after storing the silo and the hash of its token in the cluster.

    Raises
    ------
    AnchorageError
        The federation runs on this machine or does not exist, its authority or address is not known, or the silo's name is taken.
    """
    seconds = parse_span(request.valid)
    source = remote_federation(name, place)
    federation, api = source.federation(), source.api
    present = _acceptable(api.get("Silo", api.namespace, request.silo), name, request)
    labels = present["spec"].get("labels", "None") if present else str(request.labels or Labels.NONE)
    server, enrolment = addresses(federation, request)
    authority = _authority(api, name)
    held = api.get("Secret", api.namespace, secret_name(request.silo))
    if held is not None and FEDERATION_LABEL not in held["metadata"].get("labels", {}):
        detail = (
            f"the Secret {secret_name(request.silo)} is of no federation; name the silo otherwise, or rename the Secret"
        )
        raise AnchorageError(cluster.SILO_TAKEN, detail)
    if held is not None and "key" in held.get("data", {}) and not request.replace:
        raise AnchorageError(
            cluster.SILO_TAKEN,
            f"silo {request.silo} has enrolled already; --replace invites it again and refuses its present key",
        )
    metadata = {"name": request.silo, "namespace": api.namespace}
    silo = present or api.create(kube_object("Silo", metadata, spec={"federation": name, "labels": labels}))
    if present and request.replace:
        # without fedctl's condition, so that a new key must be approved again
        api.apply_status(kube_object("Silo", metadata, status={"conditions": []}))
    token = secrets.token_urlsafe(32)
    _store(api, silo, name, token, seconds, exists=held is not None)
    values = {
        "federation": name,
        "silo": request.silo,
        "labels": labels,
        "server": server,
        "enrolment": enrolment,
        "authority": authority,
        "token": token,
    }
    typer.echo(_yaml({"enrolment": values}), nl=False)
    _tell(request, name, server, f"-n {api.namespace}" + (f" --context {place.context}" if place.context else ""))


def remote_federation(name: str, place: Place) -> ClusterSource:
    """Return a federation in a cluster.

    Raises
    ------
    AnchorageError
        A run of this name is on this machine, and no cluster was named; or the cluster cannot be asked.
    """
    if not place.names_cluster and (run := local_run(name, place)) is not None:
        raise AnchorageError(
            cluster.LOCAL_RUN,
            f"{name} runs on this machine ({run.root}): its silos are members without invitation or approval",
        )
    return in_cluster(name, place)


def parse_span(text: str) -> int:
    """Parse a time span such as ``12h`` or ``7d`` to seconds.

    Raises
    ------
    typer.BadParameter
        It is none, or longer than a year.
    """
    match = _SPAN.match(text)
    seconds = int(match[1]) * _SECONDS[match[2]] if match else 0
    if not 0 < seconds <= 366 * 86_400:
        raise typer.BadParameter(
            f"--valid {text!r}: allowed are minutes, hours or days up to a year, such as 12h or 7d"
        )
    return seconds


def addresses(federation: Json, request: InvitationRequest) -> tuple[str, str]:
    """Return the addresses of the server and of enrolment for the hospital.

    Raises
    ------
    AnchorageError
        Neither the command line nor the federation says it.
    """
    status, server = federation.get("status", {}), federation["spec"].get("server", {})
    reached = request.address or server.get("address") or status.get("endpoint")
    if not reached:
        raise AnchorageError(
            cluster.ADDRESS_UNKNOWN,
            f"federation {federation['metadata']['name']} says no address; name it with --address host:port",
        )
    known = server.get("enrolmentAddress") or status.get("enrolmentEndpoint")
    enrols = request.enrolment_address or (None if request.address else known)
    if enrols is None:
        host = address_parts(reached)[0]
        enrols = f"{host}:{address_parts(known)[1] if known else ENROLMENT_PORT}"
    for text in (reached, enrols):
        address_parts(text)
    return reached, enrols


def address_parts(text: str) -> tuple[str, int]:
    """Return host and port of an address; an IPv6 address keeps its brackets.

    Raises
    ------
    typer.BadParameter
        It is not ``host:port``.
    """
    match = _ADDRESS.match(text)
    if not match or not 0 < int(match[2]) < 65_536:
        raise typer.BadParameter(f"{text!r} is no address; allowed is host:port")
    return match[1], int(match[2])


def secret_name(silo: str) -> str:
    """Return the name of the Secret that holds a silo's invitation."""
    return f"{silo}-enrolment"


def _acceptable(silo: Json | None, federation: str, request: InvitationRequest) -> Json | None:
    if silo is None:
        return None
    spec = silo["spec"]
    if spec.get("federation") != federation:
        raise AnchorageError(
            cluster.SILO_TAKEN,
            f"silo {request.silo} is a member of federation {spec.get('federation')} in this namespace",
        )
    if is_managed(silo):
        raise AnchorageError(
            cluster.SILO_NOT_REMOTE, f"the agent of silo {request.silo} runs in this cluster (spec.managed)"
        )
    if request.labels is not None and request.labels != spec.get("labels", "None"):
        raise AnchorageError(
            cluster.SILO_TAKEN,
            f"silo {request.silo} has spec.labels {spec.get('labels', 'None')}, not {request.labels}; edit the Silo first",
        )
    return silo


def _authority(api: KubeClient, federation: str) -> str:
    authority_object = api.get("ConfigMap", api.namespace, f"{federation}-authority") or {}
    certificate = authority_object.get("data", {}).get("ca.pem")
    if not certificate:
        raise AnchorageError(
            cluster.AUTHORITY_NOT_READY,
            f"namespace {api.namespace!r} has no ConfigMap {federation}-authority with ca.pem; is the operator running?",
        )
    return str(certificate)


def _store(api: KubeClient, silo: Json, federation: str, token: str, seconds: int, *, exists: bool) -> None:
    """Store the token's hash, never the token; removes a key that used an earlier token."""
    name = silo["metadata"]["name"]
    facts = {"hash": hashlib.sha256(token.encode()).hexdigest(), "expires": timestamp(time.time() + seconds)}
    data: dict[str, Any] = {key: base64.b64encode(value.encode()).decode() for key, value in facts.items()}
    if exists:
        unused = dict.fromkeys(("key", "nextKey", "notAfter", "issuer"))
        api.patch("Secret", api.namespace, secret_name(name), {"data": {**data, **unused}})
        return
    owner = {"apiVersion": API_VERSION, "kind": "Silo", "name": name, "uid": silo["metadata"]["uid"]}
    metadata = {
        "name": secret_name(name),
        "namespace": api.namespace,
        "labels": {FEDERATION_LABEL: federation, "anchorage.dev/silo": name},
        "ownerReferences": [owner],
    }
    api.create(kube_object("Secret", metadata, type="Opaque", data=data))


class _Dumper(TextDumper):
    """Writes texts of several lines as such."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _yaml(values: Json) -> str:
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


def _tell(request: InvitationRequest, federation: str, server: str, where: str) -> None:
    silo = request.silo
    lines = [
        f"invited {silo} to {federation}; the file holds a one-time token, valid for {request.valid}: hand it over on a way "
        "that only the hospital reads",
        f"at the hospital: helm install {silo} charts/silo-agent -f enrolment.yaml -f site.yaml",
        "  without Kubernetes: anchorage-silo configure enrolment.yaml --images FOLDER",
        f"then here:       fedctl silo approve {federation} {silo} {where}",
    ]
    if IN_CLUSTER.search(server):
        lines.append(
            f"warning: {server} is a name of this cluster, which no other site reaches; set spec.server.address, or --address"
        )
    typer.echo("\n".join(lines), err=True)
