"""Updates on their way in, and those that make up the asynchronous community: numbered spool files that are used again and again.

``0003.bin`` holds bytes; ``0003.json`` beside it says whose they are once they are whole. A file without a JSON file is free. What a file
holds after a crash is believed only as far as its digests say.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CONTRIBUTION_DAMAGED
from anchorage.engine.interfaces import SpooledUpdate
from anchorage.transport.files import sync, write_atomically
from anchorage.transport.grpc.convert import decode_announcement, encode_announcement
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.spool import SpoolFile
from anchorage_server.durable import storage_errors
from anchorage_server.journal import Contribution


@dataclass(slots=True)
class _Slot:
    """One spool file in use; `file` is None until what an earlier process left has been checked."""

    number: int
    silo: str
    round: int
    announcement: Announcement
    whole: bool = False
    file: SpoolFile | None = None


class Spool:
    """The folder of spool files. A silo has at most one open update, and one or, between two commits, two in the community.

    Parameters
    ----------
    folder : Path
        Must exist and belong to this process alone.
    contributions : mapping of str to Contribution
        The community as the journal has it.
    last_round : int
        The last committed round, -1 before the first; whole updates of later rounds are kept from an earlier process.

    Raises
    ------
    AnchorageError
        The folder cannot be read or written, or a contribution has no description.
    """

    def __init__(self, folder: Path, contributions: Mapping[str, Contribution], last_round: int) -> None:
        self._folder = folder
        self._open: dict[str, _Slot] = {}
        self._pending: dict[str, tuple[float, _Slot]] = {}
        self._community: dict[str, tuple[float, _Slot]] = {}
        with storage_errors("read the spool", folder):
            files = {int(path.stem) for path in folder.glob("[0-9]*.bin")}
            described = {slot.number: slot for slot in self._described()}
            for silo, contribution in contributions.items():
                slot = described.pop(contribution.slot, None)
                if slot is None or slot.silo != silo:
                    message = f"nothing in {folder} says that {contribution.slot:04d}.bin is the update of {silo}"
                    raise AnchorageError(CONTRIBUTION_DAMAGED, message)
                self._community[silo] = (contribution.weight, slot)
            for slot in described.values():
                if slot.round > last_round:
                    self._open[slot.silo] = slot
                else:
                    self._json(slot.number).unlink()
        used = {slot.number for slot in self._slots()}
        self._free = sorted(files - used)
        self._next_number = max(files | used, default=-1) + 1

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
        if self._free:
            number = self._free.pop(0)
        else:
            number, self._next_number = self._next_number, self._next_number + 1
        with storage_errors(f"make room for the update of {silo}", self._folder):
            try:
                file = SpoolFile(self._bin(number), announcement.update)
            except OSError:
                self._free.append(number)
                raise
        self._open[silo] = _Slot(number, silo, round_number, announcement, file=file)
        return file

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Write down whose a whole update is.

        Raises
        ------
        KeyError
            The silo has no open update of this round.
        AnchorageError
            The folder is full or not writable.
        """
        slot = self._opened(silo, round_number)
        announced = base64.b64encode(encode_announcement(announcement)).decode()
        values = {"silo": silo, "round": round_number, "announcement": announced}
        with storage_errors(f"note the update of {silo}", self._folder):
            write_atomically(self._json(slot.number), json.dumps(values).encode())
        slot.announcement, slot.whole = announcement, True

    def kept(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of a round; those of an earlier process only where every digest is right."""
        found: dict[str, tuple[Announcement, SpooledUpdate]] = {}
        for slot in [s for s in self._open.values() if s.round == round_number and s.whole]:
            file = self._file(slot)
            if file.missing():
                self._recycle(self._open.pop(slot.silo))
            else:
                found[slot.silo] = (slot.announcement, file)
        return found

    def release(self, round_number: int) -> None:
        """Recycle the files of a round that are nobody's contribution."""
        for slot in [s for s in self._open.values() if s.round == round_number]:
            self._recycle(self._open.pop(slot.silo))

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Put a silo's whole update into the community, in the place of its last one, whose file stays until `settle`.

        Raises
        ------
        KeyError
            The silo has no open update of this round.
        """
        self._opened(silo, round_number)
        if silo in self._pending:
            self._recycle(self._pending[silo][1])
        self._pending[silo] = (weight, self._open.pop(silo))

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo in the community.

        Raises
        ------
        AnchorageError
            An update that an earlier process left is not as it was written.
        """
        return {
            silo: (weight, self._sound(slot)) for silo, (weight, slot) in {**self._community, **self._pending}.items()
        }

    def make_durable(self) -> Mapping[str, Contribution]:
        """Make what was contributed since the last `settle` durable, and return it.

        Raises
        ------
        OSError
            The disk is full or failed.
        """
        for _, slot in self._pending.values():
            sync(self._bin(slot.number))
            sync(self._json(slot.number))
        if self._pending:
            sync(self._folder)
        return {silo: Contribution(slot.number, weight) for silo, (weight, slot) in self._pending.items()}

    def settle(self) -> None:
        """Note that the journal names what `make_durable` returned; the files that it replaced are free."""
        for silo, contribution in self._pending.items():
            if silo in self._community:
                self._recycle(self._community[silo][1])
            self._community[silo] = contribution
        self._pending = {}

    def close(self) -> None:
        """Let go of every file."""
        for slot in self._slots():
            if slot.file is not None:
                slot.file.close()

    def _slots(self) -> Iterator[_Slot]:
        yield from self._open.values()
        yield from (slot for _, slot in self._community.values())
        yield from (slot for _, slot in self._pending.values())

    def _opened(self, silo: str, round_number: int) -> _Slot:
        slot = self._open[silo]
        if slot.round != round_number:
            raise KeyError(f"{silo} has an open update of round {slot.round}, not {round_number}")
        return slot

    def _file(self, slot: _Slot) -> SpoolFile:
        """Return a slot's file, checked when an earlier process wrote it."""
        if slot.file is None:
            assert slot.announcement.update is not None
            slot.file = SpoolFile.recover(self._bin(slot.number), slot.announcement.update)
        return slot.file

    def _sound(self, slot: _Slot) -> SpoolFile:
        file = self._file(slot)
        if file.missing():
            message = f"{self._bin(slot.number)} is not the update that {slot.silo} sent in round {slot.round}"
            raise AnchorageError(CONTRIBUTION_DAMAGED, message)
        return file

    def _recycle(self, slot: _Slot) -> None:
        """Free a file; a transfer that still writes into it fails."""
        if slot.file is not None:
            slot.file.close()
        self._json(slot.number).unlink(missing_ok=True)
        self._free.append(slot.number)

    def _described(self) -> Iterator[_Slot]:
        """Read the descriptions that an earlier process left; one that a crash has torn is removed."""
        for path in self._folder.glob("[0-9]*.json"):
            try:
                values = json.loads(path.read_bytes())
                announcement = decode_announcement(base64.b64decode(values["announcement"]))
                yield _Slot(int(path.stem), values["silo"], values["round"], announcement, whole=True)
            except (ValueError, KeyError, TypeError, AnchorageError):
                path.unlink()

    def _bin(self, number: int) -> Path:
        return self._folder / f"{number:04d}.bin"

    def _json(self, number: int) -> Path:
        return self._folder / f"{number:04d}.json"
