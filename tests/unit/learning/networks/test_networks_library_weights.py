"""Weights of torchvision and timm in the networks of a federation."""

import re
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from library_networks import built, model_of, needs_timm
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn
from torchvision.models import get_model

from anchorage.api.errors import AnchorageError, learning
from anchorage.api.method import MethodSpec
from anchorage.learning.learners import build_server_learner
from anchorage.learning.network import Network
from anchorage.learning.weights import load_arrays
from anchorage.methods import resolve


def weights_of(member: str, folder: Path) -> tuple[nn.Module, Path]:
    """A classifier of torchvision with weights of its own, and their file as anybody writes it."""
    torch.manual_seed(5)
    classifier = get_model(member, weights=None).eval()
    file = folder / "weights.safetensors"
    save_file(classifier.state_dict(), file)
    return classifier, file


@lru_cache(maxsize=2)  # what one test compares; drawing a network takes longer than the test
def drawn(member: str, side: int, channels: int = 1, preset: str = "FedAvg") -> Network:
    """A federation's network as its seed draws it."""
    return built(model_of(member, side, channels), preset)


def initial_arrays(
    member: str, side: int, initial: Path, channels: int = 1, preset: str = "FedAvg"
) -> dict[str, NDArray[Any]]:
    """What a federation's server begins with."""
    model, method = model_of(member, side, channels), resolve(MethodSpec(name=preset))
    learner = build_server_learner(model=model, method=method, seed=3, initial=initial)
    return learner.initialise().arrays()


def initialised(
    member: str, side: int, initial: Path, channels: int = 1, preset: str = "FedAvg", library: str = "torchvision"
) -> Network:
    arrays = initial_arrays(f"{library}/{member}", side, initial, channels, preset)
    network = deepcopy(drawn(f"{library}/{member}", side, channels, preset))
    load_arrays(network, arrays)
    return network.eval()


@pytest.mark.parametrize(
    ("member", "side", "channels"),
    [("resnet18", 64, 1), ("resnet18", 64, 3), ("mobilenet_v3_small", 32, 1), ("swin_t", 64, 1)],
)
def test_weights_of_the_library_embed_as_in_the_library(tmp_path: Path, member: str, side: int, channels: int) -> None:
    """A grey image is embedded as the colour image of three equal channels; the classifier is drawn from the seed."""
    classifier, file = weights_of(member, tmp_path)
    network = initialised(member, side, file, channels)
    images = torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(1))
    last, head = [(path, layer) for path, layer in classifier.named_modules() if isinstance(layer, nn.Linear)][-1]
    classifier.set_submodule(last, nn.Identity())
    if side < 64:
        next(layer for layer in classifier.modules() if isinstance(layer, nn.Conv2d)).stride = (1, 1)
    with torch.no_grad():
        wanted = classifier(images.expand(2, 3, side, side))
        torch.testing.assert_close(network.encoder(images), wanted, rtol=1e-3, atol=1e-4)
    weight = drawn(f"torchvision/{member}", side, channels).classifier.weight
    assert torch.equal(network.classifier.weight, weight) and weight.shape[1] == head.in_features


@pytest.mark.parametrize("member", ["resnet18", "densenet121"])
def test_files_are_understood_as_torchvision_publishes_them(tmp_path: Path, member: str) -> None:
    """Their batch normalisation counts nothing, and layers of a DenseNet have the names of earlier versions."""
    classifier, file = weights_of(member, tmp_path)
    older = re.compile(r"(denselayer\d+\.(?:norm|conv))([12]\.)")
    state = {older.sub(r"\1.\2", n): t for n, t in classifier.state_dict().items() if "num_batches" not in n}
    assert state.keys() - classifier.state_dict().keys() or member == "resnet18"
    save_file(state, file)
    wanted = {f"network.{name}": tensor for name, tensor in classifier.state_dict().items()}
    for name, tensor in initialised(member, 64, file, channels=3).encoder.state_dict().items():
        assert torch.equal(tensor, wanted[name])


@needs_timm
@pytest.mark.parametrize("member", ["vit_tiny_patch16_224", "vit_little_patch16_reg1_gap_256"])
def test_weights_of_timms_transformers_embed_as_timm_resizes_them(tmp_path: Path, member: str) -> None:
    """With a class token among the positions, and with a token that has none; timm's own loading is the reference."""
    import timm
    from timm.models.vision_transformer import checkpoint_filter_fn

    torch.manual_seed(5)
    published = timm.create_model(member)
    nn.init.normal_(published.pos_embed, std=0.5)
    save_file(published.state_dict(), tmp_path / "weights.safetensors")
    reference = timm.create_model(member, img_size=96).eval()
    reference.load_state_dict(checkpoint_filter_fn(published.state_dict(), reference))
    network = initialised(member, 96, tmp_path / "weights.safetensors", channels=3, library="timm")
    images = torch.rand(2, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = reference.forward_head(reference.forward_features(images), pre_logits=True)
        torch.testing.assert_close(network.encoder(images), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", ["MOON", "FedMatch", "SSILCDM", "FedBarlow"])
def test_heads_of_a_method_are_drawn_beside_weights_of_the_library(tmp_path: Path, preset: str) -> None:
    classifier, file = weights_of("mobilenet_v3_small", tmp_path)
    network = initialised("mobilenet_v3_small", 32, file, preset=preset)
    own_network = drawn("torchvision/mobilenet_v3_small", 32, preset=preset)
    for name, tensor in network.named_parameters():
        if name.startswith("encoder."):
            parameter = classifier.get_parameter(name.removeprefix("encoder.network."))
            assert torch.equal(tensor, parameter) or tensor.shape[1] == 1
        elif name.startswith(("classifier.", "projection.")):
            assert torch.equal(tensor, own_network.get_parameter(name))


@pytest.mark.parametrize(
    ("of", "member", "side", "expected"),
    [
        ("resnet34", "resnet18", 64, "has the tensor encoder.network.layer1.2."),  # every tensor of resnet18 is there
        ("resnet18", "resnet34", 64, "found|nothing"),
        ("resnet18", "resnet18", 32, r"network\.conv1\.weight: the model here has float32 \(64, 1, 3, 3\)"),
    ],
)
def test_weights_of_another_network_or_first_layer_are_refused(
    tmp_path: Path, of: str, member: str, side: int, expected: str
) -> None:
    _, file = weights_of(of, tmp_path)
    with pytest.raises(AnchorageError, match=expected) as caught:
        initialised(member, side, file)
    assert caught.value.failure is learning.MODEL_MISMATCH


def test_weights_of_half_precision_are_refused(tmp_path: Path) -> None:
    classifier, file = weights_of("mobilenet_v3_small", tmp_path)
    save_file(classifier.bfloat16().state_dict(), file)
    with pytest.raises(AnchorageError, match="bfloat16") as caught:
        initialised("mobilenet_v3_small", 32, file)
    assert caught.value.failure is learning.MODEL_MISMATCH


def test_a_model_of_this_project_is_taken_as_it_is(tmp_path: Path) -> None:
    network = built(model_of("torchvision/vit_b_32", 8), seed=9)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    arrays = initial_arrays("torchvision/vit_b_32", 8, tmp_path / "model.safetensors")
    for name, tensor in network.state_dict().items():
        assert np.array_equal(arrays[name], tensor.numpy()), name


def test_a_hidden_layer_is_drawn_beside_an_encoder_of_this_project(tmp_path: Path) -> None:
    model = model_of("SmallCnn", 8)
    save_file(built(model, seed=9).state_dict(), tmp_path / "model.safetensors")
    pretrained, deeper = built(model, seed=9), model.model_copy(update={"hidden": 7})
    learner = build_server_learner(
        model=deeper, method=resolve(MethodSpec(name="FedAvg")), seed=3, initial=tmp_path / "model.safetensors"
    )
    network, shallow = built(deeper), built(deeper, seed=3)
    load_arrays(network, learner.initialise().arrays())
    for name, tensor in network.named_parameters():
        wanted = pretrained if name.startswith("encoder.") else shallow
        assert torch.equal(tensor, wanted.get_parameter(name)), name
    assert network.classifier.weight.shape[1] == 7
