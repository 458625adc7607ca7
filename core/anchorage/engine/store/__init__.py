"""What survives an engine: committed rounds, and the updates of the open one; on disk or in memory."""

from anchorage.engine.store.checkpoints import Identity
from anchorage.engine.store.disk import DiskStore
from anchorage.engine.store.memory import HeldUpdate, HeldUpdates, MemoryStore, SpareUpdates
from anchorage.engine.store.round_store import RoundStore

__all__ = ["DiskStore", "HeldUpdate", "HeldUpdates", "Identity", "MemoryStore", "RoundStore", "SpareUpdates"]
