"""Networks of torchvision, timm and MONAI: fitted to small and grey images, with the libraries' own weights otherwise."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from library_networks import built, model_of, needs_monai, needs_timm
from pydantic import ValidationError
from torch import Tensor, nn
from torchvision.models import get_model_weights, list_models

from anchorage.api.errors import AnchorageError, commands, learning
from anchorage.api.inference import describe, parse_inference
from anchorage.api.model import ModelDescription, ModelSpec, network_called, require_package
from anchorage.api.piece import PIECES
from anchorage.learning.exporting import save_program
from anchorage.learning.grad_cam import heat
from anchorage.learning.inference import ImageModel
from anchorage.learning.models import build_encoder
from anchorage.learning.network import Network
from anchorage.learning.networks.zoo import ZooEncoder
from anchorage.learning.weights import layout_of
from anchorage.pieces.network.torchvision import Torchvision
from anchorage.transport.tensors.layout import BUFFERS

LISTED = [
    "resnet18",
    "resnet34",
    "resnet50",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "mobilenet_v3_large",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
]
FAMILIES = [*LISTED, "swin_v2_t", "shufflenet_v2_x1_0", "mnasnet0_5", "mobilenet_v2", "resnext50_32x4d"]
TIMM = ["resnet18", "efficientnet_b0", "convnext_atto", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"]


def encoder_of(name: str, channels: int, side: int, device: str = "meta") -> nn.Module:
    network: Any = network_called(name)
    with torch.device(device):
        encoder: nn.Module = network.encoder(channels, side)
    return encoder


def first_convolution(encoder: nn.Module) -> nn.Conv2d:
    return next(layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d))


def test_every_member_is_a_network_of_torchvision() -> None:
    assert set(LISTED) <= set(Torchvision.members) <= set(list_models())


@pytest.mark.parametrize("member", [name for name in Torchvision.members if "regnet" not in name])
def test_networks_have_as_many_parameters_as_torchvision_publishes(member: str) -> None:
    encoder = encoder_of(f"torchvision/{member}", 3, 224)
    parameters = sum(p.numel() for p in encoder.parameters()) + encoder.width * 1000 + 1000
    assert parameters in {weights.meta["num_params"] for weights in get_model_weights(member)}


def test_a_network_that_torchvision_cannot_count_without_memory_has_its_parameters_too() -> None:
    encoder = encoder_of("torchvision/regnet_y_400mf", 3, 224, "cpu")
    parameters = sum(p.numel() for p in encoder.parameters()) + encoder.width * 1000 + 1000
    assert parameters == get_model_weights("regnet_y_400mf").DEFAULT.meta["num_params"]


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (48, 1), (64, 1), (224, 3)])
@pytest.mark.parametrize("member", FAMILIES)
def test_networks_embed_images_of_every_size(member: str, side: int, channels: int) -> None:
    encoder = encoder_of(f"torchvision/{member}", channels, side).train()
    embedded = encoder(torch.empty(2, channels, side, side, device="meta"))
    assert embedded.shape == (2, encoder.width) and embedded.dtype == torch.float32
    assert first_convolution(encoder).in_channels == channels


@pytest.mark.parametrize(
    ("member", "side", "kernel", "stride", "maps"),
    [
        ("resnet18", 63, 3, 1, 8),  # the stem keeps the image, three blocks halve it
        ("resnet18", 64, 7, 2, 2),
        ("densenet121", 32, 3, 1, 4),
        ("densenet121", 64, 7, 2, 2),
        ("efficientnet_b0", 32, 3, 1, 2),
        ("efficientnet_b0", 64, 3, 2, 2),
        ("mobilenet_v3_large", 32, 3, 1, 2),
        ("convnext_tiny", 32, 2, 2, 2),
        ("convnext_tiny", 64, 4, 4, 2),
    ],
)
def test_the_first_layer_keeps_small_images(member: str, side: int, kernel: int, stride: int, maps: int) -> None:
    encoder = encoder_of(f"torchvision/{member}", 3, side)
    first, inputs = first_convolution(encoder), list[Tensor]()
    last = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)][-1]
    last.register_forward_hook(lambda _layer, _inputs, output: inputs.append(output))
    encoder(torch.empty(2, 3, side, side, device="meta"))
    assert (first.kernel_size, first.stride) == ((kernel, kernel), (stride, stride))
    assert inputs[-1].shape[2:] == (maps, maps)


@pytest.mark.parametrize(("side", "patches"), [(28, 49), (32, 64), (64, 16), (224, 196)])
def test_a_vision_transformer_has_smaller_patches_of_small_images(side: int, patches: int) -> None:
    encoder = encoder_of("torchvision/vit_b_16", 1, side)
    assert encoder.get_parameter("network.encoder.pos_embedding").shape == (1, patches + 1, 768)
    assert first_convolution(encoder).in_channels == 1


@pytest.mark.parametrize(
    ("network", "side", "nearest"),
    [
        ("torchvision/vit_b_16", 30, "of 28 or 32 pixels"),
        ("torchvision/vit_b_16", 100, "of 96 or 112 pixels"),
        ("torchvision/vit_b_32", 28, "of 24 or 32 pixels"),
        ("torchvision/convnext_tiny", 8, "of at least 16 pixels"),
    ],
)
def test_a_size_that_a_network_cannot_take_is_refused_with_the_nearest(network: str, side: int, nearest: str) -> None:
    with pytest.raises(ValidationError, match=f"found imageSize {side}, but {network} takes images {nearest}"):
        ModelSpec(network=network, image_size=side)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("torchvision/resnet19", "did you mean torchvision/resnet18?"),
        ("torchvision/vgg16", "found 'torchvision/vgg16', "),
        ("torchvision/", "torchvision/NAME"),
        ("torchvision", "torchvision/NAME"),
        ("timm/hf-hub:someone/weights", "timm/NAME"),
        ("timm/../resnet18", "timm/NAME"),
        ("keras/resnet18", "found 'keras/resnet18', "),
        ("SmallCnn/resnet18", "found 'SmallCnn/resnet18', "),
        ("monai/resnet18\n", "monai/NAME"),
    ],
)
def test_a_network_that_no_library_has_is_refused(network: str, expected: str) -> None:
    with pytest.raises(ValidationError, match="Validation|validation") as caught:
        ModelSpec(network=network, image_size=32)
    (detail,) = caught.value.errors()
    assert detail["loc"] == ("network",) and expected in detail["msg"]


@pytest.mark.parametrize("library", ["timm", "monai"])
def test_a_missing_library_is_named_with_its_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("anchorage.api.model.find_spec", lambda name: None)
    model = model_of(f"{library}/resnet18", 32)  # a document is valid where nothing is built of it
    for refused in (lambda: require_package(model.network), lambda: build_encoder(model, 1)):
        with pytest.raises(AnchorageError, match=rf"pip install 'anchorage\[{library}\]'") as caught:
            refused()
        assert caught.value.failure is commands.PACKAGE_MISSING


def test_only_trained_tensors_and_counted_statistics_travel() -> None:
    for member in FAMILIES:
        encoder = encoder_of(f"torchvision/{member}", 1, 32)
        learnt = {name for name, _ in encoder.named_parameters()}
        assert {name for name in encoder.state_dict() if not name.endswith(BUFFERS)} == learnt


def test_a_seed_draws_the_same_model_and_training_draws_nothing() -> None:
    """Swin's stochastic depth, as torchvision has it, would make the second pass differ from the first."""
    model = model_of("torchvision/swin_t", 16)
    network, rebuilt = built(model), built(model)
    images = torch.rand(4, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), rebuilt.parameters(), strict=True))
    before = torch.get_rng_state()
    first, second = network.train()(images), rebuilt.train()(images)
    assert torch.equal(first, second) and torch.equal(before, torch.get_rng_state())
    other = built(model, seed=4).encoder.get_parameter("network.features.0.0.weight")
    assert not torch.equal(other, network.encoder.get_parameter("network.features.0.0.weight"))


@pytest.mark.parametrize("preset", ["FedAnchor", "MOON", "FedBarlow", "FedMatch"])
def test_heads_of_methods_stand_on_the_embeddings(preset: str) -> None:
    network = built(model_of("torchvision/mobilenet_v3_small", 16), preset)
    images = torch.rand(2, 1, 16, 16)
    assert network(images).shape == (2, 3) and network.encoder(images).shape == (2, 1024)
    assert layout_of(network).by_name["classifier.weight"].shape[0] == 3


def test_one_image_is_a_batch_where_nothing_is_normalised_over_it() -> None:
    assert built(model_of("torchvision/convnext_tiny", 32)).smallest_batch(32) == 1
    assert built(model_of("torchvision/mobilenet_v3_small", 32)).smallest_batch(32) == 2


def classifier_of(model: ModelDescription, network: Network) -> ImageModel:
    text = json.dumps(describe(model, "derm", classifier_trained=True))
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return ImageModel(parse_inference(text.encode(), "model.json"), arrays)


def exported(name: str, folder: Path, side: int = 32) -> None:
    """A network becomes a program, which `save_program` loads again and compares with it."""
    model = model_of(name, side)
    save_program(classifier_of(model, built(model).eval()), folder / "program.pt2", "{}")
    assert (folder / "program.pt2").stat().st_size > 0


@pytest.mark.integration
@pytest.mark.parametrize("member", LISTED)
def test_listed_networks_become_programs(member: str, tmp_path: Path) -> None:
    exported(f"torchvision/{member}", tmp_path)


def test_a_network_becomes_a_program_and_shows_where_it_looks(tmp_path: Path) -> None:
    exported("torchvision/mobilenet_v3_small", tmp_path)
    model = model_of("torchvision/mobilenet_v3_small", 32)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1, 32, 32), np.uint8)
    heatmap = heat(classifier_of(model, built(model).eval()), pixels, np.array([1]))
    assert heatmap.shape == (1, 32, 32) and np.isfinite(heatmap).all()


def test_a_library_does_not_count_as_a_network_of_its_own() -> None:
    libraries = {name for name in PIECES.of("network") if name.endswith("/")}
    assert libraries == {"torchvision/", "timm/", "monai/"}


@needs_timm
@pytest.mark.integration
@pytest.mark.parametrize("member", TIMM)
def test_networks_of_timm_train_on_small_grey_images(member: str) -> None:
    trains(f"timm/{member}", 28)


@needs_timm
def test_training_a_network_of_timm_draws_nothing() -> None:
    network, images = built(model_of("timm/swin_tiny_patch4_window7_224", 16)).train(), torch.rand(4, 1, 16, 16)
    before = torch.get_rng_state()
    assert torch.equal(network(images), network(images)) and torch.equal(before, torch.get_rng_state())


@needs_timm
def test_networks_of_timm_have_their_own_number_of_parameters_at_full_size() -> None:
    import timm

    for member in ("resnet18", "vit_tiny_patch16_224"):
        encoder = build_encoder(model_of(f"timm/{member}", 224, 3), 1)
        assert isinstance(encoder, ZooEncoder)
        parameters = sum(p.numel() for p in timm.create_model(member).parameters())
        assert sum(p.numel() for p in encoder.parameters()) == parameters - encoder.width * 1000 - 1000


@needs_timm
@pytest.mark.parametrize(
    ("member", "side", "expected"),
    [("resnet19", 32, "did you mean resnet18"), ("maxvit_nano_rw_256", 28, "cannot take images of 28 pixels")],
)
def test_what_timm_cannot_build_is_refused(member: str, side: int, expected: str) -> None:
    with pytest.raises(AnchorageError, match=expected) as caught:
        build_encoder(model_of(f"timm/{member}", side), 1)
    assert caught.value.failure is learning.NETWORK_UNUSABLE


@needs_monai
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("member", ["DenseNet121", "resnet18", "SEResNet50"])
def test_networks_of_monai_train_on_small_grey_images(member: str) -> None:
    trains(f"monai/{member}", 28)


def trains(name: str, side: int) -> None:
    """A step down the gradient lowers the loss on the same images."""
    network = built(model_of(name, side)).train()
    images = torch.rand(6, 1, side, side, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    before = nn.functional.cross_entropy(network(images), labels)
    before.backward()
    torch.optim.SGD(network.parameters(), lr=0.0001).step()
    assert nn.functional.cross_entropy(network(images), labels) < before
