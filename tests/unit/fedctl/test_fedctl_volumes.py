"""A model of volumes, as commands show it: predictions as NIfTI masks on the volumes' own grids, programs, and what a check says."""

import base64
import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
import typer
import yaml
from bright_model import by_brightness, have_found
from drawn_volumes import CLASSES, write_pairs
from typer.testing import CliRunner

from anchorage.api.inference import FORMAT_OF_VOLUMES, describe
from anchorage.api.model import ModelDescription
from anchorage.engine.tracking import serving_volumes
from anchorage.learning.data.labels import is_known
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.exporting import save_program, save_torchscript
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods import validate_study
from anchorage.methods.preset import slots
from anchorage.simulation.stand_ins import PlannedImages, managed_by_stand_ins
from fedctl.main import app
from fedctl.output import Format
from fedctl.prediction import predict_images

MODEL = ModelDescription.model_validate(
    {
        "network": "SmallUNet",
        "channels": 1,
        "volume": {"spacing": ("1", "1", "1"), "patch": (8, 8, 8)},
        "intensity": {"percentiles": {"low": "0", "high": "100"}},
        "task": {"segmentation": {"classes": ("background", "bright")}},
    }
)


class FirstChannel(torch.nn.Module):
    """Two maps, as `Bright`, by the first of several channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([-x[:, :1], x[:, :1]], 1)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    """Have commands find a model that draws masks by brightness."""
    assert describe(MODEL, "bodies", classifier_trained=True)["format"] == FORMAT_OF_VOLUMES
    return have_found(monkeypatch, by_brightness(MODEL, "bodies"))


AFFINES = {
    "RAS": np.diag([1.0, 1, 1, 1]),
    "LPS": np.diag([-1.0, -1, 1, 1]),
    "coarse": np.diag([2.0, 2, 3, 1]),
    "turned": np.array([[0, 0, 1.0, 5], [1, 0, 0, -3], [0, 1, 0, 2], [0, 0, 0, 1]]),
}


@pytest.mark.parametrize("name", AFFINES)
def test_a_mask_has_the_grid_of_its_volume(
    name: str, shown: ImageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.zeros((12, 20, 9), np.float32)
    values[6:] = 1000
    image = nibabel.Nifti1Image(values, AFFINES[name])
    image.header["descrip"] = b"Somebody"
    nibabel.save(image, tmp_path / "a.nii.gz")
    predict_images("run", [tmp_path / "a.nii.gz"], True, None, Format.JSON, tmp_path / "masks")
    (prediction,) = json.loads(capsys.readouterr().out)["predictions"]
    mask = nibabel.load(prediction["mask"])
    classes = np.asarray(mask.dataobj)
    assert mask.shape == values.shape and np.allclose(mask.affine, AFFINES[name]) and classes.dtype == np.uint8
    assert np.array_equal(classes, values > 0)
    voxel = abs(np.linalg.det(AFFINES[name]))
    assert prediction["millilitres"]["bright"] == pytest.approx((values > 0).sum() * voxel / 1000)
    assert b"Somebody" not in bytes(mask.header.binaryblock)


def test_people_are_told_millilitres_and_bad_volumes_are_named(
    shown: ImageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pairs(tmp_path, 2)
    (tmp_path / "images" / "case-01.nii.gz").write_bytes(b"nothing")
    with pytest.raises(Exception, match="1 of 2 images cannot be used"):
        predict_images("run", [tmp_path / "images"], True, None, Format.TABLE)
    output = capsys.readouterr()
    assert "bright (ml)" in output.out.lower() and "case-00.nii.gz" in output.out and "case-01.nii.gz" in output.err
    assert not (tmp_path / "masks" / "0000-case-00.nii.gz").exists()


class BrightInTheSecond(torch.nn.Module):
    """Two maps: where the second channel of a volume is bright, and its negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([-x[:, 1:], x[:, 1:]], 1)


@pytest.fixture
def of_two_channels(monkeypatch: pytest.MonkeyPatch) -> ImageModel:
    """Have commands find a model of two channels that draws masks by the brightness of the second."""
    model = by_brightness(MODEL.model_copy(update={"channels": 2}), "bodies")
    model.network = BrightInTheSecond()  # type: ignore[assignment]
    return have_found(monkeypatch, model)


def test_a_volume_of_channels_in_files_of_their_own_is_predicted(of_two_channels: ImageModel, tmp_path: Path) -> None:
    t1, flair = np.zeros((2, 12, 20, 9), np.float32)
    t1[:6], flair[6:] = 1000, 1000
    for name, values in (("a_flair", flair), ("a_t1", t1), ("b_t1", t1), ("notes", t1)):
        nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), tmp_path / f"{name}.nii.gz")
    command = ["predict", "-m", "run", str(tmp_path), "--masks", str(tmp_path / "masks"), "-o", "json"]
    done = CliRunner().invoke(app, [*command, "--channel-files", "_t1,_FLAIR"])
    document = json.loads(done.stdout)
    (prediction,) = document["predictions"]
    assert prediction["image"].endswith("a_t1.nii.gz")
    assert np.array_equal(np.asarray(nibabel.load(prediction["mask"]).dataobj), flair > 0)
    assert [(Path(bad["image"]).name, bad["reason"], bad["message"]) for bad in document["unusable"]] == [
        ("b_t1.nii.gz", "ChannelMissing", "no file of its name ends in _FLAIR"),
        ("notes.nii.gz", "ChannelMissing", "its name ends in none of _t1, _FLAIR"),
    ]
    done = CliRunner().invoke(app, [*command, "--channel-files", "_t1"])
    assert done.exit_code == 2 and "names 1 channels; the model takes volumes of 2 channels" in " ".join(
        done.output.replace("│", "").split()
    )


def test_grad_cam_is_refused(shown: ImageModel, tmp_path: Path) -> None:
    write_pairs(tmp_path, 1)
    with pytest.raises(typer.BadParameter, match="a segmentation has --masks"):
        predict_images("run", [tmp_path / "images"], True, tmp_path / "seen", Format.JSON)


def test_a_registered_model_gives_masks_as_nifti(tmp_path: Path) -> None:
    write_pairs(tmp_path, 1)
    file = tmp_path / "images" / "case-00.nii.gz"
    program = serving_volumes.VolumeModel()
    program._model = by_brightness(MODEL, "bodies")
    text = base64.b64encode(file.read_bytes()).decode()
    rows = program.predict(None, {"image": [file, text, file.read_bytes()]}).to_dict("records")
    (tmp_path / "mask.nii.gz").write_bytes(base64.b64decode(rows[0]["mask"]))
    mask = nibabel.load(tmp_path / "mask.nii.gz")
    assert mask.shape == nibabel.load(file).shape and np.asarray(mask.dataobj).any()
    assert rows[0] == rows[1] == rows[2] and rows[0]["millilitres"]["bright"] > 0
    for bad in ("%%", b"no volume", 7):
        with pytest.raises(Exception, match="the volume in row 0 cannot be used"):
            program.predict(None, {"image": [bad]})


def test_a_registered_model_takes_a_file_for_each_channel(tmp_path: Path) -> None:
    write_pairs(tmp_path, 1)
    file = tmp_path / "images" / "case-00.nii.gz"
    one, two = nibabel.load(file), tmp_path / "two.nii.gz"
    both = np.stack([one.get_fdata(dtype=np.float32), one.get_fdata(dtype=np.float32)[::-1]], -1)
    nibabel.save(nibabel.Nifti1Image(both[..., 1], one.affine), two)
    nibabel.save(nibabel.Nifti1Image(both, one.affine), tmp_path / "both.nii.gz")
    program = serving_volumes.VolumeModel()
    program._model = by_brightness(MODEL.model_copy(update={"channels": 2}), "bodies")
    program._model.network = FirstChannel()  # type: ignore[assignment]
    files = [file, base64.b64encode(two.read_bytes()).decode()]
    split, together = program.predict(None, {"image": [files, tmp_path / "both.nii.gz"]}).to_dict("records")
    assert split == together and split["millilitres"]["bright"] > 0
    with pytest.raises(Exception, match="row 0 cannot be used: found 1 files, allowed are 2, one for each channel"):
        program.predict(None, {"image": [[file]]})


@pytest.mark.parametrize("save", [save_program, save_torchscript])
def test_programs_take_patches(save: object, tmp_path: Path) -> None:
    network = build_model(MODEL, TrainingMethod.of(slots("FedAvg")), 1)
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    model = ImageModel(by_brightness(MODEL, "bodies").described, arrays)
    assert model(torch.zeros(3, 1, 8, 8, 8)).shape == (3, 2, 8, 8, 8)
    save(model, tmp_path / "program", "{}")  # which compares the program's maps with the model's
    assert (tmp_path / "program").stat().st_size > 100_000


def federation(tmp_path: Path, intensity: dict[str, object] | None, scale_of_two: float = 1e-2) -> Path:
    for seed, (site, scale) in enumerate({"server": 1.0, "one": 1.0, "two": scale_of_two}.items()):
        write_pairs(tmp_path / "data" / site, 2, seed=seed, scale=scale)
    spec = {
        "rounds": 1,
        "task": {"segmentation": {"classes": list(CLASSES)}},
        "model": {
            "network": "SmallUNet",
            "channels": 1,
            "volume": {"spacing": ["1", "1", "1"], "patch": [8, 8, 8]},
            **({"intensity": intensity} if intensity else {}),
        },
        "method": {"name": "FedAvg", "local": {"epochs": 1, "batchSize": 2}},
        "evaluation": {"validation": {"format": "ImageFolder", "claimName": "server"}},
    }
    silos = [
        {
            "kind": "Silo",
            "metadata": {"name": name},
            "spec": {
                "federation": "bodies",
                "labels": "All",
                "managed": {"data": {"format": "ImageFolder", "claimName": name}},
            },
        }
        for name in ("one", "two")
    ]
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump_all([{"kind": "Federation", "metadata": {"name": "bodies"}, "spec": spec}, *silos]))
    return file


def test_a_check_tells_spacing_and_scales_and_warns_where_they_differ(tmp_path: Path) -> None:
    window = {"window": {"low": "0", "high": "60000"}}
    file = federation(tmp_path, window)
    result = CliRunner().invoke(app, ["data", "check", "-f", str(file), "--data-root", str(tmp_path / "data")])
    assert result.exit_code == 0, result.output
    for words in ("12×14×10", "spacing 1×1×1 mm (2)", "values up to 65535 (2)", "front in 2 of 2"):
        assert words in result.output
    assert "sections differ in what most of their images are" in result.output
    scored = CliRunner().invoke(
        app,
        ["data", "check", "-f", str(federation(tmp_path, {"zScore": {}})), "--data-root", str(tmp_path / "data")],
    )
    assert scored.exit_code == 0 and "sections differ" not in scored.output


def test_a_check_shows_grey_levels_and_warns_where_sites_have_few_in_common(tmp_path: Path) -> None:
    def checked(intensity: dict[str, object], *options: str) -> str:
        file = federation(tmp_path, intensity, scale_of_two=0.4)
        command = ["data", "check", "-f", str(file), "--data-root", str(tmp_path / "data"), *options]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        return done.stdout if options else " ".join(done.output.split())

    window: dict[str, object] = {"window": {"low": "0", "high": "60000"}}
    output = checked(window)
    assert "two have" in output and "of their grey levels in common as the model sees them" in output
    assert "sections differ" not in output, "the ranges of both are the same"
    assert output.count("from dark to bright: ▕") == 3
    levels = {name: np.array(report["levels"]) for name, report in json.loads(checked(window, "-o", "json")).items()}
    assert all(shares.sum() == pytest.approx(1, abs=1e-3) for shares in levels.values())
    assert levels["two"].argmax() < levels["one"].argmax()
    assert "in common" not in checked({"zScore": {}})


def test_noise_stands_in_for_volumes_that_are_not_here(tmp_path: Path) -> None:
    study = validate_study(federation(tmp_path, {"zScore": {}}))
    model = study.federation.spec.model_description
    silo = managed_by_stand_ins(study.silos[0])
    assert silo.spec.managed is not None
    images = PlannedImages(tmp_path / "data", model, 0, tmp_path).of(silo.spec.managed.data)
    assert images.images.shape == (len(images), 1, 8, 8, 8) and is_known(images.labels).all()
    assert {images.images.volume(row).foreground[0] for row in range(1, 3)} == {0, 1}
    views = views_of(images.images, model, TrainingMethod.of(slots("FedAvg")), torch.device("cpu"), Draws(0))
    patches, masks = views.with_labels("learnt", torch.tensor([1]), torch.empty(0), torch.Generator())
    assert patches.shape == (2, 1, 8, 8, 8) and set(masks.unique().tolist()) == {1}
