"""How many training steps the global model is made of: what adaptive silos measure their staleness by (methods reference, 6.14)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.messages import Announcement, AuxiliaryData, Task

MOST_STEPS = 10**9
"""Steps that one update may be made of; what says more is not believed."""


class StepCounter:
    """Counts the steps of every committed update, and each silo's effective staleness between its download and its commit.

    Reads ``auxiliary_data["steps"]`` of an announcement, int64 []. Sends ``committed_steps``, int64 [], and after a commit
    ``staleness``, int64 []: the steps that were committed since the silo's last download, its own among them (KAT-H1).
    """

    def __init__(self) -> None:
        self.committed = 0
        self._staleness: dict[str, int] = {}

    def auxiliary_data(self, silo: str) -> AuxiliaryData:
        """Return what a silo's next task says; the staleness of a commit is said once."""
        auxiliary = {"committed_steps": np.array(self.committed, np.int64)}
        staleness = self._staleness.pop(silo, None)
        return auxiliary if staleness is None else {**auxiliary, "staleness": np.array(staleness, np.int64)}

    def commit(self, silo: str, task: Task, announcement: Announcement) -> int:
        """Count the steps of a silo's update for a task, and return its effective staleness."""
        steps = announcement.auxiliary_data.get("steps")
        if steps is not None and steps.shape == () and steps.dtype == np.int64 and 0 <= steps <= MOST_STEPS:
            self.committed += int(steps)
        staleness = self.committed - int(task.auxiliary_data["committed_steps"])
        self._staleness[silo] = staleness
        return staleness

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return what a checkpoint must keep."""
        return {"committed": np.array(self.committed, np.int64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from what a checkpoint kept."""
        self.committed = int(state["committed"])
