"""The network that is trained."""

from collections.abc import Mapping
from itertools import count
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from anchorage.api.base import Document
from anchorage.api.data import PathBelow
from anchorage.api.piece import PIECES, Piece
from anchorage.api.slot import Kind, Slot
from anchorage.api.task import Task


class NetworkKind(Piece):
    """What documents need to know of a network."""

    least_side: ClassVar[int] = 1
    """Smallest side of a view in pixels."""


class AugmentationKind(Piece):
    """What documents need to know of an augmentation."""

    def view_side(self, image_size: int) -> int:
        """Return the side of a view of images of a side, in pixels."""
        return image_size

    def normalisation(self, channels: int) -> Mapping[str, Any]:
        """Return how images become a network's input, as ``model.json`` says it (`anchorage.api.inference.Normalisation`): by this name."""
        return {"rule": self.name}


class ModelSpec(Document):
    """A network and the images it takes (methods reference, section 5.1)."""

    network: Annotated[str, Kind("network")] = Field(
        description="Architecture. ResNet18: 3×3 stem for small images. ResNet18ImageNet: 7×7 stem."
    )
    image_size: Annotated[int, Field(ge=8, le=4096)] = Field(description="Height and width of an image in pixels.")
    channels: Literal[1, 3] = Field(3, description="Planes of an image: 1 for grey, 3 for RGB.")
    augmentation: Annotated[str, Kind("augmentation")] = Field(
        "Natural",
        description="Kind of image: decides normalisation, flips and strong augmentation (methods reference, section 5.2).",
    )
    initial: PathBelow | None = Field(
        None, description="Safetensors file below the data root with the weights to start from; absent: random weights."
    )

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        network, views = PIECES.of("network")[self.network], PIECES.of("augmentation")[self.augmentation]()
        if not issubclass(network, NetworkKind) or not isinstance(views, AugmentationKind):
            found = f"found {self.network} and {self.augmentation}, of which one is no Network or ImageAugmentation"
            raise ValueError(f"{found}; mend its package")
        if views.view_side(self.image_size) < network.least_side:
            least = next(side for side in count(self.image_size) if views.view_side(side) >= network.least_side)
            found = f"found imageSize {self.image_size}, but {self.network} takes images of at least {least} pixels"
            raise ValueError(found)
        return self


class ModelDescription(ModelSpec):
    """A network with the task that it is for: all that is needed to build it."""

    task: Annotated[Task, Slot("task")] = Field(description="What the model tells of an image.")

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the outputs."""
        return self.task.classes

    @property
    def num_classes(self) -> int:
        """Width of the classifier."""
        return len(self.task.classes)
