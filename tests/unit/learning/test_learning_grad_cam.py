"""Grad-CAM against a case computed by hand."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from anchorage.api.errors import AnchorageError
from anchorage.api.inference import describe, parse_inference
from anchorage.api.model import ModelDescription
from anchorage.learning.grad_cam import heat, picture
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification

SIDE = 8


def model_of(encoder: nn.Module | None, augmentation: str = "Digits") -> ImageModel:
    """Two classes; the classifier reads two features: class 0 the first less the second, class 1 the reverse."""
    spec = ModelDescription(
        network="SmallCnn",
        task=Classification(classes=("a", "b")),
        image_size=SIDE,
        channels=1,
        augmentation=augmentation,
    )
    network = build_model(spec, TrainingMethod.of(PRESETS["FedAvg"].slots), 1)
    text = json.dumps(describe(spec, "f", classifier_trained=True))
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    made = ImageModel(parse_inference(text.encode(), ""), arrays)
    if encoder is not None:
        made.network.encoder, made.network.classifier = encoder, nn.Linear(2, 2, bias=False)
        made.network.classifier.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    return made.requires_grad_(False)


class Means(nn.Module):
    """Two maps, the values and their half, and the mean of each."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 1, bias=False)
        self.convolution.weight.data = torch.tensor([1.0, 0.5]).view(2, 1, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x).mean((2, 3))


def test_heat_is_that_of_the_equations() -> None:
    """The gradient of a class's output by a map is ±1/64 everywhere: eq. 1 weighs the maps by it, and eq. 2 leaves ±(v - v/2)/64 above 0."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, SIDE, SIDE), np.uint8)
    values = (pixels[0, 0] / 255 - 0.5) / 0.5
    for number, sign in enumerate((1, -1)):
        wanted = np.maximum(sign * values, 0)
        (heatmap,) = heat(model_of(Means()), pixels, np.array([number]))
        np.testing.assert_allclose(heatmap, wanted / wanted.max(), atol=1e-6)


def test_nothing_is_hot_where_nothing_speaks_for_the_class() -> None:
    white = np.full((1, 1, SIDE, SIDE), 255, np.uint8)
    assert not heat(model_of(Means()), white, np.array([1])).any()


def test_of_a_network_that_sees_the_middle_only_the_middle_is_hot() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, SIDE, SIDE), np.uint8)
    heatmap = heat(model_of(Means(), "CroppedNatural"), pixels, np.array([0, 1]))
    assert heatmap.shape == (2, SIDE, SIDE) and heatmap[:, 1:7, 1:7].any()
    heatmap[:, 1:7, 1:7] = 0
    assert not heatmap.any()


def test_a_real_network_keeps_its_scores_and_has_heat() -> None:
    made = model_of(None)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, SIDE, SIDE), np.uint8)
    before = made.score(pixels)
    heatmap = heat(made, pixels, before.argmax(1))
    assert heatmap.dtype == np.float32 and heatmap.min() >= 0 and heatmap.max() <= 1
    np.testing.assert_array_equal(made.score(pixels), before)


def test_a_network_without_convolutions_is_told() -> None:
    with pytest.raises(AnchorageError, match="has no convolution"):
        heat(
            model_of(nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2))),
            np.zeros((1, 1, SIDE, SIDE), np.uint8),
            np.array([0]),
        )


def test_a_picture_without_heat_is_the_image() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 300, 300), np.uint8)
    shown = np.asarray(picture(pixels, np.zeros((300, 300), np.float32)))
    np.testing.assert_array_equal(shown, pixels.transpose(1, 2, 0))
    hottest = np.asarray(picture(pixels * 0, np.ones((300, 300), np.float32)))
    assert hottest[0, 0].tolist() == [166, 166, 0]  # 0.65 of yellow
