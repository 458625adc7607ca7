"""A silo that reads its images from disk trains as one that has them in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learning_party import MODEL, Party, given, images_of, method_of

from anchorage.learning.data import ImageSet
from anchorage.learning.data.decoding import with_levels_of
from anchorage.learning.data.stored_pictures import Entry, PictureFile, PictureWriter, StoredPictures
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.models import build_model
from anchorage.learning.views import Views

CPU = torch.device("cpu")


def stored(images: ImageSet, folder: Path) -> ImageSet:
    """The same images, in a file in another order."""
    order = np.random.default_rng(0).permutation(len(images))
    with PictureWriter(folder / "x.pictures", images.images.shape[1:], images.images.dtype) as writer:
        for row in order:
            digest = int(row).to_bytes(64, "little")
            writer.append(
                images.images[row], Entry(str(row), 1, 1, digest, (8, 8), "L", None, False, "x", False, 0.0, ())
            )
        writer.finish()
    return replace(images, images=StoredPictures(PictureFile(folder / "x.pictures"), order.argsort()))


METHODS = [
    ("FedAvg", "All", {}),
    ("FedAvgFixMatch", "Partial", {"pseudoLabels": {"threshold": "0"}}),
    ("FedAnchor", "None", {"pseudoLabels": {"threshold": "0"}}),
    ("FedBarlow", "None", {}),
    ("Orchestra", "None", {}),
    ("NaiveMix", "All", {}),
    ("DVW", "All", {"weighting": {"validationPercent": 20}}),
]


@pytest.mark.parametrize(("name", "labels", "slots"), METHODS)
def test_an_update_is_the_same_from_disk(tmp_path, name, labels, slots):
    images = given(labels)
    digests = []
    for place, image_set in (("memory", images), ("disk", stored(images, tmp_path))):
        digests.append(Party(method_of(name, **slots), image_set, tmp_path / place, labels=labels).digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("name", ["Digits", "ResizedNatural", "CroppedNatural"])
def test_views_of_eight_bits_are_the_same_beside_a_picture_of_sixteen(name):
    images = images_of(6).images
    flat, deep = (Views(each, augmentation_of(name), CPU) for each in (images, with_levels_of(images, np.uint16)))
    rows = torch.arange(6)
    assert torch.equal(flat.fractions(rows), deep.fractions(rows))
    torch.testing.assert_close(flat.plain(rows), deep.plain(rows))
    for kind in ("weak", "strong"):
        one, other = (getattr(views, kind)(rows, torch.Generator().manual_seed(1)) for views in (flat, deep))
        torch.testing.assert_close(one, other)


def test_levels_between_those_of_eight_bits_reach_the_network():
    grey = np.array([0, 1, 256, 65535], np.uint16).reshape(1, 1, 2, 2)
    values = Views(grey, augmentation_of("Digits"), CPU).fractions(torch.tensor([0])).flatten().tolist()
    assert values == pytest.approx([0, 1 / 65535, 256 / 65535, 1], abs=1e-9)


def test_views_are_the_same_from_disk(tmp_path):
    images = images_of(20)
    memory, disk = (Views(each.images, augmentation_of("Digits"), CPU) for each in (images, stored(images, tmp_path)))
    rows = torch.tensor([7, 3, 3, 19])
    assert len(disk) == len(memory) == 20 and disk.ahead == memory.ahead
    for kind in ("plain", "fractions", "unchanged"):
        assert torch.equal(getattr(disk, kind)(rows), getattr(memory, kind)(rows))
    for kind in ("weak", "strong", "learnt"):
        first, second = (getattr(views, kind)(rows, torch.Generator().manual_seed(1)) for views in (memory, disk))
        assert torch.equal(first, second)


def test_a_batch_reads_its_own_images_alone(tmp_path, monkeypatch):
    images = stored(images_of(20), tmp_path)
    read = []
    monkeypatch.setattr(PictureFile, "read_into", lambda file, row, picture: read.append(row))
    views = Views(images.images, augmentation_of("Digits"), CPU)
    views.content()
    assert not read
    views.plain(torch.tensor([4, 2]))
    assert len(read) == 2


def test_images_on_disk_are_told_apart_by_their_files(tmp_path):
    images = stored(images_of(6), tmp_path)
    one, other = (
        Views(images.select(rows).images, augmentation_of("Digits"), CPU).content() for rows in ([0, 1], [0, 2])
    )
    assert one.shape == other.shape == (2, 64)
    assert np.array_equal(one[0], other[0]) and not np.array_equal(one[1], other[1])


def test_a_frozen_encoder_encodes_images_on_disk_once_for_all_runs(tmp_path):
    images, head = stored(images_of(9), tmp_path), MODEL.model_copy(update={"trainable": "Head"})
    method = TrainingMethod.of(method_of("FedAvg"))
    network, passes = build_model(head, method, 1).eval(), []
    network.encoder.register_forward_hook(lambda *call: passes.append(len(call[2])))
    reads = []
    for image_set in (images, images, images.select(np.arange(9)[::-1])):
        views = views_of(image_set.images, head, method, CPU, Draws(1), tmp_path / "embeddings")
        views.encoded_by(network)
        reads.append(views.plain(torch.arange(9)))
    assert passes == [16], "nine images, filled up, whatever their order"
    assert torch.equal(reads[0], reads[1]) and torch.equal(reads[0].flip(0), reads[2])
