"""The state of a run on this machine: from its server while that is running, otherwise from its files."""

import json
from collections.abc import Sequence
from contextlib import closing
from urllib.parse import urlsplit

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.status import Condition, FederationStatus, is_true
from anchorage.transport.server_client import ServerClient
from fedctl.source import BOOKKEEPING, Round
from fedctl.workdir import Workdir, read_json


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
        return FederationStatus.model_validate_json(run.status.read_bytes())
    except (FileNotFoundError, ValidationError):
        return FederationStatus()


def observe(run: Workdir) -> tuple[FederationStatus, bool]:
    """Return the status of a run and whether it is live, that is, from a running server.

    A run that is neither live nor over is shown as what it is: nothing is connected, and the condition Ready says ``NotRunning``.

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
    status = _disconnected(last_status(run))
    return (status if is_true(status.conditions, "Succeeded", "Failed") else _not_running(run, status)), False


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
        lines = run.journal.read_bytes().splitlines()
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


def _not_running(run: Workdir, status: FederationStatus) -> FederationStatus:
    if run.busy():
        reason, message = "Starting", "the run was started and its server does not answer yet"
    else:
        reason, message = "NotRunning", "no server runs; `fedctl run` with the same file and folder goes on"
    since = status.last_updated_time or "1970-01-01T00:00:00Z"
    ready = Condition(type="Ready", status="False", reason=reason, message=message, last_transition_time=since)
    return status.model_copy(update={"conditions": (ready, *(c for c in status.conditions if c.type != "Ready"))})


def _disconnected(status: FederationStatus) -> FederationStatus:
    silos = tuple(silo.model_copy(update={"connected": False}) for silo in status.silos)
    return status.model_copy(update={"silos": silos, "connected_silos": 0, "step": ""})
