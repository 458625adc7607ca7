"""What the engine tells, as log lines."""

import logging
from collections.abc import Sequence

from anchorage.engine.interfaces import RoundRecord
from anchorage.transport.messages import Profile, Report
from anchorage.transport.tensors.model import ModelBytes

_log = logging.getLogger("anchorage_server.run")


class LogObserver:
    """Logs what the engine tells (`Observer`), progress left out."""

    def silo_joined(self, silo: str, profile: Profile) -> None:
        """Log that a silo connected."""
        _log.info("silo connected", extra={"silo": silo, "labels": profile.labels, "samples": profile.samples})

    def silo_left(self, silo: str, reason: str) -> None:
        """Log that a silo's connection ended."""
        _log.info("silo disconnected", extra={"silo": silo, "reason": reason})

    def silo_changed(
        self, silo: str, state: str, done: int = 0, total: int = 0, code: str = "", message: str = ""
    ) -> None:
        """Log a silo's failure."""
        if code:
            _log.warning("silo does not count", extra={"silo": silo, "state": state, "code": code, "reason": message})

    def waiting(self, reason: str, message: str) -> None:
        """Log that the run cannot go on now, or that it goes on again."""
        if reason:
            _log.warning("waiting", extra={"reason": reason, "found": message})
        else:
            _log.info("going on")

    def round_started(self, round_number: int, silos: Sequence[str]) -> None:
        """Log a dispatch."""
        _log.info("round dispatched", extra={"round": round_number, "silos": list(silos)})

    def step(self, name: str) -> None:
        """Log nothing."""

    def committed(self, record: RoundRecord, model: ModelBytes, report: Report | None) -> None:
        """Log a durable round."""
        figures = {"metrics": dict(record.metrics), "seconds": dict(record.seconds), "digest": record.digest}
        _log.info("round committed", extra={"round": record.round, **figures})

    def ended(self, code: str, message: str) -> None:
        """Log the end."""
        _log.info("run ended", extra={"code": code, "reason": message})
