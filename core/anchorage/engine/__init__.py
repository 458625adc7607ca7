"""The round engine: synchronous and asynchronous, over any link and store."""

from anchorage.engine.asynchronous import AsynchronousEngine
from anchorage.engine.engine import Engine
from anchorage.engine.secure_rounds import SecureRounds
from anchorage.engine.settings import RoundSettings
from anchorage.engine.synchronous import SynchronousEngine

ENGINES: dict[str, type[Engine]] = {"Synchronous": SecureRounds, "Asynchronous": AsynchronousEngine}
"""The engine of each `spec.protocol.mode`."""

__all__ = ["ENGINES", "AsynchronousEngine", "Engine", "RoundSettings", "SynchronousEngine"]
