"""Images of one section that are, or look like, images of another one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

HASHED_SIZE = 17
"""Height and width of the grey pixels that `appearance` looks at."""
NEAR_BITS = 12
"""Images of which at most so many of 256 bits differ look the same.

Measured on 3,000 dermoscopy images of ISIC 2018 (4.5 million pairs): none of different lesions is so near (two are at 20 bits), while grey
copies differ by 0 bits, 99 % of copies of half the size by up to 12, and most copies of JPEG quality 60 by 7.
"""
LEVEL_BINS = 16
"""Ranges of grey levels that are counted."""
_ROWS_AT_ONCE = 256


def appearance(pixels: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a perceptual hash (dHash), uint64 [4]: for each of 16×16 places whether it is brighter than its left neighbour.

    Parameters
    ----------
    pixels : ndarray of uint8, shape [1, HASHED_SIZE, HASHED_SIZE]
        A grey image.
    """
    brighter = pixels[0, :-1, 1:] > pixels[0, :-1, :-1]
    return np.packbits(brighter).view(np.uint64)


def level_shares(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the share of a grey image's pixels in each of `LEVEL_BINS` equal ranges from black to white, float64 [LEVEL_BINS].

    Black pixels, such as those of padding and air, do not count; an image that is black alone has none.
    """
    counts = np.bincount(pixels[pixels > 0] // (256 // LEVEL_BINS), minlength=LEVEL_BINS)
    return counts / max(int(counts.sum()), 1)


@dataclass(frozen=True, eq=False, slots=True)
class Contents:
    """What is compared of a section's images; row i of everything is image i."""

    ids: tuple[str, ...]
    """Their names."""
    groups: tuple[str, ...]
    """Patient or lesion; the image's own name where none is known."""
    digests: NDArray[np.uint64]
    """Of their files, shape [n]."""
    appearances: NDArray[np.uint64]
    """As `appearance` returns them, shape [n, 4]."""
    levels: NDArray[np.float64]
    """Mean over the images of what `level_shares` returns, shape [LEVEL_BINS]: every image weighs the same."""

    @classmethod
    def of(
        cls,
        ids: tuple[str, ...],
        groups: tuple[str, ...],
        digests: NDArray[np.uint64],
        images: Sequence[tuple[NDArray[np.uint64], NDArray[np.float64]]],
    ) -> Self:
        """Return what is compared of images, each of which has an `appearance` and `level_shares`."""
        appearances = np.array([hashed for hashed, _ in images], np.uint64).reshape(-1, 4)
        levels = np.array([shares for _, shares in images]).reshape(-1, LEVEL_BINS)
        return cls(ids, groups, digests, appearances, levels.sum(0) / max(len(images), 1))

    def common_levels(self, other: "Contents") -> float:
        """Return the area that two histograms of grey levels have in common, from 0 to 1."""
        return float(np.minimum(self.levels, other.levels).sum())

    def named_groups(self) -> set[str]:
        """Return the patients or lesions that a table names."""
        return {group for group, name in zip(self.groups, self.ids, strict=True) if group != name}


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two sections have in common."""

    identical: tuple[tuple[str, str], ...]
    """Pairs of names of equal files."""
    near: tuple[tuple[str, str], ...]
    """Pairs of names of images that look the same, but are different files; at most one for each image of the first section."""
    groups: tuple[str, ...]
    """Names of patients or lesions that are in both; at different sites the names may agree by chance."""

    def __bool__(self) -> bool:
        return bool(self.identical or self.near or self.groups)

    def as_document(self) -> dict[str, Any]:
        """Return plain values."""
        pairs = {"identical": self.identical, "near": self.near}
        return {
            **{name: [list(pair) for pair in image_pairs] for name, image_pairs in pairs.items()},
            "groups": list(self.groups),
        }


def overlap(one: Contents, other: Contents) -> Overlap:
    """Compare two sections' images."""
    first = {digest: row for row, digest in reversed(list(enumerate(other.digests.tolist())))}
    rows = [(row, first[digest]) for row, digest in enumerate(one.digests.tolist()) if digest in first]
    same = {row for row, _ in rows}
    identical = tuple((one.ids[row], other.ids[match]) for row, match in rows)
    near = tuple((one.ids[row], other.ids[match]) for row, match in _near(one, other) if row not in same)
    return Overlap(identical, near, tuple(sorted(one.named_groups() & other.named_groups())))


def _near(one: Contents, other: Contents) -> Iterator[tuple[int, int]]:
    """Yield each image of the first section that looks like one of the other, with the one that it is most like."""
    if not len(other.appearances):
        return
    for start in range(0, len(one.appearances), _ROWS_AT_ONCE):
        part = one.appearances[start : start + _ROWS_AT_ONCE]
        differing = sum(
            np.bitwise_count(part[:, None, word] ^ other.appearances[None, :, word]).astype(np.int16)
            for word in range(4)
        )
        nearest = np.asarray(differing).argmin(1)
        for row, match in enumerate(nearest):
            if differing[row, match] <= NEAR_BITS:
                yield start + row, int(match)
