"""The bundled digits, pools of images and their division."""

import numpy as np
from read_sections import DIGITS, ISIC, digits, images_of, model_of, refused

from anchorage.api.data import Partition, SiloData
from anchorage.api.errors import data as failures
from anchorage.learning.data import Pools, divisions, read
from anchorage.learning.data import digits as digit_images


def test_digits_are_divided_without_overlap_and_the_same_everywhere(tmp_path):
    partition = {"recipe": "PerClient", "parts": 3, "alpha": "0.3"}
    settings = {"validation_percent": 10}
    sections = [digits(use, **settings) for use in ("Test", "Anchors", "Validation")]
    sections += [digits("Part", **settings, partition=Partition(**partition, part=part)) for part in range(3)]
    sets = [images_of(part, tmp_path, classes=DIGITS, channels=1, seed=5)[0] for part in sections]
    ids = [name for images in sets for name in images.ids]
    assert len(ids) == len(set(ids)) == 1797
    assert np.bincount(sets[1].labels).tolist() == [6] * 10
    assert sets[1].ids == images_of(sections[1], tmp_path, classes=DIGITS, channels=1, seed=5)[0].ids
    assert sets[1].ids != images_of(sections[1], tmp_path, classes=DIGITS, channels=1, seed=6)[0].ids
    pools = Pools()
    chosen = [pools.choose(part, tmp_path, model_of(DIGITS).task, 5) for part in sections]
    assert [choice.name for choice in chosen] == ["test", "anchors", "validation", "0", "1", "2"]
    assert [choice.listing.ids for choice in chosen] == [images.ids for images in sets]
    assert chosen[2].counts() == tuple(np.bincount(sets[2].labels, minlength=10))
    refused(digits("Test"), tmp_path, failures.CLASSES_DIFFER, 'labels "0"', classes=ISIC)


def test_pools_are_listed_and_divided_once(tmp_path, monkeypatch):
    calls = []
    for module, name in ((digit_images, "list_digits"), (divisions, "divide")):
        plain = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *arguments, name=name, plain=plain: calls.append(name) or plain(*arguments)
        )
    pools = Pools()
    for part in range(4):
        section = digits("Part", partition=Partition(recipe="Iid", parts=4, part=part), labelled_percent=10 * part)
        read(section, tmp_path, model_of(DIGITS), 1, pools=pools)
    assert calls == ["list_digits", "divide"]
    pools.choose(digits("Part", partition=Partition(recipe="Iid", parts=2, part=0)), tmp_path, model_of(DIGITS).task, 1)
    pools.choose(digits("Test"), tmp_path, model_of(DIGITS).task, seed=2)
    assert calls == ["list_digits", "divide", "divide"]


def test_labelled_images_of_each_class_are_dealt_first(tmp_path):
    """FedMatch's labels at the clients: as many of each class at every client, whatever the others are like."""
    calls = []
    for part in range(6):
        partition = Partition(recipe="BatchNonIid", parts=6, part=part, labelled_per_class=5)
        images, _ = images_of(digits("Part", partition=partition), tmp_path, classes=DIGITS, channels=1)
        assert np.bincount(images.labels[images.labels >= 0]).tolist() == [5] * 10
        assert 150 < len(images) <= 50 + (1378 - 300) // 6
        calls += images.ids
    assert len(calls) == len(set(calls))
    partition = Partition(recipe="BatchIid", parts=6, part=0, labelled_per_class=50)
    words = ("labelledPerClass", "6 parts shall have 50")
    refused(digits("Part", partition=partition), tmp_path, failures.PARTITION_IMPOSSIBLE, *words, classes=DIGITS)


def test_random_anchors_are_drawn_by_chance(tmp_path):
    section = digits("Anchors", anchor_draw="Random")
    images, _ = images_of(section, tmp_path, classes=DIGITS, channels=1)
    counts = np.bincount(images.labels, minlength=10)
    assert counts.sum() == 60 and counts.tolist() != [6] * 10


def test_labels_of_a_share_are_kept(tmp_path):
    images, report = images_of(SiloData(format="Digits", labelled_percent=10), tmp_path, classes=DIGITS, channels=1)
    assert report.unlabelled == (images.labels < 0).sum()
    assert 170 <= sum(report.counts) <= 190
    assert min(report.counts) > 0


def test_image_sets_select_and_forget_labels(tmp_path):
    images, _ = images_of(SiloData(format="Digits"), tmp_path, classes=DIGITS, channels=1)
    some = images.select([5, 2])
    assert (some.ids, some.labels.tolist(), len(some)) == (("digit-0005", "digit-0002"), [5, 2], 2)
    assert some.without_labels().labels.tolist() == [-1, -1]
    assert np.array_equal(some.images[1], images.images[2])
