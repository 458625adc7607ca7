"""Which server needs torch: one that only averages takes the model of round 0 from its file, if that has the model's own names."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import mobilenet_v3_small

from anchorage.api.federation import FederationSpec
from anchorage.learning.server_learner import TorchServerLearner
from anchorage_server.learner import FileModel, choose_learners


@pytest.mark.parametrize(
    ("network", "kind"), [("SmallCnn", FileModel), ("torchvision/mobilenet_v3_small", TorchServerLearner)]
)
def test_a_librarys_weights_are_renamed_even_where_nothing_is_trained(tmp_path: Path, network: str, kind: type) -> None:
    classifier = mobilenet_v3_small(weights=None)
    save_file(classifier.state_dict(), tmp_path / "weights.safetensors")
    spec = FederationSpec.model_validate(
        {
            "rounds": 1,
            "task": {"classification": {"classes": ["a", "b"]}},
            "model": {"network": network, "imageSize": 32, "initial": "weights.safetensors"},
            "method": {"name": "FedAvg"},
        }
    )
    (learner,), _ = choose_learners(spec, tmp_path, tmp_path / "state", bytes(32), begun=False)
    assert isinstance(learner, kind)
    if kind is TorchServerLearner:
        arrays = learner.initialise().arrays()
        stem = torch.from_numpy(arrays["encoder.network.features.0.0.weight"])
        assert torch.equal(stem, classifier.get_parameter("features.0.0.weight"))
        assert arrays["classifier.weight"].shape == (2, 1024)
