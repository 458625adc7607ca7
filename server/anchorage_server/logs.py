"""What the engine reports, as log lines."""

import logging

from anchorage.api.errors.identity import CLOCK_OFF
from anchorage.engine.events import (
    RoundCommitted,
    RoundStarted,
    RunEnded,
    RunEvent,
    SiloChanged,
    SiloJoined,
    SiloLeft,
    Waiting,
)

_log = logging.getLogger("anchorage_server.run")


def log_event(event: RunEvent) -> None:
    """Log an event; steps and progress are left out."""
    match event:
        case SiloJoined(silo, profile):
            fields = {"silo": silo, "labels": profile.labels, "samples": profile.samples}
            others = {"packages": ", ".join(profile.packages)} if profile.packages else {}
            _log.info("silo connected", extra=fields | others)
            if profile.clock:
                _log.warning("a clock is off", extra={"silo": silo, "code": CLOCK_OFF.code, "found": profile.clock})
        case SiloLeft(silo, reason):
            _log.info("silo disconnected", extra={"silo": silo, "reason": reason})
        case SiloChanged(silo, state, code=code, message=message) if code:
            _log.warning("silo does not count", extra={"silo": silo, "state": state, "code": code, "reason": message})
        case Waiting(reason, message) if reason:
            _log.warning("waiting", extra={"reason": reason, "found": message})
        case Waiting():
            _log.info("going on")
        case RoundStarted(number, silos):
            _log.info("round dispatched", extra={"round": number, "silos": list(silos)})
        case RoundCommitted(record):
            figures = {"metrics": dict(record.metrics), "seconds": dict(record.seconds), "digest": record.digest}
            _log.info("round committed", extra={"round": record.round, **figures})
        case RunEnded(code, message):
            _log.info("run ended", extra={"code": code, "reason": message})
        case _:
            pass
