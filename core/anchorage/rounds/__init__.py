"""The round engine: synchronous and asynchronous, over any link and store."""

from anchorage.rounds.asynchronous import AsynchronousEngine
from anchorage.rounds.engine import Engine
from anchorage.rounds.settings import RoundSettings
from anchorage.rounds.synchronous import SynchronousEngine

ENGINES: dict[str, type[Engine]] = {"Synchronous": SynchronousEngine, "Asynchronous": AsynchronousEngine}
"""The engine of each `spec.protocol.mode`."""

__all__ = ["ENGINES", "AsynchronousEngine", "Engine", "RoundSettings", "SynchronousEngine"]
