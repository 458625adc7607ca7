"""Images of simulations one after another are decoded once, as long as their files are the same."""

from pathlib import Path

import numpy as np
import pytest
from drawn_images import shade

pytest.importorskip("torch")

from anchorage.api.data import ServerData
from anchorage.api.model import ModelDescription
from anchorage.pieces.task.classification import Classification
from anchorage.simulation import images as module
from anchorage.simulation.images import DecodedImages, SharedImages

MODEL = ModelDescription(
    network="SmallCnn", image_size=8, augmentation="Natural", task=Classification(classes=("a", "b"))
)
SECTION = ServerData.model_validate({"format": "ImageFolder", "claimName": "pool"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(4):
        write(tmp_path / "pool" / "ab"[number % 2] / f"{number}.png", number)
    return tmp_path


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """Count the images of every listing that is decoded."""
    counts: list[int] = []
    real = module.decode_listing

    def decoded(listing, model, folder):
        counts.append(len(listing))
        return real(listing, model, folder)

    monkeypatch.setattr(module, "decode_listing", decoded)
    return counts


def write(file: Path, grey: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    shade(grey).convert("RGB").save(file)


def read(root: Path, before: DecodedImages, section=SECTION, model=MODEL, seed: int = 1):
    return SharedImages(root, model, seed, root, before=before).of(section)


def test_what_an_earlier_simulation_decoded_is_not_decoded_again(root: Path, counted) -> None:
    before = DecodedImages()
    first = read(root, before)
    reread = read(root, before, seed=2)
    assert counted == [4]
    assert (reread.ids, reread.labels.tolist(), reread.digests.tolist()) == (
        first.ids,
        first.labels.tolist(),
        first.digests.tolist(),
    )
    assert sorted(reread.images[:, 0, 0, 0].tolist()) == [0, 1, 2, 3]
    read(root, DecodedImages())
    assert counted == [4, 4], "other simulations have nothing to do with it"


def test_another_size_or_a_changed_file_is_decoded(root: Path, counted) -> None:
    before = DecodedImages()
    read(root, before)
    read(root, before, model=MODEL.model_copy(update={"image_size": 16}))
    write(root / "pool" / "c.png", 77)
    (root / "pool" / "a" / "0.png").unlink()
    (root / "pool" / "c.png").rename(root / "pool" / "a" / "0.png")
    changed = read(root, before, SECTION.model_copy(update={"on_change": "Allow"}))
    assert counted == [4, 4, 4]
    assert 77 in changed.images[:, 0, 0, 0]


def test_another_intensity_is_decoded(root: Path, counted) -> None:
    before = DecodedImages()
    for high in ("200", "20"):
        window = {"window": {"low": "0", "high": high}}
        model = MODEL.model_validate({**MODEL.model_dump(), "intensity": window})
        np.testing.assert_array_equal(
            read(root, before, model=model).images, read(root, DecodedImages(), model=model).images
        )
    assert counted == [4, 4, 4, 4]


def test_the_longest_unused_pixels_are_given_up(root: Path, counted) -> None:
    larger = MODEL.model_copy(update={"image_size": 16})
    before = DecodedImages(most=4 * 3 * 16 * 16)
    for model in (MODEL, larger, larger, MODEL):
        read(root, before, model=model)
    assert counted == [4, 4, 4]
