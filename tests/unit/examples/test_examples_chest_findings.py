"""Chest findings: what examples/chest-findings writes is what its federation reads and learns, shown with drawn images."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anchorage.api.files import load_federation
from anchorage.learning.data import read
from fedctl.main import app

EXAMPLE = Path(__file__).parents[3] / "examples" / "chest-findings"
FILE = EXAMPLE / "federation.yaml"


def prepare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLE / "prepare.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chests") / "drawn"
    assert prepare("--drawn", "--out", folder).returncode == 0
    return folder


def test_sites_know_what_the_example_says(root: Path) -> None:
    study = load_federation(FILE)
    model, groups = study.federation.spec.model_description, []
    for silo, unknown in zip(study.silos, ([], [4]), strict=True):
        assert silo.spec.managed is not None
        images, report = read(silo.spec.managed.data, root, model, 1)
        assert not report.bad and len(images) > 60
        known = images.labels >= 0
        assert np.flatnonzero(~known.any(0)).tolist() == unknown and (known.all(0) == known.any(0)).all()
        groups.append(set(images.groups))
    for section in study.federation.spec.server_data.values():
        groups.append(set(read(section, root, model, 1)[0].groups))
    assert len(set().union(*groups)) == sum(map(len, groups))


def test_the_drawn_variant_learns_every_finding(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = [
        "simulate",
        "-f",
        FILE,
        "--data-root",
        root,
        "--workdir",
        out,
        "--no-tracking",
        "--set",
        "spec.rounds=6",
    ]
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    card = json.loads((out / "models" / "1" / "model-card.json").read_text())
    scored = card["best"]["assessment"]
    assert scored["part"] == "test" and scored["metrics"]["macro_auroc"] > 0.7
    assert scored["metrics"]["macro_auroc_labels"] == 5


def test_a_folder_that_is_there_or_images_that_are_not_are_refused(root: Path, tmp_path: Path) -> None:
    assert "exists; name a new folder" in prepare("--drawn", "--out", root).stderr
    assert "use --drawn" in prepare("--data", tmp_path, "--out", tmp_path / "out").stderr
