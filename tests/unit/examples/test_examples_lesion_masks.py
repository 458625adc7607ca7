"""What examples/lesion-masks prepares is what its federation reads and learns, with drawn images."""

import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data import read
from anchorage.learning.data.labels import is_known
from anchorage.methods import validate_study
from anchorage.simulation.run import simulate

EXAMPLE = Path(__file__).parents[3] / "examples" / "lesion-masks"


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lesion-masks")
    runpy.run_path(str(EXAMPLE / "prepare.py"))["main"](["--out", str(folder), "--drawn", "--images", "12"])
    return folder


def test_the_drawn_images_are_read_with_their_masks(data_root: Path) -> None:
    study = validate_study(EXAMPLE / "sites.yaml")
    model = study.federation.spec.model_description
    for silo in study.silos:
        images, report = read(silo.spec.managed.data, data_root, model, 1)
        assert len(images) == 12 and is_known(images.labels).all() and not report.bad
        # images of 64 to 48 pixels are padded above and below
        assert (images.labels[:, :8] == UNKNOWN_PIXEL).all() and set(np.unique(images.labels[:, 8:56])) == {0, 1}


def test_the_federation_learns_to_draw_spots(data_root: Path, tmp_path: Path) -> None:
    study = validate_study(EXAMPLE / "sites.yaml", ["spec.rounds=3"])
    record, _ = simulate(study, data_root, tmp_path / "run")
    assert record.metrics["dice"] > 0.8
