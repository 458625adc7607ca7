"""Volumes in files, and their store."""

import os

import numpy as np
import pytest
from drawn_volumes import CLASSES, case_of_volume, drawn_volume, stored_volumes, write_pairs

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.silo import STATE_UNUSABLE
from anchorage.api.model import ModelDescription
from anchorage.learning.data import read, volume_store, volumes
from anchorage.learning.data.labels import is_known
from anchorage.learning.data.picture_store import PictureStore
from anchorage.learning.data.volumes import StoredVolume, write_volume

RNG = np.random.default_rng(1)
MODEL = ModelDescription.model_validate(
    {
        "network": "SmallUNet",
        "channels": 1,
        "volume": {"spacing": ("1", "1", "1"), "patch": (8, 8, 8)},
        "intensity": {"zScore": {}},
        "task": {"segmentation": {"classes": CLASSES}},
    }
)


def padded(values, start, sides, fill):
    """The same box of an array that is padded far enough."""
    width = [(16, 16)] * 3
    wide = np.pad(values, width, constant_values=fill)
    return wide[tuple(slice(place + 16, place + 16 + side) for place, side in zip(start, sides, strict=True))]


@pytest.mark.parametrize("start", [(0, 0, 0), (2, 5, 1), (-3, 4, 6), (9, -2, 8), (4, 4, 4), (11, 13, 9), (30, 0, 0)])
@pytest.mark.parametrize("sides", [(8, 8, 8), (12, 14, 10), (1, 3, 2), (14, 16, 12)])
def test_a_patch_is_a_box_of_the_volume_and_beyond_it_the_darkest_value(tmp_path, start, sides):
    values, mask = drawn_volume(RNG)
    values = np.concatenate([values, values[:, ::-1]])
    stored = write_volume(tmp_path / "a.volume", case_of_volume(values, mask), RNG)
    patch_values, classes = stored.patch(start, sides)
    if start == (30, 0, 0):
        assert (patch_values == values.min()).all() and (classes == 255).all()
        return
    for channel in range(2):
        assert np.array_equal(patch_values[channel], padded(values[channel], start, sides, values.min()))
    assert np.array_equal(classes, padded(mask, start, sides, 255))
    assert np.array_equal(stored.mask(), mask)


def test_places_are_voxels_of_their_class_and_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(volumes, "PLACES", 20)
    values, mask = drawn_volume(np.random.default_rng(3))
    stored = write_volume(tmp_path / "a.volume", case_of_volume(values, mask), np.random.default_rng(0))
    assert stored.foreground == [0, 1]
    for of in stored.foreground:
        places = stored.places(of)
        assert len(places) == min(20, (mask == of + 1).sum()) and (mask[tuple(places.T)] == of + 1).all()
    none = write_volume(tmp_path / "b.volume", case_of_volume(values, None), RNG)
    assert none.foreground == [] and not none.masked and (none.patch((0, 0, 0), (4, 4, 4))[1] == 255).all()


@pytest.mark.parametrize("place", [-1, -3000, 400])
def test_a_damaged_volume_is_removed_and_named(tmp_path, place):
    path = tmp_path / "a.volume"
    write_volume(path, case_of_volume(*drawn_volume(RNG)), RNG)
    content = bytearray(path.read_bytes())
    content[place + (len(content) if place < 0 else content.index(b"\n"))] ^= 1
    path.write_bytes(content)
    stored = StoredVolume(path)
    with pytest.raises(AnchorageError) as refused:
        stored.patch((0, 0, 0), (4, 4, 4))
    assert refused.value.failure is STATE_UNUSABLE
    assert str(tmp_path) not in refused.value.redacted and not path.exists()


@pytest.mark.parametrize("length", [0, 10, 300, -1])
def test_a_volume_that_ends_early_is_none(tmp_path, length):
    path = tmp_path / "a.volume"
    write_volume(path, case_of_volume(*drawn_volume(RNG)), RNG)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises((ValueError, LookupError)):
        StoredVolume(path)
    assert path.stat().st_mode & 0o077 == 0


def test_a_second_reading_decodes_nothing_and_a_changed_file_alone(tmp_path, monkeypatch):
    write_pairs(tmp_path / "claim" / "site", 3)
    part, store = SiloData(format="ImageFolder", claim_name="claim", path="site"), PictureStore(tmp_path / "store")
    decoded = []
    real = volume_store.case_of
    monkeypatch.setattr(
        volume_store, "case_of", lambda source, *rest: decoded.append(source.name) or real(source, *rest)
    )
    first, report = read(part, tmp_path, MODEL, 0, store=store)
    assert len(decoded) == 3 and is_known(first.labels).all() and not report.bad
    reread, _ = read(part, tmp_path, MODEL, 0, store=store)
    assert len(decoded) == 3 and first.fingerprint(bytes(32)) == reread.fingerprint(bytes(32))
    changed = tmp_path / "claim" / "site" / "masks" / "case-01.nii.gz"
    os.utime(changed, ns=(1, 1))
    read(part, tmp_path, MODEL, 0, store=store)
    assert decoded[3:] == ["case-01.nii.gz"]
    other = MODEL.model_copy(update={"volume": MODEL.volume.model_copy(update={"spacing": ("2", "1", "1")})})
    images, _ = read(part, tmp_path, other, 0, store=store)
    assert len(decoded) == 7 and images.images.volume(0).shape == (1, 6, 14, 10)
    lenient = MODEL.model_copy(update={"volume": MODEL.volume.model_copy(update={"nan_voxels": "Zero"})})
    read(part, tmp_path, lenient, 0, store=store)
    assert len(decoded) == 10, "what a model takes for 0, another refuses"


def test_volumes_of_files_that_are_gone_go(tmp_path):
    write_pairs(tmp_path / "claim" / "site", 3)
    part, store = SiloData(format="ImageFolder", claim_name="claim", path="site"), PictureStore(tmp_path / "store")
    read(part, tmp_path, MODEL, 0, store=store)
    for kind in ("images", "masks"):
        (tmp_path / "claim" / "site" / kind / "case-02.nii.gz").unlink()
    images, _ = read(part, tmp_path, MODEL, 0, store=store)
    assert len(images) == 2 == len(list((tmp_path / "store").rglob("*.volume")))


def test_values_do_not_depend_on_a_site_scale(tmp_path):
    patches = []
    for name, scale in (("a", 1.0), ("b", 300.0)):
        write_pairs(tmp_path / "claim" / name, 1, scale=scale)
        part = SiloData(format="ImageFolder", claim_name="claim", path=name)
        images, _ = read(part, tmp_path, MODEL, 0)
        patches.append(images.images.volume(0).patch((0, 0, 0), (12, 14, 10))[0].astype(int))
    assert np.abs(patches[0] - patches[1]).max() <= 1


def test_a_set_without_masks_has_no_labels(tmp_path):
    write_pairs(tmp_path / "claim" / "site", 2)
    for mask in (tmp_path / "claim" / "site" / "masks").iterdir():
        mask.unlink()
    images, report = read(SiloData(format="ImageFolder", claim_name="claim", path="site"), tmp_path, MODEL, 0)
    assert len(images) == 2 and not is_known(images.labels).any() and report.unlabelled == 2


def test_middle_patches_are_what_a_set_shows(tmp_path):
    volumes_found = stored_volumes(tmp_path, 3)
    assert volumes_found.shape == (3, 1, 8, 8, 8) and len(volumes_found[np.array([2, 0])]) == 2
    values = volumes_found.volume(1).patch((0, 0, 0), (12, 14, 10))[0]
    assert np.array_equal(volumes_found.read(np.array([1]))[0], values[:, 2:10, 3:11, 1:9])
    assert len(set(map(bytes, volumes_found.digests))) == 3
