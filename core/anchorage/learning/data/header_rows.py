"""What headers of files change in a listing: whose images are whose, which are none or may not be used, and which frames count."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from anchorage.api.data import HEADER_GROUPS, DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import GROUP_UNKNOWN
from anchorage.learning.data.decoders import image_suffixes, suffixes_with_headers
from anchorage.learning.data.file_header import Caution, Header
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.sources import Channels, Frame, Source, file_and_frame
from anchorage.learning.data.volume_rows import as_volumes

_ALLOWED_BY: Mapping[Caution, str] = {
    Caution.BURNED_IN_TEXT: "burned_in_text",
    Caution.FOR_PROCESSING: "for_processing",
}
_WHY: Mapping[Caution, str] = {
    Caution.BURNED_IN_TEXT: "its header says that text is burned into the pixels, perhaps names; set burnedInText: Use if it is none",
    Caution.FOR_PROCESSING: "raw values of the detector (for processing); use the image for presentation, or set forProcessing: Use",
}


def may_have_header(file: Path | str) -> bool:
    """Return whether a file is, by its name, of a kind that says of itself what is used here; those without a usual suffix may be."""
    name = PurePath(file).name.lower()
    return name.endswith(suffixes_with_headers()) or not name.endswith(tuple(image_suffixes()))


def with_headers(
    listing: Listing, section: DataSection, *, grouped: bool, named: bool, volumes: bool = False
) -> Listing:
    """Return a listing as the headers of its files have it.

    Parameters
    ----------
    listing : Listing
        As folder or table have it.
    section : DataSection
        Which frames count, what may be used, and by what images are grouped.
    grouped : bool
        Whether its groups are those of a column that counts more than what files say.
    named : bool
        Whether somebody named each file, as a table does: one that is no image is bad then, and else left out.
    volumes : bool
        Whether each row is to be a volume (`anchorage.learning.data.volume_rows`); then all frames count.

    Raises
    ------
    AnchorageError
        GROUP_UNKNOWN: the section asks for an attribute that images lack. PACKAGE_MISSING.
    """
    files = {
        row: file
        for row, source in enumerate(listing.sources)
        if (file := _file_of(source)) is not None and may_have_header(file)
    }
    read = read_headers([*files.values()])
    headers = {row: header for row, header in zip(files, read, strict=True) if header is not None}
    attribute = section.group_by if not grouped and section.group_by in HEADER_GROUPS else None
    if attribute is not None:
        _require(listing, headers, attribute)
    elif not headers:
        return listing
    used = {row: header for row, header in headers.items() if header.image}
    bad = dict(listing.bad)
    for row, header in headers.items():
        if not header.image:
            bad.setdefault(
                row, BadImage(listing.ids[row], "Unsupported", f"{header.kind}, which is no image that is read")
            )
        for caution in sorted(header.cautions):
            if getattr(section, _ALLOWED_BY[caution]) == "Refuse":
                bad.setdefault(row, BadImage(listing.ids[row], caution.value, _WHY[caution]))
    groups, remarks = list(listing.groups), list(listing.remarks)
    if attribute is not None:
        groups = [_group_of(headers[row], attribute) if row in used else group for row, group in enumerate(groups)]
    elif not grouped and section.group_by is None:
        groups = [_patient_of(used[row]) or group if row in used else group for row, group in enumerate(groups)]
        if lacking := sum(bool(header.instance) and not header.patient for header in used.values()):
            remarks.append(f"{lacking} images name no patient; those of one study count as one patient's")
    if unsure := sum(header.may_have_text for header in used.values()):
        remarks.append(
            f"{unsure} images are of kinds in which names are often burned into the pixels, such as ultrasound and secondary captures, and do not "
            "say that they have none: look at them before you train"
        )
    result = replace(listing, bad=bad, groups=tuple(groups), remarks=tuple(remarks))
    if not named:
        result = _without(result, {row: header.kind for row, header in headers.items() if not header.image})
        image_rows = [row for row in range(len(listing)) if row not in headers or headers[row].image]
        used = {place: used[row] for place, row in enumerate(image_rows) if row in used}
    return as_volumes(result, used, named=named) if volumes else _with_frames(result, used, section.frames)


def _file_of(source: Source) -> Path | None:
    """Return the file whose header counts: of channels in files of their own the first one."""
    return file_and_frame(source)[0] if isinstance(source, Path | Channels) else None


def _require(listing: Listing, headers: Mapping[int, Header], attribute: str) -> None:
    """Refuse images that lack an attribute by which the section groups them.

    Raises
    ------
    AnchorageError
        GROUP_UNKNOWN: some do.
    """
    lacking = [
        name
        for row, name in enumerate(listing.ids)
        if row not in listing.bad
        and (row not in headers or (headers[row].image and not _group_of(headers[row], attribute)))
    ]
    if lacking:
        counted = f"groupBy: {attribute}, but {len(lacking)} of {len(listing)} images have none in their header"
        advice = "leave groupBy out, or name the patients in a table"
        raise AnchorageError(
            GROUP_UNKNOWN, f"{counted}, such as {lacking[0]}; {advice}", redacted=f"{counted}; {advice}"
        )


def _group_of(header: Header, attribute: str) -> str:
    return {
        "PatientID": header.patient,
        "StudyInstanceUID": header.study,
        "SeriesInstanceUID": header.series,
        "AccessionNumber": header.accession,
    }[attribute]


def _patient_of(header: Header) -> str:
    """Return what images of one patient have in common; a study, where no patient is named; nothing, where neither is."""
    return header.patient or header.study


def _without(listing: Listing, kinds: Mapping[int, str]) -> Listing:
    """Leave out rows that are no images; they are counted by kind."""
    if not kinds:
        return listing
    counts = Counter(dict(listing.not_images))
    counts.update(kinds.values())
    image_rows = [row for row in range(len(listing)) if row not in kinds]
    return replace(listing.select(image_rows), not_images=dict(counts.most_common()))


def _with_frames(listing: Listing, headers: Mapping[int, Header], which: str) -> Listing:
    """Return a listing with the frames that count of files that have several."""
    several = {row: header.frames for row, header in headers.items() if header.frames > 1}
    if which == "First" or not several:
        return listing
    rows: list[int] = []
    frames: list[int] = []
    for row in range(len(listing)):
        count = several.get(row, 1)
        wanted: Sequence[int] = [count // 2] if which == "Middle" else range(count)
        rows += [row] * len(wanted)
        frames += wanted
    selected = listing.select(rows)
    numbered = zip(selected.ids, rows, frames, strict=True)
    all_of = {row for row in several if which == "All"}
    ids = (f"{name}#{frame + 1}" if row in all_of else name for name, row, frame in numbered)
    sources = tuple(_frame_of(source, frame) for source, frame in zip(selected.sources, frames, strict=True))
    return replace(selected, ids=tuple(ids), sources=sources)


def _frame_of(source: Source, frame: int) -> Source:
    return Frame(source, frame) if frame and isinstance(source, Path) else source
