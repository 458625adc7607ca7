"""What was found in a data section, good and bad."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.labels import as_integers, is_known
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import NO_FOREGROUND, DecodedMasks


class FindingCount(NamedTuple):
    """Images by what is said of a finding."""

    present: int
    absent: int
    uncertain: int
    unknown: int


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
    bad_rows : tuple of int
        Their places in the listing, from 0.
    duplicates : tuple of tuple of str
        Images whose files are equal byte for byte.
    conflicts : tuple of tuple of str
        Those of them that have different labels.
    windows : mapping of str to int
        Grey images of more than 8 bits by the range of values that became 0 to 255 (``0-4095``), the most frequent first.
    paged : tuple of str
        Images whose files hold more pages or frames, of which the first counts.
    above : mapping of str to float
        Images of which pixels lie above the value that became white, with their share; they are white.
    not_images, not_listed
        As in `Listing`: what lies in the pool's folder and is not counted.
    left_out : mapping of str to tuple of str
        As in `Listing`, with the masks that were seen when images were decoded.
    remarks : tuple of str
        As in `Listing`.
    facts : mapping of str to int
        Images by what their files say of themselves, such as ``modality CT``, the most frequent first.
    findings : mapping of str to FindingCount
        Of each finding, for labels of several per image: how many images have it, and so on; else empty.
    masks : tuple of str
        What the masks of a segmentation show, a sentence for each foreground class.
    """

    listed: int
    strata: tuple[str, ...]
    counts: tuple[int, ...]
    unlabelled: int
    groups: int
    sizes: dict[str, int]
    modes: dict[str, int]
    bad: tuple[BadImage, ...]
    bad_rows: tuple[int, ...]
    duplicates: tuple[tuple[str, ...], ...]
    conflicts: tuple[tuple[str, ...], ...]
    windows: dict[str, int]
    paged: tuple[str, ...]
    above: Mapping[str, float]
    not_images: Mapping[str, int]
    not_listed: int
    left_out: Mapping[str, tuple[str, ...]]
    remarks: tuple[str, ...]
    facts: Mapping[str, int]
    findings: Mapping[str, FindingCount]
    masks: tuple[str, ...] = ()

    @property
    def usable(self) -> int:
        """How many images are left."""
        return self.listed - len(self.bad)

    def all_remarks(self, *, named: bool = True) -> Iterator[str]:
        """Yield what people should know of images that are used, and of what is left out, a sentence each; logs have no names of files."""
        yield from self.remarks
        yield from self._findings(named)

    def redacted_remarks(self) -> Iterator[str]:
        """Yield what may be said of it outside of the site: neither names of files nor of a table's columns."""
        if self.remarks:
            yield f"remarks on the table or the folders: {len(self.remarks)}"
        yield from self._findings(named=False)

    def _findings(self, named: bool) -> Iterator[str]:
        def such_as(*names: str) -> str:
            return f", such as {', '.join(names)}" if named else ""

        for title, families in (
            ("the same image", self.duplicates),
            ("same image, other label", self.conflicts),
        ):
            if families:
                yield f"{title}: {len(families)} times{such_as(*families[0])}"
        for what, names in self.left_out.items():
            yield f"{what}s, left out: {len(names)}{such_as(names[0])}"
        if self.above:
            name, share = max(self.above.items(), key=lambda item: item[1])
            far = "images with pixels far above all others, such as marks and padding, which become white"
            yield f"{far}: {len(self.above)}, at most {share:.2%} of the pixels{such_as(name)}"

    def as_document(self) -> dict[str, Any]:
        """Return plain values with camelCase names, as other documents have."""
        return {
            "listed": self.listed,
            "usable": self.usable,
            "classes": [{"name": name, "images": count} for name, count in zip(self.strata, self.counts, strict=True)],
            **({"findings": [{"name": n, **of._asdict()} for n, of in self.findings.items()]} if self.findings else {}),
            "unlabelled": self.unlabelled,
            "groups": self.groups,
            "sizes": self.sizes,
            "modes": self.modes,
            "bad": [{"id": bad.id, "reason": bad.reason, "detail": bad.detail} for bad in self.bad],
            "duplicates": [list(ids) for ids in self.duplicates],
            "conflicts": [list(ids) for ids in self.conflicts],
            "windows": self.windows,
            "paged": list(self.paged),
            "above": dict(self.above),
            "notImages": dict(self.not_images),
            "notListed": self.not_listed,
            "leftOut": {what: list(names) for what, names in self.left_out.items()},
            "remarks": list(self.remarks),
            "facts": dict(self.facts),
            **({"masks": list(self.masks)} if self.masks else {}),
        }


class Decodable(Protocol):
    """What is counted of an image that can be decoded, as `anchorage.learning.data.decoding.Decoded` says it."""

    @property
    def size(self) -> tuple[int, ...]:
        """Width and height in the file, of a volume its three sides."""

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

    @property
    def few_values(self) -> bool:
        """Whether it has as few different pixels as masks have."""

    @property
    def above(self) -> float:
        """Share of the pixels above the value that became white."""

    @property
    def facts(self) -> tuple[str, ...]:
        """What is counted of what the file says of itself."""


class _Seen(NamedTuple):
    """What is kept of an image that was decoded; as `Decodable`."""

    size: tuple[int, ...]
    mode: str
    digest: bytes
    white: int | None
    paged: bool
    above: float
    facts: tuple[str, ...]


_Place = tuple[Path, tuple[int, ...]]
"""Folder and size of pictures."""


class Findings:
    """Gathers a `DataReport` image by image, without holding on to pixels."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._bad: dict[int, BadImage] = {}
        self._good: list[int] = []
        self._sizes: Counter[str] = Counter()
        self._modes: Counter[str] = Counter()
        self._windows: Counter[str] = Counter()
        self._paged: list[int] = []
        self._above: dict[int, float] = {}
        self._same: dict[bytes, list[int]] = {}
        self._pictures: set[_Place] = set()
        self._doubtful: dict[_Place, list[tuple[int, _Seen]]] = {}
        self._masks: tuple[int, ...] = ()
        self._facts: Counter[str] = Counter()
        self._decoded_masks: DecodedMasks | None = None

    def add(self, row: int, outcome: Decodable | BadImage) -> None:
        """Count the outcome of one row of the listing."""
        if isinstance(outcome, BadImage):
            self._bad[row] = outcome
            return
        self._good.append(row)
        image_facts = _Seen(
            outcome.size, outcome.mode, outcome.digest, outcome.white, outcome.paged, outcome.above, outcome.facts
        )
        source = self._listing.sources[row]
        if not (self._listing.without_masks and isinstance(source, Path)):
            self._count(row, image_facts)
        elif outcome.few_values:
            self._doubtful.setdefault((source.parent, outcome.size), []).append((row, image_facts))
        else:
            self._pictures.add((source.parent, outcome.size))
            self._count(row, image_facts)

    def _count(self, row: int, image_facts: _Seen) -> None:
        self._sizes["×".join(map(str, image_facts.size))] += 1
        self._modes[image_facts.mode] += 1
        self._windows.update([f"0-{image_facts.white}"] if image_facts.white else [])
        self._paged += [row] if image_facts.paged else []
        if image_facts.above:
            self._above[row] = image_facts.above
        self._facts.update(image_facts.facts)
        self._same.setdefault(image_facts.digest, []).append(row)

    def without_masks(self) -> NDArray[np.int64]:
        """Leave out pictures of few colours that lie beside others of their size: masks. Return the places of what is left in `good`.

        To be called once, when every row was added.
        """
        masks = {row for place in self._doubtful.keys() & self._pictures for row, _ in self._doubtful.pop(place)}
        for row, image_facts in sorted(doubtful for family in self._doubtful.values() for doubtful in family):
            self._count(row, image_facts)
        places = [place for place, row in enumerate(self._good) if row not in masks]
        self._masks = tuple(sorted(masks))
        self._good = [self._good[place] for place in places]
        return np.array(places, np.int64)

    def take_masks(self, masks: DecodedMasks) -> None:
        """Take the masks of the listing's images, of a segmentation."""
        self._decoded_masks = masks

    def with_masks(self, listing: Listing) -> Listing:
        """Return a listing of the same images with their masks as labels, by which strata are made; as it is where labels are no masks."""
        decoded_masks, masks = self._decoded_masks, listing.masks
        if decoded_masks is None or masks is None:
            return listing
        known = listing.strata >= 0
        strata = np.where(known, decoded_masks.strata(), -1)
        return replace(
            listing, labels=decoded_masks.pixels, strata=strata, stratum_names=(NO_FOREGROUND, *masks.classes[1:])
        )

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
        listing = self.with_masks(self._listing)
        labels = Counter(int(listing.strata[row]) for row in self._good)
        left_out = dict(listing.left_out)
        if self._masks:
            left_out["mask"] = (*left_out.get("mask", ()), *(listing.ids[row] for row in self._masks))
        same = [rows for rows in self._same.values() if len(rows) > 1]
        return DataReport(
            listed=len(listing) - len(self._masks),
            strata=listing.stratum_names,
            counts=tuple(labels[c] for c in range(len(listing.stratum_names))),
            unlabelled=labels[-1],
            groups=len({listing.groups[row] for row in self._good}),
            sizes=dict(self._sizes.most_common()),
            modes=dict(self._modes.most_common()),
            bad=tuple(self._bad.values()),
            bad_rows=tuple(self._bad),
            duplicates=self._names(same),
            conflicts=self._names(
                rows for rows in same if _differ(as_integers(listing.labels[rows][is_known(listing.labels[rows])]))
            ),
            windows=dict(self._windows.most_common()),
            paged=tuple(listing.ids[row] for row in self._paged),
            above={listing.ids[row]: share for row, share in self._above.items()},
            not_images=listing.not_images,
            not_listed=listing.not_listed,
            left_out=left_out,
            remarks=listing.remarks,
            facts=dict(self._facts.most_common()),
            findings=self._findings(),
            masks=tuple(self._of_masks(listing)),
        )

    def _findings(self) -> dict[str, FindingCount]:
        labels = self._listing.labels[self._good]
        counts = [(labels == value).sum(0).tolist() for value in (1, 0, 2, -1)] if self._listing.findings else []
        return {
            name: FindingCount(*of) for name, of in zip(self._listing.findings, zip(*counts, strict=True), strict=True)
        }

    def _of_masks(self, listing: Listing) -> Iterator[str]:
        """Yield how much of the images with a mask each foreground class covers."""
        if self._decoded_masks is None or listing.masks is None:
            return
        counts = self._decoded_masks.counts[[row for row in self._good if listing.strata[row] >= 0]]
        if not len(counts):
            return
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        for place, name in enumerate(listing.masks.classes[1:], start=1):
            if name in listing.masks.unannotated:
                yield f"masks: {name} is not annotated"
                continue
            has = counts[:, place] > 0
            of_those = f", mean {shares[has, place].mean():.1%} of the pixels of those" if has.any() else ""
            yield f"masks: {name} in {has.sum()} of {len(counts)}{of_those}"

    def _names(self, families: Iterable[list[int]]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self._listing.ids[row] for row in rows) for rows in families)


def _differ(rows: NDArray[np.uint64]) -> bool:
    return bool((rows != rows[:1]).any())
