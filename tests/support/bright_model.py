"""A model whose mask is where an image or volume is bright, and commands that find it."""

import json
from types import SimpleNamespace

import pytest
import torch

from anchorage.api.inference import describe, head_of, parse_inference
from anchorage.api.model import ModelDescription
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods.preset import slots


class Bright(torch.nn.Module):
    """Two maps: an image's negative for the background, and the image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([-x, x], 1)


def by_brightness(model: ModelDescription, federation: str) -> ImageModel:
    """Return a model of two classes, described as one that a federation trained, whose mask is where its input is above zero."""
    network = build_model(model, TrainingMethod.of(slots("FedAvg")), 1)
    described = describe(model, federation, classifier_trained=True)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    head = head_of({name: array.shape for name, array in arrays.items()})
    assert head is not None
    described["head"] = head.model_dump(mode="json", by_alias=True)
    found = ImageModel(parse_inference(json.dumps(described).encode(), "model.json"), arrays)
    found.network = Bright()  # type: ignore[assignment]
    return found


def have_found(monkeypatch: pytest.MonkeyPatch, model: ImageModel) -> ImageModel:
    """Have commands find a model, wherever they look for one."""
    chosen = SimpleNamespace(values=dict, described=model.described, weights=SimpleNamespace(thresholds={}))
    found = SimpleNamespace(image_model=lambda: model, described=model.described, chosen=chosen)
    monkeypatch.setattr("fedctl.prediction.open_model", lambda where, best: found)
    return model
