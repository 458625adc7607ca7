"""ISIC 2018: what examples/isic18 and the studies over the sites unpack is what their federations read, shown with drawn images."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drawn_images import draw, write_table
from PIL import Image

from anchorage.api.files import load_federation
from anchorage.learning.data import read

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "isic18"
QUALITY = REPOSITORY / "benchmarks" / "quality"
SITES = ("vidir_molemax", "vidir_modern", "rosendahl", "vienna_dias")
PER_CLASS = 16


def pack(folder):
    """Write drawn images as the real ones are handed out: two images of each lesion, one lesion in eight for the test."""
    count = 7 * PER_CLASS
    jpegs = []
    for row in range(count):
        buffer = io.BytesIO()
        draw(size=(20, 15), seed=row).save(buffer, "JPEG")
        jpegs.append(buffer.getvalue())
    labels = np.arange(count) // PER_CLASS
    names = np.array([f"ISIC_{row:07d}" for row in range(count)])
    test = np.arange(count) % PER_CLASS >= PER_CLASS - 2
    folder.mkdir(parents=True)
    np.savez(
        folder / "train_200x150.npz",
        jpeg_bytes=np.frombuffer(b"".join(jpegs), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, jpegs)]),
        labels=labels,
        classes=np.array(["mel", "nv", "bcc", "akiec", "bkl", "df", "vasc"]),
        image_id=names,
        lesion_id=np.array([f"lesion{row // 2 if row % PER_CLASS < 4 else row}" for row in range(count)]),
        site=np.arange(count) % 4,
        site_names=np.array(SITES),
        split_lesion_grouped=np.where(test, "test", "train"),
    )
    rows = []
    for row in range(count):
        silo = "server" if row % PER_CLASS == 0 else str(row % 10)
        rows.append([names[row], "test", ""] if test[row] else [names[row], "train", silo])
    write_table(folder / "split_labels_at_server.csv", ["image_id", "part", "silo"], rows)


def prepare(*arguments):
    command = [sys.executable, str(EXAMPLE / "prepare.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("isic18")
    pack(folder / "images" / "isic18")
    done = prepare("--data", folder / "images", "--out", folder / "root", "--limit", 5)
    assert done.returncode == 0, done.stderr
    return folder / "root"


@pytest.mark.parametrize(("file", "silos"), [("sites.yaml", 4), ("published-split.yaml", 10)])
def test_both_federations_read_what_was_prepared(data_root, file, silos):
    study = load_federation(EXAMPLE / file)
    spec = study.federation.spec
    assert len(study.silos) == silos

    def images_of(section):
        model = spec.model_description.model_copy(update={"image_size": 16})
        return read(section, data_root, model, spec.seed)[0]

    anchors, *scored = (images_of(section) for section in spec.server_data.values())
    held = [images_of(silo.spec.managed.data) for silo in study.silos]
    assert set(np.bincount(anchors.labels, minlength=7)) == ({10} if file == "sites.yaml" else {1})
    assert len(scored) == (2 if file == "sites.yaml" else 1)
    assert sum(np.bincount(images.labels) for images in scored).tolist() == [2] * 7
    assert all(0 < len(images) <= 5 and set(images.labels) == {-1} for images in held)
    names = [name.removesuffix(".jpg") for images in (anchors, *scored, *held) for name in images.ids]
    assert len(names) == len(set(names))


def test_a_folder_that_holds_something_is_left_alone(data_root, tmp_path):
    second = prepare("--data", data_root.parent / "images", "--out", data_root)
    assert (second.returncode, "not empty" in second.stderr) == (2, True)
    without = prepare("--data", tmp_path, "--out", tmp_path / "new")
    assert (without.returncode, "ANCHORAGE_DATA" in without.stderr) == (2, True)


def test_the_studies_over_the_sites_get_small_images_and_who_holds_which(tmp_path):
    pack(tmp_path / "images" / "isic18")
    command = [sys.executable, QUALITY / "prepare_sites.py", "--data", tmp_path / "images", "--out", tmp_path / "root"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    with Image.open(next((tmp_path / "root" / "ham-sites" / "nv").glob("*.png"))) as image:
        assert image.size == (32, 32)

    study = load_federation(QUALITY / "ham10000" / "sites.yaml")
    model, seed = study.federation.spec.model_description, study.federation.spec.seed
    held = [read(silo.spec.managed.data, tmp_path / "root", model, seed)[0].labels for silo in study.silos]
    # of a class's 16 images 14 train, and the sites take turns
    assert [np.bincount(labels).tolist() for labels in held] == [[3] * 7, [4] * 7, [4] * 7, [3] * 7]
    repeated = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert repeated.returncode == 2 and "exists" in repeated.stderr
