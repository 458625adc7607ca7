"""A model whose mask is where an image or volume is bright, and commands that find it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anchorage.api.inference import describe, head_of, parse_inference
from anchorage.api.model import ModelDescription
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.methods.preset import slots


class Bright(torch.nn.Module):
    """Two maps: an image's negative for the background, and the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([-x, x], 1)


def untrained(model: ModelDescription, federation: str) -> tuple[dict[str, Any], Network]:
    """Return a model's description, as of one that a federation trained, and a network with weights of seed 1."""
    network = build_model(model, TrainingMethod.of(slots("FedAvg")), 1)
    head = head_of({name: tuple(tensor.shape) for name, tensor in network.state_dict().items()})
    assert head is not None
    head_values = head.model_dump(mode="json", by_alias=True)
    return {**describe(model, federation, classifier_trained=True), "head": head_values}, network


def by_brightness(model: ModelDescription, federation: str) -> ImageModel:
    """Return a model of two classes, described as one that a federation trained, whose mask is where its input is above zero."""
    described, network = untrained(model, federation)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    image_model = ImageModel(parse_inference(json.dumps(described).encode(), "model.json"), arrays)
    image_model.network = Bright()  # type: ignore[assignment]
    return image_model


def have_found(monkeypatch: pytest.MonkeyPatch, model: ImageModel) -> ImageModel:
    """Have commands find a model, wherever they look for one."""
    chosen = SimpleNamespace(values=dict, described=model.described, weights=SimpleNamespace(thresholds={}))
    trained = SimpleNamespace(image_model=lambda: model, described=model.described, chosen=chosen)
    monkeypatch.setattr("fedctl.prediction.open_model", lambda where, best: trained)
    return model
