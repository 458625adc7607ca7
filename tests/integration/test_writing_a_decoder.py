"""The worked example of docs/writing-a-decoder.md, a package of another author, by the commands that read images."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from outside_decoder import lay_out
from package_environment import environment_with
from PIL import Image

pytestmark = pytest.mark.outside_package

CLASSES = ("dark", "light")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Lay the package out as `pip` would."""
    folder = tmp_path_factory.mktemp("packages")
    lay_out(folder)
    return environment_with(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same grey images of 8 bits, as .npy and as .png: a folder of each for server and hospital."""
    root, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for site, count in (("server", 24), ("clinic", 30)):
        for number in range(count):
            pixels = rng.integers(0, 120, (20, 24), np.uint8) + np.uint8(130) * np.uint8(number % 2)
            for kind in ("npy", "png"):
                folder = root / kind / site / CLASSES[number % 2]
                folder.mkdir(parents=True, exist_ok=True)
                file = folder / f"{number:02d}.{kind}"
                np.save(file, pixels) if kind == "npy" else Image.fromarray(pixels).save(file)
    return root


def fedctl(environment: Mapping[str, str], *arguments: str, folder: Path, status: int = 0) -> str:
    command = [sys.executable, "-m", "fedctl.main", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def study(root: Path, folder: Path) -> Path:
    """Write a federation of two rounds whose server has test images and anchors, and whose clinic has the rest."""
    section = {"format": "ImageFolder", "testPercent": 25, "anchors": 6}
    federation = {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Federation",
        "metadata": {"name": "npy"},
        "spec": {
            "rounds": 2,
            "task": {"classification": {"classes": list(CLASSES)}},
            "model": {"network": "SmallCnn", "imageSize": 16, "channels": 1, "augmentation": "Digits"},
            "method": {"name": "FedAvg", "local": {"epochs": 1, "batchSize": 8}},
            "protocol": {"minSilos": 1},
            "evaluation": {"test": {**section, "claimName": "server", "use": "Test"}},
        },
    }
    silo = {
        "apiVersion": "anchorage.dev/v1alpha1",
        "kind": "Silo",
        "metadata": {"name": "clinic"},
        "spec": {
            "federation": "npy",
            "labels": "All",
            "managed": {"data": {"format": "ImageFolder", "claimName": "clinic"}},
        },
    }
    file = folder / f"{root.name}.yaml"
    file.write_text(yaml.safe_dump_all([federation, silo]))
    return file


def simulated(environment: Mapping[str, str], root: Path, folder: Path) -> str:
    arguments = (
        "-f",
        str(study(root, folder)),
        "--data-root",
        str(root),
        "--workdir",
        str(folder / root.name),
        "-o",
        "json",
    )
    report = json.loads(fedctl(environment, "simulate", *arguments, folder=folder))
    return str(report["seeds"][0]["rounds"][-1]["digest"])


def test_a_federation_of_npy_files_ends_with_the_bytes_of_one_of_png(
    environment: Mapping[str, str], data: Path, tmp_path: Path
) -> None:
    """By simulation, and over gRPC with an agent and a trainer process; then the model predicts on both kinds of files."""
    root, file = data / "npy", study(data / "npy", tmp_path)
    fedctl(environment, "validate", "-f", str(file), folder=tmp_path)
    checked = json.loads(
        fedctl(environment, "data", "check", "-f", str(file), "--data-root", str(root), "-o", "json", folder=tmp_path)
    )
    assert '"modes": {"L": 30}' in json.dumps(checked)
    digest = simulated(environment, data / "png", tmp_path)
    assert simulated(environment, root, tmp_path) == digest
    run = ("-f", str(file), "--data-root", str(root), "--no-compare", "--workdir", str(tmp_path / "run"))
    fedctl(environment, "run", *run, folder=tmp_path)
    rounds = json.loads(
        fedctl(environment, "rounds", "--workdir", str(tmp_path / "run"), "-o", "json", folder=tmp_path)
    )
    assert rounds[-1]["digest"] == digest
    files = [str(data / kind / "clinic" / "light") for kind in ("npy", "png")]
    document = json.loads(
        fedctl(
            environment, "predict", "--last", "--model", str(tmp_path / "run"), *files, "-o", "json", folder=tmp_path
        )
    )["predictions"]
    assert len(document) == 30 and [each["probabilities"] for each in document[:15]] == [
        each["probabilities"] for each in document[15:]
    ]


def test_init_takes_a_folder_of_npy_files(environment: Mapping[str, str], data: Path, tmp_path: Path) -> None:
    root = data / "npy"
    arguments = (
        "init",
        "--out",
        str(tmp_path / "f.yaml"),
        "--anchors",
        str(root / "server"),
        "--silo",
        f"clinic={root}/clinic:labels",
    )
    fedctl(environment, *arguments, folder=tmp_path)
    federation, silo = yaml.safe_load_all((tmp_path / "f.yaml").read_text())
    assert federation["spec"]["model"]["channels"] == 1 and silo["spec"]["managed"]["data"]["claimName"] == "clinic"


def test_documents_are_checked_without_what_decodes(environment: Mapping[str, str], data: Path, tmp_path: Path) -> None:
    """As the operator checks them."""
    code = (
        "import sys, yaml; from anchorage.methods import validate_documents as check; from anchorage.api.piece import PIECES\n"
        "federation, *silos = yaml.safe_load_all(open(sys.argv[1]))\n"
        "check(federation, silos)\n"
        "assert 'acme.Npy' in PIECES.of('decoder')\n"
        "assert not {'torch', 'PIL'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-c", code, str(study(data / "npy", tmp_path))]
    subprocess.run(command, env=environment, check=True, timeout=600)


def test_without_the_package_its_files_are_none(data: Path, tmp_path: Path) -> None:
    arguments = (
        "simulate",
        "-f",
        str(study(data / "npy", tmp_path)),
        "--data-root",
        str(data / "npy"),
        "--workdir",
        str(tmp_path / "w"),
    )
    output = fedctl(dict(os.environ), *arguments, folder=tmp_path, status=3)
    assert "ANC-1205" in output and ".npy" in output
