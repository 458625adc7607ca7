"""`fedctl predict` and `fedctl model export` on the recorded model of the first format, and on models that cannot be used."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError, Failure, commands
from anchorage.api.errors.data import NO_IMAGES
from anchorage.learning.data.decoding import Input, decode_bytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors
from fedctl.arguments import ModelFormat
from fedctl.chosen_model import chosen_of
from fedctl.main import app
from fedctl.model_export import export_model
from fedctl.output import Format
from fedctl.prediction import predict_images
from fedctl.trained_model import open_model

GOLDEN = Path(__file__).parents[2] / "golden" / "model"
RECORDED = json.loads((GOLDEN / "predictions.json").read_text())["predictions"]

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "model"))


def predictions(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_recorded_model_predicts_as_it_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(GOLDEN)
    predict_images(".", [Path("images")], False, None, Format.JSON)
    document = predictions(capsys)
    assert document.keys() == {"model", "predictions"}
    score = {"metric": "balanced_accuracy", "value": 0.9554719004719006, "images": "validation images"}
    assert document["model"] == {"role": "final", "round": 3, "score": score}
    for prediction, recorded in zip(document["predictions"], RECORDED, strict=True):
        assert (prediction["image"], prediction["class"]) == (recorded["image"], recorded["class"])
        assert prediction["probabilities"] == pytest.approx(recorded["probabilities"], abs=1e-3)


def test_fields_of_a_later_version_are_ignored(folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    later = {**description, "calibration": {"temperature": 1.5}, "final": {**description["final"], "signedBy": "x"}}
    (folder / "model.json").write_text(json.dumps(later))
    assert open_model(str(folder), best=False).described == open_model(str(GOLDEN), best=False).described


UNUSABLE: Mapping[str, tuple[Change, Failure, str]] = {
    "another format": (lambda d: d.update(format="anchorage-model-9"), commands.MODEL_OF_OTHER_FORMAT, "model-9"),
    "before formats": (lambda d: d.pop("format"), commands.MODEL_OF_OTHER_FORMAT, "before 0.1"),
    "another rule of resizing": (lambda d: d.update(resizing="squeeze"), commands.MODEL_UNUSABLE, "resizing"),
    "too large": (lambda d: d.update(imageSize=10**6), commands.MODEL_UNUSABLE, "imageSize"),
    "one class": (lambda d: d.update(classes=["0"]), commands.MODEL_UNUSABLE, "classes"),
    "means of another kind": (lambda d: d.update(channels=3), commands.MODEL_UNUSABLE, "1 means"),
    "a deviation of 0": (lambda d: d["normalisation"].update(std=[0]), commands.MODEL_UNUSABLE, "std"),
    "a file elsewhere": (lambda d: d["final"].update(file="../x"), commands.MODEL_UNUSABLE, "final.file"),
    "another digest": (lambda d: d["final"].update(digest="0" * 64), commands.MODEL_UNUSABLE, "digest"),
    "no weights": (lambda d: d.pop("final"), commands.MODEL_UNUSABLE, "no file of weights"),
    "a foreign network": (lambda d: d.update(network="acme.Net"), commands.MODEL_UNUSABLE, "network acme.Net"),
    "a foreign task": (lambda d: d.update(task="grading"), commands.MODEL_UNUSABLE, "found 'grading'"),
    "a foreign augmentation": (
        lambda d: d.update(normalisation={"rule": "acme.Views"}),
        commands.MODEL_UNUSABLE,
        "augmentation acme.Views",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_model_that_cannot_be_used_is_refused_with_the_reason(folder: Path, case: str) -> None:
    change, failure, words = UNUSABLE[case]
    description = json.loads((folder / "model.json").read_text())
    change(description)
    (folder / "model.json").write_text(json.dumps(description))
    with pytest.raises(AnchorageError, match=words) as caught:
        open_model(str(folder), best=False).image_model()
    assert caught.value.failure is failure


@pytest.fixture
def run(folder: Path) -> Path:
    """A folder of a run whose last round did worse than an earlier one."""
    described = json.loads((folder / "model.json").read_text())
    last = described["final"]
    best = {**last, "round": 2, "metrics": {"balanced_accuracy": 0.9871, "accuracy": 0.9}}
    (folder / "model.json").write_text(json.dumps({**described, "best": best}))
    return folder


def test_the_model_that_did_best_is_the_one_that_is_used(run: Path) -> None:
    best, last = open_model(str(run), best=True), open_model(str(run), best=False)
    assert str(best.chosen) == "the best model: round 2, balanced accuracy 0.987 on the validation images"
    assert str(last.chosen) == "the last model: round 3, balanced accuracy 0.955 on the validation images"


def test_without_a_best_model_it_is_the_last_one(folder: Path) -> None:
    assert open_model(str(folder), best=True).chosen.role == "final"


def test_the_best_model_alone_is_not_taken_for_the_last(run: Path) -> None:
    described = json.loads((run / "model.json").read_text())
    del described["final"]
    (run / "model.json").write_text(json.dumps(described))
    with pytest.raises(AnchorageError, match="no last model, only the best one") as caught:
        open_model(str(run), best=False)
    assert caught.value.failure is commands.MODEL_UNUSABLE


@pytest.mark.parametrize(
    ("role", "metrics", "words"),
    [
        ("best", {}, "the last model: round 7, as no validation images chose a better one"),
        ("best", {"balanced_accuracy": None}, "the last model: round 7, as no validation images chose a better one"),
        ("final", {"server_loss": 0.3}, "the last model: round 7"),
        ("final", {"loss": 0.25}, "the last model: round 7, loss 0.250 on the validation images"),
        (
            "best",
            {"balanced_accuracy": 0.5, "accuracy": 0.75, "silos_balanced_accuracy": 0.5, "silos_accuracy": 0.75},
            "the best model: round 7, balanced accuracy 0.500 on the silos' held-out images",
        ),
        (
            "best",
            {"balanced_accuracy": 0.5, "accuracy": 0.75, "silos_balanced_accuracy": 0.4, "silos_accuracy": 0.75},
            "the best model: round 7, balanced accuracy 0.500 on the validation images",
        ),
        ("checkpoint", {}, "the last committed model of a run that is not over: round 7"),
    ],
)
def test_a_model_is_named_with_its_round_and_score(role: str, metrics: Mapping[str, float | None], words: str) -> None:
    assert str(chosen_of({role: {"file": "m", "digest": "d", "round": 7, "metrics": metrics}}, role)) == words


def test_a_damaged_description_of_a_model_is_refused() -> None:
    with pytest.raises(AnchorageError, match=r"model\.json: best\.round") as caught:
        chosen_of({"best": {"file": "m", "digest": "d", "round": "last"}}, "best")
    assert caught.value.failure is commands.MODEL_UNUSABLE


def test_predict_and_export_use_the_best_model_and_the_last_on_request(run: Path, tmp_path: Path) -> None:
    image, words = str(run / "images" / "zero.png"), "round {}, balanced accuracy {} on the validation images"
    for options, expected in (([], (2, 0.987)), (["--best"], (2, 0.987)), (["--last"], (3, 0.955))):
        done = CliRunner().invoke(app, ["predict", "-m", str(run), image, *options])
        assert done.exit_code == 0 and words.format(*expected) in done.stderr and "round" not in done.stdout
        export = ["model", "export", "-m", str(run), "--format", "safetensors", "--out"]
        file = str(tmp_path / f"{len(options)}-{expected[0]}.safetensors")
        done = CliRunner().invoke(app, [*export, file, *options])
        assert done.exit_code == 0 and words.format(*expected) in done.stdout
        done = CliRunner().invoke(app, [*export, file, *options, "--force", "-o", "json"])
        assert (json.loads(done.stdout)["round"], json.loads(done.stdout)["score"]["images"]) == (
            expected[0],
            "validation images",
        )


def test_a_bundle_for_monai_is_of_a_segmentation(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle.zip"
    with pytest.raises(AnchorageError, match="a MONAI bundle is of a segmentation") as caught:
        export_model(str(run), out, ModelFormat.MONAI, True, False, Format.JSON)
    assert caught.value.failure is commands.EXPORT_FAILED and not out.exists()


def test_an_export_overwrites_a_file_only_on_request(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    file.write_text("mine")
    command = ["model", "export", "-m", str(GOLDEN), "--format", "safetensors", "--out", str(file)]
    done = CliRunner().invoke(app, command)
    usage = " ".join(re.sub("[│╭╮╰╯─]", " ", done.stderr).split())
    assert done.exit_code == 2 and "is not overwritten" in usage and "--force" in usage
    assert file.read_text() == "mine"
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert read_safetensors(file).model.arrays()


def test_what_is_no_json_or_no_model_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.json").write_bytes(b"\xff{")
    for where in (folder, tmp_path / "nowhere"):
        with pytest.raises(AnchorageError) as caught:
            open_model(str(where), best=False)
        assert caught.value.failure is commands.MODEL_UNUSABLE


def test_bad_images_are_named_and_the_others_scored(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "images" / "broken.png").write_bytes(b"no image")
    (folder / "images" / ".hidden.png").write_bytes(b"not looked at")
    (folder / "images" / "notes.txt").write_bytes(b"not looked at")
    with pytest.raises(AnchorageError, match="2 of 6 images") as caught:
        predict_images(str(folder), [folder / "images", tmp_path / "gone.png"], False, None, Format.JSON)
    assert caught.value.failure is commands.IMAGES_UNUSABLE
    output = capsys.readouterr()
    document = json.loads(output.out)
    assert [prediction["class"] for prediction in document["predictions"]] == [
        prediction["class"] for prediction in RECORDED
    ]
    assert [(Path(bad["image"]).name, bad["reason"]) for bad in document["unusable"]] == [
        ("broken.png", "NotAnImage"),
        ("gone.png", "Missing"),
    ]
    assert "broken.png: NotAnImage" in output.err


def test_a_folder_without_images_is_told(tmp_path: Path) -> None:
    with pytest.raises(AnchorageError) as caught:
        predict_images(str(GOLDEN), [tmp_path], False, None, Format.JSON)
    assert caught.value.failure is NO_IMAGES


def test_an_untrained_classifier_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**description, "classifierTrained": False}))
    predict_images(str(folder), [folder / "images"], False, None, Format.WIDE)
    output = capsys.readouterr()
    assert "trained no classifier" in output.err
    assert len(output.out.splitlines()) == 5 and "0.00" in output.out


def test_a_picture_per_image_shows_where_the_class_was_seen(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predict_images(str(folder), [folder / "images" / "zero.png"] * 2, False, tmp_path / "seen", Format.JSON)
    files = [Path(prediction["gradCam"]) for prediction in predictions(capsys)["predictions"]]
    assert [file.name for file in files] == ["0000-zero.png", "0001-zero.png"]
    with Image.open(files[0]) as picture:
        assert picture.size == (224, 224)
        red, _, blue = np.asarray(picture, np.int64).transpose(2, 0, 1)
    assert (red >= blue).all() and (red > blue).any()  # a grey image, heated somewhere


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    files = [GOLDEN / prediction["image"] for prediction in RECORDED]
    return torch.from_numpy(np.stack([decode_bytes(file.read_bytes(), Input(8, 1)).pixels for file in files]))


def recorded_scores() -> list[list[float]]:
    return [list(prediction["probabilities"].values()) for prediction in RECORDED]


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:FutureWarning")
def test_an_exported_torchscript_program_scores_equal(tmp_path: Path, pixels: torch.Tensor) -> None:
    export_model(str(GOLDEN), tmp_path / "to" / "m.pt", ModelFormat.TORCHSCRIPT, True, False, Format.JSON)
    files = {"model.json": ""}
    program = torch.jit.load(tmp_path / "to" / "m.pt", _extra_files=files)
    np.testing.assert_allclose(program(pixels).tolist(), recorded_scores(), atol=1e-3)
    assert json.loads(files["model.json"])["classes"] == list("0123456789")


def test_an_exported_onnx_program_scores_equal(tmp_path: Path, pixels: torch.Tensor) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    export_model(str(GOLDEN), tmp_path / "m.onnx", ModelFormat.ONNX, True, False, Format.JSON)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for rows in (slice(0, 1), slice(0, 4)):  # any number of images
        (probabilities,) = session.run(["probabilities"], {"images": pixels[rows].numpy()})
        np.testing.assert_allclose(probabilities, recorded_scores()[rows], atol=1e-3)
    assert json.loads(session.get_modelmeta().custom_metadata_map["model.json"])["network"] == "SmallCnn"


def test_exported_weights_are_the_models(tmp_path: Path) -> None:
    export_model(str(GOLDEN), tmp_path / "m.safetensors", ModelFormat.SAFETENSORS, True, False, Format.TABLE)
    model = read_safetensors(tmp_path / "m.safetensors").model
    assert model.digest == json.loads((GOLDEN / "model.json").read_text())["final"]["digest"]
    _, metadata = read_description(tmp_path / "m.safetensors")
    assert json.loads(metadata["model.json"])["format"] == "anchorage-model-1"


def test_onnx_asks_for_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(AnchorageError, match=r"pip install 'anchorage\[export\]'") as caught:
        export_model(str(GOLDEN), tmp_path / "m.onnx", ModelFormat.ONNX, True, False, Format.TABLE)
    assert caught.value.failure is commands.PACKAGE_MISSING and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnchorageError) as caught:
        export_model(str(GOLDEN), tmp_path / "file" / "m.pt", ModelFormat.TORCHSCRIPT, True, False, Format.TABLE)
    assert caught.value.failure is commands.WORKDIR_UNUSABLE


def test_the_commands_are_there() -> None:
    done = CliRunner().invoke(app, ["predict", "-m", str(GOLDEN), str(GOLDEN / "images" / "zero.png")])
    assert done.exit_code == 0 and done.stdout.split()[-2] == "0"


def test_without_torch_its_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['predict', '-m', '.', 'x.png']; "
        "from fedctl.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == commands.PACKAGE_MISSING.exit_code and done.stdout == ""
    assert "pip install 'anchorage[learning]'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["decoding", "serving"])
def test_what_a_registered_model_carries_imports_nothing_of_this_project(name: str) -> None:
    (file,) = (Path(__file__).parents[3] / "core" / "anchorage").rglob(f"{name}.py")
    assert not re.search(r"^\s*(from|import) (anchorage|fedctl)", file.read_text(), re.MULTILINE)
