"""A round store in memory: for simulation and tests. It survives an engine, not a process."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from anchorage.messages import Announcement
from anchorage.rounds.interfaces import Checkpoint, RoundRecord, SpooledUpdate
from anchorage.tensors.model import ModelBytes
from anchorage.tensors.spool import MemorySpool


class MemoryStore:
    """`RoundStore` in memory."""

    def __init__(self) -> None:
        self._latest: Checkpoint | None = None
        self._history: list[RoundRecord] = []
        self._spools: dict[tuple[str, int], tuple[Announcement, MemorySpool]] = {}
        self._kept: dict[int, set[str]] = {}
        self._contributions: dict[str, tuple[float, SpooledUpdate]] = {}

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run."""
        return self._latest

    def history(self) -> Sequence[RoundRecord]:
        """Return every committed round, ascending."""
        return tuple(self._history)

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Keep a round."""
        self._latest = Checkpoint(record, model, dict(state))
        self._history.append(record)

    def spool(self, silo: str, round_number: int, announcement: Announcement) -> SpooledUpdate:
        """Open the place where an announced update arrives; the same one again for the same announcement.

        Raises
        ------
        ValueError
            The announcement has no update.
        """
        if announcement.update is None:
            raise ValueError(f"{silo} announced no update")
        key = (silo, round_number)
        if key not in self._spools or self._spools[key][1].manifest != announcement.update:
            self._spools[key] = (announcement, MemorySpool(announcement.update))
        return self._spools[key][1]

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Note that an update is whole."""
        self._kept.setdefault(round_number, set()).add(silo)

    def kept(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of an open round."""
        return {silo: self._spools[silo, round_number] for silo in self._kept.get(round_number, ())}

    def release(self, round_number: int) -> None:
        """Forget the updates of a round."""
        self._kept.pop(round_number, None)
        for key in [k for k in self._spools if k[1] == round_number]:
            del self._spools[key]

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Make a silo's whole update its contribution."""
        self._contributions[silo] = (weight, self._spools.pop((silo, round_number))[1])
        self._kept.get(round_number, set()).discard(silo)

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo in the community."""
        return dict(self._contributions)
