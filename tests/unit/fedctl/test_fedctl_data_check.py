"""What is said of images and documents before a start, which would be found later or never."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from drawn_images import draw
from drawn_scans import write_dicom
from PIL import Image
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors import data as failures
from anchorage.api.errors.learning import ANCHORS_MISSING
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from fedctl.main import app

DOCUMENTS = """
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: 1
  task: {{classification: {{classes: [a, b]}}}}
  model: {{network: LeafCnn, imageSize: 8, channels: 1}}
  method: {{name: FedAvg}}
  {more}
---
kind: Silo
metadata: {{name: first}}
spec: {{federation: tiny, labels: {first}, managed: {{data: {{format: ImageFolder, claimName: first}}}}}}
---
kind: Silo
metadata: {{name: second}}
spec: {{federation: tiny, labels: {second}, managed: {{data: {{format: ImageFolder, claimName: second}}}}}}
"""


def write(folder: Path, *, first: str = "All", second: str = "All", more: str = "") -> Path:
    file = folder / "tiny.yaml"
    file.write_text(DOCUMENTS.format(first=first, second=second, more=more))
    for name in ("first/a", "first/b", "second", "server"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(2):
            pixels = np.random.default_rng(len(name) + number).integers(0, 4096, (8, 8)).astype(np.uint16)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return file


def fedctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result, failure: Failure, *words: str) -> None:
    assert isinstance(result.exception, AnchorageError), result.output
    assert result.exception.failure is failure
    for word in words:
        assert word in result.exception.message


@pytest.mark.parametrize("labels", ["All", "Partial"])
def test_labels_that_no_image_has_are_told_before_a_start(tmp_path: Path, labels: str) -> None:
    result = fedctl("data", "check", "-f", write(tmp_path, second=labels), "-o", "json")
    words = (f"silo second has labels: {labels}, but 2 of 2 images have none", "set labels: None")
    refused(result, IMAGES_UNLABELLED, *words)
    assert json.loads(result.stdout)["second"]["unlabelled"] == 2


def test_labels_that_some_images_lack_are_told(tmp_path: Path) -> None:
    file = write(tmp_path, second="Partial")
    (tmp_path / "first" / "a" / "0.png").rename(tmp_path / "first" / "flat.png")
    refused(fedctl("data", "check", "-f", file, "--silo", "first"), IMAGES_UNLABELLED, "1 of 4", "set labels: Partial")


def test_every_reason_is_told_at_once(tmp_path: Path) -> None:
    more = "anchorData: {format: ImageFolder, claimName: server}"
    file = write(tmp_path, more=more)
    (tmp_path / "first" / "a" / "0.png").write_bytes(b"")
    result = fedctl("data", "check", "-f", file, "--set", "spec.model.initial=no.safetensors")
    refused(result, failures.DATA_MISSING, "no.safetensors", "spec.model.initial")
    assert [line[:8] for line in result.stderr.splitlines()] == ["ANC-1203", "ANC-1306", "ANC-2230"]
    refused(fedctl("data", "check", "-f", file, "--silo", "anchors"), ANCHORS_MISSING, "none of the 2 anchors")


def test_test_images_without_labels_are_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path, second="None", more="evaluation: {test: {format: ImageFolder, claimName: server}}")
    result = fedctl("data", "check", "-f", file, "--silo", "test", "-o", "json")
    assert result.exit_code == 0
    assert "nothing is evaluated" in result.stderr
    assert json.loads(result.stdout)["test"]["usable"] == 2


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_an_initial_model_that_is_not_there_stops_before_anything_starts(tmp_path: Path, command: str) -> None:
    file, workdir = write(tmp_path, second="None"), tmp_path / "run"
    result = fedctl(command, "-f", file, "--workdir", workdir, "--set", "spec.model.initial=x/no.safetensors")
    refused(result, failures.DATA_MISSING, str(tmp_path / "x" / "no.safetensors"), "spec.model.initial")
    assert not list(workdir.rglob("*.log"))


def test_silos_that_will_idle_are_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path, second="None")
    result = fedctl("validate", "-f", file, "-o", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["valid"]
    assert "second: labels: None, and FedAvg" in document["warnings"][0]
    assert result.stderr == f"warning: {document['warnings'][0]}\n"
    assert "second: labels: None" in fedctl("data", "check", "-f", file).stderr
    assert not json.loads(fedctl("validate", "-f", write(tmp_path), "-o", "json").stdout)["warnings"]


@pytest.mark.parametrize("uri", ["mlflow:5000", "localhost:5000", "mlflow.hospital.org:5000/x", "http://", "./mlruns"])
def test_a_tracking_address_without_a_scheme_is_a_mistake_with_its_line(tmp_path: Path, uri: str) -> None:
    file = write(tmp_path, more=f"tracking: {{uri: '{uri}'}}")
    result = fedctl("validate", "-f", file)
    assert str(result.exception).startswith(
        f'ANC-1013 WrongForm: {file}:9: spec.tracking.uri: found "{uri}", allowed is a URI'
    )


@pytest.mark.parametrize(
    "uri", ["http://mlflow:5000", "sqlite:///mlflow.db", "file:/srv/mlruns", "postgresql+psycopg2://db/mlflow"]
)
def test_tracking_addresses_that_mlflow_takes(tmp_path: Path, uri: str) -> None:
    assert fedctl("validate", "-f", write(tmp_path, more=f"tracking: {{uri: '{uri}'}}")).exit_code == 0


def test_the_table_tells_what_is_not_counted_and_how_grey_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, second="None")
    (tmp_path / "first" / "DICOMDIR").touch()
    (tmp_path / "first" / "readme.txt").touch()
    Image.fromarray(np.linspace(0, 700, 64, dtype=np.uint16).reshape(8, 8)).save(tmp_path / "first" / "a" / "dark.png")
    lines = fedctl("data", "check", "-f", file, "--silo", "first").stdout.splitlines()
    window = "first: grey values that become black to white, of images with more than 8 bits: 0-4095 (4), 0-1023 (1)"
    assert any(line.startswith(window) for line in lines)
    assert "first: files that are not images, and not counted: 1 .txt, 1 DICOMDIR" in lines


def leaking(folder: Path, more: str = "") -> Path:
    """Write a federation whose test images are a silo's own folder, and whose validation images are a copy of one of them."""
    both = "validation: {format: ImageFolder, claimName: server}, test: {format: ImageFolder, claimName: first}"
    file = write(folder, second="None", more=f"evaluation: {{{both}{more}}}")
    for seed, name in enumerate(("server/0", "server/1", "second/0", "second/1")):
        pixels = np.random.default_rng(90 + seed).integers(0, 4096, (8, 8)).astype(np.uint16)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    shown = np.kron(np.random.default_rng(5).integers(0, 256, (4, 4)), np.ones((8, 8))).astype(np.uint8)
    Image.fromarray(shown).save(folder / "first" / "a" / "shown.png")
    (folder / "server" / "a").mkdir()
    Image.fromarray(shown).save(folder / "server" / "a" / "copy.bmp")
    return file


def test_images_in_training_and_test_are_told_with_their_names(tmp_path: Path) -> None:
    result = fedctl("data", "check", "-f", leaking(tmp_path), "-o", "json")
    refused(
        result, failures.HELD_OUT_TRAINED, "found 5 test images among the images of first", "spec.evaluation.onLeakage"
    )
    report = json.loads(result.stdout)
    assert report["first"]["heldOut"]["validation"]["near"] == [["a/shown.png", "a/copy.bmp"]]
    assert ["a/0.png", "a/0.png"] in report["first"]["heldOut"]["test"]["identical"]
    assert report["second"]["heldOut"] == {}
    table = fedctl("data", "check", "-f", tmp_path / "tiny.yaml").output
    assert "first and test: 5 equal images" in table and "first and validation: 1 pair of images" in table


@pytest.mark.parametrize("treatment", ["Skip", "Allow"])
def test_what_the_document_allows_is_told_and_no_failure(tmp_path: Path, treatment: str) -> None:
    result = fedctl("data", "check", "-f", leaking(tmp_path, f", onLeakage: {treatment}"))
    assert result.exception is None, result.output
    assert "first and test: 5 equal images" in result.output


@pytest.mark.parametrize(("mode", "scale"), [("L", "8 bits of grey"), ("RGB", "8 bits in colour"), ("I;16", None)])
def test_a_site_of_another_scale_is_told_over_all_sections(tmp_path: Path, mode: str, scale: str | None) -> None:
    file = write(tmp_path, second="None")
    for number in range(2):
        draw(mode, seed=number).save(tmp_path / "second" / f"{number}.png")
    if scale is None:  # of the same range as the others
        write(tmp_path, second="None")
    output = fedctl("data", "check", "-f", file).stderr
    assert (f"(grey from 0 to 4095: first; {scale}: second)" in output) == (scale is not None)
    assert ("tell sites apart" in output) == (scale is not None)
    assert "tell sites apart" not in fedctl("data", "check", "-f", file, "--silo", "first").stderr


def test_scans_are_told_with_what_their_files_say_and_an_intensity_that_suits_them(tmp_path: Path) -> None:
    file = write(tmp_path, second="None")
    pixels = np.random.default_rng(0).integers(0, 4096, (12, 12)).astype(np.uint16)
    write_dicom(tmp_path / "second" / "scan.dcm", pixels, bits=12, PatientID="p")
    result = fedctl("data", "check", "-f", file)
    assert (
        "second: what files say of themselves: modality CT (1), transfer syntax Explicit VR Little Endian (1)"
        in " ".join(result.stdout.split())
    )
    assert "set a window in Hounsfield units" in " ".join(result.stderr.split())
    document = json.loads(fedctl("data", "check", "-f", file, "-o", "json").stdout)
    assert document["second"]["facts"]["photometric interpretation MONOCHROME2"] == 1
