"""Pools whose class sizes fall exponentially, as those of CIFAR-10-LT and CIFAR-100-LT."""

import numpy as np
import pytest
from read_sections import DIGITS, digits, images_of, refused

from anchorage.api.data import Partition
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import PARTITION_IMPOSSIBLE
from anchorage.learning.data.long_tail import long_tailed_rows


def sizes(labels, classes, factor, seed=0):
    rows = long_tailed_rows(np.array(labels), classes, factor, np.random.default_rng(seed))
    assert (np.diff(rows) > 0).all()
    return np.bincount(np.array(labels)[rows], minlength=classes).tolist()


@pytest.mark.parametrize(
    ("classes", "factor", "total"), [(10, 10, 20431), (10, 100, 12406), (100, 10, 19573), (100, 100, 10847)]
)
def test_cifar_with_a_long_tail_has_as_many_images_as_the_papers_say(classes, factor, total):
    each = 50_000 // classes
    counts = sizes(np.repeat(np.arange(classes), each), classes, factor)
    assert counts[0] == each and counts[-1] == each // factor and sum(counts) == total
    assert counts == sorted(counts, reverse=True)


def test_classes_of_other_sizes_get_the_longest_profile_that_all_have_images_for():
    assert sizes(np.repeat([0, 1, 2], [1000, 50, 90]), 3, 100) == [500, 50, 5]
    assert sizes(np.repeat([0, 1, 2], [400, 500, 600]), 3, 1) == [400, 400, 400]


def test_the_images_are_drawn_from_the_seed():
    labels = np.tile(np.arange(4), 50)
    drawn = [long_tailed_rows(labels, 4, 10, np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("labels", "words"), [([0, 0, 1, -1], "1 images without a label"), ([0] * 50 + [1] * 50, "last 1/100")]
)
def test_a_profile_that_cannot_be_drawn_is_refused(labels, words):
    with pytest.raises(AnchorageError, match=words) as raised:
        long_tailed_rows(np.array(labels), 2, 100, np.random.default_rng(0))
    assert raised.value.failure is PARTITION_IMPOSSIBLE and "imbalanceFactor" in raised.value.message


def test_silos_divide_the_long_tail_and_leave_the_other_parts_as_they_are(tmp_path):
    def read(use, **fields):
        return images_of(digits(use, **fields), tmp_path, classes=DIGITS, channels=1, seed=5)[0]

    def part(number, **fields):
        return read("Part", partition=Partition(recipe="PerClient", parts=3, part=number, **fields))

    parts = [part(number, imbalance_factor=10) for number in range(3)]
    names = [name for images in parts for name in images.ids]
    counts = np.bincount(np.concatenate([images.labels for images in parts]), minlength=10)
    assert len(names) == len(set(names)) == counts.sum()
    assert counts[0] // counts[-1] >= 10 and (np.diff(counts) < 0).all()
    assert not set(names) & {*read("Test").ids, *read("Anchors").ids}
    assert part(0, imbalance_factor=1).ids == part(0).ids != parts[0].ids
    impossible = Partition(recipe="Iid", parts=3, part=0, imbalance_factor=1000)
    refused(digits("Part", partition=impossible), tmp_path, PARTITION_IMPOSSIBLE, "imbalanceFactor", classes=DIGITS)
