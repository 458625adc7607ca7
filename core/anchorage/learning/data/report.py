"""What was found in a data section, good and bad."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.labels import as_integers, is_known
from anchorage.learning.data.listing import BadImage, Listing


@dataclass(frozen=True, slots=True)
class DataReport:
    """Findings of `anchorage.learning.data.check`; images that are bad count nowhere else.

    Parameters
    ----------
    listed : int
        Images that the section means.
    strata : tuple of str
        Names of the groups that splits keep even, such as classes.
    counts : tuple of int
        Images of each.
    unlabelled : int
        Images without a label.
    groups : int
        Different lesions or patients.
    sizes, modes : mapping of str to int
        Images of each size (``600×450``, width first) and pixel format (Pillow's names), the most frequent first.
    bad : tuple of BadImage
        What cannot be used, and why.
    duplicates : tuple of tuple of str
        Images whose files are equal byte for byte.
    conflicts : tuple of tuple of str
        Those of them that have different labels.
    windows : mapping of str to int
        Grey images of more than 8 bits by the range of values that became 0 to 255 (``0-4095``), the most frequent first.
    paged : tuple of str
        Images whose files hold more pages or frames, of which the first counts.
    not_images, not_listed
        As in `Listing`: what lies in the pool's folder and is not counted.
    """

    listed: int
    strata: tuple[str, ...]
    counts: tuple[int, ...]
    unlabelled: int
    groups: int
    sizes: dict[str, int]
    modes: dict[str, int]
    bad: tuple[BadImage, ...]
    duplicates: tuple[tuple[str, ...], ...]
    conflicts: tuple[tuple[str, ...], ...]
    windows: dict[str, int]
    paged: tuple[str, ...]
    not_images: Mapping[str, int]
    not_listed: int

    @property
    def usable(self) -> int:
        """How many images are left."""
        return self.listed - len(self.bad)

    def as_document(self) -> dict[str, Any]:
        """Return plain values with camelCase names, as other documents have."""
        return {
            "listed": self.listed,
            "usable": self.usable,
            "classes": [{"name": name, "images": count} for name, count in zip(self.strata, self.counts, strict=True)],
            "unlabelled": self.unlabelled,
            "groups": self.groups,
            "sizes": self.sizes,
            "modes": self.modes,
            "bad": [{"id": bad.id, "reason": bad.reason, "detail": bad.detail} for bad in self.bad],
            "duplicates": [list(ids) for ids in self.duplicates],
            "conflicts": [list(ids) for ids in self.conflicts],
            "windows": self.windows,
            "paged": list(self.paged),
            "notImages": dict(self.not_images),
            "notListed": self.not_listed,
        }


class Decodable(Protocol):
    """What is counted of an image that can be decoded, as `anchorage.learning.data.decoding.Decoded` says it."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in the file."""

    @property
    def mode(self) -> str:
        """Name of the pixel format in the file."""

    @property
    def digest(self) -> bytes:
        """BLAKE2b of the file's bytes."""

    @property
    def white(self) -> int | None:
        """Value that became white; None where a pixel has no more than 8 bits, or has colour."""

    @property
    def paged(self) -> bool:
        """Whether the file holds more pages or frames."""


class Findings:
    """Gathers a `DataReport` image by image, without holding on to pixels."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._bad: list[BadImage] = []
        self._good: list[int] = []
        self._sizes: Counter[str] = Counter()
        self._modes: Counter[str] = Counter()
        self._windows: Counter[str] = Counter()
        self._paged: list[int] = []
        self._same: dict[bytes, list[int]] = {}

    def add(self, row: int, outcome: Decodable | BadImage) -> None:
        """Count the outcome of one row of the listing."""
        if isinstance(outcome, BadImage):
            self._bad.append(outcome)
            return
        self._good.append(row)
        self._sizes[f"{outcome.size[0]}×{outcome.size[1]}"] += 1
        self._modes[outcome.mode] += 1
        self._windows.update([f"0-{outcome.white}"] if outcome.white else [])
        self._paged += [row] if outcome.paged else []
        self._same.setdefault(outcome.digest, []).append(row)

    @property
    def good(self) -> list[int]:
        """Rows that were decoded, in the order in which they came."""
        return self._good

    def digests(self) -> NDArray[np.uint64]:
        """Return the first 8 bytes of the digest of every good image, shape [n]."""
        of = {row: digest for digest, rows in self._same.items() for row in rows}
        return np.frombuffer(b"".join(of[row][:8] for row in self._good), "<u8")

    def report(self) -> DataReport:
        """Sum up."""
        listing = self._listing
        labels = Counter(int(listing.strata[row]) for row in self._good)
        same = [rows for rows in self._same.values() if len(rows) > 1]
        return DataReport(
            listed=len(listing),
            strata=listing.stratum_names,
            counts=tuple(labels[c] for c in range(len(listing.stratum_names))),
            unlabelled=labels[-1],
            groups=len({listing.groups[row] for row in self._good}),
            sizes=dict(self._sizes.most_common()),
            modes=dict(self._modes.most_common()),
            bad=tuple(self._bad),
            duplicates=self._names(same),
            conflicts=self._names(
                rows for rows in same if _differ(as_integers(listing.labels[rows][is_known(listing.labels[rows])]))
            ),
            windows=dict(self._windows.most_common()),
            paged=tuple(listing.ids[row] for row in self._paged),
            not_images=listing.not_images,
            not_listed=listing.not_listed,
        )

    def _names(self, families: Iterable[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self._listing.ids[row] for row in rows) for rows in families)


def _differ(rows: NDArray[np.uint64]) -> bool:
    return bool((rows != rows[:1]).any())
