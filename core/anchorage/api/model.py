"""The network that is trained."""

from collections.abc import Mapping
from importlib.util import find_spec
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from anchorage.api.base import TRAINABLE_PATTERN, WEIGHTS_PATTERN, AboveZero, Document, Fraction
from anchorage.api.data import PathBelow
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import PACKAGE_MISSING
from anchorage.api.mistakes import suggest
from anchorage.api.piece import PIECES, Piece
from anchorage.api.slot import UNKNOWN_ALTERNATIVE, Kind, Slot
from anchorage.api.task import Task

WEIGHTS_CLAIM = "weights"
"""Folder of pretrained weights below the data root; on a cluster a volume claim of this name."""

REGISTERED = "models:/"
"""Begins the name of weights that are a registered model of MLflow."""

WeightsName = Annotated[str, StringConstraints(strict=True, max_length=256, pattern=WEIGHTS_PATTERN)]
"""Name of pretrained weights: a library's own, the one that they were imported with, or a registered model as MLflow writes it."""

Trainable = Annotated[str, StringConstraints(strict=True, pattern=TRAINABLE_PATTERN, max_length=1024)]
"""Which tensors train."""


class NetworkKind(Piece):
    """What documents need to know of a network."""

    least_side: ClassVar[int] = 1
    """Smallest side of a view in pixels."""

    members: ClassVar[tuple[str, ...]] = ()
    """Of a library: the names of its networks; empty where only the library knows them."""

    package: ClassVar[str] = ""
    """Of a library: the package that must be installed where the network is built."""

    member: str = Field("", description="Name of the network in its library.")

    @property
    def gives_maps(self) -> bool:
        """Whether it gives a map of features for each image, as segmentations need it, and not one vector."""
        return False

    @property
    def takes_volumes(self) -> bool:
        """Whether it can be built for volumes (`ModelSpec.volume`), too."""
        return False

    def takes(self, side: int) -> bool:
        """Return whether views may have this side in pixels."""
        return side >= self.least_side


class AugmentationKind(Piece):
    """What documents need to know of an augmentation."""

    moves_masks: ClassVar[bool] = False
    """Whether masks move with its views (`anchorage.learning.data.augmentation.Augmentation.with_masks`), which have the size of the images."""

    def view_side(self, image_size: int) -> int:
        """Return the side of a view of images of a side, in pixels."""
        return image_size

    def normalisation(self, channels: int) -> Mapping[str, Any]:
        """Return how images become a network's input, as ``model.json`` says it (`anchorage.api.inference.Normalisation`): by this name."""
        return {"rule": self.name}


class IntensityKind(Piece):
    """What documents need to know of an intensity."""


def network_called(name: str) -> NetworkKind:
    """Return the network that documents call so; ``torchvision/resnet18`` is the member ``resnet18`` of the library ``torchvision/``.

    Raises
    ------
    KeyError
        No installed package has it.
    ValueError
        A package registered something else.
    """
    library, slash, member = name.partition("/")
    network = PIECES["network", library + slash](**{"member": member} if slash else {})
    if not isinstance(network, NetworkKind):
        raise ValueError(f"found {name}, which is no Network; mend its package")
    return network


def _apart(network: str) -> bool:
    """Return whether a network is that of another package, which this process does not load."""
    library, slash, _ = network.partition("/")
    return PIECES.apart("network", library + slash)


def require_package(network: str) -> None:
    """Check that the library of a network is installed; nothing of it is imported.

    Raises
    ------
    AnchorageError
        PACKAGE_MISSING: it is not.
    """
    package = network_called(network).package
    if package and find_spec(package) is None:
        extra = "learning" if package == "torchvision" else package
        message = (
            f"{network} needs {package}, which is not installed; install it with: pip install 'anchorage[{extra}]'"
        )
        raise AnchorageError(PACKAGE_MISSING, message)


class LowRank(Document):
    """Low-rank adapters of frozen weights (LoRA; Hu et al. 2021, arXiv:2106.09685)."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(
        8, description="Rank of the LoRA matrices. A higher rank trains and sends more parameters."
    )
    alpha: Annotated[int, Field(ge=1, le=1024)] = Field(
        8, description="LoRA scaling: adapter outputs are multiplied by alpha / rank."
    )


MOST_VOXELS = 1 << 24
"""Of a patch."""
VOLUME_MEAN, VOLUME_DEVIATION = 0.5, 0.25
"""By which values of volumes in 0 … 1 are normalised: `zScore` shows its mean as 0.5, and 2.5 standard deviations are 0.25."""


NanVoxels = Literal["Refuse", "Zero"]
"""What becomes of voxels that are no numbers."""
Orientation = Literal["Anatomical", "AsStored"]
"""How the axes of a volume come to a network."""


class VolumeSpec(Document):
    """Volumes, such as CT and MR series, of which a network sees patches; axes lead as `orientation` says."""

    spacing: Annotated[tuple[AboveZero, ...], Field(min_length=3, max_length=3)] = Field(
        description="Distance of neighbouring voxels along the three axes (to the right, to the front, to the head) in mm, to which "
        "volumes are resampled."
    )
    patch: Annotated[tuple[Annotated[int, Field(ge=8, le=1024)], ...], Field(min_length=3, max_length=3)] = Field(
        description="Voxels of a patch along the three axes: the network's input. Smaller volumes are padded."
    )
    patches_per_case: Annotated[int, Field(ge=1, le=64)] = Field(
        2,
        description="Patches that are drawn of each volume of a batch: a step learns batchSize times as many.",
    )
    foreground_share: Fraction = Field(
        "0.5",
        description="Share of the patches whose centre is a voxel of a foreground class; classes of a volume are drawn evenly. The others "
        "lie anywhere.",
    )
    overlap: Fraction = Field(
        "0.5",
        description="Overlap of neighbouring patches where whole volumes are predicted: a share of the patch, below 1. More is slower and smoother.",
    )
    flips: Literal["None", "Random"] = Field(
        "None",
        description="Random: half of the patches are mirrored along each axis. Only for what has no left and right: a mirrored body has "
        "its organs on the other side.",
    )

    orientation: Orientation = Field(
        "Anatomical",
        description="Anatomical: volumes are turned so that their axes lead to the right, to the front and to the head; a volume whose header "
        "does not say where they lead is a bad image. AsStored: no volume is turned, and `spacing` is along the file's axes; only where "
        "all sites store their volumes alike, since left and right, front and back are mixed up otherwise.",
    )
    nan_voxels: NanVoxels = Field(
        "Refuse",
        description="Voxels that are no numbers (NaN), as tools that cut out the brain write around it. Refuse: such a volume is a bad "
        "image. Zero: they are 0, also in use. Infinite values are refused.",
    )

    @property
    def millimetres(self) -> tuple[float, float, float]:
        """The spacing."""
        first, second, third = map(float, self.spacing)
        return first, second, third

    @property
    def voxels(self) -> tuple[int, int, int]:
        """The patch."""
        first, second, third = self.patch
        return first, second, third

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if prod(self.patch) > MOST_VOXELS:
            raise ValueError(f"found a patch of {prod(self.patch)} voxels, allowed are at most {MOST_VOXELS}")
        if float(self.overlap) >= 1:
            raise ValueError(f"found overlap {self.overlap}, allowed is a share below 1")
        if not all(0.05 <= side <= 50 for side in self.millimetres):
            raise ValueError(f"found spacing {', '.join(self.spacing)}, allowed are 0.05 to 50 mm")
        return self


def _side(model_fields: dict[str, Any]) -> int:
    """Return the size that a document does not state: the longest side of its patches; 0 where it has none."""
    volume = model_fields.get("volume")
    return max(volume.patch) if isinstance(volume, VolumeSpec) else 0


class ModelSpec(Document):
    """A network and the images that it takes."""

    network: Annotated[str, Kind("network")] = Field(
        description="Architecture: a network of Anchorage, or torchvision/NAME, timm/NAME or monai/NAME. ResNet18 has the 3×3 stem for "
        "small images, ResNet18ImageNet the 7×7 stem for large ones."
    )
    volume: VolumeSpec | None = Field(
        None,
        description="Spacing and patches, for volumes such as CT and MR series in place of flat images. Absent: images are flat, and have "
        "imageSize.",
    )
    image_size: Annotated[int, Field(ge=8, le=4096)] = Field(
        default_factory=_side,
        description="Height and width of the network's input in pixels, to which images are fitted as `fit` says. Absent only with `volume`.",
    )
    fit: Literal["Crop", "Pad"] | None = Field(
        None,
        description="How an image becomes square. Crop: its shorter side is scaled to imageSize, and the centre is cropped. Pad: its "
        "longer side is scaled to it, and the rest is black. Absent: Pad for a segmentation, Crop for other tasks.",
    )
    channels: Annotated[int, Field(ge=1, le=16)] = Field(
        3,
        description="Number of channels of the network's input. Images are converted to 1 (grey) or 3 (RGB). With `volume`: as many as a "
        "file has along its last axis, or as `channelFiles` of a data section names.",
    )
    augmentation: Annotated[str, Kind("augmentation")] = Field(
        "Natural",
        description="Kind of image, which decides normalisation and augmentation. Not used with `volume`.",
    )
    intensity: Annotated[IntensityKind, Slot("intensity")] | None = Field(
        None,
        description=(
            "Which values of an image become black and white, at every site and in use. Set it for CT, MR and radiographs. Absent: "
            "white is the largest value that a file's bits can hold."
        ),
    )
    trainable: Trainable = Field(
        "All",
        description="Which parameters train: All, Head (the classifier and the method's other heads), or names of the encoder's tensors or "
        "modules, where * stands for any text. Heads always train. Frozen parameters are sent to a silo only once. In a run with "
        "warmUp all of the encoder is frozen in stages where no silo trains, such as SharesHead.",
    )
    hidden: Annotated[int, Field(ge=1, le=8192)] | None = Field(
        None,
        description=(
            "Number of units of a hidden layer before the classifier, which always trains; useful with a frozen encoder. Absent: "
            "no hidden layer."
        ),
    )
    principal_components: Annotated[int, Field(ge=1, le=8192)] | None = Field(
        None,
        description=(
            "Number of principal components of the frozen encoder's features that the classifier sees in their place, found in one "
            "round: `warmUp: [{method: PrincipalComponents, rounds: 1}]`. Sums of features are then a tenth or less. They stay as they "
            "are where the encoder trains later. Absent: the classifier sees the features."
        ),
    )
    lora: LowRank | None = Field(
        None,
        description="Low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685) that train in place of frozen weights. Needs `trainable: "
        "Head` or names; absent: none.",
    )
    initial: PathBelow | None = Field(
        None,
        description="Safetensors file with initial weights, a path below the data root. Absent: as `weights` says.",
    )
    weights: WeightsName | None = Field(
        None,
        description="Name of pretrained weights that were stored by `fedctl weights`. Absent: the weights in `initial`, else random ones.",
    )

    @property
    def starts_trained(self) -> bool:
        """Whether training starts from weights that are not random."""
        return self.initial is not None or self.weights is not None

    @field_validator("network")
    @classmethod
    def _known_member(cls, name: str) -> str:
        if _apart(name):  # checked where the network is built
            return name
        network = network_called(name)
        if network.members and network.member not in network.members:
            near = suggest(name, [network.name + member for member in network.members])
            raise PydanticCustomError(
                UNKNOWN_ALTERNATIVE, f"found {name!r}, {near}docs/networks.md names those of {network.name}"
            )
        return name

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.initial is not None and self.weights is not None:
            raise ValueError("found initial and weights, but training starts from one of them")
        return self

    @model_validator(mode="after")
    def _something_frozen(self) -> Self:
        if self.lora is not None and self.trainable == "All":
            raise ValueError("found lora, but trainable All leaves nothing frozen to adapt; set trainable: Head")
        return self

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels and sides of what the network learns: of an image, or of a patch of a volume."""
        return (self.channels, *(self.patch or (self.image_size, self.image_size)))

    @property
    def input_text(self) -> str:
        """What the network takes, in words."""
        if self.volume is None:
            return f"images of {self.image_size} pixels and {self.channels} channels"
        sides = "×".join(map(str, self.volume.patch))
        return f"patches of {sides} voxels, {' × '.join(self.volume.spacing)} mm each, and {self.channels} channels"

    @property
    def patch(self) -> tuple[int, int, int] | None:
        """Sides of the patches of volumes; None: images are flat."""
        return None if self.volume is None else self.volume.voxels

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.volume is None and not self.image_size:
            raise ValueError("found neither imageSize nor volume; say how large the network's input is: imageSize: 64")
        if self.volume is not None and self.image_size != max(self.volume.patch):
            raise ValueError(
                f"found imageSize {self.image_size} beside volume, whose patch is the network's input; leave imageSize out"
            )
        return self

    @model_validator(mode="after")
    def _colours(self) -> Self:
        if self.volume is None and self.channels not in (1, 3):
            raise ValueError(
                f"found {self.channels} channels, allowed are 1 for grey and 3 for RGB; volumes may have others"
            )
        return self

    @model_validator(mode="after")
    def _taken_size(self) -> Self:
        if self.volume is not None or _apart(self.network) or PIECES.apart("augmentation", self.augmentation):
            return self
        network, views = network_called(self.network), PIECES["augmentation", self.augmentation]()
        if not isinstance(views, AugmentationKind):
            raise ValueError(f"found {self.augmentation}, which is no ImageAugmentation; mend its package")

        def find_taken(sizes: range) -> int | None:
            return next((size for size in sizes if network.takes(views.view_side(size))), None)

        if find_taken(range(self.image_size, self.image_size + 1)) is None:
            below, above = find_taken(range(self.image_size, 7, -1)), find_taken(range(self.image_size, 4097))
            nearest = f"of at least {above} pixels" if below is None else f"of {below} or {above} pixels"
            raise ValueError(f"found imageSize {self.image_size}, but {self.network} takes images {nearest}")
        return self


class ModelDescription(ModelSpec):
    """A network with the task that it is for: all that is needed to build it."""

    task: Annotated[Task, Slot("task")] = Field(description="What the model tells of an image.")

    @property
    def num_outputs(self) -> int:
        """Width of the head: classes, or whatever the task's outputs are."""
        return len(self.task.outputs)

    @property
    def fitting(self) -> Literal["Crop", "Pad"]:
        """How an image becomes square."""
        return self.fit or self.task.fit
