"""The round store on disk: journal, checkpoints and spool in one folder that one process holds."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anchorage.engine.interfaces import Checkpoint, RoundRecord
from anchorage.engine.store.checkpoints import Checkpoints, Identity
from anchorage.engine.store.durable import FolderLock, storage_errors
from anchorage.engine.store.journal import Contribution, Entry, Journal
from anchorage.engine.store.large_files import LargeFolder
from anchorage.engine.store.round_store import RoundStore
from anchorage.engine.store.spool import Spool
from anchorage.engine.store.updates import Updates
from anchorage.transport.tensors.model import ModelBytes


class DiskStore(RoundStore):
    """A store in a folder: ``journal.jsonl``, ``checkpoints/``, ``spool/``, ``large/``, ``lock``.

    A round is committed when its journal line is whole. Kept are the checkpoints of the last two rounds and of the best one.

    Parameters
    ----------
    folder : Path
        The state folder; made when missing.
    identity : Identity
        Whose run this is.
    updates : Updates, optional
        Where updates arrive; None: in the folder, so that whole ones outlive the process.
    sync : bool
        Whether a round is on disk when `commit` returns. Else a killed process loses nothing, but a power cut may leave a damaged folder.

    Raises
    ------
    AnchorageError
        Another process holds the folder, it is not writable, or what it holds is damaged or of another run.
    """

    def __init__(
        self, folder: Path, identity: Identity, *, updates: Updates[Any] | None = None, sync: bool = True
    ) -> None:
        self._folder = folder
        with storage_errors("make the state folder", folder):
            for part in ("checkpoints", *(() if updates else ("spool",))):
                (folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(FolderLock(folder).release)
            self._journal = Journal(folder / "journal.jsonl", sync=sync)
            stack.callback(self._journal.close)
            self._checkpoints = Checkpoints(folder / "checkpoints", identity, sync=sync)
            if self._journal.entries:
                self._checkpoints.recognise(self._journal.entries[-1].record)
            contributions: dict[str, Contribution] = {}
            for entry in self._journal.entries:
                contributions |= entry.contributions
            spool = updates or Spool(folder / "spool", contributions, len(self._journal.entries) - 1)
            super().__init__(spool, LargeFolder(folder / "large", sync=sync), identity.first)
            stack.callback(self._updates.close)
            stack.callback(self.large.close)
            self._close = stack.pop_all().close
        for entry in self._journal.entries:
            self._count(entry.record)

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run.

        Raises
        ------
        AnchorageError
            The checkpoint is missing or damaged.
        """
        return self._checkpoints.read(self._history[-1]) if self._history else None

    def best(self) -> Checkpoint | None:
        """Return the best committed round; the last one where no round has a metric to go by.

        Raises
        ------
        AnchorageError
            As `latest`.
        """
        return self.latest() if self._best is None else self._checkpoints.read(self._best)

    def checkpoint_path(self, round_number: int) -> Path:
        """Return where a round's checkpoint lies, if it is kept."""
        return self._checkpoints.path(round_number)

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Make a round durable: checkpoint by atomic rename, then one journal line.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the previous round is untouched.
        """
        with storage_errors(f"write the checkpoint of round {record.round}", self._folder):
            contributions = self._updates.make_durable()
            self._checkpoints.write(record, model, state)
        self._journal.append(Entry(record, contributions))
        self._count(record)
        with storage_errors("recycle files", self._folder):
            self._updates.settle()
            self._checkpoints.retain({record.round, record.round - 1, self._best.round if self._best else record.round})

    def close(self) -> None:
        """Let go of every file and of the folder."""
        self._close()
