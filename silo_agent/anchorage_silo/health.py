"""What the agent answers inside its own cluster: ``/healthz``, ``/readyz`` and ``/metrics``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from anchorage.transport.probes import METRICS, Answer, ProbeServer, verdict
from anchorage_silo.standing import Standing

_log = logging.getLogger(__name__)


@contextmanager
def probed(listen: str | None, standing: Standing) -> Iterator[None]:
    """Answer probes within the block; with None as address, listen nowhere.

    Raises
    ------
    AnchorageError
        The address cannot be listened on.
    """

    def healthz() -> Answer:
        stuck = standing.vitals.stuck()
        return verdict(not stuck, stuck or "ok")

    def metrics() -> Answer:
        from anchorage_silo.metrics import exposition  # most agents outside a cluster are never asked

        return 200, METRICS, exposition(standing)

    if listen is None:
        yield
        return
    answers = {"/healthz": healthz, "/readyz": lambda: verdict(*standing.ready()), "/metrics": metrics}
    server = ProbeServer(listen, answers)
    server.start()
    _log.info("probes and metrics are on http://%s", server.address)
    try:
        yield
    finally:
        server.stop()
