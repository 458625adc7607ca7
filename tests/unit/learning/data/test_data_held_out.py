"""Images that are scored are not trained on, whatever their names; changed images are named; copies look the same."""

import io
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from classification_of import classes
from drawn_images import draw, fill
from PIL import Image

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors import data as failures
from anchorage.api.model import ModelDescription
from anchorage.learning.data import check, overlap, read
from anchorage.learning.data.fingerprints import Fingerprint
from anchorage.learning.data.held_out import describe_held_out, kept_apart, without_held_out
from anchorage.learning.data.images import ImageSet
from anchorage.pieces.task.classification import Classification

KEY, OTHER = bytes(range(32)), bytes(32)
CLASSES = ("a", "b")
MODEL = ModelDescription(network="LeafCnn", task=Classification(classes=CLASSES), image_size=8)


def images(*contents, groups=None, prefix="i"):
    """Images that are equal where their contents (numbers) are; the first half is of class a."""
    digests = np.array(contents, np.uint64)
    ids = tuple(f"{prefix}{row}" for row in range(len(contents)))
    labels = (np.arange(len(contents)) * 2 // len(contents)).astype(np.int64)
    return ImageSet(np.zeros((len(contents), 1, 2, 2), np.uint8), labels, ids, groups or ids, labels, CLASSES, digests)


def refused(failure, call, *words):
    with pytest.raises(AnchorageError) as raised:
        call()
    assert raised.value.failure is failure
    for word in words:
        assert word in raised.value.message


@pytest.mark.parametrize("treatment", ["Refuse", "Skip", "Allow"])
def test_a_silo_recognises_its_own_images_among_those_that_are_scored(treatment):
    scored = [images(7, 8, prefix="t"), images(9, prefix="v")]
    held_out = describe_held_out(scored, KEY, treatment)
    training_images = images(1, 9, 2, 7)
    if treatment == "Refuse":
        words = ("silo x: 2 of 4 images", "i1, i3", "onLeakage")
        refused(failures.HELD_OUT_TRAINED, lambda: without_held_out(training_images, held_out, KEY, "silo x"), *words)
    else:
        remaining = without_held_out(training_images, held_out, KEY, "silo x")
        assert remaining.ids == (("i0", "i2") if treatment == "Skip" else training_images.ids)
    assert without_held_out(images(1, 2), held_out, KEY, "silo x").ids == ("i0", "i1")


def test_without_the_run_s_key_nothing_is_recognised_and_names_do_not_travel():
    held_out = describe_held_out([images(7, 8, groups=("patient-1", "t1"))], KEY, "Refuse")
    assert without_held_out(images(7), held_out, OTHER, "silo x").ids == ("i0",)
    assert "patient" not in held_out.model_dump_json()
    assert describe_held_out([], KEY, "Refuse") is None


def test_a_silo_that_has_nothing_else_is_refused_even_where_copies_are_left_out():
    held_out = describe_held_out([images(7, 8)], KEY, "Skip")
    refused(failures.HELD_OUT_TRAINED, lambda: without_held_out(images(8, 7), held_out, KEY, "silo x"), "2 of 2")


def test_a_patient_on_both_sides_is_a_warning_and_file_names_are_no_patients(caplog):
    scored = images(1, 2, 3, groups=("p1", "p2", "i2"))
    held_out = describe_held_out([scored], KEY, "Refuse")
    with caplog.at_level(logging.WARNING):
        without_held_out(images(4, 5, 6), held_out, KEY, "silo x")
        assert not caplog.records
        without_held_out(images(4, 5, 6, groups=("p2", "p9", "i2")), held_out, KEY, "silo x")
    (record,) = caplog.records
    assert "1 patients or lesions" in record.getMessage() and record.getMessage().endswith("p2")


def test_of_the_server_s_parts_the_test_images_go_first():
    parts = {"anchors": images(1, 2, 3, prefix="a"), "validation": images(3, 4), "test": images(4, 5, prefix="t")}
    remaining, held_out = kept_apart(parts, "Skip", KEY)
    assert held_out == describe_held_out([remaining["test"], remaining["validation"]], KEY, "Skip")
    assert {name: set_of_images.digests.tolist() for name, set_of_images in remaining.items()} == {
        "test": [4, 5],
        "validation": [3],
        "anchors": [1, 2],
    }
    refused(failures.HELD_OUT_TRAINED, lambda: kept_apart(parts, "Refuse", KEY), "validation: 1 of 2 images", "i1")
    assert kept_apart(parts, "Allow", KEY)[0]["anchors"].ids == parts["anchors"].ids


def test_one_folder_as_anchors_and_as_test_is_refused(tmp_path):
    for name in CLASSES:
        fill(tmp_path / "site" / name, 3, start=10 * (name == "b"))
    section = ServerData(format="ImageFolder", claim_name="site")
    both = {name: read(section, tmp_path, MODEL, 1)[0] for name in ("anchors", "test")}
    refused(failures.HELD_OUT_TRAINED, lambda: kept_apart(both, "Refuse", KEY), "anchors: 6 of 6")


def test_a_fingerprint_is_of_contents_and_labels_alone(tmp_path):
    one = images(1, 2, 3, 4)
    reordered = one.select([3, 0, 2, 1])
    assert Fingerprint.of(one, KEY) == Fingerprint.of(reordered, KEY)
    assert Fingerprint.of(one, KEY).digest != Fingerprint.of(one, OTHER).digest
    assert Fingerprint.of(one, KEY).digest != Fingerprint.of(one.without_labels(), KEY).digest
    assert Fingerprint.of(one, KEY).classes == {"a": 2, "b": 2}


def test_a_site_whose_images_changed_is_told_what_changed(tmp_path):
    file = tmp_path / "images.json"

    def compare(now, key=KEY):
        Fingerprint.of(now, key).compare(file, "the images of silo x", remedy="restore them")

    before = images(*range(60))
    compare(before)
    Fingerprint.of(before, KEY).keep(file)
    compare(before)
    few = before.select([*range(10), *range(30, 60)])
    refused(failures.IMAGES_CHANGED, lambda: compare(few), "silo x", "a 10 (were 30)", "restore them")
    others = images(*range(100, 160))
    refused(failures.IMAGES_CHANGED, lambda: compare(others), "as many of each class, but others")
    drawn_less = replace(before, unannotated=(1,))
    refused(failures.IMAGES_CHANGED, lambda: compare(drawn_less), "unannotated names other classes")
    compare(others, OTHER)
    Fingerprint.of(drawn_less, KEY).keep(file)
    compare(drawn_less)
    refused(failures.IMAGES_CHANGED, lambda: compare(before), "unannotated names other classes")
    file.write_text("{")
    refused(failures.IMAGES_CHANGED, lambda: compare(before), "images.json", "remove it")


def textured(seed):
    """A picture with shapes, as photographs have them; noise looks like nothing else."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    return small.resize((180, 135), Image.Resampling.BICUBIC)


def test_equal_files_and_copies_are_found_across_sections(tmp_path):
    train, test = tmp_path / "train" / "a", tmp_path / "test" / "b"
    train.mkdir(parents=True)
    test.mkdir(parents=True)
    for seed in range(6):
        textured(seed).save(train / f"t{seed}.png")
    (test / "same.png").write_bytes((train / "t0.png").read_bytes())
    textured(1).convert("L").save(test / "grey.png")
    buffer = io.BytesIO()
    textured(2).resize((120, 90)).save(buffer, "JPEG", quality=90)
    (test / "smaller.jpg").write_bytes(buffer.getvalue())
    textured(17).save(test / "own.png")
    (_, one), (_, other) = (
        check(kind(format="ImageFolder", claim_name=name), tmp_path, MODEL.task)
        for kind, name in ((SiloData, "train"), (ServerData, "test"))
    )
    shared = overlap(one, other)
    assert shared.identical == (("a/t0.png", "b/same.png"),)
    assert sorted(shared.near) == [("a/t1.png", "b/grey.png"), ("a/t2.png", "b/smaller.jpg")]
    assert shared.groups == () and shared
    assert json.dumps(shared.as_document())
    assert not overlap(one, check(SiloData(format="Digits"), tmp_path, classes(10))[1])


def test_noise_looks_like_nothing_else(tmp_path):
    folder = tmp_path / "site" / "a"
    folder.mkdir(parents=True)
    for seed in range(40):
        draw(size=(32, 32), seed=seed).save(folder / f"{seed}.png")
    _, contents = check(SiloData(format="ImageFolder", claim_name="site"), tmp_path, MODEL.task)
    halves = ("ids", "groups", "digests", "appearances")
    even, odd = (replace(contents, **{name: getattr(contents, name)[s::2] for name in halves}) for s in (0, 1))
    assert not overlap(even, odd)
