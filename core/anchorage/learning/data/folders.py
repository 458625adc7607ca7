"""Folders of image files: one folder per class, or a flat one without labels."""

import os
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, OUTSIDE_FOLDER
from anchorage.learning.data.decoders import DIRECTORY, image_suffixes, is_image
from anchorage.learning.data.header_rows import with_headers
from anchorage.learning.data.label_kinds import is_mask_folder
from anchorage.learning.data.labels import LabelReader, is_known
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.table_columns import divided_paths, owner_in_path

_SYSTEM = frozenset(
    {
        "@eadir", "@recycle", "@recently-snapshot", "@tmp", "#recycle", "#snapshot", "#trash", "$recycle.bin", "recycler", "recycled",
        "__macosx", "lost+found", "system volume information", "network trash folder", "temporary items", "thumbnail", "thumbnails",
    }
)  # fmt: skip
"""Folders of network storage, recycle bins, archives and file systems, in lower case; nobody keeps images there."""
_THUMBNAIL = re.compile(r"syno(photo|file)_thumb|[ _.-]thumbnail$|^thumbnail[ _.-]", re.IGNORECASE)
_OF_AN_IMAGE = r"(?:(?P<mask>masks?|seg|segmentations?|gt|ground[ _.-]?truth|annotations?|labels?|roi|contours?|superpixels)|thumbs?|preview)"
_BELONGING_PATTERNS = (
    re.compile(rf"(?P<image>.+?)[ _.-]+{_OF_AN_IMAGE}(?:[ _.-]*[0-9]+)?"),
    re.compile(rf"{_OF_AN_IMAGE}[ _.-]+(?P<image>.+)"),
)
"""How files are called, in lower case, that belong to another image: its name, and what they are of it."""
MASK, THUMBNAIL, SYSTEM_FOLDER, UNREADABLE = "mask", "thumbnail", "system folder", "unreadable folder"
"""What is left out of a folder's images."""
_WAY_IN = "copy it there, or make the claim's folder itself a link"


@dataclass(frozen=True, slots=True)
class Files:
    """Files below a section's folder, by paths relative to it, with ``/``; hidden ones, and those of hidden folders, are left out."""

    folder: Path
    """The section's folder."""
    images: list[str] = field(default_factory=list)
    """Those that count as images by their suffix, sorted."""
    others: dict[str, str] = field(default_factory=dict)
    """The others, with their kind: ``DICOMDIR``, ``linked folder``, ``no suffix``, or the suffix."""
    outside: list[str] = field(default_factory=list)
    """Links to images and folders outside of the claim's folder, sorted; nothing there was looked at."""
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """What is no picture to learn from, by what it is: thumbnails, folders of the system, folders that may not be read; their paths."""

    @property
    def unreadable(self) -> Sequence[str]:
        """Folders that may not be read."""
        return self.left_out.get(UNREADABLE, ())

    def leave_out(self, what: str, name: str) -> None:
        """Add a path to those that are left out."""
        self.left_out.setdefault(what, []).append(name)

    def bad(self, name: str, link: str) -> BadImage:
        """Say of an image that the link that is it, or leads to it, is not followed."""
        what = "a link" if name == link else f"below the link {link}"
        return BadImage(name, "OutsideFolder", f"{what} out of the claim's folder; {_WAY_IN}")

    def counts(self) -> dict[str, int]:
        """Count the others by kind, the most frequent first."""
        return dict(Counter(sorted(self.others.values())).most_common())


def folder_of(section: DataSection, root: Path) -> Path:
    """Return the folder that a section names: root / claimName / path.

    Raises
    ------
    AnchorageError
        DATA_MISSING: it does not exist. OUTSIDE_FOLDER: a link leads out of the claim's folder.
    """
    folder = _claim_of(section, root) / section.path
    if not folder.is_dir():
        remedy = "check claimName, path and the data root"
        redacted = f"the folder of the images is not there; {remedy}"
        raise AnchorageError(DATA_MISSING, f"{folder} is no folder; {remedy}", redacted=redacted)
    return _inside(folder, section, root)


def file_of(section: DataSection, root: Path, name: str) -> Path:
    """Return a file below a section's folder, such as its table; it need not exist.

    Raises
    ------
    AnchorageError
        As `folder_of`.
    """
    return _inside(folder_of(section, root) / name, section, root)


def find_files(section: DataSection, root: Path) -> Files:
    """Look for files below a section's folder, without opening images; the section's own table and list are left out.

    Folders that are links are not looked into, nor are those of the system, such as recycle bins; folders that may not be read are left out. A
    file without a suffix, or with a number for one, is opened to see whether it is an image: scanners name DICOM so.

    Raises
    ------
    AnchorageError
        As `folder_of`, and DATA_MISSING: the section's folder may not be read.
    """
    folder_files, claim = Files(folder_of(section, root)), _claim_of(section, root)
    table_files = {str(PurePath(name)) for name in _tables(section)}
    pending = [""]
    while pending:
        within = pending.pop()
        try:
            with os.scandir(folder_files.folder / within) as entries:
                for entry in entries:
                    name = f"{within}{entry.name}"
                    shown = not entry.name.startswith(".") and name not in table_files
                    if shown and _sort(entry, name, folder_files, claim):
                        pending.append(f"{name}/")
        except OSError as error:
            if not within:
                fault = f"cannot be read ({error.strerror}); check the permissions"
                redacted = f"the folder of the images {fault}"
                raise AnchorageError(DATA_MISSING, f"{error.filename} {fault}", redacted=redacted) from error
            folder_files.leave_out(UNREADABLE, within)
    folder_files.images.sort()
    folder_files.outside.sort()
    return folder_files


def _sort(entry: os.DirEntry[str], name: str, folder_files: Files, claim: Path) -> bool:
    """Put a file where it belongs; return whether it is a folder to look into."""
    link, folder = entry.is_symlink(), entry.is_dir()
    if folder and entry.name.casefold() in _SYSTEM:
        folder_files.leave_out(SYSTEM_FOLDER, f"{name}/")
        return False
    stem = entry.name.rpartition(".")[0]
    image = not folder and (_called_image(entry.name) if link else is_image(entry.path, entry.name))
    if link and (folder or image) and _leads_out(Path(entry.path), claim):
        folder_files.outside.append(name)
    elif image and _THUMBNAIL.search(stem):
        folder_files.leave_out(THUMBNAIL, name)
    elif image:
        folder_files.images.append(name)
    elif link or not folder:
        folder_files.others[name] = "linked folder" if folder else _kind_of(entry)
    return folder and not link


def _called_image(name: str) -> bool:
    """Return whether a link is called as an image is; what it leads to is not opened."""
    return name.lower().endswith(tuple(image_suffixes())) and name.lower() not in image_suffixes()


def _kind_of(entry: os.DirEntry[str]) -> str:
    name = entry.name.lower()
    return "DICOMDIR" if name == DIRECTORY else _suffix_of(name) or "no suffix"


def _suffix_of(name: str) -> str:
    """Return the suffix of a name; a number is none, but the end of an identifier, as of DICOM."""
    suffix = PurePath(name).suffix
    return "" if suffix[1:].isdigit() else suffix


def _tables(section: DataSection) -> list[str]:
    partition = section.division.file if section.division is not None else None
    return [name for name in (section.manifest, partition) if name is not None]


def _claim_of(section: DataSection, root: Path) -> Path:
    return root / (section.claim_name or "")


def _leads_out(path: Path, claim: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(claim))


def _inside(path: Path, section: DataSection, root: Path) -> Path:
    if _leads_out(path, claim := _claim_of(section, root)):
        raise AnchorageError(OUTSIDE_FOLDER, f"{path} is, or lies below, a link out of {claim}; {_WAY_IN}")
    return path


def list_folder(section: DataSection, root: Path, reader: LabelReader) -> Listing:
    """List a folder: the first folder of an image's path is its class, images beside the class folders have no label.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, GROUP_UNKNOWN, PACKAGE_MISSING, or as of `LabelReader.read`.
    """
    folder_files = find_files(section, root)
    if section.mask_files == "Ignore":
        _leave_out_besides(folder_files)
    unreadable = {name for name in folder_files.unreadable if known_label(name.split("/", 1)[0], folder_files, reader)}
    files = sorted([*folder_files.images, *folder_files.outside, *unreadable])
    names = [name.split("/", 1)[0] if "/" in name else "" for name in files]
    labels = reader.read(names, folder_files.folder, "folder")
    outside = set(folder_files.outside)
    bad = {row: BadImage(files[row], *reason) for row, reason in labels.wrong.items()}
    bad |= {row: folder_files.bad(name, name) for row, name in enumerate(files) if name in outside}
    locked = "the folder may not be read; give the user that reads images the right to"
    bad |= {row: BadImage(name, "Unreadable", locked) for row, name in enumerate(files) if name in unreadable}
    listing = Listing.of(
        ids=tuple(files),
        groups=tuple(files if section.group_by else (owner_in_path(file) or file for file in files)),
        sources=tuple(None if name in outside | unreadable else folder_files.folder / name for name in files),
        labels=labels,
        bad=bad,
        not_images=folder_files.counts(),
        left_out=folder_files.left_out,
        without_masks=section.mask_files == "Ignore",
        remarks=divided_paths(files),
    )
    return with_headers(listing, section, grouped=False, named=False)


def without_suffix(path: str) -> str:
    """Return a path without its suffix, of which ``.nii.gz`` is one; a number, the end of an identifier, is none."""
    folder, slash, name = path.rpartition("/")
    if name.lower().endswith(".nii.gz"):
        return path[: -len(".nii.gz")]
    return f"{folder}{slash}{name.removesuffix(PurePath(name).suffix)}" if _suffix_of(name) else path


def known_label(name: str, folder_files: Files, reader: LabelReader) -> bool:
    """Return whether images of a folder of this name have a label."""
    try:
        return bool(is_known(reader.read([name], folder_files.folder, "folder").values)[0])
    except AnchorageError:
        return False


def _leave_out_besides(folder_files: Files) -> None:
    """Leave out masks and thumbnails by their names: that of another image with what they are of it, or of a folder of masks."""
    stems = {name.rpartition(".")[0].casefold() for name in folder_files.images}
    images: list[str] = []
    for name in folder_files.images:
        if any(is_mask_folder(folder) for folder in name.split("/")[1:-1]):
            folder_files.leave_out(MASK, name)
        elif what := belongs_to(name.rpartition(".")[0].casefold(), stems)[0]:
            folder_files.leave_out(what, name)
        else:
            images.append(name)
    folder_files.images[:] = images


def belongs_to(path: str, stems: Set[str]) -> tuple[str, str]:
    """Return what a file is of another image, and that image, by paths without suffix in lower case; two empty texts: it is an image itself."""
    folder, slash, stem = path.rpartition("/")
    for pattern in _BELONGING_PATTERNS:
        if (match := pattern.fullmatch(stem)) is not None and (image := f"{folder}{slash}{match['image']}") in stems:
            return (MASK if match["mask"] else THUMBNAIL), image
    return "", ""
