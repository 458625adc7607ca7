"""`fedctl init` over folders of images with masks: it writes a segmentation, and what each site's values mean."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from drawn_images import draw
from drawn_masks import write_pairs
from PIL import Image
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from fedctl.main import app


def begun(folder: Path, *arguments: str) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Run `init`; return what it printed, and the documents."""
    out = folder / "study.yaml"
    command = ["init", "--out", str(out), "--silo", f"a={folder / 'a'}:labels", "--silo", f"b={folder / 'b'}:labels"]
    done = CliRunner().invoke(app, [*command, "--validation", str(folder / "server"), *arguments])
    if done.exception is not None:
        raise done.exception
    federation, *silos = yaml.safe_load_all(out.read_text())
    return done.output, federation["spec"], [silo["spec"]["managed"]["data"] for silo in silos]


def test_masks_beside_images_are_a_segmentation(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 4, 1, value=255)
    write_pairs(tmp_path / "b", 4, 2, value=1)
    write_pairs(tmp_path / "server", 4, 3, value=255, masks=3)
    printed, spec, (first, second) = begun(tmp_path)
    assert "the task is a segmentation" in printed
    assert spec["task"] == {"segmentation": {"classes": ["background", "foreground"]}}
    assert spec["model"]["network"] == "SmallUNet" and spec["method"]["name"] == "FedAvg"
    assert first["maskValues"] == {"255": "foreground"} and "maskValues" not in second
    assert spec["evaluation"]["validation"]["maskValues"] == {"255": "foreground"}


def test_classes_are_named(tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b", "server")):
        write_pairs(tmp_path / name, 3, seed, value=255)
    _, spec, (first, _) = begun(tmp_path, "--classes", "background,lesion")
    assert spec["task"] == {"segmentation": {"classes": ["background", "lesion"]}}
    assert first["maskValues"] == {"255": "lesion"}


def test_folders_of_classes_with_masks_stay_a_classification(tmp_path: Path) -> None:
    for name in ("a", "b", "server"):
        for label in ("benign", "malignant"):
            folder = tmp_path / name / label
            folder.mkdir(parents=True)
            for row in range(3):
                draw(size=(32, 32), seed=row).save(folder / f"{row}.png")
                Image.new("L", (32, 32), 1).save(folder / f"{row}_mask.png")
    _, spec, _ = begun(tmp_path)
    assert spec["task"] == {"classification": {"classes": ["benign", "malignant"]}}


def test_smooth_masks_are_not_guessed(tmp_path: Path) -> None:
    for seed, name in enumerate(("a", "b", "server")):
        write_pairs(tmp_path / name, 3, seed)
        for row in range(3):
            draw("L", (16, 16), row).save(tmp_path / name / "masks" / f"{row:03d}.png")
    with pytest.raises(AnchorageError, match="look like images and their masks"):
        begun(tmp_path)
