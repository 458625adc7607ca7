"""The agent's HTTP probes: ``/healthz``, ``/readyz`` and ``/metrics``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from anchorage.transport.probes import METRICS, Answer, ProbeServer, verdict
from anchorage_silo.state import AgentState

_log = logging.getLogger(__name__)


@contextmanager
def serve_probes(listen: str | None, state: AgentState) -> Iterator[None]:
    """Serve probes and metrics within the block; does nothing if `listen` is None.

    Raises
    ------
    AnchorageError
        The address cannot be bound.
    """

    def healthz() -> Answer:
        stuck = state.liveness.describe_overdue()
        return verdict(not stuck, stuck or "ok")

    def metrics() -> Answer:
        from anchorage_silo.metrics import prometheus_text  # agents outside a cluster rarely serve metrics

        return 200, METRICS, prometheus_text(state)

    if listen is None:
        yield
        return
    answers = {"/healthz": healthz, "/readyz": lambda: verdict(state.begun, state.ready()[1]), "/metrics": metrics}
    server = ProbeServer(listen, answers)
    server.start()
    _log.info("serving probes and metrics on http://%s", server.address)
    try:
        yield
    finally:
        server.stop()
