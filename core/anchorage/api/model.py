"""The network that is trained."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from anchorage.api.base import Document
from anchorage.api.data import AugmentationName, PathBelow

_LEAST_SIDE = 16
"""Pixels that two convolutions of 5x5 without padding and two halvings leave something of."""


class ModelSpec(Document):
    """A network and the images it takes (METHODS.md section 5.1)."""

    name: Literal[
        "SmallCnn",
        "ResNet18",
        "ResNet18ImageNet",
        "WideResNet28x2",
        "MoonCnn",
        "TutorialCnn",
        "LeafCnn",
        "ResNet9",
    ] = Field(description="Architecture: ResNet18 has the 3×3 stem for small images, ResNet18ImageNet the 7×7 stem.")
    num_classes: Annotated[int, Field(ge=2, le=10_000)] = Field(description="Width of the classifier.")
    image_size: Annotated[int, Field(ge=8, le=4096)] = Field(description="Height and width of an image in pixels.")
    channels: Literal[1, 3] = Field(3, description="Planes of an image: 1 for grey, 3 for RGB.")
    augmentation: AugmentationName = Field(
        "Natural",
        description="Kind of image: decides normalisation, flips and strong augmentation (METHODS.md section 5.2).",
    )
    initial: PathBelow | None = Field(
        None, description="Safetensors file below the data root with the weights to start from; absent: random weights."
    )

    @model_validator(mode="after")
    def _large_enough(self) -> Self:
        least = _LEAST_SIDE if self.augmentation != "CroppedNatural" else -(-_LEAST_SIDE * 4 // 3)
        if self.name == "MoonCnn" and self.image_size < least:
            raise ValueError(f"found imageSize {self.image_size}, but MoonCnn takes images of at least {least} pixels")
        return self
