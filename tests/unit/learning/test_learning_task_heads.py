"""A task may have a head of any form: it is drawn from the run's seed, and a description and the weights make it again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from outside_package import load_regression
from torch import nn

from anchorage.api.errors import AnchorageError, learning
from anchorage.api.inference import describe, head_of, parse_inference
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.methods import resolve
from anchorage.pieces.slots import ImageTask

pytestmark = pytest.mark.outside_package


class Steps(nn.Module):
    """One direction of features, and steps along it, that start at random."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.direction = nn.Linear(width, 1, bias=False)
        self.steps = nn.Parameter(torch.randn(1))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.direction(z) + self.steps


def layers(task: Any, width: int, *, bias: bool) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, 1, bias=bias))


def steps(task: Any, width: int, *, bias: bool) -> nn.Module:
    return Steps(width)


@pytest.fixture
def regression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[ImageTask]:
    """Return the task of the other package, registered until the test is over."""
    return load_regression(tmp_path, monkeypatch)


def built(task: Any, seed: int = 3, **model: Any) -> tuple[Any, Network]:
    fields = {"network": "SmallCnn", "image_size": 8, "channels": 1} | model
    described = ModelDescription(task=task(quantity="age", mean="50", deviation="20"), **fields)
    return described, build_model(described, TrainingMethod.of(resolve(MethodSpec(name="FedAvg"))), seed)


@pytest.mark.parametrize(
    "model", [{}, {"hidden": 5}, {"network": "MoonCnn", "image_size": 32, "channels": 3}, {"network": "ResNet9"}]
)
@pytest.mark.parametrize("head", [layers, steps])
def test_a_description_makes_it_again(
    regression: type[ImageTask], monkeypatch: pytest.MonkeyPatch, head: Any, model: dict[str, Any]
) -> None:
    monkeypatch.setattr(regression, "head", head)
    described, network = built(regression, **model)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    shape = (4, described.channels, described.image_size, described.image_size)
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    for stated in ({}, {"head": head_of({n: a.shape for n, a in arrays.items()}).model_dump(by_alias=True)}):
        text = json.dumps(describe(described, "ages", classifier_trained=True) | stated)
        made_again = ImageModel(parse_inference(text.encode(), "model.json"), arrays)
        with torch.no_grad():
            trained = described.task.activated(network.eval()(made_again.views(torch.from_numpy(pixels)))).numpy()
        np.testing.assert_allclose(made_again.score(pixels), trained, atol=1e-4)


def test_what_it_draws_itself_is_drawn_from_the_seed(
    regression: type[ImageTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regression, "head", steps)
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(drawn))
        network = built(regression, seed)[1]
        drawn.append(network.classifier.steps.item())
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    "head",
    [lambda task, width, *, bias: "none", lambda task, width, *, bias: nn.Linear(width, 1).double()],
    ids=["no module", "float64"],
)
def test_what_cannot_travel_is_refused(regression: type[ImageTask], monkeypatch: pytest.MonkeyPatch, head: Any) -> None:
    monkeypatch.setattr(regression, "head", head)
    with pytest.raises(AnchorageError, match="head") as refused:
        built(regression)
    assert refused.value.failure is learning.PIECE_WRONG
