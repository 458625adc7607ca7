"""Folders of images with their masks: in folders ``images`` and ``masks`` under equal names, or beside each other as ``NAME_mask.png``.

The image of a mask ``NAME`` may be called ``NAME_0000``, as nnU-Net has it. Of volumes, the mask of a series that has a folder of its own has the
folder's name.
"""

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path, PurePosixPath

from anchorage.api.data import DataSection
from anchorage.learning.data.folders import MASK, THUMBNAIL, Files, belongs_to, find_files, without_suffix
from anchorage.learning.data.header_rows import with_headers
from anchorage.learning.data.label_kinds import is_image_folder, is_mask_folder
from anchorage.learning.data.labels import ReadLabels
from anchorage.learning.data.listing import BadImage, Listing
from anchorage.learning.data.masks import MaskReader
from anchorage.learning.data.table_columns import divided_paths, owner_in_path

_ALONE = "mask without an image"
_FURTHER = "further channel"
_CHANNEL = re.compile(r"(.+)_([0-9]{4})")
_FIRST = "_0000"


def list_pairs(section: DataSection, root: Path, reader: MaskReader) -> Listing:
    """List a folder of images with masks; an image without a mask has no label.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, or CLASSES_DIFFER: `maskValues` names no class.
    """
    folder_files = find_files(section, root)
    masks_of = _paired(folder_files, reader.volumes)
    files = sorted([*folder_files.images, *folder_files.outside])
    outside = set(folder_files.outside)
    masks = [masks_of.get(name, ()) for name in files]
    bad = {row: folder_files.bad(name, name) for row, name in enumerate(files) if name in outside}
    for row, several in enumerate(masks):
        if len(several) > 1:
            detail = f"several files may be its mask: {', '.join(several[:3])}"
            bad.setdefault(row, BadImage(files[row], "MaskAmbiguous", detail))
    labels: ReadLabels = reader.read([name[0] if name else "" for name in masks], folder_files.folder, "mask")
    listing = Listing.of(
        ids=tuple(files),
        groups=tuple(files if section.group_by else (owner_in_path(file) or file for file in files)),
        sources=tuple(None if name in outside else folder_files.folder / name for name in files),
        labels=labels,
        bad=bad,
        not_images=folder_files.counts(),
        left_out=folder_files.left_out,
        remarks=divided_paths(files),
        masks=reader.masks([folder_files.folder / name[0] if name else None for name in masks], section),
    )
    return with_headers(listing, section, grouped=False, named=False, volumes=True) if reader.volumes else listing


def is_mask_path(path: str) -> bool:
    """Return whether a file lies in a folder of masks."""
    return any(is_mask_folder(folder) for folder in path.split("/")[:-1])


def _paired(folder_files: Files, volumes: bool) -> Mapping[str, Sequence[str]]:
    """Return the masks of each image that has any; what is a mask or a thumbnail is no image of `folder_files` any more."""
    stems = {without_suffix(name).casefold() for name in folder_files.images}
    images: dict[str, str] = {}
    masks: dict[str, list[str]] = {}
    remaining_images: list[str] = []
    for name in folder_files.images:
        stem = without_suffix(name).casefold()
        what, image = belongs_to(stem, stems)
        if what == THUMBNAIL:
            folder_files.leave_out(THUMBNAIL, name)
        elif volumes and _is_further(stem, stems):
            folder_files.leave_out(_FURTHER, name)
        elif is_mask_path(name):
            for key in _keys(name):
                masks.setdefault(key, []).append(name)
        elif what == MASK:
            masks.setdefault(_key(image), []).append(name)
        else:
            remaining_images.append(name)
            images[_key(stem)] = name
    folder_files.images[:] = remaining_images
    paired = {
        image: masks[key]
        for image_key, image in images.items()
        for key in [key for key in _names(image_key, volumes) if key in masks][:1]
    }
    used = {mask for several in paired.values() for mask in several}
    for mask in sorted({mask for several in masks.values() for mask in several} - used):
        folder_files.leave_out(_ALONE, mask)
    return paired


def _keys(mask: str) -> set[str]:
    """Return what the image of a mask in a folder of masks may be called: like the mask, or without what says that it is one."""
    mask_key = _key(without_suffix(mask).casefold())
    folder, slash, name = mask_key.rpartition("/")
    return {mask_key, *(f"{folder}{slash}{shorter}" for shorter in _without_word(name))}


def _names(image: str, volumes: bool) -> Sequence[str]:
    """Return what the mask of an image may be called: like the image, without the number of its channel, or like a folder of slices."""
    names = [image, *([image.removesuffix(_FIRST)] if image.endswith(_FIRST) else [])]
    return [*names, *(str(folder) for folder in PurePosixPath(image).parents if volumes and str(folder) != ".")]


def _is_further(stem: str, stems: Set[str]) -> bool:
    """Return whether a file has another channel of the volume of a file whose name ends in ``_0000``."""
    channel = _CHANNEL.fullmatch(stem)
    return channel is not None and f"_{channel[2]}" != _FIRST and f"{channel[1]}{_FIRST}" in stems


def _without_word(name: str) -> Sequence[str]:
    """Return a mask's name without the word that says that it is a mask, where it has one."""
    return [
        image
        for word in ("_mask", "_segmentation", "_seg", "-mask", "-seg")
        if (image := name.removesuffix(word)) != name
    ]


def _key(path: str) -> str:
    """Return a path in lower case without the folders that say whether it holds images or masks."""
    folders = PurePosixPath(path).parts
    folder_parts = [part for part in folders[:-1] if not is_image_folder(part) and not is_mask_folder(part)]
    return "/".join([*folder_parts, *folders[-1:]])
