"""The round engine: synchronous and asynchronous, over any link and store."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anchorage.engine.engine import Engine
    from anchorage.engine.settings import RoundSettings

__all__ = ["engine_of"]


def engine_of(mode: str, settings: "RoundSettings") -> "type[Engine]":
    """Return the engine of a `spec.protocol.mode`, with secure aggregation where the settings have it."""
    from anchorage.engine.asynchronous import AsynchronousEngine
    from anchorage.engine.secure_rounds import SecureRounds
    from anchorage.engine.synchronous import SynchronousEngine

    if settings.fractional_bits is not None:
        return SecureRounds
    engines: dict[str, type[Engine]] = {"Synchronous": SynchronousEngine, "Asynchronous": AsynchronousEngine}
    return engines[mode]
