"""The round engine: synchronous and asynchronous, over any link and store."""

from anchorage.engine.asynchronous import AsynchronousEngine
from anchorage.engine.engine import Engine
from anchorage.engine.secure_rounds import SecureRounds
from anchorage.engine.settings import RoundSettings
from anchorage.engine.synchronous import SynchronousEngine

__all__ = ["AsynchronousEngine", "Engine", "RoundSettings", "SecureRounds", "SynchronousEngine", "engine_of"]


def engine_of(mode: str, settings: RoundSettings) -> type[Engine]:
    """Return the engine of a `spec.protocol.mode`, with secure aggregation where the settings have it."""
    if settings.fractional_bits is not None:
        return SecureRounds
    engines: dict[str, type[Engine]] = {"Synchronous": SynchronousEngine, "Asynchronous": AsynchronousEngine}
    return engines[mode]
