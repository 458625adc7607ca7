"""Folders of image files: one folder per class, or a flat one without labels."""

import os
from pathlib import Path

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.listing import BadImage, Listing

SUFFIXES = frozenset({".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""Files that count as images, in lower case."""


def folder_of(section: DataSection, root: Path) -> Path:
    """Return the folder that a section names: root / claimName / path.

    Raises
    ------
    AnchorageError
        DATA_MISSING: it does not exist.
    """
    folder = root / (section.claim_name or "") / section.path
    if not folder.is_dir():
        raise AnchorageError(DATA_MISSING, f"{folder} is no folder; check claimName, path and the data root")
    return folder


def image_files(folder: Path) -> list[str]:
    """List the image files below a folder as paths relative to it, with ``/``, sorted; hidden files and folders are left out.

    Raises
    ------
    AnchorageError
        DATA_MISSING: a folder may not be read.
    """
    found: list[str] = []

    def refuse(error: OSError) -> None:
        raise AnchorageError(DATA_MISSING, f"{error.filename} cannot be read ({error.strerror}); check the permissions")

    for place, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        within = Path(place).relative_to(folder)
        found += [
            (within / name).as_posix()
            for name in files
            if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
        ]
    return sorted(found)


def list_folder(section: DataSection, root: Path, classes: SiteClasses) -> Listing:
    """List a folder: the first folder of an image's path is its class, images beside the class folders have no label.

    Raises
    ------
    AnchorageError
        DATA_MISSING, or CLASSES_DIFFER: a folder is no class.
    """
    folder = folder_of(section, root)
    files = image_files(folder)
    names = [name.split("/", 1)[0] if "/" in name else "" for name in files]
    labels, wrong = classes.read(names, folder, "folder")
    return Listing(
        ids=tuple(files),
        groups=tuple(files),
        sources=tuple(folder / name for name in files),
        labels=labels,
        classes=classes.names,
        bad={row: BadImage(files[row], *found) for row, found in wrong.items()},
    )
