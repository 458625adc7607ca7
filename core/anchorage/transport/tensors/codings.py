"""How the numbers of an update are written in fewer bits: each coding turns the change of some numbers into bytes and back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_LEAST, _MOST = -120, 100
"""Exponents of scales, as 8 bits say them from 0 on; a change that needs a larger one, or is not finite, has its chunk travel as it is."""

_PAGE = 1 << 16
"""Numbers whose places 16 bits say."""


@dataclass(frozen=True, kw_only=True)
class Coding(ABC):
    """How the change of numbers is written; stateless, and what was written and read once is written alike again."""

    feedback: bool = False
    """Error feedback: whether a silo keeps what its change lost, and adds it to its next one."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What becomes of an update's changes, for a hospital that reviews a run."""

    def chosen(self, update: Floats, base: Floats) -> NDArray[np.bool_] | None:
        """Return which numbers of a tensor, float32 [n], are sent; None: all."""
        return None

    @abstractmethod
    def encode(self, update: Floats, base: Floats) -> bytes | None:
        """Return what stands for the change of numbers; None where it is not finite, or too large."""

    @abstractmethod
    def decode(self, data: bytes, start: int, base: Floats, update: Floats) -> int:
        """Write the numbers that bytes stand for.

        Parameters
        ----------
        data : bytes
            What was encoded begins at its byte `start`.
        start : int
            From 0 to the length of `data`.
        base : ndarray of float32, shape [n]
            What the change is of.
        update : ndarray of float32, shape [n]
            Gets the numbers.

        Returns
        -------
        int
            The byte after the last one read.

        Raises
        ------
        ValueError
            The bytes end too early, or no coding writes them.
        """


@dataclass(frozen=True, kw_only=True)
class BFloat16Coding(Coding):
    """Changes as bfloat16, rounded to nearest, ties to even."""

    @property
    def words(self) -> str:
        """What becomes of an update's changes."""
        return "changes rounded to 16 bits"

    def encode(self, update: Floats, base: Floats) -> bytes | None:
        """Return 2 bytes for each number."""
        bits = (update - base).view(np.uint32)
        if (bits & 0x7FFFFFFF).max(initial=0) >= 0x7F7F8000:  # not finite, or would become so
            return None
        return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2").tobytes()

    def decode(self, data: bytes, start: int, base: Floats, update: Floats) -> int:
        """Write the numbers that bytes stand for."""
        bits = np.frombuffer(data, "<u2", len(update), start).astype(np.uint32)
        bits <<= 16
        np.add(bits.view(np.float32), base, out=update)
        return start + 2 * len(update)


@dataclass(frozen=True, kw_only=True)
class BlockCoding(Coding):
    """Changes in steps of a scale, a power of two, that a block of numbers has in common."""

    bits: Literal[4, 8]
    """Of each step, a signed integer; two of 4 bits share a byte, the first in its lower half."""

    @property
    def words(self) -> str:
        """What becomes of an update's changes."""
        return f"changes rounded to {self.bits} bits"

    @property
    def block(self) -> int:
        """Numbers that have one scale."""
        return 256 if self.bits == 8 else 64

    @property
    def _most(self) -> int:
        return (1 << (self.bits - 1)) - 1

    def encode(self, update: Floats, base: Floats) -> bytes | None:
        """Return the exponent of every block's scale, and the changes in steps of it, from -127 to 127, or -7 to 7.

        A block's largest change is 63.6 to 127.25 steps, or 3.6 to 7.25: once rounded it has the same scale. No step is finer than the update's own
        numbers, else a rounded update would not be rounded to itself.
        """
        change = update - base
        size, largest = self._largest(update), self._largest(change)
        if not (np.isfinite(largest).all() and np.isfinite(size).all()):
            return None
        exponent = np.maximum(_exponents(largest / np.float32(self._most + 0.25)), _exponents(size) - 21)
        exponent = np.maximum(exponent, _LEAST)
        if exponent.max(initial=_LEAST) > _MOST:
            return None
        self._scale(change, np.ldexp(np.float32(1), -exponent), change)
        np.rint(change, out=change)
        np.clip(change, -self._most, self._most, out=change)
        steps = change.astype(np.int8)
        return (exponent - _LEAST).astype(np.uint8).tobytes() + (_pair(steps) if self.bits == 4 else steps).tobytes()

    def decode(self, data: bytes, start: int, base: Floats, update: Floats) -> int:
        """Write the numbers that bytes stand for."""
        count = len(update)
        blocks, nbytes = -(-count // self.block), -(-count * self.bits // 8)
        exponent = np.frombuffer(data, np.uint8, blocks, start).astype(np.int32) + _LEAST
        if exponent.max(initial=_LEAST) > _MOST:
            raise ValueError(f"a scale of 2 to the power of {exponent.max()}")
        steps = np.frombuffer(data, np.int8, nbytes, start + blocks)
        if self.bits == 4:
            steps = _apart(steps)[:count]
        self._scale(steps, np.ldexp(np.float32(1), exponent), update)
        update += base
        return start + blocks + nbytes

    def _largest(self, numbers: Floats) -> Floats:
        """Return every block's largest absolute value; NaN where there is one."""
        largest: Floats = np.maximum.reduceat(np.abs(numbers), np.arange(0, len(numbers), self.block))
        return largest

    def _scale(self, numbers: Floats | NDArray[np.int8], scales: Floats, out: Floats) -> None:
        """Multiply every block by its scale."""
        rest = len(numbers) % self.block
        whole_blocks = len(numbers) - rest
        blocks = (-1, self.block)
        np.multiply(
            numbers[:whole_blocks].reshape(blocks),
            scales[: whole_blocks // self.block, None],
            out=out[:whole_blocks].reshape(blocks),
        )
        np.multiply(numbers[whole_blocks:], scales[-1:], out=out[whole_blocks:])


@dataclass(frozen=True, kw_only=True)
class TopCoding(Coding):
    """The largest changes of every tensor alone: where they are, and the numbers that they lead to, which arrive to the bit."""

    share: Fraction
    """Of a tensor's numbers, rounded up to a whole number of them; above 0 and below 1."""

    @property
    def words(self) -> str:
        """What becomes of an update's changes."""
        return f"the largest {float(self.share):.3g} of every tensor's changes"

    def chosen(self, update: Floats, base: Floats) -> NDArray[np.bool_] | None:
        """Return the largest changes; of equal ones the first. A tensor that is not finite is sent as it is."""
        with np.errstate(invalid="ignore"):
            change = np.abs(update - base)
        if not np.isfinite(change).all():
            return None
        count = ceil(self.share * len(change))
        least = np.partition(change, -count)[-count]
        chosen: NDArray[np.bool_] = change > least
        chosen[np.flatnonzero(change == least)[: count - np.count_nonzero(chosen)]] = True
        chosen &= change > 0
        return chosen

    def encode(self, update: Floats, base: Floats) -> bytes:
        """Return how many numbers of each `_PAGE` changed (uint32), where in it they are (uint16, ascending), and what they are (float32)."""
        places = np.flatnonzero(update.view(np.uint32) != base.view(np.uint32))
        counts = np.bincount(places // _PAGE, minlength=-(-len(update) // _PAGE))
        return counts.astype("<u4").tobytes() + (places % _PAGE).astype("<u2").tobytes() + update[places].tobytes()

    def decode(self, data: bytes, start: int, base: Floats, update: Floats) -> int:
        """Write the numbers that bytes stand for."""
        pages = -(-len(update) // _PAGE)
        counts = np.frombuffer(data, "<u4", pages, start).astype(np.int64)
        if (counts > _PAGE).any():
            raise ValueError(f"{counts.max()} of {_PAGE} numbers")
        count, start = int(counts.sum()), start + 4 * pages
        places = np.frombuffer(data, "<u2", count, start) + np.repeat(np.arange(pages) * _PAGE, counts)
        if (np.diff(places) <= 0).any() or places.max(initial=0) >= len(update):
            raise ValueError("places that do not ascend, or beyond the last number")
        update[:] = base
        update[places] = np.frombuffer(data, np.float32, count, start + 2 * count)
        return start + 6 * count


def _pair(steps: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return two steps of 4 bits in each byte, the first in its lower half; a last one alone has a zero beside it."""
    if len(steps) % 2:
        steps = np.append(steps, np.int8(0))
    pairs = steps.view("<u2")
    return ((pairs & 0x0F) | ((pairs >> 4) & 0xF0)).astype(np.uint8)


def _apart(pairs: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the steps that `_pair` put together."""
    halves = pairs.view(np.uint8).astype("<u2")
    halves = (halves & 0x0F) | ((halves & 0xF0) << 4)
    return (halves ^ 0x0808).view(np.int8) - np.int8(8)  # 8 to 15 are the steps from -8 to -1


def _exponents(numbers: Floats) -> NDArray[np.int32]:
    """Return the least e for which 2**e is not below each number; `_LEAST` for 0."""
    mantissa, exponent = np.frexp(numbers)
    return np.where(numbers > 0, exponent - (mantissa == 0.5), _LEAST).astype(np.int32)
