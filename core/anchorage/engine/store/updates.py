"""Updates on their way in, and those that make up the asynchronous global model: what both kinds of memory do alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from anchorage.engine.interfaces import SpooledUpdate
from anchorage.engine.store.journal import Contribution
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import Manifest

File = TypeVar("File", bound=SpooledUpdate)
"""Where the bytes of one update lie."""


@dataclass(slots=True)
class Slot(Generic[File]):
    """One update in use."""

    number: int
    """Number of its file."""
    silo: str
    """Who sent it."""
    round: int
    """Of its task."""
    announcement: Announcement
    """What was said of it."""
    file: File | None
    """Its bytes; None until those that an earlier process left have been checked."""
    is_complete: bool = False
    """Whether all of it is here."""


class Updates(ABC, Generic[File]):
    """A silo has at most one open update, and one or, between two commits, two that contribute to the asynchronous global model."""

    def __init__(self) -> None:
        self._open: dict[str, Slot[File]] = {}
        self._pending: dict[str, tuple[float, Slot[File]]] = {}
        self._contributing: dict[str, tuple[float, Slot[File]]] = {}

    def open(self, silo: str, round_number: int, announcement: Announcement) -> SpooledUpdate:
        """Return the place for an announced update: the same one for the same bytes, else a free one. A silo's other open update is given up.

        Raises
        ------
        ValueError
            The announcement has no update.
        AnchorageError
            There is no room for it.
        """
        if announcement.update is None:
            raise ValueError(f"{silo} announced no update")
        slot = self._open.get(silo)
        if slot is not None and slot.round == round_number and slot.announcement.update == announcement.update:
            slot.announcement = announcement
            return self._file(slot)
        if slot is not None:
            self._recycle(self._open.pop(silo))
        number, file = self._make(silo, announcement.update)
        self._open[silo] = Slot(number, silo, round_number, announcement, file)
        return file

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Note that an update is whole.

        Raises
        ------
        KeyError
            The silo has no open update of this round.
        AnchorageError
            It cannot be written down.
        """
        slot = self._slot_of(silo, round_number)
        self._note(slot, announcement)
        slot.announcement, slot.is_complete = announcement, True

    def load_updates(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of a round; those of an earlier process only where every digest is right."""
        updates: dict[str, tuple[Announcement, SpooledUpdate]] = {}
        for slot in [s for s in self._open.values() if s.round == round_number and s.is_complete]:
            file = self._file(slot)
            if file.missing():
                self._recycle(self._open.pop(slot.silo))
            else:
                updates[slot.silo] = (slot.announcement, file)
        return updates

    def release(self, round_number: int) -> None:
        """Give up the updates of a round that are nobody's contribution."""
        for slot in [s for s in self._open.values() if s.round == round_number]:
            self._recycle(self._open.pop(slot.silo))

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Make a silo's whole update its contribution, in the place of its last one, which stays until `settle`.

        Raises
        ------
        KeyError
            The silo has no open update of this round.
        """
        self._slot_of(silo, round_number)
        if silo in self._pending:
            self._recycle(self._pending[silo][1])
        self._pending[silo] = (weight, self._open.pop(silo))

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo that contributes.

        Raises
        ------
        AnchorageError
            An update that an earlier process left is not as it was written.
        """
        shares_by_silo = {**self._contributing, **self._pending}
        return {silo: (weight, self._sound(slot)) for silo, (weight, slot) in shares_by_silo.items()}

    def make_durable(self) -> Mapping[str, Contribution]:
        """Make what was contributed since the last `settle` outlive the process, where it can, and return what does.

        Raises
        ------
        OSError
            The disk is full or failed.
        """
        return {}

    def settle(self) -> None:
        """Note that what was contributed is committed; what it replaced is free."""
        for silo, contribution in self._pending.items():
            if silo in self._contributing:
                self._retire(self._contributing[silo][1])
            self._contributing[silo] = contribution
        self._pending = {}

    def close(self) -> None:
        """Let go of every file."""

    @abstractmethod
    def _make(self, silo: str, manifest: Manifest) -> tuple[int, File]:
        """Return the number of a new place for an update, and the place."""

    def _note(self, slot: Slot[File], announcement: Announcement) -> None:
        """Write down whose a whole update is."""

    @abstractmethod
    def _file(self, slot: Slot[File]) -> File:
        """Return where an update lies, checked when an earlier process wrote it."""

    def _sound(self, slot: Slot[File]) -> File:
        """Return where a contribution lies."""
        return self._file(slot)

    def _retire(self, slot: Slot[File]) -> None:
        """Let go of a contribution that a committed one replaced."""
        self._recycle(slot)

    @abstractmethod
    def _recycle(self, slot: Slot[File]) -> None:
        """Free an update's place; a transfer that still writes into it fails."""

    def _slots(self) -> Iterator[Slot[File]]:
        yield from self._open.values()
        yield from (slot for _, slot in self._contributing.values())
        yield from (slot for _, slot in self._pending.values())

    def _slot_of(self, silo: str, round_number: int) -> Slot[File]:
        slot = self._open[silo]
        if slot.round != round_number:
            raise KeyError(f"{silo} has an open update of round {slot.round}, not {round_number}")
        return slot
