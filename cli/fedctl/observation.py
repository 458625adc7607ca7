"""The state of a run on this machine: from its server while that is running, otherwise from its files."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.documents import NO_FEDERATION
from anchorage.api.regular_files import read_regular
from anchorage.api.source import read_documents
from anchorage.api.status import Condition, ConditionType, FederationStatus, at_rest, end_of, find_condition
from anchorage.transport.server_client import ServerClient
from fedctl.source import BOOKKEEPING, Round
from fedctl.workdir import Workdir, read_json

GO_ON = "`fedctl run` with the same file and folder goes on"


def ask_status(endpoint: str) -> FederationStatus:
    """Return the status from the server's status endpoint.

    Parameters
    ----------
    endpoint : str
        Such as ``http://127.0.0.1:34567``; no proxy is used.

    Raises
    ------
    ServerError
        It does not answer in time, or with something else.
    """
    address = urlsplit(endpoint)
    with closing(ServerClient(address.hostname or "", address.port or 80)) as client:
        return client.status()


def last_status(run: Workdir) -> FederationStatus:
    """Return the status that the server wrote last; an empty one if there is none."""
    try:
        return FederationStatus.model_validate_json(read_regular(run.status))
    except (FileNotFoundError, ValidationError):
        return FederationStatus()


def observe(run: Workdir) -> tuple[FederationStatus, bool]:
    """Return the status of a run and whether it is live, that is, from a running server.

    Raises
    ------
    AnchorageError
        The folder holds no run.
    """
    require_run(run)
    endpoints = read_json(run.endpoints)
    if run.busy() and endpoints is not None:
        try:
            return ask_status(endpoints["status"]), True
        except AnchorageError:
            pass
    if run.busy() and endpoints is None:
        return _with(left_status(run), *_STARTING), False
    return left_status(run), False


def left_status(run: Workdir) -> FederationStatus:
    """Return the status of a run whose server does not run: what it wrote last, without what ended with it.

    No silo is connected, the condition Ready is not true, and what the server had not sent to MLflow is not sent.
    """
    status = at_rest(last_status(run))
    over = end_of(status.conditions)
    conditions: list[_ConditionFields] = []
    if over is not None:
        conditions.append((ConditionType.READY, "False", over.reason, over.message))
    else:
        conditions += [
            (ConditionType.READY, "False", _NOT_RUNNING, f"no server runs; {GO_ON}"),
            (ConditionType.QUORUM_MET, "Unknown", _NOT_RUNNING, ""),
        ]
    tracked = find_condition(status.conditions, ConditionType.TRACKED)
    if tracked is not None and tracked.status == "Unknown":
        message = f"the server ended before MLflow had everything; {GO_ON}"
        conditions.append((ConditionType.TRACKED, "False", _NOT_RUNNING, message))
    return _with(status, *conditions)


def read_federation_of(run: Workdir) -> Mapping[str, Any]:
    """Return the federation's document of a run as plain values, which needs no package that adds pieces.

    Raises
    ------
    AnchorageError
        The folder holds no run, or its documents cannot be read.
    """
    require_run(run)
    for raw in read_documents(run.federation):
        match raw.value:
            case {
                "kind": "Federation",
                "metadata": {"name": str()},
                "spec": {"rounds": int(), "method": {"name": str()}},
            }:
                return dict(raw.value)
    raise AnchorageError(NO_FEDERATION, f"{run.federation} holds no complete Federation; `fedctl run` writes it again")


def require_run(run: Workdir) -> None:
    """Check that the folder contains a run.

    Raises
    ------
    AnchorageError
        It does not.
    """
    if not run.federation.exists():
        raise AnchorageError(
            commands.NO_RUN_HERE, f"{run.root} holds no run; name its folder with --workdir, or begin one"
        )


def read_journal(run: Workdir) -> Sequence[Round]:
    """Return all committed rounds, ascending, without an incomplete last line."""
    try:
        lines = read_regular(run.journal).splitlines()
    except FileNotFoundError:
        return ()
    rounds: list[Round] = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            break
        rounds.append({key: value for key, value in entry.items() if key not in BOOKKEEPING})
    return rounds


_ConditionFields = tuple[ConditionType, Literal["True", "False", "Unknown"], str, str]
"""Type, status, reason and message of a condition."""
_NOT_RUNNING = "NotRunning"
_STARTING: tuple[_ConditionFields, ...] = (
    (ConditionType.READY, "False", "Starting", "the run was started and its server does not listen yet"),
    (ConditionType.QUORUM_MET, "Unknown", "Starting", ""),
    (ConditionType.SUCCEEDED, "Unknown", "Starting", ""),
    (ConditionType.FAILED, "False", "Starting", ""),
)


def _with(status: FederationStatus, *conditions: _ConditionFields) -> FederationStatus:
    """Return a status with these conditions in place of those of their types."""
    since = status.last_updated_time or "1970-01-01T00:00:00Z"
    new: dict[str, Condition] = {
        kind: Condition(type=kind, status=truth, reason=reason, message=message, last_transition_time=since)
        for kind, truth, reason, message in conditions
    }
    by_type = {condition.type: condition for condition in status.conditions}
    return status.model_copy(update={"conditions": tuple({**by_type, **new}.values())})
