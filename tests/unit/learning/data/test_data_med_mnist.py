"""Files of MedMNIST are read as they are published."""

import numpy as np
import pytest
from read_sections import images_of, refused

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors import data as failures
from anchorage.learning.data import med_mnist
from anchorage.learning.data.med_mnist import CLASSES, is_med_mnist

SIZES = {"train": 7, "val": 2, "test": 3}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mnist").mkdir()
    return tmp_path / "mnist"


def publish(file, *, shape=(28, 28), labels=1, classes=2, **changed):
    """Write a file as MedMNIST has it: `{part}_images` uint8 [n, 28, 28] or [n, 28, 28, 3], `{part}_labels` uint8 [n, 1 or more]."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in SIZES.items():
        arrays[f"{part}_images"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = np.stack([np.arange(count) % classes] * labels, axis=1).astype(np.uint8)
    arrays |= changed
    np.savez_compressed(file, **{name: array for name, array in arrays.items() if array is not None})
    return arrays


def section(kind=SiloData, **fields):
    return kind(format="MedMnist", claim_name="mnist", **fields)


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 3), (64, 64, 3)])
def test_parts_pixels_and_classes_are_the_publishers(tmp_path, folder, shape):
    arrays = publish(folder / "pneumoniamnist.npz", shape=shape)
    channels, size = (3 if len(shape) == 3 else 1), shape[0]
    for kind, use, part in (
        (SiloData, "All", "train"),
        (ServerData, "Validation", "val"),
        (ServerData, "Test", "test"),
    ):
        images, _ = images_of(
            section(kind, use=use), tmp_path, classes=CLASSES["pneumoniamnist"], channels=channels, size=size
        )
        expected = arrays[f"{part}_images"]
        expected = expected[:, None] if channels == 1 else expected.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(images.images, expected)
        assert images.labels.tolist() == arrays[f"{part}_labels"][:, 0].tolist()
        assert images.ids[0] == f"{part}-000000"


def test_all_parts_are_one_pool_where_the_division_does_not_count(tmp_path, folder):
    publish(folder / "pneumoniamnist.npz")
    data = section(split_column="None", use="Part", test_percent=20, partition={"recipe": "Iid", "parts": 1, "part": 0})
    assert {name.split("-")[0] for name in images_of(data, tmp_path, classes=("normal", "pneumonia"))[0].ids} == {
        "train",
        "val",
        "test",
    }


@pytest.mark.parametrize(
    ("name", "classes"),
    [("dermamnist_64", CLASSES["dermamnist"]), ("retinamnist", "01234"), ("breastmnist", CLASSES["breastmnist"])],
)
def test_classes_go_by_the_name_of_the_file(tmp_path, folder, name, classes):
    publish(folder / f"{name}.npz", classes=len(classes))
    images, _ = images_of(section(), tmp_path, classes=tuple(reversed(classes)))
    assert images.labels.tolist() == [len(classes) - 1 - place % len(classes) for place in range(SIZES["train"])]


def test_one_of_several_files_is_named(tmp_path, folder):
    for name in ("pneumoniamnist", "breastmnist"):
        publish(folder / f"{name}.npz")
    refused(section(), tmp_path, failures.DATA_MISSING, "2 files *.npz", "manifest")
    assert (
        len(images_of(section(manifest="breastmnist.npz"), tmp_path, classes=CLASSES["breastmnist"])[0].ids)
        == SIZES["train"]
    )


@pytest.mark.parametrize(
    ("changed", "failure", "word"),
    [({"shape": (28, 28, 28)}, failures.TASK_UNSUPPORTED, "volumes"), ({"labels": 14}, failures.TASK_UNSUPPORTED, "several findings"),
     ({"val_labels": None}, failures.MANIFEST_WRONG, "no data set of MedMNIST"),
     ({"test_labels": np.zeros((9, 1), np.uint8)}, failures.MANIFEST_WRONG, "labels of shape"),
     ({"train_images": np.zeros((7, 28, 28), np.float32)}, failures.MANIFEST_WRONG, "float32"),
     ({"train_labels": np.array([object()] * 7)}, failures.MANIFEST_WRONG, "no data set of MedMNIST")],
)  # fmt: skip
def test_what_is_no_data_set_of_flat_images_is_refused(tmp_path, folder, changed, failure, word):
    publish(folder / "x.npz", **changed)
    refused(section(), tmp_path, failure, word)


@pytest.mark.parametrize("content", [b"", b"PK no archive", None])
def test_a_file_that_is_none_is_refused(tmp_path, folder, content):
    publish(folder / "x.npz")
    (folder / "x.npz").write_bytes((folder / "x.npz").read_bytes()[:3000] if content is None else content)
    assert not is_med_mnist(folder / "x.npz")
    refused(section(), tmp_path, failures.MANIFEST_WRONG, "no data set of MedMNIST")


def test_a_file_that_is_damaged_at_any_place_is_refused_or_read(tmp_path, folder):
    publish(folder / "x.npz")
    content = (folder / "x.npz").read_bytes()
    for place in range(40, len(content), len(content) // 97):
        damaged = bytearray(content)
        damaged[place : place + 8] = bytes(8) if damaged[place : place + 8] != bytes(8) else b"damaged!"
        (folder / "x.npz").write_bytes(damaged)
        try:
            images_of(section(on_bad_image="Skip"), tmp_path, classes=("0", "1"))
        except AnchorageError as error:
            assert "\n" not in error.message


def test_more_than_fits_into_memory_is_refused_before_it_is_unpacked(tmp_path, folder, monkeypatch):
    publish(folder / "x.npz")
    monkeypatch.setattr(med_mnist, "available_bytes", lambda: 10_000)
    refused(section(), tmp_path, failures.IMAGES_EXCEED_MEMORY, "half of the free memory")
