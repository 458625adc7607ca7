"""A federation in a cluster: the status of its objects, the server's files read by commands in the pod, and the pods' logs."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import sleep, time
from typing import Any, TypeVar

from anchorage.api.base import Document
from anchorage.api.checking import check_document
from anchorage.api.errors import CATALOGUE, AnchorageError, cluster, commands
from anchorage.api.model_card import CARD, ModelCard
from anchorage.api.silo_state import SiloState
from anchorage.api.silo_status import SiloCrStatus
from anchorage.api.source import RawDocument
from anchorage.api.status import (
    Condition,
    ConditionType,
    FederationStatus,
    SiloReport,
    SiloStatus,
    find_condition,
    is_true,
    timestamp,
)
from anchorage.transport.kube.client import KubeClient
from anchorage.transport.kube.execution import CommandError
from anchorage.transport.kube.resources import Json
from fedctl.output import PASSING, warn
from fedctl.source import BOOKKEEPING, Event, ModelFile, Observation, Round, SiloRow, no_model, parse_card

STATE = "/var/lib/anchorage"
READ = ("python3", "-m", "anchorage_server.read", "--state", STATE)
"""Command for reading the server's files in its pod."""

RECONNECT_SECONDS = 1.0
PATIENCE_SECONDS = 180.0
"""How long a command waits for a server's pod that is being started or replaced."""
_KILLED = (137, 143)
"""Exit statuses of a command that ended with its container, as where its pod is replaced."""
_COMING = frozenset({"Available", "Starting", "Restarting", "Terminating", "PodMissing", "ServerUnreachable"})
"""Reasons of ServerAvailable of a pod that will soon run; the first may be of the moment before it was replaced."""

D = TypeVar("D", bound=Document)
T = TypeVar("T")

_FAILURE = re.compile(r"^(ANC-\d{4}) \w+: (.*)$", re.MULTILINE)


class ClusterSource:
    """A Federation object and what belongs to it; see `fedctl.source.Source`.

    Parameters
    ----------
    api : KubeClient
        The cluster and the namespace.
    name : str
        The federation.
    """

    def __init__(self, api: KubeClient, name: str) -> None:
        self.api = api
        self.name = name
        self._rounds: tuple[int, Sequence[Round]] | None = None

    @property
    def server_pod(self) -> str:
        """Name of the server's pod."""
        return f"{self.name}-server-0"

    def observe(self) -> Observation:
        """Return the Federation object, without managedFields."""
        federation = self.federation()
        status = typed_status(federation, FederationStatus)
        live = is_true(status.conditions, ConditionType.SERVER_AVAILABLE)
        metadata = {key: value for key, value in federation["metadata"].items() if key != "managedFields"}
        return Observation({**federation, "metadata": metadata}, status, live)

    def federation(self) -> Json:
        """Return the Federation object.

        Raises
        ------
        AnchorageError
            There is none, or the cluster cannot be asked.
        """
        federation_object = self.api.get("Federation", self.api.namespace, self.name)
        if federation_object is None:
            raise AnchorageError(cluster.NO_SUCH_FEDERATION, f"{self.name!r} is not in {self._where()}")
        return federation_object

    def silo_objects(self) -> Sequence[Json]:
        """Return the Silo objects of the federation, by name."""
        silos = self.api.list("Silo", self.api.namespace)
        mine = [silo for silo in silos if silo.get("spec", {}).get("federation") == self.name]
        return sorted(mine, key=lambda silo: str(silo["metadata"]["name"]))

    def silos(self) -> Sequence[SiloRow]:
        """Return one row per Silo object."""
        self.federation()
        return [silo_row(silo) for silo in self.silo_objects()]

    def rounds(self) -> Sequence[Round]:
        """Return the server's journal; it is read again only after another round was committed."""
        now = self.observe().status.round
        if self._rounds is None or self._rounds[0] != now:
            entries = self._once_there(lambda: self._read_json("rounds"))
            entries_shown = [
                {key: value for key, value in entry.items() if key not in BOOKKEEPING} for entry in entries
            ]
            self._rounds = (now, entries_shown)
        return self._rounds[1]

    def events(self) -> Sequence[Event]:
        """Return the Events of the Federation, its Silos, and the objects and pods created for them."""
        self.federation()
        mine = {("Federation", self.name)} | _children(self.name, "server")
        for silo in self.silo_objects():
            name = silo["metadata"]["name"]
            mine |= {("Silo", name)} | _children(name, "silo")
        events = []
        for item in self.api.list("Event", self.api.namespace):
            about = item.get("involvedObject", {})
            if (about.get("kind"), about.get("name")) in mine:
                events.append(_event(item))
        return sorted(events, key=lambda event: event.time)

    def processes(self) -> Sequence[str]:
        """Return the server and the managed silos."""
        self.federation()
        return ["server", *(silo["metadata"]["name"] for silo in self.silo_objects() if is_managed(silo))]

    def log(self, process: str, tail: int, *, follow: bool) -> Iterator[str]:
        """Return the lines of a pod's log; with `follow` also those of the container that comes after a restart."""
        if process != "server":
            silo = self.silo(process)
            if not is_managed(silo):
                raise AnchorageError(
                    cluster.POD_UNREACHABLE, f"silo {process} runs at the hospital, and so lies its log: ask there"
                )
        pod, container = (self.server_pod, "server") if process == "server" else (f"{process}-silo-0", "agent")
        try:
            if follow:
                return self._follow_log(pod, container, tail)
            return self.api.logs(self.api.namespace, pod, container, tail=tail, follow=False)
        except AnchorageError as error:
            raise self._with_reason(error, process) from error

    def card(self) -> ModelCard | None:
        """Copy the card out of the server's pod."""
        self.federation()
        try:
            return parse_card(self._once_there(lambda: b"".join(self._read("card"))), f"{CARD} of {self.server_pod}")
        except AnchorageError as error:
            if error.failure is not commands.NO_MODEL_YET:
                raise
            return None

    @contextmanager
    def model(self, *, best: bool) -> Iterator[ModelFile]:
        """Copy a model out of the server's pod into a temporary file."""
        self.federation()
        known = self._once_there(lambda: self._read_json("model"))
        stored = known.get("best" if best else "final")
        stored_file = stored or known.get("checkpoint")
        if not stored_file or (not stored and stored_file["round"] == 0):
            raise no_model(self.name)
        with tempfile.TemporaryDirectory(prefix="fedctl-") as folder:
            path = Path(folder) / "model.safetensors"
            self._once_there(lambda: self._copy(stored_file["file"], path))
            yield ModelFile(path, stored_file["digest"], stored_file["round"], _description(known))

    def silo(self, name: str) -> Json:
        """Return a Silo object of the federation.

        Raises
        ------
        AnchorageError
            There is none.
        """
        silo = self.api.get("Silo", self.api.namespace, name)
        if silo is None or silo.get("spec", {}).get("federation") != self.name:
            raise AnchorageError(
                cluster.NO_SUCH_SILO, f"{self._where()} has no silo {name!r} of federation {self.name!r}"
            )
        return silo

    def _follow_log(self, pod: str, container: str, tail: int) -> Iterator[str]:
        """Return a pod's log, which goes on indefinitely, across restarts of the container and broken streams."""
        began = self._container_start(pod, container)
        first = self.api.logs(self.api.namespace, pod, container, tail=tail, follow=True)
        return self._following(pod, container, began, first)

    def _following(self, pod: str, container: str, began: str, first: Iterator[str]) -> Iterator[str]:
        yield from first
        while True:
            ended = timestamp(time())
            sleep(RECONNECT_SECONDS)
            if start := self._container_start(pod, container):
                since, began = (ended if start == began else start), start
                yield from self.api.logs(self.api.namespace, pod, container, follow=True, since=since)

    def _container_start(self, pod: str, container: str) -> str:
        """Return the start time of a pod's container, empty while it is not running."""
        pod_object = self.api.get("Pod", self.api.namespace, pod) or {}
        for each in pod_object.get("status", {}).get("containerStatuses", []):
            if each["name"] == container:
                return str(each.get("state", {}).get("running", {}).get("startedAt", ""))
        return ""

    def _once_there(self, read: Callable[[], T]) -> T:
        """Return what a function reads in the server's pod; while that is being started or replaced, ask again.

        Raises
        ------
        AnchorageError
            As the function; POD_UNREACHABLE, with the reason of the federation's status, where the pod does not come.
        """
        waited = 0.0
        while True:
            try:
                return read()
            except AnchorageError as error:
                if error.failure not in PASSING or waited >= PATIENCE_SECONDS or not self._is_coming():
                    raise self._with_reason(error, "server") from error
            if not waited:
                warn(f"pod {self.server_pod} is being started or replaced; waiting up to {PATIENCE_SECONDS:g} s")
            sleep(RECONNECT_SECONDS)
            waited += RECONNECT_SECONDS

    def _is_coming(self) -> bool:
        status = typed_status(self.federation(), FederationStatus)
        condition = find_condition(status.conditions, ConditionType.SERVER_AVAILABLE)
        is_halted = condition is not None and condition.reason == "Halted" and status.round > 0
        return condition is None or condition.reason in _COMING or is_halted

    def _available(self, process: str) -> Condition | None:
        """Return the condition that says whether a process runs."""
        if process == "server":
            return find_condition(
                typed_status(self.federation(), FederationStatus).conditions, ConditionType.SERVER_AVAILABLE
            )
        return find_condition(typed_status(self.silo(process), SiloCrStatus).conditions, ConditionType.AGENT_AVAILABLE)

    def _with_reason(self, error: AnchorageError, process: str) -> AnchorageError:
        """Return the error that a pod does not run with what the status says of it, where it says anything."""
        if error.failure is not cluster.POD_UNREACHABLE:
            return error
        condition = self._available(process)
        if condition is None or condition.reason == "Available":
            return error
        why = f"{condition.reason}: {condition.message}" if condition.message else condition.reason
        message = f"{error.message.rstrip('.')}; {condition.type}: {why}; docs/conditions.md says what to do"
        return AnchorageError(error.failure, message)

    def _copy(self, name: str, path: Path) -> None:
        with path.open("wb") as file:
            for piece in self._read("model-file", name):
                file.write(piece)

    def _read_json(self, *command: str) -> Any:
        try:
            return json.loads(b"".join(self._read(*command)))
        except ValueError as error:
            raise AnchorageError(
                cluster.CLUSTER_REFUSED, f"pod {self.server_pod} wrote no JSON for {command[0]}: {error}"
            ) from error

    def _read(self, *command: str) -> Iterator[bytes]:
        try:
            yield from self.api.execute(self.api.namespace, self.server_pod, "server", (*READ, *command))
        except CommandError as error:
            if (failure := _FAILURE.search(error.stderr)) and failure[1] in CATALOGUE:
                raise AnchorageError(CATALOGUE[failure[1]], failure[2]) from error
            if error.status == 403:
                raise AnchorageError(
                    cluster.CLUSTER_FORBIDDEN, f"this user may not run commands in pods: {error.stderr}"
                ) from error
            if error.exit_code in _KILLED:
                message = f"pod {self.server_pod} in {self._where()} ended while it was asked"
                raise AnchorageError(cluster.POD_UNREACHABLE, message) from error
            if error.exit_code < 0:
                raise AnchorageError(
                    cluster.POD_UNREACHABLE,
                    f"pod {self.server_pod} in {self._where()} cannot be asked: {' '.join(error.stderr.split())}",
                ) from error
            last = (error.stderr.strip().splitlines() or ["nothing"])[-1]
            raise AnchorageError(
                cluster.CLUSTER_REFUSED,
                f"pod {self.server_pod} ended {command[0]} with exit status {error.exit_code} and said: {last}",
            ) from error

    def _where(self) -> str:
        return f"namespace {self.api.namespace!r} of context {self.api.access.context!r}"


def is_managed(silo: Mapping[str, Any]) -> bool:
    """Return whether a silo's agent runs in the cluster."""
    return silo.get("spec", {}).get("managed") is not None


def typed_status(item: Mapping[str, Any], kind: type[D]) -> D:
    """Parse an object's status; unknown fields are ignored.

    Raises
    ------
    AnchorageError
        It cannot be understood.
    """
    status, mistakes = check_document(RawDocument(item.get("status", {})), kind)
    if status is None:
        name = item.get("metadata", {}).get("name")
        raise AnchorageError(
            cluster.CLUSTER_REFUSED,
            f"the status of {item.get('kind')} {name} is of another version than this fedctl: {mistakes[0].message}",
        )
    return status


def silo_row(silo: Mapping[str, Any]) -> SiloRow:
    """Convert a Silo object to a row as of a local run, with additional fields of a cluster."""
    status = typed_status(silo, SiloCrStatus)
    approved, connected, ready = (
        find_condition(status.conditions, kind)
        for kind in (ConditionType.APPROVED, ConditionType.CONNECTED, ConditionType.READY)
    )
    common = status.model_dump(include=set(SiloReport.model_fields))
    waits = approved is not None and approved.status != "True"
    state = status.state
    if approved is not None and waits:
        state = approved.reason
    elif ready is not None and (not state or (ready.status == "False" and state == SiloState.WAITING)):
        state = ready.reason
    over = ready is None or ready.status == "True" or ready.reason == "Succeeded"
    held_up = approved if waits else None if over else ready
    message = status.message or (held_up.message if held_up is not None else "")
    row = SiloStatus(
        **{
            **common,
            "name": silo["metadata"]["name"],
            "connected": connected is not None and connected.status == "True",
            "state": state or SiloState.WAITING,
            "message": message,
        }
    ).model_dump(mode="json", by_alias=True)
    certificate = status.certificate.model_dump(mode="json", by_alias=True) if status.certificate else None
    return {
        **row,
        "role": "Managed" if is_managed(silo) else "Remote",
        "approved": approved.status if approved else "Unknown",
        "certificate": certificate,
    }


def _description(known: Mapping[str, Any]) -> dict[str, Any]:
    """Build the content of ``model.json`` from the server's description of its models; empty before the run has ended."""
    if not known.get("description"):
        return {}
    models = {name: known[name] for name in ("final", "best") if known.get(name)}
    sizeless = {name: {key: item for key, item in model.items() if key != "bytes"} for name, model in models.items()}
    return {**known["description"], **sizeless}


def _children(name: str, component: str) -> set[tuple[str, str]]:
    """Return the objects that the operator and its StatefulSet create for a federation or a silo."""
    base = f"{name}-{component}"
    kinds = ("StatefulSet", "Service", "ConfigMap", "NetworkPolicy")
    made = {("Service", f"{base}-public"), ("Pod", f"{base}-0"), ("PersistentVolumeClaim", f"state-{base}-0")}
    return made | {(kind, base) for kind in kinds}


def _event(item: Mapping[str, Any]) -> Event:
    about = item["involvedObject"]
    series = item.get("series") or {}
    moment = series.get("lastObservedTime") or item.get("lastTimestamp") or item.get("eventTime")
    return Event(
        time=str(moment or item["metadata"].get("creationTimestamp", "")),
        type=item.get("type") or "Normal",
        reason=item.get("reason") or "",
        about=f"{about['kind']}/{about['name']}",
        message=" ".join((item.get("message") or "").split()),
        count=series.get("count") or item.get("count") or 1,
    )
