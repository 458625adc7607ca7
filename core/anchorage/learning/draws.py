"""The generators of one party in one round (methods reference, section 1), and how far training has come in them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from anchorage.learning.randomness import generator, seed_of

T = TypeVar("T")
G = TypeVar("G", torch.Generator, np.random.Generator)

_BEHIND = "batches/"
_GENERATOR = "generator/"


class Place:
    """Where a round's training stands in its images and generators, so that another process can go on from there.

    Losses whose `Work.resumes` is true take every batch and every draw between steps through it.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        What `arrays` returned; empty at a round's start.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._states = {n.removeprefix(_GENERATOR): a for n, a in arrays.items() if n.startswith(_GENERATOR)}
        self.begun = Counter({n.removeprefix(_BEHIND): int(a) for n, a in arrays.items() if n.startswith(_BEHIND)})
        """Batches by stream that another process has taken."""
        self.behind = Counter(self.begun)
        """Batches by stream that have been taken."""
        self._ahead: dict[str, int] = {}
        self._tracked: dict[str, torch.Generator | np.random.Generator] = {}

    def rest(self, stream: str, batches: Iterator[T]) -> Iterator[T]:
        """Leave out those of all batches of a round that another process has taken."""
        return islice(batches, self.begun[stream], None)

    def take(self, stream: str, ahead: int = 0) -> None:
        """Note that one more batch is trained on; `ahead` more are drawn already, so that training cannot go on from here elsewhere."""
        self.behind[stream] += 1
        self._ahead[stream] = ahead

    def track(self, purpose: str, drawn: G) -> G:
        """Return a generator, as it stood where training goes on; each purpose once a round."""
        state = self._states.get(purpose)
        if state is not None and isinstance(drawn, torch.Generator):
            drawn.set_state(torch.from_numpy(state.copy()))
        elif state is not None:
            drawn.bit_generator.state = json.loads(state.tobytes())
        self._tracked[purpose] = drawn
        return drawn

    @property
    def complete(self) -> bool:
        """Whether `arrays` says all: nothing is drawn ahead."""
        return not any(self._ahead.values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return batches that are behind, int64 [], and states of generators, uint8 [n], by name."""
        arrays: dict[str, NDArray[Any]] = {_BEHIND + name: np.array(n) for name, n in self.behind.items()}
        for name, drawn in self._tracked.items():
            if isinstance(drawn, torch.Generator):
                state = drawn.get_state().numpy()
            else:
                state = np.frombuffer(json.dumps(drawn.bit_generator.state).encode(), np.uint8)
            arrays[_GENERATOR + name] = state
        return arrays


@dataclass(frozen=True, slots=True)
class Draws:
    """Gives a generator per purpose, whatever else was drawn.

    Parameters
    ----------
    seed : int
        The run's seed.
    round : int
        The round; 0 for what is drawn once per run.
    silo : str
        The silo's name, empty at the server.
    repetition : int
        Which time it is that the silo trains in this round, from 0.
    place : Place, optional
        How far the round's training has come; at its start.
    """

    seed: int
    round: int = 0
    silo: str = ""
    repetition: int = 0
    place: Place = field(default_factory=lambda: Place({}), compare=False)

    def numpy(self, purpose: str) -> np.random.Generator:
        """Return a numpy generator."""
        return generator(self.seed, purpose, self.round, self._whose)

    def torch(self, purpose: str) -> torch.Generator:
        """Return a torch generator on the CPU, whose draws are the same for every device."""
        return torch.Generator().manual_seed(seed_of(self.seed, purpose, self.round, self._whose))

    @property
    def _whose(self) -> str:
        return f"{self.silo}\x1f{self.repetition}" if self.repetition else self.silo
