"""Embeddings of a frozen encoder on disk, for runs that see the same images: a study encodes each image once, whoever holds it in a run."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TypeVar

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

from anchorage import __version__
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LEARNER_STATE_UNWRITABLE

T = TypeVar("T")

_SECONDS = 60.0
"""How long a process waits for another one that writes; a write takes milliseconds."""
_CHECK = 8
"""Bytes behind an embedding by which a damaged one is known."""


class KeptEmbeddings:
    """Embeddings by everything that decides their bits: a database for each encoder, with a row for each image and view.

    Several processes may use a folder at once. A row that is damaged, and a file that is no database, are made again; files may be removed at any
    time. What was encoded is there for others at once, also when the process is killed later.

    Parameters
    ----------
    folder : Path
        Gets a file per encoder; made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(
        self,
        encoder: torch.nn.Module,
        width: int,
        device: torch.device,
        view_settings: Mapping[str, object],
        names: Sequence[bytes],
        encoded: Callable[[NDArray[np.int64]], Iterable[Tensor]],
    ) -> Tensor:
        """Return embeddings by their names; those that are not kept are made, and kept.

        Parameters
        ----------
        encoder : Module
            Its weights are part of the file's name.
        width : int
            Of the embeddings.
        device : torch.device
            Where it calculates, which is part of the file's name.
        view_settings : mapping of str to anything that JSON can hold
            What else decides what it makes of an image: network, size, augmentation.
        names : sequence of bytes
            What tells an image and view from others.
        encoded : callable
            Makes embeddings float32 [b, width] of some of the names, by their positions, batch after batch.

        Returns
        -------
        Tensor, float32, shape [n, width]
            On the device; on the CPU mapped from a file without a name, so that the system can do without its pages.

        Raises
        ------
        AnchorageError
            LEARNER_STATE_UNWRITABLE: the folder cannot be written.
        """
        database = _Database(self._folder / f"{_name(encoder, device, view_settings)}.sqlite")
        with self._storage_errors():
            self._folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self._folder) as gathered:
                places = _Places(gathered, width * np.dtype(np.float32).itemsize)
                missing = database.read(names, places)
                start = 0
                for batch in encoded(missing) if len(missing) else ():
                    rows = [row.tobytes() for row in batch.cpu().numpy().astype(np.float32, copy=False)]
                    positions = missing[start : start + len(rows)].tolist()
                    start += len(rows)
                    database.write({names[position]: row for position, row in zip(positions, rows, strict=True)})
                    for position, row in zip(positions, rows, strict=True):
                        places.write(position, row)
                if not names:
                    return torch.empty((0, width), device=device)
                gathered.flush()
                shape = (len(names), width)
                return torch.from_numpy(np.memmap(gathered, np.float32, "c", shape=shape)).to(device)

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            message = f"embeddings cannot be kept in {self._folder}: {reason}"
            raise AnchorageError(LEARNER_STATE_UNWRITABLE, message) from error


@dataclass(frozen=True, slots=True)
class _Places:
    """An open file of rows of a length."""

    file: IO[bytes]
    nbytes: int

    def write(self, position: int, row: bytes) -> None:
        self.file.seek(position * self.nbytes)
        self.file.write(row)


class _Database:
    """A file with rows by names, open only while it is read or written, so that it may be removed at any time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, names: Sequence[bytes], places: _Places) -> NDArray[np.int64]:
        """Write what is kept at its places, and return the positions of what is not."""

        def missing(connection: sqlite3.Connection) -> list[int]:
            missing_positions = []
            for position, name in enumerate(names):
                stored_row = connection.execute("select embedding from embeddings where name = ?", (name,)).fetchone()
                row = stored_row[0][:-_CHECK] if stored_row else b""
                if len(row) == places.nbytes and stored_row[0] == _check(row):
                    places.write(position, row)
                else:
                    missing_positions.append(position)
            return missing_positions

        return np.array(self._with(missing), np.int64)

    def write(self, rows: Mapping[bytes, bytes]) -> None:
        """Keep rows by names."""
        checked = [(name, _check(row)) for name, row in rows.items()]
        self._with(
            lambda connection: connection.executemany("insert or replace into embeddings values (?, ?)", checked)
        )

    def _with(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Return what an action does of the database; of a damaged one, which is removed, what it does of a new one."""
        try:
            return self._with_connection(action)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            self._file.unlink(missing_ok=True)
            return self._with_connection(action)

    def _with_connection(self, action: Callable[[sqlite3.Connection], T]) -> T:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._file, timeout=_SECONDS)) as connection, connection:
            # A killed process loses nothing; what a failing machine loses is made again, so that no write waits for the disk.
            connection.execute("pragma synchronous = off")
            connection.execute("create table if not exists embeddings (name blob primary key, embedding blob not null)")
            return action(connection)


def _check(row: bytes) -> bytes:
    return row + blake3(row).digest(_CHECK)


def _name(encoder: torch.nn.Module, device: torch.device, view_settings: Mapping[str, object]) -> str:
    calculates = [__version__, torch.__version__, device.type, torch.backends.cpu.get_cpu_capability()]
    digest = blake3(json.dumps([calculates, view_settings], sort_keys=True).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
    return digest.hexdigest(16)
