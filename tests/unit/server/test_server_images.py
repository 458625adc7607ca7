"""The server's own images: kept apart, not changed once training began, told to silos by keyed digests."""

from pathlib import Path

import pytest
from drawn_images import shade

from anchorage.api.errors import AnchorageError
from anchorage.api.federation import FederationSpec
from anchorage_server.learner import data_key, read_server_images


def spec_of(**evaluation: object) -> FederationSpec:
    folder = {"format": "ImageFolder", "claimName": "server"}
    return FederationSpec.model_validate(
        {
            "rounds": 1,
            "task": {"classification": {"classes": ["a", "b"]}},
            "model": {"network": "LeafCnn", "imageSize": 8},
            "method": {"name": "FedAvg"},
            "anchorData": {**folder, "path": "anchors"},
            "evaluation": {"test": {**folder, "path": "test"}, **evaluation},
        }
    )


def write(folder: Path, *numbers: int) -> None:
    for number in numbers:
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        shade(number).save(place / f"{number}.png")


def test_the_key_of_a_run_is_drawn_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    key = data_key(tmp_path / "state")
    assert len(key) == 32 and data_key(tmp_path / "state") == key != data_key(tmp_path / "other")
    assert (tmp_path / "state" / "data-key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("treatment", ["Refuse", "Skip"])
def test_anchors_that_are_test_images_are_refused_or_left_out(tmp_path: Path, treatment: str) -> None:
    write(tmp_path / "server" / "anchors", 0, 1, 2, 3)
    write(tmp_path / "server" / "test", 2, 3, 4, 5)
    spec, key = spec_of(onLeakage=treatment), bytes(32)
    if treatment == "Refuse":
        with pytest.raises(AnchorageError, match=r"ANC-1211.*anchors: 2 of 4 images"):
            read_server_images(spec, tmp_path, tmp_path, key, begun=False)
        return
    images, held_out = read_server_images(spec, tmp_path, tmp_path, key, begun=False)
    assert {name: len(image_set) for name, image_set in images.items()} == {"test": 4, "anchors": 2}
    assert held_out is not None and held_out.treatment == "Skip"


def test_the_server_s_images_may_change_until_training_began(tmp_path: Path) -> None:
    write(tmp_path / "server" / "anchors", 0, 1)
    write(tmp_path / "server" / "test", 2, 3)
    key = bytes(32)
    read_server_images(spec_of(), tmp_path, tmp_path, key, begun=False)
    write(tmp_path / "server" / "test", 4)
    read_server_images(spec_of(), tmp_path, tmp_path, key, begun=False)
    read_server_images(spec_of(), tmp_path, tmp_path, key, begun=True)
    write(tmp_path / "server" / "test", 5)
    with pytest.raises(AnchorageError, match=r"ANC-1212.*the server's test images changed.*b 2 \(were 1\)"):
        read_server_images(spec_of(), tmp_path, tmp_path, key, begun=True)
