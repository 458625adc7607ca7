"""Networks of libraries, for tests."""

from importlib.util import find_spec

import pytest

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification

TASK = Classification(classes=("benign", "malignant", "other"))


needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed: pip install '.[timm]'")


needs_monai = pytest.mark.skipif(find_spec("monai") is None, reason="MONAI is not installed: pip install '.[monai]'")


def model_of(network: str, side: int, channels: int = 1) -> ModelDescription:
    return ModelDescription(network=network, task=TASK, image_size=side, channels=channels)


def built(model: ModelDescription, preset: str = "FedAvg", seed: int = 3) -> Network:
    return build_model(model, TrainingMethod.of(resolve(MethodSpec(name=preset))), seed)
