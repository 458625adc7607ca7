"""Every mode and size ends as the wanted channels; every bad file as a reason."""

import io

import numpy as np
import pytest
from drawn_images import draw
from PIL import Image

from anchorage.learning.data import REASONS, BadImage, decoding
from anchorage.learning.data.decoding import Decoded, decode
from anchorage.learning.data.listing import Listing


def decoded(sources, *, size=16, channels=3):
    ids = tuple(f"i{row}" for row in range(len(sources)))
    listing = Listing(ids, ids, tuple(sources), np.full(len(ids), -1), (), {})
    return list(decode(listing, size, channels))


def saved(image, file, **options):
    image.save(file, **options)
    return file


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("1", "png"), ("L", "jpg"), ("L", "png"), ("LA", "png"), ("P", "gif"), ("P", "png"), ("RGB", "jpg"), ("RGB", "bmp"),
     ("RGB", "tif"), ("RGB", "webp"), ("RGBA", "png"), ("CMYK", "jpg"), ("CMYK", "tif"), ("I;16", "png"), ("I;16", "tif")],
)  # fmt: skip
def test_every_mode_becomes_the_wanted_channels(tmp_path, mode, suffix, channels):
    file = saved(draw(mode), tmp_path / f"x.{suffix}")
    (outcome,) = decoded([file], channels=channels)
    assert isinstance(outcome, Decoded)
    assert outcome.pixels.shape == (channels, 16, 16)
    assert outcome.pixels.dtype == np.uint8
    assert outcome.size == (24, 18)
    assert outcome.pixels.std() > 5 or mode == "1"


def test_shorter_side_fits_and_the_centre_stays(tmp_path):
    stripes = np.zeros((20, 60, 3), dtype=np.uint8)
    stripes[:, :20, 0] = stripes[:, 20:40, 1] = stripes[:, 40:, 2] = 255
    (outcome,) = decoded([saved(Image.fromarray(stripes), tmp_path / "x.png")], size=10)
    within = outcome.pixels[:, :, 1:-1]
    assert within[1].min() == 255
    assert within[0].max() == within[2].max() == 0


def test_sixteen_bits_keep_their_whole_range(tmp_path):
    ramp = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    (outcome,) = decoded([saved(Image.fromarray(ramp), tmp_path / "x.png")], size=8, channels=1)
    assert outcome.pixels[0].ravel().tolist() == (ramp.ravel() // 257).tolist()


def test_transparent_pixels_become_black(tmp_path):
    image = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    (outcome,) = decoded([saved(image, tmp_path / "x.png")], size=8)
    assert outcome.pixels.max() == 0


def test_orientation_of_a_camera_is_applied(tmp_path):
    image = Image.new("RGB", (32, 16))
    image.paste((255, 255, 255), (0, 0, 32, 8))
    exif = Image.Exif()
    exif[0x0112] = 3
    (outcome,) = decoded([saved(image, tmp_path / "x.jpg", exif=exif, quality=95)], size=16)
    assert outcome.pixels[:, :6].max() < 20
    assert outcome.pixels[:, -6:].min() > 235


def content_of(mode="RGB", kind="JPEG", size=(200, 150)):
    buffer = io.BytesIO()
    draw(mode, size).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP"])
def test_truncated_files_are_damaged(tmp_path, kind):
    content = content_of(kind=kind)
    (tmp_path / "x.jpg").write_bytes(content[: len(content) // 2])
    (outcome,) = decoded([tmp_path / "x.jpg"])
    assert isinstance(outcome, BadImage)
    assert outcome.reason in ("Damaged", "NotAnImage")


def test_bad_files_are_told_apart(tmp_path, monkeypatch):
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "folder.jpg").mkdir()
    saved(Image.fromarray(np.ones((4, 4), dtype=np.float32)), tmp_path / "float.tif")
    names = ("empty.jpg", "text.jpg", "folder.jpg", "float.tif", "nowhere.jpg")
    outcomes = decoded([*(tmp_path / name for name in names), None])
    assert [outcome.reason for outcome in outcomes] == [
        "Empty", "NotAnImage", "Damaged", "Unsupported", "Missing", "Missing",
    ]  # fmt: skip
    monkeypatch.setattr(decoding, "MOST_BYTES", 10)
    assert decoded([tmp_path / "text.jpg"])[0].reason == "TooLarge"


@pytest.mark.parametrize("side", [8_000, 12_000, 20_000])
def test_decompression_bombs_are_not_decoded(tmp_path, side):
    file = saved(Image.new("1", (side, side)), tmp_path / "bomb.png")
    assert file.stat().st_size < 200_000
    (outcome,) = decoded([file])
    assert outcome.reason == "TooLarge"
    assert "pixels" in outcome.detail


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP"])
def test_flipped_bytes_never_raise(tmp_path, kind):
    rng = np.random.default_rng(7)
    content = content_of("P" if kind == "GIF" else "RGB", kind, (40, 30))
    files = []
    for place in range(60):
        broken = np.frombuffer(content, dtype=np.uint8).copy()
        where = rng.integers(0, min(len(broken), 400), 4)
        broken[where] = rng.integers(0, 256, 4)
        files.append(tmp_path / f"{place}.jpg")
        files[-1].write_bytes(broken.tobytes())
    outcomes = decoded(files)
    assert len(outcomes) == 60
    assert all(isinstance(outcome, Decoded) or outcome.reason in REASONS for outcome in outcomes)
