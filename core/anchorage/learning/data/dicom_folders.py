"""Folders of DICOM files without a table, as a PACS exports them: nested, named by numbers, beside a DICOMDIR."""

from pathlib import Path

from anchorage.api.data import DataSection
from anchorage.learning.data.file_header import Header
from anchorage.learning.data.folders import find_files, known_label
from anchorage.learning.data.header_rows import with_headers
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.labels import LabelReader
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import MaskReader, Masks, wants_volumes

_SUFFIXES = (".dcm", ".dic", ".dicom", ".ima")


def list_dicom(section: DataSection, root: Path, reader: LabelReader) -> Listing:
    """List the DICOM images below a folder; the first folder of a path is its label where it is one of the task's, other images have none, and for
    a segmentation all.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, GROUP_UNKNOWN, PACKAGE_MISSING.
    """
    folder_files = find_files(section, root)
    headers = read_headers([folder_files.folder / name for name in folder_files.images])
    dicom = (name for name, header in zip(folder_files.images, headers, strict=True) if _counts(name, header))
    files = sorted([*dicom, *folder_files.outside])
    folders = {name.split("/", 1)[0] for name in files if "/" in name}
    classes: set[str] = set()
    masks: Masks | None = None
    if isinstance(reader, MaskReader):  # an export has no masks, and a folder is none
        masks = reader.masks([None] * len(files), section)
    else:
        classes = {folder for folder in folders if known_label(folder, folder_files, reader)}
    firsts = [name.split("/", 1)[0] for name in files]
    labels = reader.read([first if first in classes else "" for first in firsts], folder_files.folder, "folder")
    others = dict(folder_files.counts())
    if pictures := len(folder_files.images) - len(files) + len(folder_files.outside):
        others["image that is no DICOM"] = pictures
    outside = set(folder_files.outside)
    listing = Listing.of(
        ids=tuple(files),
        groups=tuple(files),
        sources=tuple(None if name in outside else folder_files.folder / name for name in files),
        labels=labels,
        bad={row: folder_files.bad(name, name) for row, name in enumerate(files) if name in outside}
        | {row: BadImage(files[row], *reason) for row, reason in labels.wrong.items()},
        not_images=others,
        left_out=folder_files.left_out,
        masks=masks,
    )
    return with_headers(listing, section, grouped=False, named=False, volumes=wants_volumes(reader))


def _counts(name: str, header: Header | None) -> bool:
    """Return whether a file is listed: it is DICOM, or is called so and cannot be read."""
    if header is not None:
        return header.kind.startswith("DICOM")
    return name.lower().endswith(_SUFFIXES)
