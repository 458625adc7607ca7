"""The first file of a study with a pretrained encoder and labels at the server: written, checked and run by a server and two agents."""

import json
from pathlib import Path

import torch
import yaml
from drawn_hospitals import SHAPES
from printed_pages import environment_in, sh
from safetensors.torch import save_file
from torchvision.models import resnet18

INIT = """
fedctl weights import drawn.safetensors torchvision/resnet18 drawn --data-root data
fedctl init --anchors data/server/anchors --validation data/server/validation --test data/server/test \
  --silo hospital-a=data/hospital-a --silo hospital-b=data/hospital-b
"""


def test_a_pretrained_encoder_and_labels_at_the_server_end_in_a_classifier_of_components(tmp_path: Path) -> None:
    SHAPES.lay_out(tmp_path / "data")
    torch.manual_seed(1)
    drawn = {name: tensor.contiguous() for name, tensor in resnet18(weights=None).state_dict().items()}
    save_file(drawn, tmp_path / "drawn.safetensors")
    environment = environment_in(tmp_path)
    assert "SharesHead on torchvision/resnet18, 11 rounds" in sh(INIT, tmp_path, environment)
    spec = next(yaml.safe_load_all((tmp_path / "federation.yaml").read_text()))["spec"]
    assert spec["warmUp"] == [{"method": "PrincipalComponents", "rounds": 1}]
    assert spec["model"]["principalComponents"] == 256 and "averageDecay" not in spec["evaluation"]
    sh("fedctl run -f federation.yaml --data-root data", tmp_path, environment)
    rounds = json.loads(sh("fedctl rounds federation -o json", tmp_path, environment))
    assert len(rounds) == 12 and rounds[1]["metrics"]["explained_variance"] > 0.8
    assert {"guesses_labels", "guesses_estimated1", "guesses_measured3"} <= rounds[-1]["metrics"].keys()
    assert rounds[-1]["metrics"]["balanced_accuracy"] > 0.5, "a third would be chance, even of drawn features"
    assert "balanced_accuracy" in json.loads((tmp_path / ".anchorage/federation/anchors_alone.json").read_text())
