"""A trained model as a MONAI bundle: read and run by MONAI alone, it draws the masks of `fedctl predict`."""

import json
import zipfile
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from bright_model import by_brightness
from PIL import ExifTags, Image

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import EXPORT_FAILED
from anchorage.api.model import ModelDescription
from anchorage.learning.data.decoders import decode_content, input_of
from anchorage.learning.data.decoding import unfit_mask
from anchorage.learning.inference import ImageModel
from anchorage.learning.monai_bundle import save_monai_bundle
from anchorage.learning.volume_prediction import predict_volume

pytest.importorskip("monai", reason="MONAI is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore:::monai", "ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning"
)

TASK = {"segmentation": {"classes": ("background", "bright")}}
Z_SCORE = {"zScore": {"over": "All"}}


def described(intensity: dict[str, Any] | None, **fields: Any) -> ModelDescription:
    volume = {"spacing": ("1", "1", "1"), "patch": (16, 16, 16), "overlap": "0.5"}
    shown = {} if intensity is None else {"intensity": intensity}
    description = {"network": "SmallUNet", "channels": 1, "volume": volume, "task": TASK, **shown, **fields}
    return ModelDescription.model_validate(description)


class BrightOnAverage(torch.nn.Module):
    """Two maps: the mean of an image's channels, and before it its negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(1, keepdim=True)
        return torch.cat([-mean, mean], 1)


def brightness(model: ModelDescription) -> ImageModel:
    """Return a model whose mask is where the mean of the channels is brighter than middle grey."""
    made = by_brightness(model, "bodies")
    made.network = BrightOnAverage()  # type: ignore[assignment]
    return made


def unpacked(file: Path, folder: Path) -> Path:
    """Unpack a bundle and return its root."""
    with zipfile.ZipFile(file) as bundle:
        bundle.extractall(folder)
    return folder / "bundle"


def parsed(root: Path) -> Any:
    """Return a bundle's configuration, as MONAI reads it."""
    from monai.bundle import ConfigParser

    parser = ConfigParser()
    parser.read_config(str(root / "configs" / "inference.json"))
    parser["bundle_root"] = str(root)
    return parser


def mask_by_monai(root: Path) -> Path:
    """Have MONAI predict the first image of a bundle, and return the file of its mask."""
    from monai.inferers import Inferer

    parser = parsed(root)
    item = parser.get_parsed_content("dataset")[0]
    inferer = parser.get_parsed_content("inferer")
    assert isinstance(inferer, Inferer)
    with torch.no_grad():
        item["pred"] = inferer(item["image"][None], parser.get_parsed_content("network"))[0]
    parser.get_parsed_content("postprocessing")(item)
    (mask,) = (root / "masks").iterdir()
    return mask


def drawn(rng: np.random.Generator, sides: tuple[int, int, int]) -> np.ndarray:
    """Return a dark volume with a bright box."""
    values = rng.normal(300, 20, sides).astype(np.float32)
    values[tuple(slice(side // 4, 3 * side // 4) for side in sides)] += 400
    return values


@pytest.mark.parametrize(
    ("intensity", "spacing", "channels"),
    [
        (Z_SCORE, (1.0, 1.0, 1.0), 1),
        ({"window": {"low": "0", "high": "1200"}}, (2.0, 1.0, 1.5), 1),
        ({"percentiles": {"low": "1", "high": "99"}}, (1.0, 1.0, 1.0), 2),
    ],
)
def test_monai_draws_the_same_mask(
    intensity: dict[str, Any], spacing: tuple[float, ...], channels: int, tmp_path: Path
) -> None:
    model = brightness(described(intensity, channels=channels))
    save_monai_bundle(model, tmp_path / "bundle.zip", "{}")
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    (root / "images").mkdir()
    rng = np.random.default_rng(0)
    values = np.stack([drawn(rng, (24, 30, 22)) for _ in range(channels)], -1)
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])  # to the left, the back and the head
    nibabel.save(nibabel.Nifti1Image(values.squeeze(), affine), root / "images" / "a.nii.gz")

    mask = mask_by_monai(root)
    mask_image, wanted = nibabel.load(mask), predict_volume(model, root / "images" / "a.nii.gz")
    classes = np.asarray(mask_image.dataobj)
    assert mask_image.shape == wanted.classes.shape and np.allclose(mask_image.affine, affine)
    assert 100 < wanted.classes.sum() < wanted.classes.size / 2, "it finds something"
    both = 2 * (classes & wanted.classes).sum() / (classes.sum() + wanted.classes.sum())
    assert both > (1 - 1e-6 if set(spacing) == {1.0} else 0.94)  # of two voxels as near, each takes another


def test_monai_reads_nan_as_0_where_the_model_does(tmp_path: Path) -> None:
    volume = {"spacing": ("1", "1", "1"), "patch": (16, 16, 16), "nanVoxels": "Zero"}
    model = brightness(described({"window": {"low": "0", "high": "1200"}}, volume=volume))
    save_monai_bundle(model, tmp_path / "bundle.zip", "{}")
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    (root / "images").mkdir()
    values = drawn(np.random.default_rng(0), (16, 16, 16))
    values[:3] = np.nan
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), root / "images" / "a.nii.gz")
    image = parsed(root).get_parsed_content("dataset")[0]["image"]
    np.testing.assert_allclose(np.asarray(image)[0], np.nan_to_num(values) / 1200, atol=1e-6)
    assert predict_volume(model, root / "images" / "a.nii.gz").classes.any()


def test_monai_turns_no_volume_where_the_model_turns_none(tmp_path: Path) -> None:
    volume = {"spacing": ("1", "1", "1"), "patch": (16, 16, 16), "orientation": "AsStored"}
    model = brightness(described({"window": {"low": "0", "high": "1200"}}, volume=volume))
    save_monai_bundle(model, tmp_path / "bundle.zip", "{}")
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    (root / "images").mkdir()
    values = drawn(np.random.default_rng(0), (16, 18, 20))
    nibabel.save(nibabel.Nifti1Image(values, np.diag([-1.0, -1, 1, 1])), root / "images" / "a.nii.gz")
    image = parsed(root).get_parsed_content("dataset")[0]["image"]
    np.testing.assert_allclose(np.asarray(image)[0], values / 1200, atol=1e-6)


@pytest.mark.parametrize(
    ("intensity", "size", "channels", "turned"),
    [
        (None, (32, 32), 3, False),
        (None, (90, 60), 3, False),
        (None, (90, 60), 3, True),
        (None, (40, 75), 1, False),
        ({"window": {"low": "0", "high": "200"}}, (48, 64), 1, False),
    ],
)
def test_monai_draws_the_same_mask_of_a_picture(
    intensity: dict[str, Any] | None, size: tuple[int, int], channels: int, turned: bool, tmp_path: Path
) -> None:
    model = brightness(described(intensity, volume=None, image_size=32, channels=channels))
    save_monai_bundle(model, tmp_path / "bundle.zip", "{}")
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    (root / "images").mkdir()
    width, height = size
    pixels = np.full((height, width), 40, np.uint8)
    pixels[: height // 2, : width // 3] = 190  # not the same when it is turned or mirrored
    picture = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6 if turned else 1  # a quarter turn, or none
    (picture if channels == 1 else picture.convert("RGB")).save(root / "images" / "a.png", exif=exif)
    width, height = (height, width) if turned else size

    mask = mask_by_monai(root)
    classes = np.asarray(Image.open(mask))
    content = (root / "images" / "a.png").read_bytes()
    decoded = decode_content(content, "a.png", input_of(model.described))
    on_network = model.score(np.array(decoded.pixels)[None]).argmax(1)[0].astype(np.uint8)
    wanted = unfit_mask(on_network, (width, height), "Pad")
    assert classes.shape == wanted.shape == (height, width) and mask.suffix == ".png"
    assert 100 < wanted.sum() < wanted.size / 2, "it finds the bright part"
    both = 2 * (classes & wanted).sum() / (classes.sum() + wanted.sum())
    assert both > (1 - 1e-6 if size == (32, 32) else 0.94)


def test_the_description_has_what_monai_asks_for(tmp_path: Path) -> None:
    save_monai_bundle(brightness(described(Z_SCORE, channels=2)), tmp_path / "bundle.zip", '{"a": 1}')
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    metadata = json.loads((root / "configs" / "metadata.json").read_text())
    assert metadata["network_data_format"]["inputs"]["image"]["num_channels"] == 2
    assert metadata["network_data_format"]["outputs"]["pred"]["channel_def"] == {"0": "background", "1": "bright"}
    assert {"version", "monai_version", "pytorch_version", "task", "authors", "copyright"} <= metadata.keys()
    assert json.loads((root / "models" / "model.json").read_text()) == {"a": 1}
    assert "0 background, 1 bright" in (root / "docs" / "README.md").read_text()


@pytest.mark.parametrize(("volume", "package"), [(True, "nibabel"), (False, "pillow")])
def test_the_packages_are_those_that_read_the_files(volume: bool, package: str, tmp_path: Path) -> None:
    kind = described(Z_SCORE) if volume else described(None, volume=None, image_size=32, channels=1)
    save_monai_bundle(brightness(kind), tmp_path / "bundle.zip", "{}")
    root = unpacked(tmp_path / "bundle.zip", tmp_path)
    metadata = json.loads((root / "configs" / "metadata.json").read_text())
    assert metadata["required_packages_version"].keys() == {package, "pytorch-ignite", "fire"}
    assert f'pip install "monai[fire,ignite,{package}]"' in (root / "docs" / "README.md").read_text()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (described(None), "MONAI cannot show images as no intensity does"),
        (described({"zScore": {"over": "Foreground"}}), "as the intensity zScore as it is set does"),
        (described({"bits": {}}), "as the intensity bits as it is set does"),
        (described(None, volume=None, image_size=16, fit="Crop"), "MONAI cannot fit images by fit: Crop"),
        (
            described(None, volume=None, image_size=16, task={"classification": {"classes": ("a", "b")}}),
            "a MONAI bundle is of a segmentation",
        ),
    ],
)
def test_what_monai_cannot_do_is_refused(model: ModelDescription, message: str, tmp_path: Path) -> None:
    with pytest.raises(AnchorageError, match=message) as refused:
        save_monai_bundle(brightness(model), tmp_path / "bundle.zip", "{}")
    assert refused.value.failure is EXPORT_FAILED and not (tmp_path / "bundle.zip").exists()
