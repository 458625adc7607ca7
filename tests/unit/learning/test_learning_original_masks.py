"""The final assessment of masks: on the grids of the images' files, where `fedctl predict` writes its masks, too."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from bright_model import untrained
from drawn_masks import disc
from drawn_volumes import CLASSES, MODEL
from drawn_volumes import write_pairs as write_volumes
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("torch")

from anchorage.algorithms.surfaces import border_distances, hausdorff_95
from anchorage.api.data import ServerData
from anchorage.api.inference import parse_inference
from anchorage.api.model import ModelDescription
from anchorage.api.model_card import Assessment
from anchorage.learning.data import ImageSet, read
from anchorage.learning.data.decoding import unfit_mask
from anchorage.learning.inference import ImageModel
from anchorage.learning.learners import build_server_learner
from anchorage.learning.volume_prediction import predict_volume
from anchorage.methods.preset import slots
from anchorage.pieces.task.segmentation import Segmentation

SIDE = 16


def write_discs(folder: Path, sizes: list[tuple[int, int]]) -> None:
    """Write images of these widths and heights, a disc in each."""
    rng = np.random.default_rng(5)
    for row, (width, height) in enumerate(sizes):
        picture, mask = disc(rng, max(width, height))
        for name, pixels in (("images", picture), ("masks", mask)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels[:height, :width]).save(folder / name / f"{row}.png")


def images_of(folder: Path, model: ModelDescription) -> ImageSet:
    return read(ServerData(format="ImageFolder", claim_name="server"), folder, model, 1)[0]


def assess(images: ImageSet, model: ModelDescription) -> Assessment:
    """Assess the untrained model of seed 1."""
    learner = build_server_learner(model=model, method=slots("FedAvg"), seed=1, validation=images)
    assessment = learner.assess(learner.initialise(), 0)
    assert assessment is not None
    return assessment


def model_of(model: ModelDescription) -> ImageModel:
    """Return the same model as one with which images are predicted."""
    described, network = untrained(model, "discs")
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return ImageModel(parse_inference(json.dumps(described).encode(), "model.json"), arrays)


def dice(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    return float(2 * (truth & predicted).sum() / (truth.sum() + predicted.sum()))


@pytest.mark.parametrize("fit", ["Crop", "Pad"])
def test_pictures_are_assessed_at_their_own_size(fit: Literal["Crop", "Pad"], tmp_path: Path) -> None:
    write_discs(tmp_path / "server", [(70, 44), (31, 50), (16, 16), (9, 9)])
    model = ModelDescription(
        network="SmallUNet", task=Segmentation(classes=("background", "disc")), image_size=SIDE, fit=fit
    )
    images = images_of(tmp_path, model)
    assessment = assess(images, model)
    scores, distances = [], []
    for pixels, name in zip(images.images, images.ids, strict=True):
        truth = np.asarray(Image.open(tmp_path / "server" / name.replace("images", "masks"))) == 1
        on_network = model_of(model).score(np.asarray(pixels)[None]).argmax(1)[0].astype(np.uint8)
        predicted = unfit_mask(on_network, (truth.shape[1], truth.shape[0]), fit) == 1
        scores.append(dice(truth, predicted))
        distances.append(hausdorff_95(border_distances(truth, predicted, (1, 1))))
    assert assessment.grid == "File" and 0 < min(scores) < max(scores) < 1
    assert assessment.metrics["dice"] == pytest.approx(np.mean(scores))
    assert assessment.metrics["hausdorff_95"] == pytest.approx(np.mean(distances))


@pytest.mark.parametrize("orientation", ["Anatomical", "AsStored"])
def test_volumes_are_assessed_on_their_own_grids_in_millimetres(orientation: str, tmp_path: Path) -> None:
    write_volumes(tmp_path / "server", 2, sides=(12, 14, 10), spacing=(-1.5, 1, 2))
    volume_fields = {**MODEL["volume"], "orientation": orientation}
    fields = {**MODEL, "volume": volume_fields, "task": {"segmentation": {"classes": CLASSES}}}
    model = ModelDescription.model_validate_json(json.dumps(fields))
    assessment = assess(images_of(tmp_path, model), model)
    scores = []
    for file in sorted((tmp_path / "server" / "images").iterdir()):
        volume = predict_volume(model_of(model), file)
        truth = volume_mask(tmp_path / "server" / "masks" / file.name)
        assert volume.classes.shape == truth.shape == (12, 14, 10)
        scores.append([dice(truth == place, volume.classes == place) for place in (1, 2) if (truth == place).any()])
    assert assessment.grid == "File" and np.mean(scores) > 0
    assert assessment.metrics["dice"] == pytest.approx(np.mean(scores))


def volume_mask(file: Path) -> NDArray[np.uint8]:
    nibabel = pytest.importorskip("nibabel")
    return np.asarray(nibabel.load(file).dataobj, np.uint8)


def test_masks_that_went_leave_the_assessment_on_the_grid_of_the_network(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_discs(tmp_path / "server", [(64, 64), (32, 32)])
    model = ModelDescription(network="SmallUNet", task=Segmentation(classes=("background", "disc")), image_size=SIDE)
    images = images_of(tmp_path, model)
    shutil.rmtree(tmp_path / "server" / "masks")
    with caplog.at_level(logging.WARNING):
        assessment = assess(images, model)
    predicted = model_of(model).score(np.asarray(images.images)).argmax(1)
    scores = [dice(truth == 1, each == 1) for truth, each in zip(images.labels, predicted, strict=True)]
    assert assessment.grid == "Network" and assessment.metrics["dice"] == pytest.approx(np.mean(scores))
    assert "cannot be read again" in caplog.text and "0.png" not in caplog.text
