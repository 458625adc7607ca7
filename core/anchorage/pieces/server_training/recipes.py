"""In which ways images without labels may count to the class moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anchorage.transport.tensors.layout import MOMENTS

Part = Literal["counts", "sums", "seconds"]
"""Tensors of moments (`anchorage.algorithms.moments.Moments`)."""
PARTS: tuple[Part, ...] = ("counts", "sums", "seconds")
Shares = Literal["Stated", "Estimated", "Measured"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to count images without labels."""

    shares: Shares | None = None
    """Class shares that guesses are corrected to; None: images without labels do not count."""
    temperature: float = 1.0
    """What log densities are divided by before they guess."""
    name: str = ""
    """Its name among several; empty where it is the only one."""

    def tensor(self, part: Part) -> str:
        """Return the name of one of its tensors; recipes that guess count the same images, so they share second moments."""
        group = "guesses" if part == "seconds" and self.shares else self.name
        return MOMENTS + (f"{group}.{part}" if self.name else part)


LABELS_ALONE = Recipe(name="labels")
_EVERY: tuple[Shares, ...] = ("Stated", "Estimated", "Measured")
SEVERAL = (
    LABELS_ALONE,
    *(
        Recipe(shares, temperature, f"{shares.lower()}{temperature:.0f}")
        for shares in _EVERY
        for temperature in (1.0, 2.0, 3.0)
    ),
)
"""What `guesses: Auto` compares: the labels alone, and every kind of shares at three temperatures."""
