"""A model that segments, as commands show it: predictions as masks on the images' own grids, programs, and what is refused."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from bright_model import by_brightness, have_found
from PIL import Image

from anchorage.api.inference import describe
from anchorage.api.model import ModelDescription
from anchorage.engine.tracking import serving
from anchorage.learning.data import decoding, intensity
from anchorage.learning.exporting import save_onnx, save_program, save_torchscript
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods.preset import slots
from anchorage.pieces.task.segmentation import Segmentation
from fedctl.output import Format
from fedctl.prediction import predict_images

SIDE = 16
MODEL = ModelDescription(
    network="SmallUNet", task=Segmentation(classes=("background", "bright")), image_size=SIDE, channels=1
)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    """Have commands find a model that draws masks by brightness."""
    return have_found(monkeypatch, by_brightness(MODEL, "discs"))


def picture(folder: Path, size: tuple[int, int]) -> Path:
    """Write an image whose right half is bright."""
    pixels = np.full(size[::-1], 5, np.uint8)
    pixels[:, size[0] // 2 :] = 250
    file = folder / f"{size[0]}x{size[1]}.png"
    Image.fromarray(pixels).save(file)
    return file


@pytest.mark.parametrize("size", [(64, 40), (40, 64), (16, 16), (8, 8)])
def test_a_mask_has_the_grid_of_its_image(
    size: tuple[int, int], shown: ImageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = picture(tmp_path, size)
    predict_images("run", [file], True, None, Format.JSON, tmp_path / "masks")
    (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
    mask = Image.open(prediction["mask"])
    assert mask.mode == "P" and mask.size == size and mask.getpalette()[:6] == [0, 0, 0, 230, 159, 0]
    classes = np.asarray(mask)
    assert not classes[:, : size[0] // 2].any() and classes[:, size[0] // 2 :].all()
    assert prediction["area"] == {"bright": 0.5}


def test_people_are_told_shares_and_no_mask_is_written_unasked(
    shown: ImageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict_images("run", [picture(tmp_path, (16, 16))], True, None, Format.TABLE)
    assert "50.00%" in capsys.readouterr().out and [path.name for path in tmp_path.iterdir()] == ["16x16.png"]


def test_grad_cam_is_refused(shown: ImageModel, tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="a segmentation has --masks"):
        predict_images("run", [picture(tmp_path, (16, 16))], True, tmp_path / "seen", Format.JSON)


@pytest.mark.parametrize("size", [(64, 40), (24, 48)])
def test_a_registered_model_gives_masks_as_pictures(size: tuple[int, int], tmp_path: Path) -> None:
    program = serving.ImageModel()
    program._described = describe(MODEL, "discs", classifier_trained=True)
    program._decoding, program._intensity, program._program = decoding, intensity, by_brightness(MODEL, "discs")
    (row,) = program.predict(None, {"image": [picture(tmp_path, size)]}).to_dict("records")
    mask = Image.open(io.BytesIO(base64.b64decode(row["mask"])))
    assert row["area"] == {"bright": 0.5} and mask.size == size
    assert np.asarray(mask)[:, size[0] // 2 :].all()


@pytest.mark.parametrize("save", [save_program, save_torchscript, save_onnx])
def test_programs_give_maps(save: object, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    network = build_model(MODEL, TrainingMethod.of(slots("FedAvg")), 1)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    model = ImageModel(by_brightness(MODEL, "discs").described, arrays)
    assert model(torch.zeros(3, 1, SIDE, SIDE, dtype=torch.uint8)).shape == (3, 2, SIDE, SIDE)
    save(model, tmp_path / "program", "{}")  # which compares the program's maps with the model's
    assert (tmp_path / "program").stat().st_size > 100_000
