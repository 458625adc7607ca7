"""The round store on disk: journal, checkpoints and spool in one folder that one process holds."""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CHECKPOINT_DAMAGED, JOURNAL_DAMAGED
from anchorage.engine.interfaces import Checkpoint, RoundRecord
from anchorage.engine.store.checkpoints import Checkpoints, Identity
from anchorage.engine.store.durable import FolderLock, storage_errors
from anchorage.engine.store.journal import Contribution, Entry, Journal
from anchorage.engine.store.large_files import LargeFolder
from anchorage.engine.store.round_store import RoundStore
from anchorage.engine.store.spool import Spool
from anchorage.engine.store.updates import Updates
from anchorage.transport.tensors.model import ModelBytes

_log = logging.getLogger(__name__)


class DiskStore(RoundStore):
    """A store in a folder: ``journal.jsonl``, ``checkpoints/``, ``spool/``, ``large/``, ``lock``.

    A round is committed when its journal line is whole. Kept are the checkpoints of the last two rounds, of the best one, and of what was the
    best one before the last round. Where the last checkpoint is damaged, the run goes back to the round before it; where the best one is, the
    best of those that are there takes its place. Both are logged, and `notices` says so.

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
        Another process holds the folder, it is not writable, or what it holds is of another run, or damaged beyond the last round.
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
            self.notices: list[str] = []
            """What was found damaged, and what the run does without it; a line each."""
            self._given_up: RoundRecord | None = None
            if self._journal.damage:
                self._notice(f"{self._journal.damage}; round {len(self._journal.entries)} is played again")
            self._check_length()
            self._latest = self._find_latest()
            spool = updates or self._open_spool()
            super().__init__(spool, LargeFolder(folder / "large", sync=sync), identity.first)
            stack.callback(self._updates.close)
            stack.callback(self.large.close)
            self._close = stack.pop_all().close
        for entry in self._journal.entries:
            self._count(entry.record)
        self._check_best()

    def _check_length(self) -> None:
        """See that the journal is not shorter than it was: a crash leaves at most the checkpoint of the round after its last one."""
        rounds, newest = len(self._journal.entries), self._checkpoints.newest()
        if newest > rounds:
            message = (
                f"{self._folder / 'journal.jsonl'} has {rounds} rounds, but there is a checkpoint of round {newest}"
            )
            raise AnchorageError(JOURNAL_DAMAGED, message)
        if newest == rounds and not self._journal.damage:
            self._notice(f"the journal does not name round {newest}, which has a checkpoint: the round is played again")

    def _find_latest(self) -> Checkpoint | None:
        """Read the last committed round; where that cannot be, go back to the round before it, from round 0 to the beginning."""
        entries = self._journal.entries
        if not entries:
            return None
        try:
            return self._checkpoints.read(entries[-1].record)
        except AnchorageError as damage:
            checkpoint = self._checkpoint_before(damage)
            self._given_up = self._journal.go_back().record
            self._notice(f"{damage}; the run went back a round: round {self._given_up.round} is played again")
            return checkpoint

    def _checkpoint_before(self, damage: AnchorageError) -> Checkpoint | None:
        """Return the checkpoint before the last one, None before round 0; raise what is wrong with the last one where there is no way back."""
        entries = self._journal.entries
        if len(entries) == 1 and damage.failure is CHECKPOINT_DAMAGED:
            return None
        try:
            return self._checkpoints.read(entries[-2].record)
        except (AnchorageError, IndexError):
            raise damage from None

    def _open_spool(self) -> Spool:
        contributions: dict[str, Contribution] = {}
        replaced: set[int] = set()
        for entry in self._journal.entries:
            replaced = {contributions[silo].slot for silo in entry.contributions if silo in contributions}
            contributions |= entry.contributions
        return Spool(self._folder / "spool", contributions, replaced, len(self._journal.entries) - 1)

    def _check_best(self) -> None:
        """Have the best round that is there take the place of one whose checkpoint is damaged."""
        damaged = self._best
        if damaged is None or damaged is self._history[-1]:
            return
        try:
            self._checkpoints.read(damaged)
        except AnchorageError as damage:
            self._best = None
            for record in self._history:
                there = record is not damaged and self.checkpoint_path(record.round).exists()
                if there and self.excels(record.round, record.metrics):
                    self._best = record
            number = self._best.round if self._best is not None else self._history[-1].round
            self._notice(f"{damage}; of the rounds that are kept {number} is the best")

    def _notice(self, message: str) -> None:
        _log.warning(message)
        self.notices.append(message)

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run.

        Raises
        ------
        AnchorageError
            The checkpoint is missing or damaged.
        """
        if self._latest is not None:
            return self._latest
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
        before = self._best
        self._journal.append(Entry(record, contributions))
        self._count(record)
        self._latest = None  # a caller has it, or nobody needs it
        if self._given_up is not None:
            same = {"same": record.digest == self._given_up.digest}
            _log.info("played again", extra={"round": record.round, "digest": record.digest, **same})
            self._given_up = None
        with storage_errors("recycle files", self._folder):
            self._updates.settle()
            best = [candidate.round for candidate in (before, self._best) if candidate is not None]
            self._checkpoints.retain({record.round, record.round - 1, *best})

    def close(self) -> None:
        """Let go of every file and of the folder."""
        self._close()
