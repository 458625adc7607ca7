"""What a trained model says of volumes: how many millilitres of each class, and masks on the volumes' own grids."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fedctl.output import plain_table
from fedctl.writing import writing

if TYPE_CHECKING:
    from anchorage.api.task import Task
    from anchorage.learning.data.listing import Listing
    from anchorage.learning.inference import ImageModel


def predicted_volumes(
    model: "ImageModel",
    files: Sequence[Path],
    folder: Path | None,
    unusable: list[dict[str, str]],
    endings: Sequence[str] = (),
) -> Iterator[Mapping[str, Any]]:
    """Yield what is told of each volume: a NIfTI file, or a series of DICOM files, or a file for each channel; it has the name of its first file.

    Parameters
    ----------
    model : ImageModel
        Of volumes.
    files : sequence of Path
        Files.
    folder : Path or None
        Where masks are written, a NIfTI file each.
    unusable : list of dict
        Gets those that cannot be used.
    endings : sequence of str
        How the names of the files of each channel end, in the order of the model's channels; empty: a volume is one file or series.
    """
    from anchorage.learning.data.decoding import RefusedImageError
    from anchorage.learning.data.nifti import write_classes
    from anchorage.learning.data.sources import Channels, Series
    from anchorage.learning.volume_prediction import predict_volume

    listing = _volumes_of_channels(files, endings) if endings else _volumes(files)
    for number, (name, source) in enumerate(zip(listing.ids, listing.sources, strict=True)):
        try:
            if number in listing.bad:
                raise RefusedImageError(listing.bad[number].reason, listing.bad[number].detail)
            if not isinstance(source, Path | Series | Channels):
                raise RefusedImageError("Unsupported", "no volume")
            mask = predict_volume(model, source)
        except RefusedImageError as refused:
            unusable.append({"image": name, "reason": refused.reason, "message": refused.detail})
            continue
        classes = model.described.outputs
        row = {"image": name, "millilitres": dict(zip(classes[1:], mask.millilitres[1:], strict=True))}
        if folder is not None:
            file = folder / f"{number:04d}-{Path(name).name.split('.')[0]}.nii.gz"
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
                write_classes(file, mask.classes, mask.grid)
            row["mask"] = str(file)
        yield row


def volumes_table(rows: Sequence[Mapping[str, Any]], task: "Task", masks: Path | None) -> Table:
    """Write a row per volume: millilitres of each class but the background."""
    table = plain_table("volume", *(f"{name} (ml)" for name in task.outputs[1:]), *(["mask"] if masks else []))
    for row in rows:
        cells = [f"{amount:.2f}" for amount in row["millilitres"].values()]
        table.add_row(row["image"], *cells, *([row["mask"]] if masks else []))
    return table


def _volumes(files: Sequence[Path]) -> "Listing":
    """Return the volumes of some files."""
    from anchorage.learning.data.headers import read_headers
    from anchorage.learning.data.listing import Listing
    from anchorage.learning.data.volume_rows import as_volumes

    ids, none = tuple(map(str, files)), np.full(len(files), -1)
    listing = Listing(ids, ids, tuple(files), none, none, (), {})
    headers = {row: header for row, header in enumerate(read_headers(files)) if header is not None}
    return as_volumes(listing, headers, named=False)


def _volumes_of_channels(files: Sequence[Path], endings: Sequence[str]) -> "Listing":
    """Return the volumes of some files of which each has one channel, and as bad what has none or lacks some."""
    from anchorage.learning.data.folders import without_suffix
    from anchorage.learning.data.listing import BadImage, Listing
    from anchorage.learning.data.mask_folders import by_channel, ending_of, wrong_channels
    from anchorage.learning.data.sources import Channels, Source

    names = list(map(str, files))
    others = [name for name in names if not ending_of(without_suffix(name), endings)]
    volumes = [*by_channel([name for name in names if name not in others], endings).values()]
    ids = [next(file for several in volume for file in several) for volume in volumes] + others
    wrong = [wrong_channels(volume, endings) for volume in volumes]
    wrong += [("ChannelMissing", f"its name ends in none of {', '.join(endings)}")] * len(others)
    bad = {row: BadImage(ids[row], *reason) for row, reason in enumerate(wrong) if reason is not None}
    sources: list[Source] = [
        None if row in bad else Channels(tuple(Path(file) for (file,) in volumes[row])) for row in range(len(ids))
    ]
    none = np.full(len(ids), -1)
    return Listing(tuple(ids), tuple(ids), tuple(sources), none, none, (), bad)
