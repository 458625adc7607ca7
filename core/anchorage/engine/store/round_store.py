"""What the engine finds again after its end."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from anchorage.api.metrics import score
from anchorage.engine.interfaces import Checkpoint, RoundRecord, SpooledUpdate
from anchorage.engine.store.large_files import LargeFiles
from anchorage.engine.store.updates import Updates
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.model import ModelBytes


class RoundStore(ABC):
    """The committed rounds of a run, and the updates of the open one.

    Parameters
    ----------
    updates : Updates
        Where updates arrive.
    large : LargeFiles
        Where what is too large for a checkpoint is kept.
    first : int
        The first round that may be the best one.
    """

    def __init__(self, updates: Updates[Any], large: LargeFiles[Any], first: int = 0) -> None:
        self._updates, self.large, self._first = updates, large, first
        self._history: list[RoundRecord] = []
        self._best: RoundRecord | None = None

    @abstractmethod
    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run.

        Raises
        ------
        AnchorageError
            The checkpoint is missing or damaged.
        """

    @abstractmethod
    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Make a round, and what was contributed for it, the last one that is found again.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the previous round is untouched.
        """

    @abstractmethod
    def best(self) -> Checkpoint | None:
        """Return the best committed round; the last one where no round has a metric to go by.

        Raises
        ------
        AnchorageError
            As `latest`.
        """

    def excels(self, number: int, metrics: Mapping[str, float]) -> bool:
        """Say whether a round is better than every committed one; of equals the earlier is. A warm-up's rounds are not."""
        round_score = score(metrics) if number >= self._first else None
        best = score(self._best.metrics) if self._best is not None else None
        return round_score is not None and (best is None or round_score > best)

    def _count(self, record: RoundRecord) -> None:
        """Note a committed round."""
        self._history.append(record)
        if self.excels(record.round, record.metrics):
            self._best = record

    def history(self) -> Sequence[RoundRecord]:
        """Return every committed round, ascending."""
        return tuple(self._history)

    def spool(self, silo: str, round_number: int, announcement: Announcement) -> SpooledUpdate:
        """Open the place where an announced update arrives; the same one again for the same announcement.

        Raises
        ------
        AnchorageError
            There is no room for it.
        """
        return self._updates.open(silo, round_number, announcement)

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Note that an update is whole, so that a restart uses it again."""
        self._updates.keep(silo, round_number, announcement)

    def load_updates(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of an open round, their digests checked."""
        return self._updates.load_updates(round_number)

    def release(self, round_number: int) -> None:
        """Give up the updates of a round that are nobody's contribution."""
        self._updates.release(round_number)

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Make a silo's whole update its contribution to the asynchronous global model; the next `commit` makes that durable.

        Until then a restart finds the silo's previous contribution, which stays untouched.
        """
        self._updates.contribute(silo, round_number, weight)

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo that contributes, as of the last commit and `contribute`.

        Raises
        ------
        AnchorageError
            An update that an earlier process left is not as it was written.
        """
        return self._updates.contributions()

    def close(self) -> None:
        """Let go of every file."""
        self._updates.close()
        self.large.close()
