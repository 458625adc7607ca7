"""Round stores of simulations: in memory, and in a folder from which a killed simulation goes on."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import NOT_WRITABLE
from anchorage.engine.interfaces import Checkpoint, RoundRecord, SpooledUpdate
from anchorage.engine.records import record_from_json, record_to_json
from anchorage.simulation.buffers import HeldUpdate, SpareUpdates
from anchorage.transport.files import partial_path
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import (
    read_description,
    read_safetensors,
    write_safetensors,
)

_STATE = "method_state/"
"""Prefix of the method's arrays, which no tensor of a model carries."""


class MemoryStore:
    """`RoundStore` in memory: it survives an engine, not a process. A silo has at most one open update, and one in the community.

    Parameters
    ----------
    spare : SpareUpdates, optional
        Gets the memory of updates that are not needed any more.
    """

    def __init__(self, spare: SpareUpdates | None = None) -> None:
        self._spare = spare or SpareUpdates()
        self._latest: Checkpoint | None = None
        self._history: list[RoundRecord] = []
        self._open: dict[str, tuple[int, Announcement, HeldUpdate]] = {}
        self._kept: dict[int, set[str]] = {}
        self._contributions: dict[str, tuple[float, HeldUpdate]] = {}

    def latest(self) -> Checkpoint | None:
        """Return the last committed round, None in a new run."""
        return self._latest

    def history(self) -> Sequence[RoundRecord]:
        """Return every committed round, ascending."""
        return tuple(self._history)

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Keep a round."""
        self._latest = Checkpoint(record, model, dict(state))
        self._history.append(record)

    def spool(self, silo: str, round_number: int, announcement: Announcement) -> SpooledUpdate:
        """Open the place where an announced update arrives; the same one again for the same announcement.

        Raises
        ------
        ValueError
            The announcement has no update.
        """
        if announcement.update is None:
            raise ValueError(f"{silo} announced no update")
        opened = self._open.get(silo)
        if opened is not None and opened[0] == round_number and opened[2].manifest == announcement.update:
            return opened[2]
        self._give_up(silo)
        self._open[silo] = (round_number, announcement, HeldUpdate(announcement.update))
        return self._open[silo][2]

    def keep(self, silo: str, round_number: int, announcement: Announcement) -> None:
        """Note that an update is whole."""
        self._kept.setdefault(round_number, set()).add(silo)

    def kept(self, round_number: int) -> Mapping[str, tuple[Announcement, SpooledUpdate]]:
        """Return the whole updates of an open round."""
        return {silo: self._open[silo][1:] for silo in self._kept.get(round_number, ())}

    def release(self, round_number: int) -> None:
        """Forget the updates of a round."""
        for silo in [silo for silo, opened in self._open.items() if opened[0] == round_number]:
            self._give_up(silo)

    def contribute(self, silo: str, round_number: int, weight: float) -> None:
        """Make a silo's whole update its contribution."""
        before = self._contributions.get(silo)
        self._contributions[silo] = (weight, self._open.pop(silo)[2])
        self._kept.get(round_number, set()).discard(silo)
        if before is not None:
            self._spare.give(before[1].release())

    def contributions(self) -> Mapping[str, tuple[float, SpooledUpdate]]:
        """Return weight and update of every silo in the community."""
        return dict(self._contributions)

    def _give_up(self, silo: str) -> None:
        """Forget a silo's open update."""
        if silo in self._open:
            number, _, update = self._open.pop(silo)
            self._spare.give(update.release())
            kept = self._kept.get(number, set())
            kept.discard(silo)
            if not kept:
                self._kept.pop(number, None)


class FolderStore(MemoryStore):
    """A `MemoryStore` whose last committed round is found again by the next process: the model in ``model.safetensors``, which names its round,
    and a line in ``rounds.jsonl`` for every round before it.

    Files are not flushed to the device: a killed process loses at most the round that it was writing, a power cut may cost the seed.

    Parameters
    ----------
    folder : Path
        Made where it is missing. What another run or layout left in it is not looked at.
    run : str
        What the rounds depend on.
    layouts : callable
        Returns the model's tensors after a round.
    spare : SpareUpdates, optional
        As in `MemoryStore`.

    Raises
    ------
    AnchorageError
        The folder cannot be made.
    """

    def __init__(
        self, folder: Path, run: str, layouts: Callable[[int], Layout], spare: SpareUpdates | None = None
    ) -> None:
        super().__init__(spare)
        self._folder, self._run = folder, run
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        for path in (self._model, self._spare_model):
            with suppress(AnchorageError, OSError, ValueError, KeyError, TypeError):  # nothing, or nothing of use
                self._read(path, layouts)
                break

    def commit(self, record: RoundRecord, model: ModelBytes, state: Mapping[str, NDArray[Any]]) -> None:
        """Keep a round, and let the next process find it.

        Raises
        ------
        AnchorageError
            The disk is full or not writable; the round before is found.
        """
        arrays = {_STATE + name: array for name, array in state.items()}
        line = json.dumps(record_to_json(record))
        try:
            with self._rounds.open("a" if self._history else "w") as rounds:
                rounds.write(line + "\n")
            if self._spare_model.exists():  # written over: half the time of a new file
                self._spare_model.replace(partial_path(self._model))
            if self._model.exists():
                self._model.replace(self._spare_model)
            metadata = {"run": self._run, "record": line, "state": digest_of(arrays)}
            write_safetensors(self._model, model, arrays=arrays, metadata=metadata)
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        super().commit(record, model, state)

    @property
    def _rounds(self) -> Path:
        return self._folder / "rounds.jsonl"

    @property
    def _model(self) -> Path:
        return self._folder / "model.safetensors"

    @property
    def _spare_model(self) -> Path:
        """The round before's, and all that there is while the next one is written."""
        return self._folder / "before.safetensors"

    def _read(self, path: Path, layouts: Callable[[int], Layout]) -> None:
        _, metadata = read_description(path)
        record = record_from_json(json.loads(metadata["record"]))
        stored = read_safetensors(path, layouts(record.round))
        if metadata["run"] != self._run or stored.model.digest != record.digest:
            raise ValueError("another run's, or damaged")
        if metadata["state"] != digest_of(stored.arrays):
            raise ValueError("damaged")
        lines = self._rounds.read_bytes().splitlines(keepends=True)[: record.round]
        before = [record_from_json(json.loads(line)) for line in lines]
        if [entry.round for entry in before] != list(range(record.round)):
            raise ValueError("rounds are missing")
        self._rounds.write_bytes(b"".join(lines) + json.dumps(record_to_json(record)).encode() + b"\n")
        state = {name.removeprefix(_STATE): array for name, array in stored.arrays.items()}
        self._latest, self._history = Checkpoint(record, stored.model, state), [*before, record]


def digest_of(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return BLAKE3 over names and bytes, hex."""
    digest = blake3()
    for name in sorted(arrays):
        digest.update(name.encode()).update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _unwritable(folder: Path, error: OSError) -> AnchorageError:
    return AnchorageError(NOT_WRITABLE, f"{folder}: {error.strerror or error}; name another --workdir, or free space")
