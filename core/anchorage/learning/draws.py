"""The generators of one party in one round (methods reference, section 1)."""

from dataclasses import dataclass

import numpy as np
import torch

from anchorage.learning.randomness import generator, seed_of


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
    """

    seed: int
    round: int = 0
    silo: str = ""
    repetition: int = 0

    def numpy(self, purpose: str) -> np.random.Generator:
        """Return a numpy generator."""
        return generator(self.seed, purpose, self.round, self._whose)

    def torch(self, purpose: str) -> torch.Generator:
        """Return a torch generator on the CPU, whose draws are the same for every device."""
        return torch.Generator().manual_seed(seed_of(self.seed, purpose, self.round, self._whose))

    @property
    def _whose(self) -> str:
        return f"{self.silo}\x1f{self.repetition}" if self.repetition else self.silo
