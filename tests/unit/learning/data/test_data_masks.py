"""Masks of a segmentation: where they lie, what their values mean, what is refused, and how they are fitted."""

import numpy as np
import pytest
from drawn_images import draw, write_table
from drawn_masks import write_pairs
from PIL import Image

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors import data as failures
from anchorage.api.model import ModelDescription
from anchorage.api.task import UNKNOWN_PIXEL
from anchorage.learning.data import check, read
from anchorage.learning.data.decoding import fit_mask
from anchorage.learning.data.labels import as_integers, is_known, only_known
from anchorage.pieces.task.segmentation import Segmentation

TASK = Segmentation(classes=("background", "lesion", "scar"))


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "root" / "site"
    folder.mkdir(parents=True)
    return folder


def model(side=16, **fields):
    return ModelDescription(network="SmallUNet", task=TASK, image_size=side, **fields)


def section(kind="ImageFolder", **fields):
    manifest = {"manifest": "table.csv"} if kind == "CsvManifest" else {}
    return SiloData(format=kind, claim_name="site", **{**manifest, **fields})


def images_of(site, side=16, *, fit=None, **fields):
    return read(section(**fields), site.parent, model(side, fit=fit), 1)


def save(path, pixels, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels, np.uint8))
    (image if mode is None else image.convert(mode)).save(path)


def bad(site, **fields):
    return [(each.reason, each.detail) for each in check(section(**fields), site.parent, TASK)[0].bad]


def test_images_and_masks_of_equal_names_are_pairs(site):
    write_pairs(site, 4, seed=1, masks=3, empty=1)
    images, report = images_of(site)
    assert images.ids == tuple(f"images/{row:03d}.png" for row in range(4))
    assert images.labels.dtype == np.uint8 and images.labels.shape == (4, 16, 16)
    assert is_known(images.labels).tolist() == [True, True, True, False]
    for row in range(3):
        assert np.array_equal(images.labels[row], np.asarray(Image.open(site / "masks" / f"{row:03d}.png")))
    assert (images.labels[3] == UNKNOWN_PIXEL).all()
    assert images.stratum_names == ("no foreground", "lesion", "scar") and images.strata.tolist() == [0, 1, 1, -1]
    assert dict(zip(report.strata, report.counts, strict=True)) == {"no foreground": 1, "lesion": 2, "scar": 0}
    assert report.unlabelled == 1
    assert report.masks[0].startswith("masks: lesion in 2 of 3, mean ") and report.masks[1] == "masks: scar in 0 of 3"


@pytest.mark.parametrize("name", ["a_mask.png", "a-segmentation.png", "mask_a.png"])
def test_a_mask_lies_beside_its_image(site, name):
    save(site / "a.jpg", draw(size=(16, 16)))
    save(site / name, np.eye(16))
    images, _ = images_of(site)
    assert images.ids == ("a.jpg",) and np.array_equal(images.labels[0], np.eye(16))


def test_masks_are_called_by_what_they_are_in_folders_of_their_own(site):
    save(site / "images" / "p1" / "a.png", draw(size=(16, 16)))
    save(site / "masks" / "p1" / "a_segmentation.png", np.eye(16))
    save(site / "masks" / "p1" / "b.png", np.eye(16))
    images, report = images_of(site)
    assert images.ids == ("images/p1/a.png",) and is_known(images.labels).all()
    assert report.left_out == {"mask without an image": ("masks/p1/b.png",)}


def test_a_table_names_masks(site):
    write_pairs(site, 3, seed=2)
    rows = [["000", "000.png", "p"], ["001", "", "q"], ["images/002.png", "none", "p"]]
    write_table(site / "table.csv", ["image", "mask", "patient"], rows)
    with pytest.raises(AnchorageError) as raised:
        images_of(site, kind="CsvManifest")
    assert raised.value.failure is failures.BAD_IMAGES and "MaskMissing" in raised.value.message
    images, _ = images_of(site, kind="CsvManifest", on_bad_image="Skip", group_by="patient")
    assert images.groups == ("p", "q") and is_known(images.labels).tolist() == [True, False]
    with pytest.raises(AnchorageError) as raised:
        images_of(site, kind="CsvManifest", mask_column="nowhere")
    assert raised.value.failure is failures.MANIFEST_WRONG


def test_values_are_classes_as_the_section_says(site):
    save(site / "images" / "a.png", draw(size=(16, 16)))
    values = np.zeros((16, 16), np.uint8)
    values[:4], values[4:8], values[8:10] = 255, 100, 7
    save(site / "masks" / "a.png", values)
    named = {"255": "scar", "100": "lesion"}
    images, _ = images_of(site, mask_values=named, ignored_value=7)
    assert images.labels[0, :, 0].tolist() == [2] * 4 + [1] * 4 + [UNKNOWN_PIXEL] * 2 + [0] * 6
    assert bad(site, mask_values=named) == [
        (
            "MaskValues",
            'the values 7 (32 pixels) are no classes; name them, such as maskValues: {"7": scar}, or as ignoredValue',
        )
    ]
    with pytest.raises(AnchorageError) as raised:
        images_of(site, mask_values={"255": "nevus"})
    assert raised.value.failure is failures.CLASSES_DIFFER and "nevus" in raised.value.message


def test_masks_that_say_something_else_are_bad_images(site):
    smooth = np.repeat(np.linspace(0, 255, 16)[None], 16, 0)
    coloured = np.zeros((16, 16, 3))
    coloured[..., 0] = 1
    grey_rgb = np.zeros((16, 16, 3))
    masks = {"a": smooth, "b": coloured, "c": np.zeros((8, 16)), "d": grey_rgb, "e": np.zeros((16, 16))}
    for name, pixels in masks.items():
        save(site / "images" / f"{name}.png", draw(size=(16, 16), seed=ord(name)))
        save(site / "masks" / f"{name}.png", pixels)
    (site / "masks" / "e.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    save(site / "masks" / "d_mask.png", grey_rgb)
    report = bad(site)
    assert sorted(reason for reason, _ in report) == [
        "MaskAmbiguous", "MaskDiffers", "MaskInColour", "MaskUnreadable", "MaskValues"
    ]  # fmt: skip
    details = dict(report)
    assert "without JPEG or smooth edges" in details["MaskValues"]
    assert details["MaskDiffers"] == "the mask has 16×8 pixels, the image 16×16"
    (site / "masks" / "d_mask.png").unlink()
    images, _ = images_of(site, on_bad_image="Skip")
    assert images.ids == ("images/d.png",)


def test_an_image_that_a_camera_turned_has_its_mask_upright(site):
    site.joinpath("images").mkdir()
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 200
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    Image.fromarray(pixels).save(site / "images" / "a.png", exif=exif)
    upright = np.zeros((16, 8))
    upright[:8] = 1
    save(site / "masks" / "a.png", upright)
    images, _ = images_of(site)
    known_pixels = images.labels[0] != UNKNOWN_PIXEL
    assert np.array_equal((images.images[0, 0] > 100)[known_pixels], (images.labels[0] == 1)[known_pixels])


@pytest.mark.parametrize("size", [(60, 45), (45, 60), (31, 64), (16, 16), (17, 16)])
@pytest.mark.parametrize("fit", ["Pad", "Crop"])
def test_images_and_masks_are_fitted_alike(site, size, fit):
    rng = np.random.default_rng(0)
    mask = np.zeros((size[1], size[0]), np.uint8)
    mask[size[1] // 4 : size[1] // 2, size[0] // 3 :] = 2
    picture = np.where(mask, 255, rng.integers(1, 5, mask.shape))
    save(site / "images" / "a.png", picture)
    save(site / "masks" / "a.png", mask)
    images, _ = images_of(site, 16, fit=fit)
    label, pixels = images.labels[0], images.images[0, 0]
    assert set(np.unique(label)) <= {0, 2, UNKNOWN_PIXEL}
    sure = (pixels > 250) | (pixels < 6)
    assert np.array_equal((pixels > 128)[sure], (label == 2)[sure])
    outside = label == UNKNOWN_PIXEL
    assert (pixels[outside] == 0).all() and (images.images[0][:, ~outside] > 0).all()
    padded = {"Crop": 0, "Pad": 16 * (16 - max(1, round(16 * min(size) / max(size))))}[fit]
    assert outside.sum() == padded


def test_masks_stay_within_their_classes_at_any_size():
    mask = np.random.default_rng(0).choice(np.array([0, 3, 200], np.uint8), (50, 37))
    for side in (8, 21, 90):
        assert set(np.unique(fit_mask(mask, side, "Crop", 255))) == {0, 3, 200}
        assert set(np.unique(fit_mask(mask, side, "Pad", 255))) == {0, 3, 200, 255}


def test_masks_are_labels_like_others(site):
    write_pairs(site, 3, seed=3)
    images, _ = images_of(site)
    other = images.labels.copy()
    other[1, 0, 0] ^= 1
    assert (as_integers(images.labels) == as_integers(other)).ravel().tolist() == [True, False, True]
    assert only_known(images.labels, np.array([True, False, True]))[1].min() == UNKNOWN_PIXEL
    key = bytes(32)
    assert images.select([2, 0, 1]).fingerprint(key) == images.fingerprint(key)
    assert images.without_labels().fingerprint(key) != images.fingerprint(key)
    assert not is_known(images.without_labels().labels).any()


def test_few_labels_keep_some_masks(site):
    write_pairs(site, 10, seed=4)
    images, _ = images_of(site, labelled_percent=30)
    assert is_known(images.labels).sum() == 3 and (images.strata >= 0).sum() == 3


def test_a_site_says_what_nobody_drew_in_its_masks(site):
    write_pairs(site, 3, seed=2)
    images, report = images_of(site, unannotated=("scar",))
    assert (
        images.unannotated == (2,) and images.select([0]).unannotated == (2,) and images_of(site)[0].unannotated == ()
    )
    assert report.masks[0].startswith("masks: lesion in 3 of 3") and report.masks[1] == "masks: scar is not annotated"
    values = np.zeros((16, 16), np.uint8)
    values[:2] = 2
    save(site / "masks" / "001.png", values)
    refusal = (
        "MaskValues",
        "the values 2 (32 pixels) are of classes that unannotated names; remove those from unannotated",
    )
    assert bad(site, unannotated=("scar",)) == [refusal] and bad(site) == []
    assert bad(site, unannotated=("scar",), ignored_value=2) == []
    save(site / "masks" / "001.png", values * 100)
    named = {"1": "lesion", "200": "scar"}
    assert [detail.split(" are")[0] for _, detail in bad(site, mask_values=named, unannotated=("scar",))] == [
        "the values 200 (32 pixels)"
    ]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("nevus",), "nevus"),
        (("background",), "is the background, which every mask has"),
        (("scar", "lesion"), "every class of the foreground"),
    ],
)
def test_what_cannot_be_unannotated_is_refused_and_not_named_outside(site, names, words):
    write_pairs(site, 2, seed=2)
    with pytest.raises(AnchorageError, match=words) as raised:
        images_of(site, unannotated=names)
    assert raised.value.failure is failures.CLASSES_DIFFER
    assert not any(name in raised.value.redacted for name in names)
