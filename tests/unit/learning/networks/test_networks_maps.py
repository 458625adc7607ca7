"""Networks that give maps: sizes, embeddings, no statistics, and the same weights from the same seed."""

from importlib.util import find_spec

import pytest

pytest.importorskip("torch")

import torch

from anchorage.api.model import ModelDescription
from anchorage.learning.device import calculation
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods.preset import slots
from anchorage.pieces.task.segmentation import Segmentation

TASK = Segmentation(classes=("background", "lesion", "scar"))
WEIGHTS = {
    "SmallUNet": 122_312,
    "monai/BasicUNet": 1_978_400,
    "monai/UNet": 1_631_489,
    "monai/SegResNet": 394_968,
    "monai/DynUNet": 7_761_952,
}
"""Of the encoders, for one channel."""


def built(name, side=24, channels=1, seed=1):
    if name.startswith("monai/") and find_spec("monai") is None:
        pytest.skip("MONAI is not installed")
    model = ModelDescription(network=name, task=TASK, image_size=side, channels=channels)
    return build_model(model, TrainingMethod.of(slots("FedAvg")), seed)


@pytest.mark.parametrize("name", WEIGHTS)
def test_logits_have_the_size_of_the_images(name):
    # in float64, where kernels that take two images in another order than one differ by far less than a normalisation would
    network = built(name).eval().double()
    images = torch.randn(2, 1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    with torch.no_grad(), calculation():
        logits, embedded = network(images), network.embed(images)
        # each image by itself: nothing is normalised over a batch
        assert torch.allclose(network(images[:1]), logits[:1], rtol=0, atol=1e-9)
    assert logits.shape == (2, 3, 24, 24) and embedded.shape == (2, network.width)
    assert not [name for name, _ in network.named_buffers()]
    assert sum(p.numel() for p in network.encoder.parameters()) == WEIGHTS[name]


@pytest.mark.parametrize("side", [8, 17, 30])
def test_any_side_is_padded_and_cut(side):
    network = built("SmallUNet", side, 3).eval()
    assert network(torch.zeros(1, 3, side, side)).shape == (1, 3, side, side)


@pytest.mark.parametrize("name", ["SmallUNet", "monai/UNet"])
def test_weights_are_drawn_from_the_seed(name):
    first, rebuilt, other = built(name), built(name), built(name, seed=2)
    for key, tensor in first.state_dict().items():
        assert torch.equal(tensor, rebuilt.state_dict()[key]), key
    assert not torch.equal(first.classifier.weight, other.classifier.weight)


def test_the_head_alone_trains():
    model = ModelDescription(network="SmallUNet", task=TASK, image_size=16, channels=1, trainable="Head")
    network = build_model(model, TrainingMethod.of(slots("FedAvg")), 1)
    assert {name for name, p in network.named_parameters() if p.requires_grad} == {
        "classifier.weight",
        "classifier.bias",
    }
