"""Updates on disk: numbered spool files that are used again and again.

``0003.bin`` holds bytes; ``0003.json`` beside it says whose they are once they are whole. A file without a JSON file is free. What a file
holds after a crash is believed only as far as its digests say.
"""

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CONTRIBUTION_DAMAGED
from anchorage.api.regular_files import read_regular
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.journal import Contribution, body_of, seal
from anchorage.engine.store.updates import Slot, Updates
from anchorage.transport.files import sync, write_atomically
from anchorage.transport.grpc.convert import decode_announcement, encode_announcement
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.spool import SpoolFile


class Spool(Updates[SpoolFile]):
    """The folder of spool files; what is whole there outlives the process.

    Parameters
    ----------
    folder : Path
        Must exist and belong to this process alone.
    contributions : mapping of str to Contribution
        The silos' contributions as the journal has them.
    replaced : collection of int
        Files of the contributions that those of the last round replaced: a run whose last checkpoint is damaged goes back to them.
    last_round : int
        The last committed round, -1 before the first; whole updates of later rounds are kept from an earlier process.

    Raises
    ------
    AnchorageError
        The folder cannot be read or written, or a contribution has no description.
    """

    def __init__(
        self, folder: Path, contributions: Mapping[str, Contribution], replaced: Collection[int], last_round: int
    ) -> None:
        super().__init__()
        self._folder = folder
        self._replaced: list[Slot[SpoolFile]] = []
        with storage_errors("read the spool", folder):
            files = {int(path.stem) for path in folder.glob("[0-9]*.bin")}
            described = {slot.number: slot for slot in self._read_descriptions()}
            for silo, contribution in contributions.items():
                slot = described.pop(contribution.slot, None)
                if slot is None or slot.silo != silo:
                    message = f"nothing in {folder} says that {contribution.slot:04d}.bin is the update of {silo}"
                    raise AnchorageError(CONTRIBUTION_DAMAGED, message)
                self._contributing[silo] = (contribution.weight, slot)
            for slot in sorted(described.values(), key=lambda slot: slot.round):
                if slot.number in replaced:
                    self._replaced.append(slot)
                elif slot.round > last_round and slot.silo not in self._open:
                    self._open[slot.silo] = slot
                else:
                    self._json(slot.number).unlink()
        used = {slot.number for slot in self._slots()}
        self._free = sorted(files - used)
        self._next_number = max(files | used, default=-1) + 1

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
        """Note that what was contributed is committed; what it replaced stays until the next commit."""
        outdated, self._replaced = self._replaced, []
        super().settle()
        for slot in outdated:
            self._recycle(slot)

    def close(self) -> None:
        """Let go of every file."""
        for slot in self._slots():
            if slot.file is not None:
                slot.file.close()

    def _make(self, silo: str, manifest: Manifest) -> tuple[int, SpoolFile]:
        if self._free:
            number = self._free.pop(0)
        else:
            number, self._next_number = self._next_number, self._next_number + 1
        with storage_errors(f"make room for the update of {silo}", self._folder):
            try:
                return number, SpoolFile(self._bin(number), manifest)
            except OSError:
                self._free.append(number)
                raise

    def _note(self, slot: Slot[SpoolFile], announcement: Announcement) -> None:
        announced = base64.b64encode(encode_announcement(announcement)).decode()
        values = {"silo": slot.silo, "round": slot.round, "announcement": announced}
        with storage_errors(f"note the update of {slot.silo}", self._folder):
            write_atomically(self._json(slot.number), seal(values))

    def _file(self, slot: Slot[SpoolFile]) -> SpoolFile:
        if slot.file is None:
            assert slot.announcement.update is not None
            slot.file = SpoolFile.recover(self._bin(slot.number), slot.announcement.update)
        return slot.file

    def _sound(self, slot: Slot[SpoolFile]) -> SpoolFile:
        file = self._file(slot)
        if file.missing():
            message = f"{self._bin(slot.number)} is not the update that {slot.silo} sent in round {slot.round}"
            raise AnchorageError(CONTRIBUTION_DAMAGED, message)
        return file

    def _retire(self, slot: Slot[SpoolFile]) -> None:
        self._replaced.append(slot)

    def _slots(self) -> Iterator[Slot[SpoolFile]]:
        yield from super()._slots()
        yield from self._replaced

    def _recycle(self, slot: Slot[SpoolFile]) -> None:
        if slot.file is not None:
            slot.file.close()
        self._json(slot.number).unlink(missing_ok=True)
        self._free.append(slot.number)

    def _read_descriptions(self) -> Iterator[Slot[SpoolFile]]:
        """Read the descriptions that an earlier process left; one that is not as it was written is removed."""
        for path in self._folder.glob("[0-9]*.json"):
            try:
                values = json.loads(body_of(read_regular(path)) or b"")
                announcement = decode_announcement(base64.b64decode(values["announcement"]))
                yield Slot(int(path.stem), values["silo"], values["round"], announcement, None, is_complete=True)
            except (ValueError, KeyError, TypeError, AnchorageError):
                path.unlink()

    def _bin(self, number: int) -> Path:
        return self._folder / f"{number:04d}.bin"

    def _json(self, number: int) -> Path:
        return self._folder / f"{number:04d}.json"
