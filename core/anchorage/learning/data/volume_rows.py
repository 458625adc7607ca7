"""The volumes of a listing: its DICOM slices become one row for each series; a NIfTI file is a volume as it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anchorage.learning.data.file_header import Header
from anchorage.learning.data.grids import LEAST_SLICES
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.sources import Series

_FLAT = "slice of no volume"


def as_volumes(listing: Listing, headers: Mapping[int, Header], *, named: bool) -> Listing:
    """Return a listing of slices as one of volumes.

    A volume has the name, group, label and mask of its first slice, and is bad where a slice is. What is no slice, such as a localiser, does not
    count; reading leaves it out.

    Parameters
    ----------
    listing : Listing
        Of files.
    headers : mapping of row to Header
        What the files say of themselves.
    named : bool
        Whether somebody named them, as a table does: each name means one volume then, and one of fewer than three slices is bad and not left out.
    """
    members = _members(listing, headers, named)
    several = Counter(
        name
        for (name, _, time), rows in members.items()
        if named and time <= 0 and _slices(rows, headers) >= LEAST_SLICES
    )
    firsts: list[int] = []
    sources: dict[int, Series] = {}
    bad: dict[int, BadImage] = {}
    flat = 0
    used_names: set[str] = set()
    for key, rows in members.items():
        name, series = key[0], key[1]
        ambiguous = named and several[name] > 1
        if (not named and series and _slices(rows, headers) < LEAST_SLICES) or (ambiguous and name in used_names):
            flat += 0 if named else len(rows)
            continue
        used_names.add(name)
        first = rows[0]
        firsts.append(first)
        if series:
            sources[first] = Series(tuple(path for row in rows if isinstance(path := listing.sources[row], Path)))
        counted = [row for row in rows if row not in headers or headers[row].in_volumes]
        if ambiguous:
            detail = f"{several[name]} volumes; name one of them, such as with match: SeriesInstanceUID"
            bad[first] = BadImage(listing.ids[first], "Ambiguous", detail)
        elif bad_image := next((listing.bad[row] for row in counted if row in listing.bad), None):
            bad[first] = replace(bad_image, id=listing.ids[first])
    found_rows = replace(
        listing,
        sources=tuple(sources.get(row, source) for row, source in enumerate(listing.sources)),
        bad=bad,
        not_images=_add_flat(listing.not_images, flat),
    )
    return found_rows.select(firsts)


def _members(listing: Listing, headers: Mapping[int, Header], named: bool) -> Mapping[tuple[str, str, int], list[int]]:
    """Return the rows of each volume by name, series, and which time it is listed, from 0; other files have a negative number for it."""
    members: dict[tuple[str, str, int], list[int]] = {}
    times: Counter[tuple[str, Path]] = Counter()
    for row, (name, source) in enumerate(zip(listing.ids, listing.sources, strict=True)):
        header = headers.get(row)
        if header is not None and header.series and isinstance(source, Path):
            key = (name if named else "", header.series, times[name, source])
            times[name, source] += 1  # a table may name a series twice
        else:
            key = (name, "", -row)
        members.setdefault(key, []).append(row)
    return members


def _slices(rows: Sequence[int], headers: Mapping[int, Header]) -> int:
    """Return how many slices rows have that may be of a volume."""
    return sum(headers[row].frames for row in rows if row in headers and headers[row].in_volumes)


def _add_flat(others: Mapping[str, int], flat: int) -> Mapping[str, int]:
    """Return the counts of files that are not used, with slices that are of no volume."""
    return dict(Counter({**others, _FLAT: flat}).most_common()) if flat else others
