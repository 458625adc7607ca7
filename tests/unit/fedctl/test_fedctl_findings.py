"""What people see of a federation of several findings per image: data check, predict with thresholds, model card, report and exports."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_findings import FINDINGS, documents, draw_site, section, write
from PIL import Image
from typer.testing import CliRunner, Result

from anchorage.api.inference import read_inference
from fedctl.main import app

LOCAL = {"epochs": 1, "batchSize": 8, "optimiser": {"sgd": {"learningRate": "0.05", "momentum": "0.9"}}}


def fedctl(*arguments: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study that was simulated, with its models."""
    folder = tmp_path_factory.mktemp("chests")
    for seed, name in enumerate(("a", "check", "test")):
        draw_site(folder / name, 24, seed)
    draw_site(folder / "b", 24, 7, ("Mass", "Effusion"), unlabelled=6)
    scored = {"validation": section("check"), "test": section("test"), "siloPercent": 20}
    file = write(folder, documents({"name": "FedAvg", "local": LOCAL}, labels=("All", "Partial"), evaluation=scored))
    fedctl("simulate", "-f", file, "--workdir", folder / "run", "--no-tracking")
    return folder


@pytest.fixture
def model(root: Path) -> Path:
    return root / "run" / "models" / "1"


def test_data_check_counts_each_finding(root: Path) -> None:
    output = fedctl("data", "check", "-f", root / "chests.yaml", "-o", "json")
    of_b = json.loads(output.stdout)["b"]
    edema = of_b["findings"][2]
    assert edema == {"name": "Edema", "present": 0, "absent": 0, "uncertain": 0, "unknown": 24}
    assert all(sum(v for k, v in each.items() if k != "name") == 24 for each in of_b["findings"])
    text = fedctl("data", "check", "-f", root / "chests.yaml").stdout
    assert "UNCERTAIN" in text and "Edema" in text


def test_predict_says_which_findings_reach_their_threshold(root: Path, model: Path) -> None:
    images = sorted((root / "test").glob("*.png"))[:8]
    predictions = json.loads(fedctl("predict", "-m", model, *images, "-o", "json").stdout)["predictions"]
    described = read_inference(model / "model.json")
    assert described.best is not None and described.final is not None
    thresholds = described.best.thresholds
    assert set(thresholds) == set(FINDINGS) and set(described.final.thresholds) == set(FINDINGS)
    for each in predictions:
        reached = [name for name in FINDINGS if each["probabilities"][name] >= thresholds[name]]
        assert each["findings"] == reached and each["thresholds"] == thresholds
    assert any(each["findings"] for each in predictions)
    assert " *" in fedctl("predict", "-m", model, *images).stdout


def test_the_card_says_over_how_many_findings(model: Path) -> None:
    card = json.loads((model / "model-card.json").read_text())
    scored = card["final"]["assessment"]
    assert [finding["name"] for finding in scored["findings"]] == list(FINDINGS) and scored["classes"] == []
    text = (model / "model-card.md").read_text()
    assert "Mean of the areas of 3 of 3 findings" in text and "bootstrap resamples of patients" in text
    assert "predicted rightly" not in text and "share that has it" in text
    assert "taken as independent" not in text


def test_an_exported_program_gives_probabilities_by_themselves(root: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.pt"
    fedctl("model", "export", "-m", model, "--format", "torchscript", "--out", out)
    image = sorted((root / "test").glob("*.png"))[0]
    pixels = torch.from_numpy(np.array(Image.open(image)))[None, None]
    with pytest.warns(FutureWarning):
        program = torch.jit.load(str(out))
    outputs = program(pixels)[0].tolist()
    probabilities = json.loads(fedctl("predict", "-m", model, image, "-o", "json").stdout)["predictions"][0][
        "probabilities"
    ]
    assert outputs == pytest.approx(list(probabilities.values()), abs=1e-5)


def test_the_plan_says_what_is_counted(root: Path) -> None:
    text = fedctl("plan", "-f", root / "chests.yaml", "--no-trial").stdout
    assert "score_counts: for each finding, how many images without it, and with it" in " ".join(text.split())
