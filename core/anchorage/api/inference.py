"""``model.json``: what a trained model needs to be used, whatever version of Anchorage trained it, and nothing of how it was trained.

Readers ignore fields that they do not know. A change that an older reader would get wrong gets another `FORMAT`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import MODEL_OF_OTHER_FORMAT, MODEL_UNUSABLE
from anchorage.api.model import (
    VOLUME_DEVIATION,
    VOLUME_MEAN,
    AugmentationKind,
    IntensityKind,
    ModelDescription,
    VolumeSpec,
)
from anchorage.api.piece import PIECES
from anchorage.api.regular_files import open_regular
from anchorage.api.slot import Slot
from anchorage.api.task import ClassName, Task

FORMAT = "anchorage-model-2"
FORMAT_WITH_INTENSITY = "anchorage-model-3"
"""Of models whose images are shown otherwise than by the bits of their files, which readers of `FORMAT` would not do."""
FORMAT_OF_VOLUMES = "anchorage-model-4"
"""Of models that take patches of volumes, which readers of the others would take for flat images."""
OLD_FORMAT = "anchorage-model-1"
"""Had classes alone, and said nothing of the head; still read."""
DESCRIPTION = "model.json"
PER_CHANNEL = "perChannel"
PER_IMAGE = "perImage"
ROLES = ("final", "best", "checkpoint")
_MOST_BYTES = 16 * 2**20
_MOST_CLASSES = 10_000

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Recorded(BaseModel):
    """Base class: frozen; camelCase in the file; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Normalisation(_Recorded):
    """How pixels become what the network takes."""

    rule: Annotated[str, StringConstraints(max_length=256)]
    """``perChannel``: values in 0 … 1 less `mean`, divided by `std`. ``perImage``: the middle three quarters of the image, less its own mean,
    divided by its own standard deviation, which counts as at least ``1 / 255 / sqrt(values)``. Else the name of an augmentation of another
    package, which is needed then."""
    mean: tuple[_Finite, ...] = ()
    std: tuple[_Positive, ...] = ()
    """Of each channel; of ``perChannel`` alone."""


class Weights(_Recorded):
    """A safetensors file beside ``model.json``."""

    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$", max_length=255)]
    digest: Annotated[str, StringConstraints(max_length=256)]
    """Content address of the tensors."""
    round: int = 0
    """The round that it was committed in."""
    time: float = 0.0
    """When it was: seconds since the epoch; 0 where that is not known."""
    metrics: Mapping[str, float | None] = {}
    """Scores of that round on the validation images, else on those that silos held out, for information."""
    thresholds: Mapping[str, Annotated[float, Field(ge=0, le=1)]] = {}
    """Probability from which on an output is called present, by its name; of tasks whose outputs are probabilities by themselves."""


class Head(_Recorded):
    """What stands behind the encoder."""

    width: Annotated[int, Field(ge=1)]
    """Of the encoder's embeddings, or channels of its maps."""
    projection: Annotated[int, Field(ge=1)] | None = None
    """Width of the projection head before the classifier; None: there is none."""
    hidden: Annotated[int, Field(ge=1)] | None = None
    """Units of a hidden layer before the classifier; None: there is none."""
    components: Annotated[int, Field(ge=1)] | None = None
    """Principal components of the embeddings that the classifier sees; None: it sees the embeddings."""
    bias: bool = True
    """Whether the classifier has a bias."""
    covariances: Literal["features", "classes"] | None = None
    """Of a classifier of Gaussians with a covariance per class: variances of features, or whole matrices; None: the classifier is linear."""
    group_norm: bool = False
    """Whether groups of channels are normalised where the architecture has batch normalisation."""


class Inference(_Recorded):
    """What ``model.json`` says."""

    task: Annotated[Task, Slot("task")]
    """Prediction task with its options, as a federation's document has it: what the network's outputs mean."""
    network: str
    """Architecture."""
    image_size: Annotated[int, Field(ge=8, le=4096)]
    """Height and width of an image in pixels."""
    channels: Annotated[int, Field(ge=1, le=16)]
    """1 for grey, 3 for RGB."""
    resizing: Literal["coverAndCrop", "containAndPad"]
    """Bilinear, antialiased. ``coverAndCrop``: the shorter side is resized to `image_size`, and the middle is cut out. ``containAndPad``: the longer
    side is, and the image lies in the middle of black."""
    normalisation: Normalisation
    intensity: Annotated[IntensityKind, Slot("intensity")] | None = None
    """Which values of an image become black and white before that; None: by the bits of its file."""
    volume: VolumeSpec | None = None
    """Spacing and patches of volumes, over which a patch slides with its overlap (`anchorage.learning.sliding_window`); None: images are flat."""
    head: Head | None = None
    """What stands behind the encoder; None in files of `OLD_FORMAT`."""
    classifier_trained: bool = True
    """Whether anything trained the classifier; a self-supervised method trains the encoder alone."""
    federation: str = ""
    """Name, for information."""
    final: Weights | None = None
    best: Weights | None = None
    checkpoint: Weights | None = None
    """The model of the last round, the best one, and the last committed one of a run that was not over; those that there are."""

    @model_validator(mode="after")
    def _numbers_per_channel(self) -> Self:
        normalisation = self.normalisation
        if normalisation.rule == PER_CHANNEL and not len(normalisation.mean) == len(normalisation.std) == self.channels:
            raise ValueError(
                f"normalisation has {len(normalisation.mean)} means and {len(normalisation.std)} deviations"
            )
        return self

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the network's outputs, in their order."""
        return self.task.outputs

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels and sides of an image, or of a patch of a volume."""
        return (self.channels, *(self.volume.voxels if self.volume else (self.image_size, self.image_size)))

    @property
    def side(self) -> int:
        """Height and width of what the network takes, in pixels."""
        rule = self.normalisation.rule
        if rule in (PER_CHANNEL, PER_IMAGE):
            return self.image_size if rule == PER_CHANNEL else self.image_size * 3 // 4
        return augmentation(rule).view_side(self.image_size)

    @property
    def fitting(self) -> Literal["Crop", "Pad"]:
        """How an image becomes square."""
        return "Crop" if self.resizing == "coverAndCrop" else "Pad"

    def choose(self, *, best: bool) -> tuple[str, Weights]:
        """Return the role of the wanted model and its weights.

        Parameters
        ----------
        best : bool
            The best model, else the last; where there is no best one, as before the run's end, the last that there is.

        Raises
        ------
        AnchorageError
            It is not there.
        """
        weights_by_role = {"best": self.best if best else None, "final": self.final, "checkpoint": self.checkpoint}
        for role, weights in weights_by_role.items():
            if weights is not None:
                return role, weights
        missing = "no file of weights" if self.best is None else "no last model, only the best one"
        raise AnchorageError(MODEL_UNUSABLE, f"{DESCRIPTION} names {missing}")


def augmentation(name: str) -> AugmentationKind:
    """Return the augmentation of this name.

    Raises
    ------
    AnchorageError
        No installed package has it.
    """
    kind = PIECES.find("augmentation", name)
    if kind is None or not issubclass(kind, AugmentationKind):
        raise AnchorageError(MODEL_UNUSABLE, f"no installed package has the augmentation {name}")
    return kind()


def describe(model: ModelDescription, federation: str, *, classifier_trained: bool) -> dict[str, Any]:
    """Return the content of ``model.json`` as JSON values, but for the weights."""
    return {
        "format": _format_of(model),
        "federation": federation,
        **model.model_dump(mode="json", by_alias=True, include={"task", "intensity", "volume"}, exclude_none=True),
        "outputs": {"kind": model.task.output_kind, "names": list(model.task.outputs)},
        "network": model.network,
        "imageSize": model.image_size,
        "channels": model.channels,
        "resizing": "coverAndCrop" if model.fitting == "Crop" else "containAndPad",
        "normalisation": _normalisation_of(model),
        "classifierTrained": classifier_trained,
    }


def _format_of(model: ModelDescription) -> str:
    if model.volume is not None:
        return FORMAT_OF_VOLUMES
    return FORMAT if model.intensity is None else FORMAT_WITH_INTENSITY


def _normalisation_of(model: ModelDescription) -> dict[str, Any]:
    if model.volume is None:
        return dict(augmentation(model.augmentation).normalisation(model.channels))
    return {"rule": PER_CHANNEL, "mean": [VOLUME_MEAN] * model.channels, "std": [VOLUME_DEVIATION] * model.channels}


def head_of(shapes: Mapping[str, Sequence[int]]) -> Head | None:
    """Return the head of a network with tensors of these names and shapes, for whoever writes ``model.json``, and for files of `OLD_FORMAT`.

    Parameters
    ----------
    shapes : mapping of str to sequence of int
        Of the network's tensors, by name, in the network's order. A task's own classifier may have several matrices: the first one takes the
        features, and the last one has the bias that the network wants, or not.

    Returns
    -------
    Head or None
        None: there is no classifier.
    """
    projection, hidden = shapes.get("projection.0.weight"), shapes.get("projection.hidden.weight")
    components = shapes.get("projection.weight")
    scale = shapes.get("classifier.scale")
    matrices = [
        n for n, shape in shapes.items() if n.startswith("classifier.") and n.endswith("weight") and len(shape) == 2
    ]
    layers = (projection, hidden, components)
    if not matrices or any(each is not None and len(each) != 2 for each in layers):
        return None
    return Head(
        width=next(each for each in (*layers, shapes[matrices[0]]) if each is not None)[1],
        projection=None if projection is None else projection[0],
        hidden=None if hidden is None else hidden[0],
        components=None if components is None else components[0],
        bias=f"{matrices[-1].removesuffix('weight')}bias" in shapes,
        covariances=None if scale is None else ("classes" if len(scale) == 3 else "features"),
        group_norm=not any(name.startswith("encoder.") and name.endswith(".running_mean") for name in shapes),
    )


def read_inference(path: Path) -> Inference:
    """Read a ``model.json``.

    Raises
    ------
    AnchorageError
        There is none, it is of another format, or a value is missing or out of range.
    """
    return parse_inference(_content_of(path), str(path))


def description_of(models: Path, role: str) -> str:
    """Return a folder's ``model.json`` as it goes with one of its models: without what is said of the others. Errors as of `read_inference`."""
    content = _content_of(models / DESCRIPTION)
    parse_inference(content, str(models / DESCRIPTION))
    values = json.loads(content)
    return json.dumps({key: item for key, item in values.items() if key not in {*ROLES} - {role}}, indent=2)


def _content_of(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise AnchorageError(MODEL_UNUSABLE, f"{path}: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise AnchorageError(MODEL_UNUSABLE, f"{path} has more than {_MOST_BYTES // 2**20} MiB")
    return content


def parse_inference(content: bytes, where: str) -> Inference:
    """Parse the content of a ``model.json``; `where` names it in messages.

    Raises
    ------
    AnchorageError
        As `read_inference`.
    """
    try:
        stated = _Stated.model_validate_json(content).format
        if stated == OLD_FORMAT:
            old = _Old.model_validate_json(content)
            values = {**json.loads(content), "task": {old.task: {"classes": list(old.classes)}}}
            return Inference.model_validate_json(json.dumps(values))
        if stated not in (FORMAT, FORMAT_WITH_INTENSITY, FORMAT_OF_VOLUMES):
            raise AnchorageError(MODEL_OF_OTHER_FORMAT, f"{where} has the format {stated or 'of Anchorage before 0.1'}")
        return Inference.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise AnchorageError(MODEL_UNUSABLE, f"{where}: {f'{field}: ' if field else ''}{first['msg']}") from error


class _Old(_Recorded):
    task: Annotated[str, StringConstraints(max_length=64)]
    classes: Annotated[tuple[ClassName, ...], Field(min_length=2, max_length=_MOST_CLASSES)]


class _Stated(_Recorded):
    format: Annotated[str, StringConstraints(max_length=64)] = ""
