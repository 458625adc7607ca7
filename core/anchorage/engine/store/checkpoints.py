"""Checkpoints: one safetensors file per committed round that is kept, written over the file that fell out (half the time of a new one)."""

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.changes import Fields, broken
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CHECKPOINT_DAMAGED, FOREIGN_CHECKPOINT
from anchorage.engine.interfaces import Checkpoint, RoundRecord
from anchorage.transport.files import partial_path, sync
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import (
    Held,
    read_description,
    read_safetensors,
    write_safetensors,
)

FORMAT = "anchorage-checkpoint-2"
_STATE = "method_state/"
"""Prefix of the method's arrays, which no tensor of a model carries."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose checkpoints these are."""

    study: Fields
    """What the run depends on and may not change (`anchorage.api.changes`), by field, as JSON values."""
    layouts: tuple[Layout, ...]
    """Tensors of every stage's model, the main method's last."""
    ends: tuple[int, ...] = ()
    """Last rounds of the stages before the main method, ascending."""

    @property
    def first(self) -> int:
        """The first round that may be the best one: the main method's."""
        return self.ends[-1] + 1 if self.ends else 0

    def layout_at(self, round_number: int) -> Layout:
        """Return the tensors of the model that a round ends with: its stage's."""
        return self.layouts[bisect_left(self.ends, round_number)]


def checkpoint_name(round_number: int) -> str:
    """Return the name of a round's checkpoint file."""
    return f"round-{round_number:06d}.safetensors"


class Checkpoints:
    """The folder of checkpoints.

    Parameters
    ----------
    folder : Path
        Must exist and belong to this process alone.
    identity : Identity
        Whose checkpoints these are.
    sync : bool
        Whether a checkpoint is on disk when `write` returns.
    """

    def __init__(self, folder: Path, identity: Identity, *, sync: bool = True) -> None:
        self._folder, self._sync = folder, sync
        self._identity = identity
        self._spare = folder / "spare"
        self._held: dict[Path, Held] = {}

    def path(self, round_number: int) -> Path:
        """Return where a round's checkpoint lies or would lie."""
        return self._folder / checkpoint_name(round_number)

    def newest(self) -> int:
        """Return the newest round that has a checkpoint, -1 where none has."""
        return max(
            (int(path.stem.removeprefix("round-")) for path in self._folder.glob("round-*.safetensors")), default=-1
        )

    def write(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Write a round's checkpoint.

        Raises
        ------
        OSError
            The disk is full or not writable; every other checkpoint is as before.
        """
        path, held = self.path(record.round), None
        if self._spare.exists():
            self._spare.replace(partial_path(path))
            held = self._held.pop(self._spare, None)
        arrays = {_STATE + name: array for name, array in state.items()}
        layout = self._identity.layout_at(record.round).digest
        metadata = {"format": FORMAT, "study": json.dumps(self._identity.study), "layout": layout}
        commit_metadata = {"round": str(record.round), "digest": record.digest, "state": digest_of(arrays)}
        described = {**metadata, **commit_metadata}
        self._held[path] = write_safetensors(path, model, arrays=arrays, metadata=described, sync=self._sync, held=held)
        if self._sync:
            sync(self._folder)

    def retain(self, rounds: Collection[int]) -> None:
        """Keep the checkpoints of these rounds; one of the others is written over next time.

        Raises
        ------
        OSError
            The folder is not writable.
        """
        retained_paths = {self.path(number) for number in rounds}
        for path in self._folder.glob("round-*"):
            if path not in retained_paths:
                path.replace(self._spare)
                self._held.pop(self._spare, None)
                if path in self._held:
                    self._held[self._spare] = self._held.pop(path)

    def _recognise(self, record: RoundRecord) -> None:
        """See that a round's checkpoint is of this run."""
        path, study = self.path(record.round), self._identity.study
        with _damage(path):
            _, metadata = read_description(path)
            if metadata.get("format") != FORMAT:
                raise ValueError("it is no checkpoint of this version")
            stored_identity = {"layout": metadata["layout"], **json.loads(metadata["study"])}
        for change in broken(stored_identity, {"layout": self._identity.layout_at(record.round).digest, **study}):
            raise AnchorageError(FOREIGN_CHECKPOINT, f"{path}: {change}; restore it, or use another state folder")

    def read(self, record: RoundRecord) -> Checkpoint:
        """Read a round's checkpoint and check every byte of it.

        Raises
        ------
        AnchorageError
            It is missing, damaged, or of another study or model.
        """
        self._recognise(record)
        path = self.path(record.round)
        with _damage(path):
            stored = read_safetensors(path, self._identity.layout_at(record.round))
        if stored.model.digest != record.digest or stored.metadata.get("state") != digest_of(stored.arrays):
            raise AnchorageError(CHECKPOINT_DAMAGED, f"{path}: its bytes are not those that were written")
        state = {name.removeprefix(_STATE): array for name, array in stored.arrays.items()}
        return Checkpoint(record, stored.model, state)


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read that it is a checkpoint."""
    try:
        yield
    except AnchorageError as error:
        raise AnchorageError(CHECKPOINT_DAMAGED, error.message) from error
    except (ValueError, KeyError, TypeError) as error:
        raise AnchorageError(CHECKPOINT_DAMAGED, f"{path}: {error}") from error


def digest_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return BLAKE3 over the names and bytes of arrays, hex."""
    digest = blake3()
    for name in sorted(arrays):
        digest.update(name.encode()).update(arrays[name].tobytes())
    return digest.hexdigest()
