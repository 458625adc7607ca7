"""Which decoder a file is for, and what may come of it; the decoder of docs/writing-a-decoder.md."""

import io
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from drawn_images import draw
from outside_decoder import lay_out
from PIL import Image
from read_sections import model_of

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.piece import PIECES
from anchorage.learning.data import check, decoders
from anchorage.learning.data.decoders import decode_content, image_suffixes
from anchorage.learning.data.decoding import MOST_PIXELS, Input, Picture, RefusedImageError, decode_array, decode_bytes
from anchorage.learning.data.listing import REASONS
from anchorage.pieces.slots import Decoder

pytestmark = pytest.mark.outside_package


@pytest.fixture
def npy(tmp_path, monkeypatch) -> Iterator[type[Decoder]]:
    """The guide's decoder, installed for one test."""
    assert list(PIECES.of("decoder")) == ["Dicom", "Nifti", "Pillow"]
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))
    lay_out(tmp_path)
    module = ModuleType("npy")
    exec((tmp_path / "acme_images" / "npy.py").read_text(), module.__dict__)
    forget()
    yield module.Npy
    forget()


def forget():
    decoders.decoders.cache_clear()
    decoders.image_suffixes.cache_clear()
    decoders.suffixes_with_headers.cache_clear()


def saved(array, *, version=None):
    content = io.BytesIO()
    np.lib.format.write_array(content, array, version=version)
    return content.getvalue()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("shape", "dtype", "end"),
    [
        ((20, 33), "u1", 256),
        ((20, 33, 1), "u1", 256),
        ((20, 33, 3), "u1", 256),
        ((20, 33), "<u2", 4096),
        ((20, 33), ">u2", 65536),
    ],
)
def test_an_npy_file_gives_the_pixels_of_its_array(npy, shape, dtype, end, channels):
    array = np.random.default_rng(0).integers(0, end, shape).astype(dtype)
    expected = decode_array(
        array.reshape(shape[:2] + shape[2:] * (shape[2:] == (3,))).astype(array.dtype.newbyteorder("=")),
        Input(16, channels),
    )
    for written in (array, np.asfortranarray(array)):
        for version in ((1, 0), (2, 0)):
            decoded_image = decode_content(saved(written, version=version), "x.npy", Input(16, channels))
            np.testing.assert_array_equal(decoded_image.pixels, expected.pixels)
            assert (decoded_image.size, decoded_image.mode, decoded_image.white, decoded_image.decoder) == (
                (33, 20),
                expected.mode,
                expected.white,
                "acme.Npy 1",
            )


def test_levels_of_colour_of_16_bits_are_kept_while_it_is_resized(npy):
    tiles = np.tile(np.array([[8, 8], [8, 9]], np.uint16), (32, 32))
    tiles[-1, -1] = 4095
    decoded_image = decode_content(saved(np.stack([tiles, tiles // 2, tiles * 0], 2)), "x.npy", Input(8, 3))
    assert decoded_image.pixels[:, 0, 0].tolist() == [132, 64, 0] and (decoded_image.mode, decoded_image.white) == (
        "RGB;16",
        4095,
    )


HUGE = saved(np.zeros((1, 1), np.uint8)).replace(b"(1, 1), }      ", b"(60000, 60000)}")
REFUSED = {
    "pickle": (saved(np.array([[None]])), "Unsupported"),
    "floating point": (saved(np.zeros((4, 4))), "Unsupported"),
    "four channels": (saved(np.zeros((4, 4, 4), np.uint8)), "Unsupported"),
    "one axis": (saved(np.zeros(4, np.uint8)), "Unsupported"),
    "nothing": (saved(np.zeros((0, 4), np.uint8)), "TooLarge"),
    "a header of many pixels": (HUGE, "TooLarge"),
    "half": (saved(np.zeros((40, 40), np.uint8))[:900], "Damaged"),
    "more": (saved(np.zeros((4, 4), np.uint8)) + b"x", "Damaged"),
    "header alone": (b"\x93NUMPY", "Damaged"),
    "version": (b"\x93NUMPY\x09\x00" + bytes(100), "Damaged"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_npy_files_that_are_no_picture_are_refused(npy, kind):
    content, reason = REFUSED[kind]
    with pytest.raises(RefusedImageError) as raised:
        decode_content(content, "x.npy", Input(8, 1))
    assert raised.value.reason == reason


def test_flipped_bytes_of_an_npy_file_never_raise(npy):
    rng, content = np.random.default_rng(7), saved(np.zeros((30, 40, 3), np.uint8))
    for _ in range(300):
        broken = np.frombuffer(content, np.uint8).copy()
        broken[rng.integers(6, 128, 3)] = rng.integers(0, 256, 3)
        try:
            assert decode_content(broken.tobytes(), "x.npy", Input(8, 3)).pixels.shape == (3, 8, 8)
        except RefusedImageError as refused:
            assert refused.reason in REASONS


def test_content_decides_and_not_the_name(npy, tmp_path):
    site = tmp_path / "site"
    for name in ("a", "b"):
        (site / name).mkdir(parents=True)
    draw(seed=1).save(site / "a" / "1.png")
    draw(seed=2).save(site / "a" / "2.npy", "png")
    (site / "b" / "3.npy").write_bytes(saved(np.asarray(draw(seed=3))))
    (site / "b" / "4.tif").write_bytes(saved(np.arange(5000, dtype=np.uint16).reshape(50, 100)))
    (site / "b" / "5.npy").write_bytes(b"no image")
    report, _ = check(SiloData(format="ImageFolder", claim_name="site"), tmp_path, model_of(("a", "b")).task)
    assert (report.counts, report.listed) == ((2, 2), 5) and report.modes == {"RGB": 3, "I;16": 1}
    assert [(bad.id, bad.reason, bad.detail) for bad in report.bad] == [
        ("b/5.npy", "NotAnImage", "no image format that is known")
    ]
    assert report.windows == {"0-16383": 1}


def test_without_the_package_its_files_are_no_images(tmp_path):
    assert ".npy" not in image_suffixes()
    with pytest.raises(RefusedImageError, match="no image format"):
        decode_content(saved(np.zeros((4, 4), np.uint8)), "x.png", Input(8, 1))


def test_of_two_decoders_the_one_of_the_names_suffix_counts(npy):
    class Inverse(Decoder):
        name = "acme.Inverse"

        def version(self):
            return "2"

        def suffixes(self):
            return (".inverse",)

        def recognises(self, head):
            return True

        def picture(self, content, wanted, frame):
            return Picture(np.full((8, 8), 7, np.uint8), (8, 8), "L")

    PIECES.add(Inverse, "acme.Inverse")
    forget()
    content = saved(np.zeros((8, 8), np.uint8))
    assert decode_content(content, "x.INVERSE", Input(8, 1)).decoder == "acme.Inverse 2"
    assert decode_content(content, "x.npy", Input(8, 1)).decoder == decode_content(
        content, "x", Input(8, 1)
    ).decoder.replace("Inverse 2", "Npy 1")
    assert decode_content(b"anything", "x", Input(8, 1)).pixels.max() == 7


@pytest.mark.parametrize(
    "returned",
    [
        None,
        np.zeros((4, 4), np.uint8),
        Picture(np.zeros((4, 4)), (4, 4), "L"),
        Picture(np.zeros((4, 4, 2), np.uint8), (4, 4), "L"),
        Picture(np.zeros((0, 4), np.uint8), (4, 4), "L"),
        Picture(np.zeros((4, 4), np.uint16), (4, 4), "L", white=0),
        Picture(np.broadcast_to(np.uint8(0), (MOST_PIXELS, 2)), (4, 4), "L"),
    ],
    ids=["none", "array", "float", "channels", "nothing", "white", "large"],
)
def test_a_decoder_that_returns_no_picture_is_named(npy, monkeypatch, returned):
    monkeypatch.setattr(npy, "picture", lambda *arguments: returned)
    with pytest.raises(AnchorageError, match=r"acme\.Npy .*picture returned") as raised:
        decode_content(saved(np.zeros((8, 8), np.uint8)), "x.npy", Input(8, 1))
    assert raised.value.failure is PIECE_WRONG


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"])
def test_every_format_of_pillow_is_recognised(kind):
    content = io.BytesIO()
    draw(size=(40, 30)).save(content, kind)
    decoded_pair, expected = (
        decode_content(content.getvalue(), "x", Input(16, 3)),
        decode_bytes(content.getvalue(), Input(16, 3)),
    )
    np.testing.assert_array_equal(decoded_pair.pixels, expected.pixels)
    assert decoded_pair.decoder == expected.decoder and decoded_pair.digest == expected.digest


def test_formats_that_pillow_reads_beside_these_are_not_recognised():
    for kind in ("EPS", "PDF", "TGA", "ICO", "DDS"):
        content = io.BytesIO()
        Image.new("RGB", (16, 16)).save(content, kind)
        with pytest.raises(RefusedImageError, match="no image format"):
            decode_content(content.getvalue(), f"x.{kind.lower()}", Input(8, 3))
