"""``fedctl predict``: what a trained model says of images."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.table import Table

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.data import NO_IMAGES
from anchorage.api.task import OutputKind
from fedctl.output import Format, emit, format_count, people, plain_table
from fedctl.trained_model import TrainedModel, open_model
from fedctl.volume_prediction import predicted_volumes, volumes_table
from fedctl.writing import writing

if TYPE_CHECKING:
    from PIL import Image

    from anchorage.api.task import Task
    from anchorage.learning.data.decoding import Decoded
    from anchorage.learning.inference import ImageModel

_BACKGROUND = (0, 0, 0)
_COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (255, 255, 255),
)
"""Colours of classes that people with any colour vision tell apart (Okabe and Ito), again and again."""

BATCH = 64
"""Images that are in memory at once."""


MAPS_BATCH = 4
"""The same of a model that segments, whose maps are large."""


def predict_images(
    where: str,
    images: Sequence[Path],
    best: bool,
    grad_cam: Path | None,
    output: Format,
    masks: Path | None = None,
    channel_files: Sequence[str] = (),
) -> None:
    """Print what the model says of every image that can be read, such as its class.

    Parameters
    ----------
    where, best : str and bool
        Which model, as of `open_model`.
    images : sequence of Path
        Files, and folders, of which all images count.
    grad_cam : Path or None
        Folder for pictures.
    output : Format
        How to print; ``wide`` has the probability of every class of a classification.
    masks : Path or None
        Folder for the masks of a segmentation.
    channel_files : sequence of str
        How the names of the files of a volume's channels end, in the order of the model's channels.

    Raises
    ------
    AnchorageError
        The model cannot be used, a picture cannot be written, or (at the end) some image cannot be read.
    """
    trained = open_model(where, best=best)
    model, names = trained.image_model(), _expand(images)
    if not names:
        raise AnchorageError(NO_IMAGES, f"no images in {', '.join(map(str, images))}")
    if not trained.described.classifier_trained:
        typer.echo("the method trained no classifier: only the encoder of this model is of use", err=True)
    _refuse_options(trained, grad_cam, masks, channel_files)
    maps, volumes = trained.described.task.gives_maps, trained.described.volume is not None
    predictions: list[Mapping[str, Any]] = []
    unusable: list[dict[str, str]] = []
    if volumes:
        predictions += predicted_volumes(model, names, masks, unusable, channel_files)
    size = MAPS_BATCH if maps else BATCH
    for start in range(0, 0 if volumes else len(names), size):
        some = names[start : start + size]
        if maps:
            predictions += _predict_masks(model, some, start, masks, unusable)
        else:
            predictions += _predict_classes(model, some, start, grad_cam, unusable, trained.chosen.weights.thresholds)
    for bad in unusable:
        typer.echo(f"{bad['image']}: {bad['reason']}: {bad['message']}", err=True)
    _show(trained, predictions, unusable, masks, grad_cam, output)
    if unusable:
        raise AnchorageError(
            commands.IMAGES_UNUSABLE, f"{len(unusable)} of {format_count(len(names), 'image')} cannot be used"
        )


def _refuse_options(
    trained: TrainedModel, grad_cam: Path | None, masks: Path | None, channel_files: Sequence[str]
) -> None:
    """Refuse options that are of another kind of model.

    Raises
    ------
    BadParameter
        One is.
    """
    maps = trained.described.task.gives_maps
    if maps and grad_cam is not None:
        raise typer.BadParameter(
            "--grad-cam shows what speaks for a class of a whole image; a segmentation has --masks"
        )
    if masks is not None and not maps:
        raise typer.BadParameter(f"--masks is of segmentations; the model's task is {trained.described.task.name}")
    channels = trained.described.channels if trained.described.volume is not None else 0
    if channel_files and len(channel_files) != channels:
        what = f"volumes of {format_count(channels, 'channel')}" if channels else "flat images"
        raise typer.BadParameter(f"--channel-files names {len(channel_files)} channels; the model takes {what}")


def _show(
    trained: TrainedModel,
    predictions: Sequence[Mapping[str, Any]],
    unusable: Sequence[Mapping[str, str]],
    masks: Path | None,
    grad_cam: Path | None,
    output: Format,
) -> None:
    """Print predictions, as a table or a document."""
    if output.for_people:
        typer.echo(str(trained.chosen), err=True)
        task = trained.described.task
        if trained.described.volume is not None:
            table = volumes_table(predictions, task, masks)
        elif task.gives_maps:
            table = _areas(predictions, task, masks)
        else:
            table = _table(predictions, task, grad_cam, wide=output is Format.WIDE)
        people().print(table)
        if trained.chosen.weights.thresholds:
            typer.echo("* reaches the finding's threshold (thresholds in -o json and in the model card)", err=True)
    else:
        emit(
            {
                "model": trained.chosen.values(),
                "predictions": predictions,
                **({"unusable": unusable} if unusable else {}),
            },
            output,
        )


def _expand(images: Sequence[Path]) -> list[Path]:
    """Put in a folder's place the images below it, sorted; hidden ones, and those of hidden folders, are left out."""
    return [image_path for image in images for image_path in (_below(image) if image.is_dir() else [image])]


def _below(folder: Path) -> list[Path]:
    from anchorage.learning.data.decoders import is_image

    shown = (
        path
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return [path for path in shown if not path.is_dir() and is_image(str(path), path.name)]


def _predict_classes(
    model: "ImageModel",
    names: Sequence[Path],
    start: int,
    grad_cam: Path | None,
    unusable: list[dict[str, str]],
    thresholds: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    """Yield what is told of a batch's images; those that cannot be read are added to `unusable`."""
    described, ids = model.described, tuple(map(str, names))
    good = _decode(model, names, unusable)
    if not good:
        return
    pixels = _pixels(good)
    scores = model.score(pixels)
    greatest = np.argsort(-scores, axis=1, kind="stable")[:, 0]
    files = [f"{start + row:04d}-{names[row].stem}.png" for row, _ in good]
    pictures = _draw(model, pixels, greatest, grad_cam, files) if grad_cam else [None] * len(good)
    for (row, _), score, picture in zip(good, scores, pictures, strict=True):
        of_image = (score.tolist(), thresholds) if thresholds else (score.tolist(),)
        prediction = {"image": ids[row], **described.task.prediction(*of_image)}
        yield {**prediction, "gradCam": picture} if picture else prediction


def _decode(
    model: "ImageModel", names: Sequence[Path], unusable: list[dict[str, str]]
) -> Sequence[tuple[int, "Decoded"]]:
    """Return the images of a batch that can be read, each behind its place; the others are added to `unusable`."""
    from anchorage.learning.data.decoders import input_of
    from anchorage.learning.data.decoding import Decoded
    from anchorage.learning.data.listed_images import decode
    from anchorage.learning.data.listing import Listing

    described, ids = model.described, tuple(map(str, names))
    none = np.full(len(ids), -1)
    listing = Listing(ids, ids, tuple(names), none, none, (), {})
    good: list[tuple[int, Decoded]] = []
    for row, image in enumerate(decode(listing, input_of(described))):
        if isinstance(image, Decoded):
            good.append((row, image))
        else:
            unusable.append({"image": image.id, "reason": image.reason, "message": image.detail})
    return good


def _pixels(good: Sequence[tuple[int, "Decoded"]]) -> Any:
    """Return the pixels of images together, of as many levels as any of them has."""
    from anchorage.learning.data.decoding import with_levels_of

    deepest = max((image.pixels.dtype for _, image in good), key=lambda dtype: dtype.itemsize)
    return np.stack([with_levels_of(image.pixels, deepest) for _, image in good])


def _predict_masks(
    model: "ImageModel", names: Sequence[Path], start: int, folder: Path | None, unusable: list[dict[str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield which share of each image every class covers; masks on the images' own grids go into the folder."""
    from anchorage.learning.data.decoding import unfit_mask

    described = model.described
    good = _decode(model, names, unusable)
    if not good:
        return
    maps = model.maps(_pixels(good))
    for (row, image), predicted in zip(good, maps, strict=True):
        mask = unfit_mask(predicted, image.upright, described.fitting)
        shares = np.bincount(mask.ravel(), minlength=len(described.outputs)) / mask.size
        prediction = {"image": str(names[row]), **described.task.prediction(shares.tolist())}
        if folder is None:
            yield prediction
            continue
        file = folder / f"{start + row:04d}-{names[row].stem}.png"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _with_palette(mask).save(file)
        yield {**prediction, "mask": str(file)}


def _with_palette(mask: Any) -> "Image.Image":
    """Return a mask as an image whose pixels are the classes, shown in a colour each; the background is black."""
    from PIL import Image

    picture = Image.fromarray(mask).convert("P")
    picture.putpalette([channel for colour in (_BACKGROUND, *(_COLOURS * 32)[:255]) for channel in colour])
    return picture


def _areas(predictions: Sequence[Mapping[str, Any]], task: "Task", masks: Path | None) -> Table:
    """Write a row per image: the share of it that each class but the background covers."""
    table = plain_table("image", *task.outputs[1:], *(["mask"] if masks else []))
    for row in predictions:
        cells = [f"{share:.2%}" for share in row["area"].values()]
        table.add_row(row["image"], *cells, *([row["mask"]] if masks else []))
    return table


def _draw(model: "ImageModel", pixels: Any, outputs: Any, folder: Path, names: Sequence[str]) -> Sequence[str | None]:
    """Write a picture per image of what speaks for its output of this number, and return their paths."""
    from anchorage.learning.grad_cam import heat, picture

    files = [folder / name for name in names]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, image, heat_map in zip(files, pixels, heat(model, pixels, outputs), strict=True):
            picture(image, heat_map).save(file)
    return [str(file) for file in files]


def _table(predictions: Sequence[Mapping[str, Any]], task: "Task", grad_cam: Path | None, *, wide: bool) -> Table:
    """Write a row per image: the class with its probability, `wide` with those of all; of other tasks every number, and a mark at what is present."""
    exclusive = task.output_kind is OutputKind.EXCLUSIVE
    names = task.outputs if wide or not exclusive else ()
    first = ("class", "probability") if exclusive else ()
    table = plain_table("image", *first, *names, *(["grad-cam"] if grad_cam else []))
    for row in predictions:
        numbers = row.get("probabilities") or row["values"]
        class_cells = (row["class"], f"{numbers[row['class']]:.4f}") if exclusive else ()
        present = row.get("findings", ())
        cells = [f"{numbers[name]:.4f}{' *' if name in present else ''}" for name in names]
        table.add_row(row["image"], *class_cells, *cells, *([row["gradCam"]] if grad_cam else []))
    return table
