"""Tells a silo which of its updates counted, so that what it keeps can follow the server's model (SCAFFOLD, METHODS.md 6.2)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.transport.messages import Announcement, SideChannel

COUNTED = "counted_updates"
"""Down, int64 [1]: how many updates of the silo have counted."""


class CountedUpdates(RoundMemory):
    """Counts every silo's updates."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Count the updates of this round; an inactive silo has none."""
        for silo, announcement in announcements.items():
            self._counts[silo] = self._counts.get(silo, 0) + (announcement.update is not None)

    def side_channel(self, silo: str = "") -> SideChannel:
        """Return the silo's count."""
        return {COUNTED: np.array([self._counts.get(silo, 0)])}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts by silo."""
        return {silo: np.array([count]) for silo, count in self._counts.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = {silo: int(count[0]) for silo, count in state.items()}
