"""The plain endpoint of a server: probes and metrics, and outside a cluster also the status and the rounds."""

import json
from collections.abc import Callable, Mapping

from anchorage.api.status import ConditionType
from anchorage.transport.probes import METRICS, Answer, ProbeServer, verdict
from anchorage_server.status import StatusStore

JSON = "application/json"


def reports(statuses: StatusStore) -> Mapping[str, Callable[[], Answer]]:
    """Return what answers ``/status`` and ``/rounds``."""
    return {
        "/status": lambda: (200, JSON, statuses.snapshot().model_dump_json(by_alias=True).encode()),
        "/rounds": lambda: (200, JSON, json.dumps(statuses.rounds()).encode()),
    }


class StatusServer(ProbeServer):
    """Serves ``/healthz``, ``/readyz`` and ``/metrics``, and where nothing better protects them ``/status`` and ``/rounds``.

    Parameters
    ----------
    listen : str
        Host and port; port 0 takes any free one.
    statuses : StatusStore
        What to tell.
    alive : callable
        Whether the engine's thread runs.
    refused_tokens : callable
        Returns how many enrolment tokens were refused.
    probes_only : bool
        Whether status and rounds are served elsewhere.

    Raises
    ------
    AnchorageError
        The address cannot be listened on.
    """

    def __init__(
        self,
        listen: str,
        statuses: StatusStore,
        alive: Callable[[], bool],
        refused_tokens: Callable[[], int],
        *,
        probes_only: bool = False,
    ) -> None:
        self._statuses = statuses
        self._refused_tokens = refused_tokens
        self._alive = alive
        probes = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        super().__init__(listen, probes if probes_only else {**probes, **reports(statuses)})

    def _healthz(self) -> Answer:
        wrong = self._statuses.describe_stall() or ("" if self._alive() else "the engine's thread has ended")
        return verdict(not wrong, wrong or "ok")

    def _readyz(self) -> Answer:
        ready = next(c for c in self._statuses.snapshot().conditions if c.type == ConditionType.READY)
        return verdict(ready.status == "True", f"{ready.reason} {ready.message}")

    def _metrics(self) -> Answer:
        from anchorage_server.metrics import exposition  # most runs are never asked

        return 200, METRICS, exposition(self._statuses, self._refused_tokens())
