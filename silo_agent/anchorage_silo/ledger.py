"""What was spent of a hospital's privacy budget: an append-only file (`chained_log`) with a line for every update, written before it leaves."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError, silo
from anchorage.engine.accounting import Mechanism, epsilon
from anchorage_silo.chained_log import ChainedFile, ChainedLog, Entry, Reading

LEDGER_FILE = "privacy.jsonl"
_FIELDS = {"federation": str, "task": str, "digest": str, "noise": float, "rate": float, "steps": int}


@dataclass(frozen=True)
class PrivacyLedger:
    """The ledger in a folder. Agents that use the same images share it, one after another; nothing of it is kept in memory.

    Parameters
    ----------
    folder : Path
        Where it lies; made if it is missing.
    epsilon, delta : float
        The budget: all that was ever spent may not exceed `epsilon` at `delta`.
    now : callable
        Returns the time in seconds since the epoch.
    """

    folder: Path
    epsilon: float
    delta: float
    now: Callable[[], float] = time.time

    @property
    def _file(self) -> ChainedFile:
        return ChainedFile(self.folder / LEDGER_FILE, silo.LEDGER_BROKEN, silo.LEDGER_UNWRITABLE, _FIELDS)

    def spent_epsilon(self) -> float:
        """Return the ε that was spent so far.

        Raises
        ------
        AnchorageError
            The ledger is not as it was written, or cannot be read.
        """
        return epsilon(_mechanisms(list(Reading(self._file))), self.delta)

    def check(self, mechanism: Mechanism, *, federation: str, task: str) -> None:
        """Check that a mechanism fits into the budget, or that its update was written down before: then it may leave, and nothing else in its place.

        Raises
        ------
        AnchorageError
            It does not; or the ledger is not as it was written, or cannot be read.
        """
        entries = list(Reading(self._file))
        if not any((entry["federation"], entry["task"]) == (federation, task) for entry in entries):
            self._fitting(entries, mechanism)

    def spend(self, mechanism: Mechanism, *, federation: str, task: str, digest: str) -> float:
        """Write down what an update costs, before it leaves, and return the ε spent so far, this included.

        Parameters
        ----------
        mechanism : Mechanism
            What the update was made with.
        federation, task : str
            What it is for.
        digest : str
            Its digest; an update that was written down before costs nothing more.

        Raises
        ------
        AnchorageError
            It does not fit into the budget; or the ledger is not as it was written, or cannot be written. The update must not leave.
        """
        entries: list[Entry] = []
        with self._lock(), closing(ChainedLog(self._file, entries.append)) as log:
            if any(entry["digest"] == digest for entry in entries):
                return epsilon(_mechanisms(entries), self.delta)
            total = self._fitting(entries, mechanism)
            entry_fields = {"time": self.now(), "federation": federation, "task": task, "digest": digest}
            log.append(entry_fields | asdict(mechanism))
            return total

    def lasts(self, mechanism: Mechanism, most: int) -> int:
        """Return how many more times, up to `most`, a mechanism fits into the budget.

        Raises
        ------
        AnchorageError
            The ledger is not as it was written, or cannot be read.
        """
        spent, fits, beyond = _mechanisms(list(Reading(self._file))), 0, most + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            if epsilon([*spent, *[mechanism] * middle], self.delta) <= self.epsilon:
                fits = middle
            else:
                beyond = middle
        return fits

    def _fitting(self, entries: Sequence[Entry], mechanism: Mechanism) -> float:
        return epsilon_after(_mechanisms(entries), mechanism, self.epsilon, self.delta)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.folder / "privacy.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._file.unusable(error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def epsilon_after(spent: Sequence[Mechanism], mechanism: Mechanism, most: float, delta: float) -> float:
    """Return the ε at `delta` after a further mechanism.

    Raises
    ------
    AnchorageError
        It is more than `most`.
    """
    total = epsilon([*spent, mechanism], delta)
    if total > most:
        detail = f"epsilon {epsilon(spent, delta):.4g} of {most:g} is spent (delta {delta:g}), and would be {total:.4g}"
        raise AnchorageError(silo.PRIVACY_BUDGET_SPENT, detail)
    return total


def _mechanisms(entries: Sequence[Entry]) -> list[Mechanism]:
    return [Mechanism(entry["noise"], entry["rate"], entry["steps"]) for entry in entries]
