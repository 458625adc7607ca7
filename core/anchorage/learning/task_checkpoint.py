"""Checkpoints inside a task: a trainer that is killed goes on where it stood up to half a minute ago, and ends in the same bytes."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError

from anchorage.learning.draws import Place
from anchorage.learning.network import Network
from anchorage.learning.optimiser_state import put_back
from anchorage.learning.round_state import digest_of, read_checked, write_checked
from anchorage.learning.silo_round import Work
from anchorage.learning.stepping import TrainingProgress
from anchorage.transport.files import replacing
from anchorage.transport.messages import Task

Arrays = Mapping[str, NDArray[Any]]

_log = logging.getLogger(__name__)

_SHARE = 0.02
"""Largest share of the time that writing takes."""

_NETWORK, _OPTIMISER, _PLACE, _STATE = "network/", "optimiser/", "place/", "state/"


@dataclass(frozen=True)
class Checkpointing:
    """How often a task's training is kept; one that is shorter is not kept at all."""

    seconds: float = 30.0
    """Time between two checkpoints; longer where one takes more than a fiftieth of it."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""


class TaskCheckpoint:
    """The training of one task in one file, replaced as it goes on.

    Parameters
    ----------
    path : Path
        The file; its folder is made when it is needed.
    task : Task
        The task.
    begins_from : callable
        Returns all that decides the bits beside task and model: auxiliary data, what the silo kept, its images. A file of others is left aside.
    device : torch.device
        Where it trains.
    how : Checkpointing or None
        How often; None: never.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        begins_from: Callable[[], Sequence[Arrays]],
        device: torch.device,
        how: Checkpointing | None,
    ) -> None:
        self._path, self._task, self._begins_from, self._device = path, task.id, begins_from, device
        self._model, self._repetition = task.model.digest, task.repetition
        self._clock, self._seconds = (time.monotonic, math.inf) if how is None else (how.clock, how.seconds)
        self._next = self._clock() + self._seconds
        self._stored_arrays: Arrays = {}
        if how is not None and path.exists():
            try:
                self._stored_arrays = read_checked(path, self._terms)
            except (OSError, SafetensorError) as error:
                _log.warning("%s: %s, or is of another task; task %s begins at its first step", path, error, task.id)
        self.place = Place(self._part(_PLACE))

    @cached_property
    def _terms(self) -> str:
        arrays = (digest_of(each) for each in self._begins_from())
        return "|".join([self._task, self._model, str(self._repetition), torch.__version__, self._device.type, *arrays])

    def _part(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {name.removeprefix(prefix): a for name, a in self._stored_arrays.items() if name.startswith(prefix)}

    def restore(self, network: Network, optimiser: torch.optim.Optimizer, work: Work) -> TrainingProgress:
        """Put back what was kept, where something was; return what the steps so far come to."""
        if not self._stored_arrays:
            return TrainingProgress()
        with torch.no_grad():
            network_state = network.state_dict()
            for name, array in self._part(_NETWORK).items():
                network_state[name].copy_(torch.from_numpy(array))
        memory: dict[int, dict[str, torch.Tensor]] = {}
        for name, array in self._part(_OPTIMISER).items():
            index, _, key = name.partition("/")
            memory.setdefault(int(index), {})[key] = torch.from_numpy(array)
        put_back(optimiser, memory)
        if work.state is not None:
            work.state.restore(self._part(_STATE), network.device)
        progress = TrainingProgress(float(self._stored_arrays["total"]), *map(int, self._stored_arrays["counts"]))
        self._stored_arrays = {}
        _log.warning("task %s goes on after step %d, where its trainer ended", self._task, progress.steps)
        return progress

    def step(
        self, network: Network, optimiser: torch.optim.Optimizer, work: Work, progress: TrainingProgress, resumes: bool
    ) -> None:
        """Keep the training after a step, where it is time and nothing is drawn ahead. A disk that is full costs the checkpoint, not the task."""
        if self._clock() < self._next or (resumes and not self.place.complete):
            return
        if not resumes:
            self._next = math.inf
            _log.warning("task %s is not kept: its method begins a task that is cut off anew", self._task)
            return
        began = self._clock()
        frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
        tensors = {_NETWORK + name: t for name, t in network.state_dict().items() if name not in frozen}
        for index, memory in optimiser.state_dict()["state"].items():
            tensors |= {f"{_OPTIMISER}{index}/{key}": t for key, t in memory.items() if t is not None}
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        arrays |= {_PLACE + name: array for name, array in self.place.arrays().items()}
        arrays |= {_STATE + name: array for name, array in (work.state.arrays() if work.state else {}).items()}
        arrays |= {"total": np.array(float(progress.total)), "counts": np.array([progress.losses, progress.steps])}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as partial:
                write_checked(partial, arrays, self._terms)
        except (OSError, SafetensorError) as error:
            _log.warning("task %s is not kept: %s: %s", self._task, self._path, error)
        now = self._clock()
        self._next = now + max(self._seconds, (now - began) / _SHARE)

    def forget(self) -> None:
        """Remove the file: the task is done."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s: %s", self._path, error)
