"""Readers of images, tables and archives open regular files alone: in a folder of images a pipe is an image that cannot be used."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from irregular_files import DESCRIPTIONS, KINDS, SECONDS, put
from PIL import Image
from read_sections import images_of, model_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES, DATA_MISSING
from anchorage.learning.data.decoders import input_of, is_image
from anchorage.learning.data.decoding import RefusedImageError, read_content
from anchorage.learning.data.dicom_series import read_series
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.index_files import read_index
from anchorage.learning.data.listed_images import decode
from anchorage.learning.data.listing import Listing
from anchorage.learning.data.med_mnist import is_med_mnist
from anchorage.learning.data.nifti import read_scan
from anchorage.learning.data.tables import read_table
from anchorage.learning.data.volumes import StoredVolume
from anchorage.learning.round_state import read_checked

pytestmark = [pytest.mark.timeout(SECONDS), pytest.mark.parametrize("kind", KINDS)]

REFUSING: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "image": (read_content, RefusedImageError),
    "volume": (read_scan, RefusedImageError),
    "series": (lambda path: read_series([path]), RefusedImageError),
    "table": (read_table, AnchorageError),
    "list": (read_index, AnchorageError),
    "stored volume": (StoredVolume, OSError),
    "kept arrays": (read_checked, OSError),
}


@pytest.mark.parametrize("reader", REFUSING)
def test_a_reader_refuses_it_at_once(tmp_path: Path, kind: str, reader: str) -> None:
    read, error = REFUSING[reader]
    with pytest.raises(error) as raised:
        read(put(kind, tmp_path / "x.bin"))
    if isinstance(raised.value, AnchorageError):
        assert DESCRIPTIONS[kind] in raised.value.message
        assert "\n" not in raised.value.message
        assert "x.bin" not in str(raised.value.redacted)


def test_what_only_looks_at_files_takes_it_for_none(tmp_path: Path, kind: str) -> None:
    path = put(kind, tmp_path / "1.2.840")
    assert not is_image(str(path), path.name)
    assert not is_med_mnist(path)
    assert list(read_headers([path])) == [None]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of two classes with three images each."""
    for label in "ab":
        (tmp_path / "hospital" / label).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng(3 * ord(label) + number).integers(0, 255, (9, 9, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "hospital" / label / f"{number}.png")
    return tmp_path


def section(**fields: object) -> SiloData:
    return SiloData.model_validate({"format": "ImageFolder", "claimName": "hospital", **fields})


def test_in_a_folder_it_is_an_image_that_cannot_be_used(site: Path, kind: str) -> None:
    put(kind, site / "hospital" / "a" / "x.png")
    with pytest.raises(AnchorageError) as raised:
        images_of(section(), site)
    assert raised.value.failure is BAD_IMAGES
    assert "a/x.png" in raised.value.message
    images, _ = images_of(section(onBadImage="Skip"), site)
    assert len(images) == 6


def test_a_table_or_data_set_that_is_one_is_told_so(site: Path, kind: str) -> None:
    for name, form in (("x.csv", "CsvManifest"), ("x.npz", "MedMnist")):
        put(kind, site / "hospital" / name)
        with pytest.raises(AnchorageError) as raised:
            images_of(section(format=form, manifest=name), site)
        if kind == "device":
            continue  # as a link out of the claim's folder it is not even looked at
        assert raised.value.failure is DATA_MISSING
        assert DESCRIPTIONS[kind] in raised.value.message


def test_an_image_that_is_named_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    path, none = put(kind, tmp_path / "x.png"), np.full(1, -1)
    (remark,) = decode(Listing(("x.png",), ("x.png",), (path,), none, none, (), {}), input_of(model_of(("a", "b"))))
    assert (remark.reason, remark.detail) == ("Unsupported", f"{DESCRIPTIONS[kind]}, not a regular file")
