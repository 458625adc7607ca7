"""Folders of images with their masks: in folders ``images`` and ``masks`` under equal names, or beside each other as ``NAME_mask.png``.

The image of a mask ``NAME`` may be called ``NAME_0000``, as nnU-Net has it, or as the first of the channels that a section names. Of volumes, the
mask of a series that has a folder of its own has the folder's name.
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
from anchorage.learning.data.sources import Channels, Source
from anchorage.learning.data.table_columns import divided_paths, owner_in_path

_ALONE = "mask without an image"
FURTHER_CHANNEL, _NO_CHANNEL = "further channel", "none of the channels"
_CHANNEL = re.compile(r"(.+)_([0-9]{4})")
FIRST_CHANNEL = "_0000"
"""How the name of the file of a volume's first channel ends in the layout of nnU-Net."""


def list_pairs(section: DataSection, root: Path, reader: MaskReader) -> Listing:
    """List a folder of images with masks; an image without a mask has no label.

    Raises
    ------
    AnchorageError
        DATA_MISSING, OUTSIDE_FOLDER, or CLASSES_DIFFER: `maskValues` names no class.
    """
    folder_files = find_files(section, root)
    masks_of, channels = _pair(folder_files, reader.volumes, section.channel_files)
    files = sorted([*folder_files.images, *folder_files.outside])
    outside = set(folder_files.outside)
    masks = [masks_of.get(name, ()) for name in files]
    bad = {row: folder_files.bad(name, name) for row, name in enumerate(files) if name in outside}
    for row, several in enumerate(masks):
        if len(several) > 1:
            detail = f"several files may be its mask: {', '.join(several[:3])}"
            bad.setdefault(row, BadImage(files[row], "MaskAmbiguous", detail))
    for row, name in enumerate(files):
        if (reason := wrong_channels(channels.get(name, []), section.channel_files)) is not None:
            bad.setdefault(row, BadImage(name, *reason))
    labels: ReadLabels = reader.read([name[0] if name else "" for name in masks], folder_files.folder, "mask")
    listing = Listing.of(
        ids=tuple(files),
        groups=tuple(files if section.group_by else (owner_in_path(file) or file for file in files)),
        sources=tuple(None if name in outside else _source(folder_files.folder, name, channels) for name in files),
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


ChannelFiles = Mapping[str, Sequence[Sequence[str]]]
"""Files of each channel of a volume, by the first file of the volume."""


def _pair(
    folder_files: Files, volumes: bool, endings: Sequence[str]
) -> tuple[Mapping[str, Sequence[str]], ChannelFiles]:
    """Return the masks of each image that has any, and the files of channels that are told apart by the endings of their names.

    What is a mask or a thumbnail, and any but the first file of a volume's channels, is no image of `folder_files` any more.
    """
    stems = {without_suffix(name).casefold() for name in folder_files.images}
    stems |= {stem.removesuffix(ending) for stem in stems if (ending := ending_of(stem, endings).casefold())}
    images: dict[str, str] = {}
    masks: dict[str, list[str]] = {}
    remaining_images: list[str] = []
    for name in folder_files.images:
        stem = without_suffix(name).casefold()
        what, image = belongs_to(stem, stems)
        if what == THUMBNAIL:
            folder_files.leave_out(THUMBNAIL, name)
        elif volumes and not endings and _is_further(stem, stems):
            folder_files.leave_out(FURTHER_CHANNEL, name)
        elif is_mask_path(name):
            for key in _keys(name):
                masks.setdefault(key, []).append(name)
        elif what == MASK:
            masks.setdefault(_key(image), []).append(name)
        elif endings and not ending_of(stem, endings):
            folder_files.leave_out(_NO_CHANNEL, name)
        else:
            remaining_images.append(name)
            images[_key(stem)] = name
    channels: dict[str, Sequence[Sequence[str]]] = {}
    if endings:
        images.clear()
        for volume, files in by_channel(remaining_images, endings).items():
            every = [file for several in files for file in several]
            channels[every[0]] = files
            images |= {_key(without_suffix(file).casefold()): every[0] for file in every} | {_key(volume): every[0]}
    folder_files.images[:] = channels or remaining_images
    paired = {
        image: masks[key]
        for image_key, image in images.items()
        for key in [key for key in _names(image_key, volumes) if key in masks][:1]
    }
    used = {mask for several in paired.values() for mask in several}
    for mask in sorted({mask for several in masks.values() for mask in several} - used):
        folder_files.leave_out(_ALONE, mask)
    return paired, channels


def by_channel(names: Sequence[str], endings: Sequence[str]) -> Mapping[str, Sequence[Sequence[str]]]:
    """Return the files of each channel by what the names of a volume's files, in lower case, have in common; each ends as a channel does."""
    volumes: dict[str, list[list[str]]] = {}
    for name in names:
        stem = without_suffix(name).casefold()
        ending = ending_of(stem, endings)
        files = volumes.setdefault(stem.removesuffix(ending.casefold()), [[] for _ in endings])
        files[endings.index(ending)].append(name)
    return volumes


def ending_of(stem: str, endings: Sequence[str]) -> str:
    """Return by which ending a name, without suffix, says which channel it has: the longest that fits, in any case; empty: none."""
    return max((ending for ending in endings if stem.casefold().endswith(ending.casefold())), key=len, default="")


def wrong_channels(files: Sequence[Sequence[str]], endings: Sequence[str]) -> tuple[str, str] | None:
    """Return reason and detail of a volume of which a channel has no file, or several; None: each has one."""
    if missing := [ending for ending, several in zip(endings, files, strict=False) if not several]:
        return "ChannelMissing", f"no file of its name ends in {', '.join(missing)}"
    if ambiguous := next((several for several in files if len(several) > 1), None):
        return "Ambiguous", f"several files: {', '.join(ambiguous[:3])}"
    return None


def _source(folder: Path, name: str, channels: ChannelFiles) -> Source:
    """Return where the pixels of an image are; None where a channel has not exactly one file."""
    if name not in channels:
        return folder / name
    files = channels[name]
    return Channels(tuple(folder / several[0] for several in files)) if all(len(each) == 1 for each in files) else None


def _keys(mask: str) -> set[str]:
    """Return what the image of a mask in a folder of masks may be called: like the mask, or without what says that it is one."""
    mask_key = _key(without_suffix(mask).casefold())
    folder, slash, name = mask_key.rpartition("/")
    return {mask_key, *(f"{folder}{slash}{shorter}" for shorter in _without_word(name))}


def _names(image: str, volumes: bool) -> Sequence[str]:
    """Return what the mask of an image may be called: like the image, without the number of its channel, or like a folder of slices."""
    names = [image, *([image.removesuffix(FIRST_CHANNEL)] if image.endswith(FIRST_CHANNEL) else [])]
    return [*names, *(str(folder) for folder in PurePosixPath(image).parents if volumes and str(folder) != ".")]


def _is_further(stem: str, stems: Set[str]) -> bool:
    """Return whether a file has another channel of the volume of a file whose name ends in ``_0000``."""
    channel = _CHANNEL.fullmatch(stem)
    return channel is not None and f"_{channel[2]}" != FIRST_CHANNEL and f"{channel[1]}{FIRST_CHANNEL}" in stems


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
