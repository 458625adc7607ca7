"""The round store on disk: journal, checkpoints and spool in one folder that one server holds."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anchorage.api.metrics import score
from anchorage.engine.interfaces import Checkpoint, RoundRecord, SpooledUpdate
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.model import ModelBytes
from anchorage_server.checkpoints import Checkpoints, Identity
from anchorage_server.durable import FolderLock, storage_errors
from anchorage_server.journal import Contribution, Entry, Journal
from anchorage_server.spool import Spool


class DiskRoundStore:
    """`RoundStore` in a folder: ``journal.jsonl``, ``checkpoints/``, ``spool/``, ``lock``.

    A round is committed when its journal line is whole. Kept are the checkpoints of the last two rounds and of the best one.

    Parameters
    ----------
    folder : Path
        The state folder; made when missing.
    identity : Identity
        Whose run this is.

    Raises
    ------
    AnchorageError
        Another server holds the folder, it is not writable, or what it holds is damaged or of another run.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = folder
        self._first = identity.warm_up[-1][0] + 1 if identity.warm_up else 0
        with storage_errors("make the state folder", folder):
            for part in ("checkpoints", "spool"):
                (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(FolderLock(folder).release)
            self._journal = Journal(folder / "journal.jsonl")
            stack.callback(self._journal.close)
            self._checkpoints = Checkpoints(folder / "checkpoints", identity)
            if self._journal.entries:
                self._checkpoints.recognise(self._journal.entries[-1].record)
            contributions: dict[str, Contribution] = {}
            for entry in self._journal.entries:
                contributions |= entry.contributions
            self._spool = Spool(folder / "spool", contributions, len(self._journal.entries) - 1)
            stack.callback(self._spool.close)
            self._close = stack.pop_all().close
        self._best: RoundRecord | None = None
        for record in self.history():
            self._best = self._better(record)

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run.

        Raises
        ------
        AnchorageError
            The checkpoint is missing, damaged, or of another federation, method or model.
        """
        return self._checkpoints.read(self._journal.entries[-1].record) if self._journal.entries else None

    def best(self) -> Checkpoint | None:
        """Return the best committed round; the last one where no round has a metric to go by.

        Raises
        ------
        AnchorageError
            As `latest`.
        """
        return self.latest() if self._best is None else self._checkpoints.read(self._best)

    def history(self) -> Sequence[RoundRecord]:
        """Return every committed round, ascending."""
        return tuple(entry.record for entry in self._journal.entries)

    def checkpoint_path(self, round_number: int) -> Path:
        """Return where a round's checkpoint lies, if it is kept."""
        return self._checkpoints.path(round_number)

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Make a round durable: checkpoint by atomic rename, then one journal line. Returns when both are on disk.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the previous round is untouched.
        """
        with storage_errors(f"write the checkpoint of round {record.round}", self._folder):
            contributions = self._spool.make_durable()
            self._checkpoints.write(record, model, state)
        self._journal.append(Entry(record, contributions))
        self._best = self._better(record)
        with storage_errors("recycle files", self._folder):
            self._spool.settle()
            self._checkpoints.retain({record.round, record.round - 1, self._best.round if self._best else record.round})

    def spool(self, silo: str, round_number: int, announcement: Announcement) -> SpooledUpdate:
        """Open the place where an announced update arrives; the same one again for the same announcement.

        Raises
        ------
        AnchorageError
            There is no room for it.
        """
        return self._spool.open(silo, round_number, announcement)

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Note that an update is whole, so that a restart re-uses it."""
        self._spool.keep(silo, round_number, announcement)

    def kept(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of an open round, their digests checked."""
        return self._spool.kept(round_number)

    def release(self, round_number: int) -> None:
        """Recycle the spool files of a round that are nobody's contribution."""
        self._spool.release(round_number)

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Make a silo's whole update its contribution to the asynchronous community; the next `commit` makes that durable."""
        self._spool.contribute(silo, round_number, weight)

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo in the asynchronous community.

        Raises
        ------
        AnchorageError
            An update that an earlier process left is not as it was written.
        """
        return self._spool.contributions()

    def close(self) -> None:
        """Let go of every file and of the folder."""
        self._close()

    def _better(self, record: RoundRecord) -> RoundRecord | None:
        """Return the better one of the best round so far and `record`; of equals the earlier. A warm-up's rounds do not count."""
        found = score(record.metrics) if record.round >= self._first else None
        best = score(self._best.metrics) if self._best is not None else None
        return self._best if found is None or (best is not None and found <= best) else record
