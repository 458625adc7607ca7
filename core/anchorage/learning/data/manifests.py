"""Tables of images with a label column or one-hot columns; the ISIC 2018 ground truth as it is published is one."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from anchorage.api.data import DataSection
from anchorage.learning.data.decoders import image_suffixes
from anchorage.learning.data.folders import DICOM, NIFTI, Files, file_of, find_files
from anchorage.learning.data.labels import LabelReader
from anchorage.learning.data.listing import BadImage, Listing, Source
from anchorage.learning.data.tables import read_table

GROUP_COLUMNS = ("patient_id", "lesion_id")


def list_manifest(section: DataSection, root: Path, reader: LabelReader) -> Listing:
    """List the images of a table; they lie anywhere below the section's folder, named with or without folder and suffix.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, MANIFEST_WRONG, or as of `LabelReader.read_table`.
    """
    table = read_table(file_of(section, root, section.manifest or ""))
    names = table.columns[image := table.image_column(section.image_column)]
    group = table.column(section.group_by, GROUP_COLUMNS)
    labels = reader.read_table(table, section.label_column, {image, group or image})
    files = find_files(section, root)
    sources, bad = _find(files, names)
    for row, (reason, detail) in labels.wrong.items():
        bad.setdefault(row, BadImage(names[row], reason, detail))
    groups = [cell or name for cell, name in zip(table.columns[group], names, strict=True)] if group else names
    return Listing.of(
        ids=tuple(names),
        groups=tuple(groups),
        sources=tuple(sources),
        labels=labels,
        bad=bad,
        not_images=files.counts(),
        not_listed=len(files.images) - len({source for source in sources if source is not None}),
    )


def _find(found: Files, names: list[str]) -> tuple[list[Source], dict[int, BadImage]]:
    """Find each image's file: by its path, else by its name anywhere below the folder."""
    files, others = _ByName(found.images), _ByName([*found.others, *found.outside])
    sources: list[Source] = []
    bad: dict[int, BadImage] = {}
    seen: set[str] = set()
    for row, name in enumerate(names):
        path = PurePosixPath(name.replace("\\", "/"))
        matches = files.matches(path)
        sources.append(found.folder / matches[0] if len(matches) == 1 else None)
        if name in seen:
            bad[row] = BadImage(name, "DuplicateId", "the table lists it twice")
        elif not matches:
            bad[row] = _missing(found, name, path, others)
        elif len(matches) > 1:
            bad[row] = BadImage(name, "Ambiguous", f"several files: {', '.join(matches[:3])}")
        seen.add(name)
    return sources, bad


class _ByName:
    """Files by their path, and by their name with and without suffix."""

    def __init__(self, files: Sequence[str]) -> None:
        self._paths = set(files)
        self._names: dict[str, list[str]] = {}
        for file in files:
            path = PurePosixPath(file)
            for name in {path.name, path.stem}:
                self._names.setdefault(name, []).append(file)

    def matches(self, path: PurePosixPath) -> list[str]:
        """Return the file of this path, else those of its name: with a folder, those of its path and another suffix."""
        if str(path) in self._paths:
            return [str(path)]
        found = self._names.get(path.name, [])
        return [file for file in found if file.startswith(f"{path}.")] if len(path.parts) > 1 else found


def _missing(found: Files, name: str, path: PurePosixPath, others: _ByName) -> BadImage:
    """Say why an image has no file that is read: a link leads out, it is of another kind, or it is not there."""
    for link in (*others.matches(path), *map(str, path.parents)):
        if link in found.outside:
            return found.bad(name, link)
        if found.others.get(link) in (DICOM, NIFTI) or link == str(path):
            return BadImage(name, "Unsupported", f"{link} is no image that is read ({found.others[link]})")
    return BadImage(name, "Missing", f"no such image ({', '.join(sorted(image_suffixes()))}) below {found.folder}")
