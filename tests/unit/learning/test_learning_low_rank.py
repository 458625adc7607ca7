"""Low-rank adapters (LoRA, equation 3): what they compute, where they begin, and that models leave with ordinary weights."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from learning_party import MODEL, Party, images_of, method_of
from torch import nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import MODEL_MISMATCH, NETWORK_UNUSABLE
from anchorage.api.inference import describe, parse_inference
from anchorage.api.model import LowRank, ModelSpec
from anchorage.learning.dp_sgd import clipped_sums
from anchorage.learning.inference import ImageModel
from anchorage.learning.learners import build_server_learner
from anchorage.learning.low_rank import Adapters
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.learning.weights import down_layout, up_layout
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import write_safetensors

HEAD = MODEL.model_copy(update={"trainable": "Head"})
LORA = HEAD.model_copy(update={"lora": LowRank(rank=4)})


def network(model=LORA, name: str = "FedAvg", seed: int = 1) -> Network:
    return build_model(model, TrainingMethod.of(method_of(name)), seed)


def party(folder: Path, name: str = "FedAvg", model=LORA, labels: str = "All", **slots) -> Party:
    return Party(method_of(name, **slots), images_of(26), folder, labels=labels, described=model)


def adapters(encoder: nn.Module, rank: int, alpha: int) -> Adapters:
    frozen = frozenset(f"encoder.{name}" for name in encoder.state_dict())
    return Adapters(encoder, "encoder.", frozen, LowRank(rank=rank, alpha=alpha), 1)


def test_a_linear_map_by_hand() -> None:
    encoder = nn.Sequential(nn.Linear(3, 3, bias=False))
    made = adapters(encoder, rank=1, alpha=2)
    with torch.no_grad():
        encoder[0].weight.copy_(torch.eye(3))
        made.get_parameter("encoder/0/weight/b").copy_(torch.tensor([[1.0], [2.0], [0.0]]))
        made.get_parameter("encoder/0/weight/a").copy_(torch.tensor([[1.0, 0.0, -1.0]]))
    assert made.embed(encoder, torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [[-3.0, -6.0, 3.0]]
    assert encoder[0].weight.tolist() == torch.eye(3).tolist()


def test_a_convolution_by_hand() -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 4, 2, bias=False))
    made = adapters(encoder, rank=1, alpha=3)
    with torch.no_grad():
        encoder[0].weight.fill_(1.0)
        made.get_parameter("encoder/0/weight/b").copy_(torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
        made.get_parameter("encoder/0/weight/a").copy_(torch.tensor([[1.0, 10.0, 100.0, 1000.0]]))
    embedding = made.embed(encoder, torch.tensor([[[[1.0, 2.0], [0.0, 1.0]]]])).flatten()
    assert embedding.tolist() == [4 + 3 * channel * 1021 for channel in (1, 2, 3, 4)]


def test_merged_weights_by_hand() -> None:
    tensors = {
        "encoder.w": np.zeros((2, 1, 2), np.float32),
        "classifier.weight": np.ones((1, 2), np.float32),
        "lora.encoder/w/a": np.array([[1, -1]], np.float32),
        "lora.encoder/w/b": np.array([[3], [5]], np.float32),
        "lora.scale": np.array(0.5, np.float32),
    }
    layout = Layout.of(((name, "F32", array.shape) for name, array in tensors.items()), {"encoder.w", "lora.scale"})
    merged = ModelBytes.from_arrays(layout, tensors).of_network()
    assert merged.layout.by_name.keys() == {"encoder.w", "classifier.weight"} and not merged.layout.front
    assert merged.arrays()["encoder.w"].tolist() == [[[1.5, -1.5]], [[2.5, -2.5]]]


@pytest.mark.parametrize("name", ["SmallCnn", "torchvision/resnet18", "torchvision/swin_t"])
def test_the_start_is_the_base_network_bit_for_bit(name: str) -> None:
    side = {"network": name, "image_size": 32}
    adapted, base = (network(model.model_copy(update=side)).eval() for model in (LORA, HEAD))
    images = torch.rand(2, 1, 32, 32)
    assert torch.equal(adapted(images), base(images))
    assert all(torch.equal(tensor, adapted.state_dict()[name]) for name, tensor in base.state_dict().items())


def test_attention_is_adapted() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.attention(x, x, x, need_weights=False)[0].mean(1)

    encoder, x = Attention(), torch.rand(2, 3, 8)
    made = adapters(encoder, rank=1, alpha=1)
    before = made.embed(encoder, x)
    assert {name for name, _ in made.named_parameters()} == {
        f"encoder/attention/{weight}/{matrix}" for weight in ("in_proj_weight", "out_proj/weight") for matrix in "ab"
    }
    made.embed(encoder, x).sum().backward()
    assert made.get_parameter("encoder/attention/in_proj_weight/b").grad.abs().sum() > 0
    with torch.no_grad():
        made.get_parameter("encoder/attention/in_proj_weight/b").add_(1.0)
    assert not torch.equal(made.embed(encoder, x), before)


def test_matrices_of_the_seed_train_with_the_head_and_nothing_else() -> None:
    built = network()
    trained = {name: p for name, p in built.named_parameters() if p.requires_grad}
    # rank 4 over kernels of 16 × 9, 32 × 144, 64 × 288 and 128 × 576; the head of 128 × 3 with bias
    assert sum(p.numel() for p in trained.values()) == 4 * (25 + 176 + 352 + 704) + 387
    assert {name.split(".")[0] for name in trained} == {"lora", "classifier"}
    first = trained["lora.encoder/convolutions/1/weight/a"].detach()
    assert 0 < float(first.abs().max()) <= 1 / 12 and first.shape == (4, 144)
    assert torch.equal(first, network().state_dict()["lora.encoder/convolutions/1/weight/a"])
    assert not torch.equal(first, network(seed=2).state_dict()["lora.encoder/convolutions/1/weight/a"])
    assert not built.train().encoder.training


def test_a_weight_that_is_no_larger_than_its_matrices_has_none() -> None:
    built = network(HEAD.model_copy(update={"lora": LowRank(rank=6)}))
    assert not any("convolutions/0" in name for name in built.state_dict())  # 6 × 25 numbers for 144
    with pytest.raises(AnchorageError, match="rank 1024.*choose a smaller rank") as caught:
        network(HEAD.model_copy(update={"lora": LowRank(rank=1024)}))
    assert caught.value.failure is NETWORK_UNUSABLE


def test_weights_that_train_have_none() -> None:
    built = network(LORA.model_copy(update={"trainable": "encoder.convolutions.3,encoder.norms"})).train()
    trained = {name for name, p in built.named_parameters() if p.requires_grad}
    assert {"encoder.convolutions.3.weight", "lora.encoder/convolutions/2/weight/a"} <= trained
    assert not any(name.startswith("lora.encoder/convolutions/3") for name in trained)


def test_without_frozen_weights_adapters_are_refused() -> None:
    with pytest.raises(ValueError, match="trainable All leaves nothing frozen to adapt; set trainable: Head"):
        ModelSpec(network="SmallCnn", image_size=8, lora=LowRank())


METHODS = ["FedAvg", "FedProx", "SCAFFOLD", "MOON", "FedRoD", "LocalMix", "FedProxNaiveMix", "SemiAnAgg", "FL2"]


@pytest.mark.parametrize("name", METHODS)
def test_adapters_and_heads_alone_are_in_an_update(name: str, tmp_path: Path) -> None:
    silo = party(tmp_path, name, labels="None" if name in ("SemiAnAgg", "FL2") else "All")
    base = {n: t.clone() for n, t in silo.learner._network.state_dict().items() if n.startswith("encoder.")}
    assert silo.train().trained
    sent, before = silo.arrays(), silo.model.arrays()
    assert not any(n.startswith("encoder.") or n == "lora.scale" for n in sent)
    moved = {n for n, array in sent.items() if n in before and not np.array_equal(array, before[n])}
    assert any(n.startswith("lora.") and n.endswith("/b") for n in moved), "B has a gradient from the first step on"
    after = silo.learner._network.state_dict()
    assert all(torch.equal(after[n], tensor) for n, tensor in base.items())


@pytest.mark.parametrize("name", ["FedAnchor", "SemiFL"])
def test_the_server_trains_adapters(name: str, tmp_path: Path) -> None:
    silo = party(tmp_path, name, labels="None")
    model, _ = silo.server.train(silo.model, 1)
    assert model.manifest.fixed == silo.model.manifest.fixed
    before, after = silo.model.arrays(), model.arrays()
    assert any(n.startswith("lora.") and not np.array_equal(after[n], array) for n, array in before.items())


def test_a_model_leaves_with_ordinary_weights_that_score_alike(tmp_path: Path) -> None:
    silo = party(tmp_path, local={"epochs": 4})
    silo.train()
    trained = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    plain = trained.of_network()
    assert plain.layout.by_name.keys() == down_layout(network(MODEL), TrainingMethod.of(silo.method)).by_name.keys()
    described = parse_inference(json.dumps(describe(LORA, "f", classifier_trained=True)).encode(), "model.json")
    used = ImageModel(described, plain.arrays())
    images = images_of(9, seed=3).images
    adapted = silo.learner._network.eval()
    with torch.no_grad():
        wanted = adapted(used.views(torch.from_numpy(images))).softmax(1).numpy()
    np.testing.assert_allclose(used.score(images), wanted, rtol=1e-4, atol=1e-6)
    untrained = ImageModel(described, silo.model.of_network().arrays()).score(images)
    assert np.abs(untrained - wanted).max() > 1e-3


def test_training_starts_from_an_ordinary_file_and_from_the_stage_before(tmp_path: Path) -> None:
    uncut = party(tmp_path / "whole", model=MODEL, labels="All")
    write_safetensors(tmp_path / "start.safetensors", uncut.model)
    server = build_server_learner(
        model=LORA, method=method_of("FedAvg"), seed=7, anchors=None, initial=tmp_path / "start.safetensors"
    )
    begun = server.initialise()
    assert begun.of_network().digest == uncut.model.digest
    silo = party(tmp_path / "silo")
    silo.train()
    trained = silo.model.with_tensors(ModelBytes.of(silo.server.up, silo.update))
    assert server.adopt(trained).digest == trained.digest, "the next stage goes on with the adapters"


def test_a_file_whose_adapters_have_another_rank_is_refused(tmp_path: Path) -> None:
    """Left out, they would begin as none, and what the file's had learnt would be gone without a word."""
    wider = LORA.model_copy(update={"lora": LowRank(rank=8)})
    file = tmp_path / "start.safetensors"
    write_safetensors(file, build_server_learner(model=wider, method=method_of("FedAvg"), seed=1).initialise())
    server = build_server_learner(model=LORA, method=method_of("FedAvg"), seed=1, initial=file)
    with pytest.raises(AnchorageError, match="lora") as caught:
        server.initialise()
    assert caught.value.failure is MODEL_MISMATCH


def test_gradients_of_single_images_go_through_adapters() -> None:
    group = {"batchNorm": {"groupNorm": {}}}
    built = build_model(LORA, TrainingMethod.of(method_of("FedAvg", **group)), 1).eval()
    trained = {name: p for name, p in built.named_parameters() if p.requires_grad}
    images, labels, loss = torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), nn.functional.cross_entropy
    sums = clipped_sums(built, trained, lambda some: images[some], torch.arange(2), labels, loss, 1e6)
    (loss(built(images), labels) * 2).backward()
    for name, parameter in trained.items():
        torch.testing.assert_close(sums[name].float(), parameter.grad, rtol=1e-3, atol=1e-5)


def test_layouts_say_what_travels() -> None:
    built, method = network(), TrainingMethod.of(method_of("FedAvg"))
    down = down_layout(built, method)
    assert up_layout(down, method) == down.trainable
    assert down.trainable.nbytes == 4 * (4 * (25 + 176 + 352 + 704) + 387)
    assert down.of_network().by_name.keys() == down_layout(network(MODEL), method).by_name.keys()
