"""Every mode and size ends as the wanted channels; every bad file as a reason."""

import io
import os

import numpy as np
import pytest
from drawn_images import deep_png, deep_tiff, draw
from PIL import EpsImagePlugin, Image

from anchorage.learning.data import REASONS, BadImage, decoding
from anchorage.learning.data.decoding import (
    Decoded,
    Input,
    RefusedImageError,
    decode_array,
    decode_bytes,
    with_levels_of,
)
from anchorage.learning.data.listed_images import decode
from anchorage.learning.data.listing import Listing


def decoded(sources, *, size=16, channels=3):
    ids = tuple(f"i{row}" for row in range(len(sources)))
    none = np.full(len(ids), -1)
    listing = Listing(ids, ids, tuple(sources), none, none, (), {})
    return list(decode(listing, Input(size, channels)))


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
    assert outcome.pixels.dtype == (np.uint16 if mode == "I;16" else np.uint8)
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
    assert outcome.pixels.dtype == np.uint16 and (outcome.pixels[0] == ramp).all()
    assert (with_levels_of(outcome.pixels, np.uint8)[0] == np.rint(ramp / 257)).all()


@pytest.mark.parametrize(
    ("largest", "white"),
    [(5, 255), (255, 255), (256, 1023), (1023, 1023), (1024, 4095), (4095, 4095), (4096, 16383), (16384, 65535)],
)
@pytest.mark.parametrize("suffix", ["png", "tif", "jp2"])
def test_grey_of_a_scanner_uses_the_whole_range(tmp_path, suffix, largest, white):
    ramp = np.linspace(0, largest, 64).astype(np.uint16).reshape(8, 8)
    options = {"irreversible": False} if suffix == "jp2" else {}
    (outcome,) = decoded([saved(Image.fromarray(ramp), tmp_path / f"x.{suffix}", **options)], size=8, channels=1)
    assert outcome.white == white
    most = 255 if white == 255 else 65535
    assert outcome.pixels.dtype.itemsize == (1 if most == 255 else 2)
    assert outcome.pixels[0].ravel().tolist() == [round(int(value) * most / white) for value in ramp.ravel()]


def test_levels_of_a_scanner_are_kept_while_an_image_is_resized(tmp_path):
    """The mean of [8, 8, 8, 9] of 4095 is 132 of 65535, though none of 255 lies between 0 and 1."""
    tiles = np.tile(np.array([[8, 8], [8, 9]], np.uint16), (32, 32))
    tiles[-4:, -4:] = 4095
    (outcome,) = decoded([saved(Image.fromarray(tiles), tmp_path / "x.png")], size=8, channels=3)
    assert outcome.white == 4095 and (outcome.pixels[:, :6, :6] == 132).all()


def test_a_dark_image_of_a_scanner_stays_darker_than_its_fellows(tmp_path):
    """A 12-bit CT keeps a scale of its own, whatever is the brightest pixel of a slice."""
    body = np.array([[0, 1024], [1100, 1400]], dtype=np.uint16)
    metal = np.array([[0, 1024], [1100, 4000]], dtype=np.uint16)
    files = [saved(Image.fromarray(a), tmp_path / f"{i}.png") for i, a in enumerate((body, metal))]
    one, other = (outcome.pixels[0].ravel().tolist() for outcome in decoded(files, size=2, channels=1))
    assert one[:3] == other[:3] == [0, 16388, 17604]


def grey(values, **options):
    return deep_tiff(np.array(values).reshape(2, 2, 1), **options)


def test_negatives_of_16_bits_are_turned_round(tmp_path):
    (tmp_path / "x.tif").write_bytes(grey([0, 1000, 2000, 4095], photometric=0))
    (outcome,) = decoded([tmp_path / "x.tif"], size=2, channels=1)
    assert outcome.pixels[0].ravel().tolist() == [65535, 49531, 33528, 0]


def test_signed_grey_is_read_only_without_values_below_0(tmp_path):
    (tmp_path / "x.tif").write_bytes(grey([0, 1000, 2000, 4095], signed=True))
    (tmp_path / "hounsfield.tif").write_bytes(grey([-1024, 0, 40, 3000], signed=True))
    saved(Image.fromarray(np.array([[0, 70000]], dtype=np.int32)), tmp_path / "large.tif")
    good, low, high = decoded(
        [tmp_path / name for name in ("x.tif", "hounsfield.tif", "large.tif")], size=2, channels=1
    )
    assert good.pixels[0].ravel().tolist() == [0, 16004, 32007, 65535]
    assert (low.reason, high.reason) == ("Unsupported", "Unsupported")
    assert "from -1024 to 3000" in low.detail and "0 to 65535" in low.detail
    assert "from 0 to 70000" in high.detail


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_colour_of_16_bits_is_read_where_its_upper_8_tell_it(tmp_path, channels):
    pixels = np.full((4, 4, channels), 65535)
    pixels[..., 0] = 0x8012
    pixels[2:, :, 0] = 0xF012
    (tmp_path / "x.png").write_bytes(deep_png(pixels))
    (tmp_path / "dark.png").write_bytes(
        deep_png(np.minimum(pixels, [4095, 65535] if channels == 2 else [4095, 4095, 4095, 65535][:channels]))
    )
    good, dark = decoded([tmp_path / "x.png", tmp_path / "dark.png"], size=4)
    assert good.pixels[0].tolist() == [[128] * 4] * 2 + [[240] * 4] * 2
    assert good.white is None
    assert dark.reason == "Unsupported"
    assert "reach 15 of 255" in dark.detail


def test_planes_of_16_bits_are_refused_which_pillow_reads_wrongly(tmp_path):
    pixels = np.full((4, 4, 3), 65535)
    pixels[0] = 32768
    (tmp_path / "x.tif").write_bytes(deep_tiff(pixels))
    (tmp_path / "planes.tif").write_bytes(deep_tiff(pixels, planes=True))
    (tmp_path / "dark.tif").write_bytes(deep_tiff(pixels // 16))
    good, planes, dark = decoded([tmp_path / name for name in ("x.tif", "planes.tif", "dark.tif")], size=4)
    assert (good.pixels.min(), good.pixels.max()) == (128, 255)
    assert (planes.reason, dark.reason) == ("Unsupported", "Unsupported")
    assert "plane" in planes.detail


def test_of_several_pages_the_first_counts_and_is_marked(tmp_path):
    pages = [
        Image.linear_gradient("L").resize((8, 8)).point(lambda value, most=most: value * most // 255)
        for most in (40, 80, 120)
    ]
    files = [
        saved(pages[0], tmp_path / name, save_all=True, append_images=pages[1:])
        for name in ("x.tif", "x.gif", "x.webp")
    ]
    outcomes = decoded([*files, saved(pages[0], tmp_path / "y.tif")], size=8, channels=1)
    assert [outcome.paged for outcome in outcomes] == [True, True, True, False]
    assert all(abs(int(outcome.pixels.max()) - 40) < 8 for outcome in outcomes)


def test_photographs_with_a_second_picture_are_read(tmp_path):
    photograph = draw(size=(16, 16))
    photograph.save(tmp_path / "x.jpg", "MPO", save_all=True, append_images=[photograph])
    (outcome,) = decoded([tmp_path / "x.jpg"])
    assert (outcome.mode, outcome.paged) == ("RGB", True)


def test_postscript_called_an_image_starts_no_program(tmp_path, monkeypatch):
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho 10.0\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (tmp_path / "x.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    (outcome,) = decoded([tmp_path / "x.png"])
    assert outcome.reason == "NotAnImage"
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("kind", ["PCX", "TGA", "ICO", "PDF", "SGI", "DDS"])
def test_formats_that_are_not_named_are_no_images(tmp_path, kind):
    draw().save(tmp_path / "x.png", kind)
    (outcome,) = decoded([tmp_path / "x.png"])
    assert outcome.reason == "NotAnImage"


def test_a_registered_model_tells_that_a_file_is_dicom():
    with pytest.raises(RefusedImageError, match="a DICOM file"):
        decode_bytes(bytes(128) + b"DICM" + bytes(100), Input(8, 1))


def test_every_suffix_has_a_format_that_pillow_reads():
    Image.init()
    assert {Image.registered_extensions()[suffix] for suffix in decoding.SUFFIXES} == set(decoding.FORMATS)


def test_transparent_pixels_become_black(tmp_path):
    image = Image.new("RGBA", (8, 8), (255, 255, 255, 0))
    image.paste((90, 90, 90, 255), (0, 0, 8, 2))
    (outcome,) = decoded([saved(image, tmp_path / "x.png")], size=8)
    assert (outcome.pixels[:, 2:].max(), outcome.pixels.max()) == (0, 90)


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


ARRAYS = {
    "grey": ((20, 33), np.uint8, 256),
    "colour": ((20, 33, 3), np.uint8, 256),
    "transparent": ((20, 33, 4), np.uint8, 256),
    "12 bits": ((20, 33), np.uint16, 4096),
    "16 bits": ((20, 33), np.uint16, 65536),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_gives_the_pixels_of_its_file(kind, channels):
    shape, dtype, end = ARRAYS[kind]
    array = np.random.default_rng(0).integers(0, end, shape, dtype)
    content = io.BytesIO()
    Image.fromarray(array).save(content, "png")
    read, from_array = decode_bytes(content.getvalue(), Input(16, channels)), decode_array(array, Input(16, channels))
    np.testing.assert_array_equal(from_array.pixels, read.pixels)
    assert (from_array.size, from_array.white) == (read.size, read.white) == ((33, 20), from_array.white)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4, 7), np.uint8),
        np.zeros((4, 4, 3), np.uint16),
        np.zeros(4, np.uint8),
        np.zeros((0, 4), np.uint8),
        np.zeros((4, 4), np.float64),
        np.broadcast_to(np.uint8(0), (10_000, 5_001)),
    ],
)
def test_an_array_that_is_no_image_is_refused(array):
    with pytest.raises(RefusedImageError):
        decode_array(array, Input(16, 1))
