"""Images read from sections of a document, for tests."""

import pytest

from anchorage.api.data import ServerData, SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.model import ModelDescription
from anchorage.learning.data import read
from anchorage.pieces.task.classification import Classification

ISIC = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")


DIGITS = tuple("0123456789")


def section(kind="ImageFolder", **fields):
    """Return a section of the folder ``site``, whose table is ``table.csv``."""
    manifest = {"manifest": "table.csv"} if kind == "CsvManifest" else {}
    return SiloData(format=kind, claim_name="site", **{**manifest, **fields})


def images_of(part, root, *, classes=("a", "b"), size=8, channels=3, seed=1):
    return read(part, root, model_of(classes, size, channels), seed)


def model_of(classes, size=8, channels=1):
    task = Classification(classes=tuple(classes))
    return ModelDescription(network="LeafCnn", task=task, image_size=size, channels=channels)


def refused(part, root, failure, *words, classes=("a", "b")):
    with pytest.raises(AnchorageError) as raised:
        images_of(part, root, classes=classes)
    assert raised.value.failure is failure
    assert "\n" not in raised.value.message
    for word in words:
        assert word in raised.value.message
    return raised.value


def digits(use, **fields):
    kind = SiloData if use == "Part" else ServerData
    return kind(format="Digits", use=use, **{"test_percent": 20, "anchors": 60, **fields})
