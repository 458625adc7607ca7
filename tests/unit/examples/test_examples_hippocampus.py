"""What examples/hippocampus prepares is what its federation reads and learns, with drawn volumes."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

from anchorage.learning.data import read
from anchorage.learning.data.labels import is_known
from anchorage.methods import validate_study
from anchorage.simulation.run import simulate

EXAMPLE = Path(__file__).parents[3] / "examples" / "hippocampus"


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hippocampus")
    runpy.run_path(str(EXAMPLE / "prepare.py"))["main"](["--out", str(folder), "--drawn", "--cases", "4"])
    return folder


def test_the_drawn_volumes_of_every_scale_are_read_alike(data_root: Path) -> None:
    study = validate_study(EXAMPLE / "sites.yaml")
    model = study.federation.spec.model_description
    darkest = []
    for silo in study.silos:
        images, report = read(silo.spec.managed.data, data_root, model, 1)
        assert len(images) == 4 and is_known(images.labels).all() and not report.bad
        darkest.append(images.images.volume(0).darkest / 65535)
    assert max(darkest) - min(darkest) < 0.05


def test_the_federation_learns_to_find_ellipsoids(data_root: Path, tmp_path: Path) -> None:
    steps = ["spec.rounds=3", "spec.method.local.steps=8", "spec.model.volume.patch=[16, 16, 16]"]
    record, _ = simulate(validate_study(EXAMPLE / "sites.yaml", steps), data_root, tmp_path / "run")
    assert record.metrics["dice"] > 0.2  # 0.04 before training
