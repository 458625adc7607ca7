"""Checkpoints: one safetensors file per committed round that is kept, written over the file that fell out (half the time of a new one)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import CHECKPOINT_DAMAGED, FOREIGN_CHECKPOINT
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import Checkpoint, RoundRecord, ServerLearner
from anchorage.transport.files import partial_path, sync
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import (
    read_description,
    read_safetensors,
    write_safetensors,
)
from anchorage_server.models import checkpoint_name

FORMAT = "anchorage-checkpoint-1"
_STATE = "method_state/"
"""Prefix of the method's arrays, which no tensor of a model carries."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose checkpoints these are.

    Parameters
    ----------
    federation, method : str
        Their names.
    layout : Layout
        The model's tensors.
    warm_up : tuple of int, str and Layout
        Last round, method and model of the stages before.
    stages : str
        Digest of all that these stages do; empty where there are none.
    """

    federation: str
    method: str
    layout: Layout
    warm_up: tuple[tuple[int, str, Layout], ...] = ()
    stages: str = ""

    def at(self, round_number: int) -> "Identity":
        """Return whose the checkpoint of a round is: its stage's."""
        for last, method, layout in self.warm_up:
            if round_number <= last:
                return Identity(self.federation, method, layout, stages=self.stages)
        return self

    def metadata(self) -> dict[str, str]:
        """Return what every file of this run says of itself."""
        own = {"federation": self.federation, "method": self.method, "layout": self.layout.digest}
        return {"format": FORMAT, **own, "warmUp": self.stages}


def identity_of(run: RunDescription, learners: Sequence[ServerLearner]) -> Identity:
    """Return whose the checkpoints of a run are, from its description and the learner of every stage."""
    stages = zip(run.warm_up, learners[:-1], strict=True)
    warm_up = tuple((stage.last, stage.method.name, learner.down) for stage, learner in stages)
    texts = "".join(stage.model_dump_json() for stage in run.warm_up)
    digest = blake3(texts.encode()).hexdigest() if texts else ""
    return Identity(run.federation, run.method.name, learners[-1].down, warm_up, digest)


class Checkpoints:
    """The folder of checkpoints.

    Parameters
    ----------
    folder : Path
        Must exist and belong to this process alone.
    identity : Identity
        Whose checkpoints these are.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = folder
        self._identity = identity
        self._spare = folder / "spare"

    def path(self, round_number: int) -> Path:
        """Return where a round's checkpoint lies or would lie."""
        return self._folder / checkpoint_name(round_number)

    def write(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Write a round's checkpoint; when this returns it is on disk.

        Raises
        ------
        OSError
            The disk is full or not writable; every other checkpoint is as before.
        """
        path = self.path(record.round)
        if self._spare.exists():
            self._spare.replace(partial_path(path))
        arrays = {_STATE + name: array for name, array in state.items()}
        own = {"round": str(record.round), "digest": record.digest, "state": _digest(arrays)}
        write_safetensors(
            path, model, arrays=arrays, metadata={**self._identity.at(record.round).metadata(), **own}, sync=True
        )
        sync(self._folder)

    def retain(self, rounds: Collection[int]) -> None:
        """Keep the checkpoints of these rounds; one of the others is written over next time.

        Raises
        ------
        OSError
            The folder is not writable.
        """
        kept = {self.path(number) for number in rounds}
        for path in self._folder.glob("round-*"):
            if path not in kept:
                path.replace(self._spare)

    def recognise(self, record: RoundRecord) -> None:
        """See that a round's checkpoint is of this run.

        Raises
        ------
        AnchorageError
            It is missing, damaged, or of another federation, method or model.
        """
        path = self.path(record.round)
        with _damage():
            _, metadata = read_description(path)
        for name, expected in self._identity.at(record.round).metadata().items():
            found = metadata.get(name, "")
            if found != expected:
                message = f"{path} has the {name} {found[:40]!r}, this run {expected[:40]!r}; use another state folder"
                raise AnchorageError(FOREIGN_CHECKPOINT, message)

    def read(self, record: RoundRecord) -> Checkpoint:
        """Read a round's checkpoint and check every byte of it.

        Raises
        ------
        AnchorageError
            It is missing or damaged.
        """
        path = self.path(record.round)
        with _damage():
            stored = read_safetensors(path, self._identity.at(record.round).layout)
        if stored.model.digest != record.digest or stored.metadata.get("state") != _digest(stored.arrays):
            raise AnchorageError(CHECKPOINT_DAMAGED, f"{path}: its bytes are not those that were written")
        state = {name.removeprefix(_STATE): array for name, array in stored.arrays.items()}
        return Checkpoint(record, stored.model, state)


@contextmanager
def _damage() -> Iterator[None]:
    """Say of a file that cannot be read that it is a checkpoint."""
    try:
        yield
    except AnchorageError as error:
        raise AnchorageError(CHECKPOINT_DAMAGED, error.message) from error


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return BLAKE3 of arrays with their names, hex."""
    digest = blake3()
    for name in sorted(arrays):
        digest.update(name.encode()).update(arrays[name].tobytes())
    return digest.hexdigest()
