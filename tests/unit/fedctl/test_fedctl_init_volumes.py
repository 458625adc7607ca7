"""`fedctl init` over volumes with masks: it writes a federation of volumes that is valid, whose images are usable, and that trains."""

import re
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import yaml
from drawn_images import draw
from drawn_masks import write_pairs as write_pictures
from drawn_scans import CT, MR, write_nifti, write_series
from drawn_volumes import drawn_volume, split_channels, write_pairs
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from anchorage.learning.data.grids import Grid
from fedctl.main import app
from fedctl.site_folders import SiteFolder
from fedctl.volume_folders import MaskedVolumes, volume_of


def invoked(*arguments: str) -> str:
    """Return what a command printed."""
    done = CliRunner().invoke(app, arguments)
    if done.exception is not None:
        raise done.exception
    return done.output


def begun(folder: Path, *silos: str, further: tuple[str, ...] = ()) -> tuple[str, dict[str, Any], list[dict[str, Any]]]:
    """Run `init` for silos such as ``a:labels``; return what it printed, and the documents' specifications."""
    named = [word for silo in silos for word in ("--silo", f"{silo.split(':')[0].split('/')[0]}={folder / silo}")]
    printed = invoked("init", "--out", str(folder / "study.yaml"), *named, *further)
    federation, *others = yaml.safe_load_all((folder / "study.yaml").read_text())
    return printed, federation["spec"], [silo["spec"] for silo in others]


def checked(folder: Path) -> str:
    """Return what `data check` prints of the file, which it accepts."""
    return invoked("data", "check", "-f", str(folder / "study.yaml"), "--data-root", str(folder))


def test_a_federation_of_volumes_is_written_and_trains(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 3, (13, 18, 17), seed=1, spacing=(2, 1, 1))
    write_pairs(tmp_path / "b", 2, (13, 18, 17), seed=2, spacing=(2, 1, 1), folders=("imagesTr", "labelsTr"))
    write_pairs(tmp_path / "server", 1, (13, 18, 17), seed=3, spacing=(2, 1, 1))
    printed, spec, (first, second) = begun(
        tmp_path, "a:labels", "b:labels", further=("--validation", str(tmp_path / "server"))
    )
    assert "Volumes have masks" in printed and "warning" not in printed
    assert spec["task"] == {"segmentation": {"classes": ["background", "class 1", "class 2"]}}
    assert spec["model"] == {
        "network": "SmallUNet",
        "channels": 1,
        "volume": {"spacing": ["2", "1", "1"], "patch": [8, 16, 16], "patchesPerCase": 2, "foregroundShare": "0.7"},
        "intensity": {"zScore": {}},
    }
    local = {"steps": 36, "batchSize": 2, "optimiser": {"adamW": {"learningRate": "0.003", "schedule": "Cosine"}}}
    assert spec["method"] == {"name": "FedAvg", "localLoss": {"taskLoss": {}}, "local": local}
    assert "averageDecay" not in spec["evaluation"]
    assert first["labels"] == second["labels"] == "All" and "maskValues" not in first["managed"]["data"]
    assert "does not say what was measured" in " ".join((tmp_path / "study.yaml").read_text().split("\n  # "))
    assert "spacing 2×1×1 mm (3)" in checked(tmp_path)
    brief = ("--set", "spec.rounds=1", "--set", "spec.method.local.steps=1", "--workdir", str(tmp_path / "run"))
    output = invoked("simulate", "-f", str(tmp_path / "study.yaml"), "--data-root", str(tmp_path), *brief)
    assert "round 1/1 committed" in output


def test_values_of_masks_become_classes(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 2, seed=1, values=(0, 255, 255))
    write_pairs(tmp_path / "b", 2, seed=2, values=(0, 1, 1))
    _, spec, (first, second) = begun(tmp_path, "a:labels", "b:labels", further=("--classes", "background,tumour"))
    assert spec["task"] == {"segmentation": {"classes": ["background", "tumour"]}}
    assert first["managed"]["data"]["maskValues"] == {"255": "tumour"}
    assert "maskValues" not in second["managed"]["data"]
    assert checked(tmp_path).count("tumour in 2 of 2") == 2


def test_classes_of_the_task_that_is_given(tmp_path: Path) -> None:
    for seed, site in enumerate("ab"):
        write_pairs(tmp_path / site, 1, seed=seed, values=(0, 5, 7))
    task = "{segmentation: {classes: [background, front, back]}}"
    _, spec, (first, _) = begun(tmp_path, "a:labels", "b:labels", further=("--task", task))
    assert spec["task"] == yaml.safe_load(task) and "volume" in spec["model"]
    assert first["managed"]["data"]["maskValues"] == {"5": "front", "7": "back"}


def test_values_that_nobody_knows_are_told(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 2, seed=1)
    write_pairs(tmp_path / "b", 2, seed=2, values=(0, 255, 255))
    printed, _, (_, second) = begun(tmp_path, "a:labels", "b:labels")
    assert "b: masks have the values 255, which are none of the 3 classes" in printed
    assert "maskValues" not in second["managed"]["data"]


def test_of_volumes_without_masks_nothing_is_learnt(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 3, seed=1, masks=1)
    write_pairs(tmp_path / "b", 2, seed=2, masks=0)
    printed, spec, (first, second) = begun(tmp_path, "a:labels", "b")
    assert spec["method"]["name"] == "LowerBound" and spec["model"]["volume"]["patch"] == [8, 8, 8]
    assert (first["labels"], second["labels"]) == ("Partial", "None")
    assert "a: 2 volumes without masks that are read; the method in the file learns of masks alone" in printed
    assert "b: 2 volumes without masks that are read; the method in the file learns of masks alone" in printed
    text = " ".join((tmp_path / "study.yaml").read_text().split("\n  # "))
    assert "this silo adds nothing to the model" in text and "Of its 3 volumes 2 have no mask" in text
    counts = checked(tmp_path)  # images, usable, unlabelled
    assert re.search(r"^a +3 +3 +2 ", counts, re.MULTILINE) and re.search(r"^b +2 +2 +2 ", counts, re.MULTILINE)


def test_a_silo_that_should_have_masks_and_has_none_is_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 2, seed=1)
    write_pairs(tmp_path / "b", 2, seed=2, masks=0)
    with pytest.raises(AnchorageError, match="b: none of its 2 volumes has a mask; .* leave :labels out") as refused:
        begun(tmp_path, "a:labels", "b:labels")
    assert refused.value.failure.code.startswith("ANC-2230")
    with pytest.raises(AnchorageError, match="test: none of its 2 volumes has a mask; .* leave --test out"):
        begun(tmp_path, "a:labels", further=("--test", str(tmp_path / "b")))
    assert not (tmp_path / "study.yaml").exists()


def write_masked_series(folder: Path, uid: str, seed: int, **options: Any) -> None:
    """Write a series into ``images/UID`` of a site, and its mask ``masks/UID.nii.gz``."""
    values, mask = drawn_volume(np.random.default_rng(seed))
    written = (values[0] // 16).astype(np.uint16)
    write_series(folder / "images" / uid, written, uid=uid, spacing=(0.7, 0.7, 2.5), PatientID=uid, **options)
    write_nifti(folder / "masks" / f"{uid}.nii.gz", mask, np.diag([-0.7, -0.7, 2.5, 1.0]))


@pytest.mark.parametrize(
    ("kind", "modality", "intensity", "why"),
    [(CT, "CT", {"window": {"low": "-160", "high": "240"}}, "Hounsfield"), (MR, "MR", {"zScore": {}}, "no unit")],
)
def test_series_have_an_intensity_by_their_modality(
    kind: str, modality: str, intensity: dict[str, Any], why: str, tmp_path: Path
) -> None:
    for place, site in enumerate("ab"):
        for row in range(2):
            write_masked_series(
                tmp_path / site, f"1.2.{place}.{row}", place * 2 + row, SOPClassUID=kind, Modality=modality
            )
    write_series(
        tmp_path / "c" / "export" / "s",
        np.arange(1000, dtype=np.uint16).reshape(10, 10, 10),
        uid="1.3",
        SOPClassUID=kind,
    )
    printed, spec, silos = begun(tmp_path, "a:labels", "b:labels", "c")
    assert spec["model"]["intensity"] == intensity and spec["model"]["volume"]["spacing"] == ["0.7", "0.7", "2.5"]
    assert why in (tmp_path / "study.yaml").read_text()
    assert [silo["managed"]["data"]["format"] for silo in silos] == ["ImageFolder", "ImageFolder", "DicomFolder"]
    assert "c: 1 volume without masks that are read;" in printed
    assert f"modality {modality} (2)" in checked(tmp_path)


def test_masks_of_series_in_a_table(tmp_path: Path) -> None:
    for place, site in enumerate("ab"):
        for row in range(2):
            write_masked_series(tmp_path / site, f"1.2.{place}.{row}", place * 2 + row)
        named = "".join(f"images/1.2.{place}.{row},{row}.1,masks/1.2.{place}.{row}.nii.gz\n" for row in range(2))
        (tmp_path / site / "list.csv").write_text(f"image,patient_id,mask\n{named}")
    table = tmp_path / "b" / "list.csv"
    table.write_text(table.read_text().replace("mask\n", "organ\n", 1))
    _, spec, (first, second) = begun(tmp_path, "a:labels", "b/list.csv:labels", further=("--label-column", "b:organ"))
    assert first["managed"]["data"] == {"format": "CsvManifest", "claimName": "a", "manifest": "list.csv"}
    assert second["managed"]["data"]["maskColumn"] == "organ" and "volume" in spec["model"]
    assert "class 1 in 2 of 2" in checked(tmp_path)


def test_a_table_of_another_thing_leaves_the_folders_masks(tmp_path: Path) -> None:
    for seed, site in enumerate("ab"):
        write_pairs(tmp_path / site, 2, seed=seed)
        (tmp_path / site / "ages.csv").write_text("image,age\ncase-00.nii.gz,40\ncase-01.nii.gz,50\n")
    _, _, silos = begun(tmp_path, "a:labels", "b:labels")
    assert all(silo["managed"]["data"]["format"] == "ImageFolder" and silo["labels"] == "All" for silo in silos)


def test_flat_images_among_volumes_are_told(tmp_path: Path) -> None:
    for seed, site in enumerate("ab"):
        write_pairs(tmp_path / site, 3, seed=seed)
    draw(size=(16, 16), seed=1).save(tmp_path / "a" / "images" / "preview.png")
    draw("L", (16, 16), 2).point(lambda shade: shade > 128).save(tmp_path / "a" / "masks" / "preview.png")
    printed, spec, _ = begun(tmp_path, "a:labels", "b:labels")
    assert "volume" in spec["model"] and "a: 1 of 4 images are no volumes of three slices or more" in printed


def test_sites_of_two_kinds_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", 2)
    write_pictures(tmp_path / "b", 3, 1)
    with pytest.raises(AnchorageError, match="a has volumes with masks, but b has pictures with masks"):
        begun(tmp_path, "a:labels", "b:labels")


def test_slices_with_masks_of_their_own_are_pictures(tmp_path: Path) -> None:
    for place, site in enumerate("ab"):
        for row in range(3):
            slice_ = np.random.default_rng(row).integers(0, 255, (16, 16, 1)).astype(np.int16)
            write_nifti(tmp_path / site / "images" / f"{place}{row}.nii.gz", slice_)
            write_nifti(tmp_path / site / "masks" / f"{place}{row}.nii.gz", (slice_ > 99).astype(np.uint8))
    _, spec, _ = begun(tmp_path, "a:labels", "b:labels")
    assert spec["model"]["imageSize"] == 16 and "volume" not in spec["model"]


def test_masks_with_too_many_values_are_refused(tmp_path: Path) -> None:
    for seed, site in enumerate("ab"):
        write_pairs(tmp_path / site, 1, seed=seed)
        ramp = np.arange(12 * 14 * 10, dtype=np.uint16).reshape(12, 14, 10)
        nibabel.save(nibabel.Nifti1Image(ramp, np.eye(4)), tmp_path / site / "masks" / "case-00.nii.gz")
    with pytest.raises(AnchorageError, match="its masks have more than 32 different values"):
        begun(tmp_path, "a:labels", "b:labels")


def grid(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> Grid:
    return Grid(shape, np.diag([*spacing, 1.0]))


def test_spacing_and_patch_are_of_the_usual_volume() -> None:
    site = SiteFolder("a", None, {}, 3, (), True)  # type: ignore[arg-type]
    small = [grid((35, 51, 35), (1.02, 1, 1)), grid((34, 50, 36), (0.98, 1, 1)), grid((99, 99, 99), (3, 3, 3))]
    assert volume_of([MaskedVolumes(site, (1,), tuple(small))]) == {
        "spacing": ["1", "1", "1"],
        "patch": [32, 48, 32],
        "patchesPerCase": 2,
        "foregroundShare": "0.7",
    }
    turned = Grid((40, 512, 512), np.array([[0, 0, -0.8, 0], [0, 0.8, 0, 0], [5, 0, 0, 0], [0, 0, 0, 1.0]]))
    volume = volume_of([MaskedVolumes(site, (1,), (turned,))])
    assert volume["spacing"] == ["1.6", "1.6", "5"]  # 410 mm in 256 voxels
    assert volume["patch"] == [64, 64, 40]
    thin = volume_of([MaskedVolumes(site, (1,), (grid((40, 40, 3), (0.01, 0.62, 6.03)),))])
    assert thin["spacing"] == ["0.05", "0.6", "6.05"] and thin["patch"] == [8, 40, 8]


def write_channels(folder: Path, endings: tuple[str, ...]) -> None:
    """Write volumes in the layout of nnU-Net, a file for each channel."""
    write_pairs(folder, 2, folders=("imagesTr", "labelsTr"))
    split_channels(folder / "imagesTr", endings)


def test_channels_in_files_of_their_own_are_used_where_every_site_has_them(tmp_path: Path) -> None:
    for site in ("a", "b"):
        write_channels(tmp_path / site, ("_0000", "_0001"))
    printed, spec, silos = begun(tmp_path, "a:labels", "b:labels")
    assert spec["model"]["channels"] == 2 and "warning" not in printed
    assert [silo["managed"]["data"]["channelFiles"] for silo in silos] == [["_0000", "_0001"]] * 2
    table = checked(tmp_path)
    assert re.findall("^ *[ab] .*", table, re.MULTILINE) and "bad" not in table.replace("onBadImage", "")


def test_channels_that_one_site_lacks_are_left_out_and_named(tmp_path: Path) -> None:
    write_channels(tmp_path / "a", ("_0000", "_0001", "_0002"))
    write_channels(tmp_path / "b", ("_0000",))
    printed, spec, silos = begun(tmp_path, "a:labels", "b:labels")
    assert spec["model"]["channels"] == 1 and not any("channelFiles" in silo["managed"]["data"] for silo in silos)
    assert "a: _0001, _0002 are left out, for not every site has them; name what all sites have" in printed
