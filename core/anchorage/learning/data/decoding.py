"""Image files to pixels of one size and kind, several at a time.

An image is resized so that its shorter side fits and cropped in the centre, never squeezed: the shape of a lesion is one of its criteria,
and lesions lie in the middle. Transparent pixels become black. Grey images of 16 bits keep their whole range (65535 is white); pixels
without a known range (floating point) are refused. Of an animation, the first image counts; EXIF orientation is applied.
"""

import hashlib
import io
import os
import struct
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from anchorage.learning.data.listing import BadImage, Listing, Source

MOST_BYTES = 256 * 2**20
"""Largest file that is read."""
MOST_PIXELS = 50_000_000
"""Largest image that is decoded (a decompression bomb is a small file with more)."""
MOST_THREADS = 4

_DAMAGE = (
    OSError,
    ValueError,
    ArithmeticError,
    LookupError,
    SyntaxError,
    EOFError,
    TypeError,
    AttributeError,
    RuntimeError,
)
"""What Pillow's parsers raise on corrupt content."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded image.

    Parameters
    ----------
    pixels : ndarray of uint8, shape [channels, size, size]
        Its content.
    size : tuple of int
        Width and height in the file.
    mode : str
        Pillow's name of the pixel format in the file.
    digest : bytes
        BLAKE2b of the file's bytes.
    """

    pixels: NDArray[np.uint8]
    size: tuple[int, int]
    mode: str
    digest: bytes


class _RefusedError(Exception):
    """Content that is not decoded: a reason of `REASONS` and what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def decode(listing: Listing, image_size: int, channels: int) -> Iterator[Decoded | BadImage]:
    """Decode the images of a listing in its order, on up to `MOST_THREADS` threads.

    Parameters
    ----------
    listing : Listing
        Which images; rows known to be bad are not opened.
    image_size : int
        Height and width of the result in pixels.
    channels : int
        1 for grey, 3 for RGB.
    """

    def one(row: int) -> Decoded | BadImage:
        return listing.bad.get(row) or _decode(listing.ids[row], listing.sources[row], image_size, channels)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1), thread_name_prefix="decode")
        try:
            yield from pool.map(one, range(len(listing)))
        finally:
            pool.shutdown(cancel_futures=True)


def _decode(name: str, source: Source, image_size: int, channels: int) -> Decoded | BadImage:
    try:
        if isinstance(source, np.ndarray):
            image = Image.fromarray(source)
            pixels = _pixels(image, image_size, channels)
            return Decoded(pixels, image.size, image.mode, hashlib.blake2b(source.tobytes()).digest())
        return _decode_bytes(_content(source), image_size, channels)
    except _RefusedError as refused:
        return BadImage(name, refused.reason, refused.detail)


def _content(source: Path | None) -> bytes:
    """Read a file whole."""
    if source is None:
        raise _RefusedError("Missing", "no such file")
    try:
        with source.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise _RefusedError("Missing", "no such file") from error
    except OSError as error:
        raise _RefusedError("Damaged", f"cannot be read: {error.strerror}") from error
    if not content:
        raise _RefusedError("Empty", "0 bytes")
    if len(content) > MOST_BYTES:
        raise _RefusedError("TooLarge", f"more than {MOST_BYTES // 2**20} MiB")
    return content


def _decode_bytes(content: bytes, image_size: int, channels: int) -> Decoded:
    try:
        with Image.open(io.BytesIO(content)) as image:
            size, mode = image.size, image.mode
            if size[0] * size[1] > MOST_PIXELS:
                raise _too_many_pixels(f"{size[0]}×{size[1]} pixels")
            image.draft("L" if channels == 1 else "RGB", (image_size, image_size))
            pixels = _pixels(ImageOps.exif_transpose(image), image_size, channels)
    except Image.DecompressionBombError as error:
        raise _too_many_pixels(str(error).split(",")[0]) from error
    except UnidentifiedImageError as error:
        raise _RefusedError("NotAnImage", "no image format that is known") from error
    except (*_DAMAGE, struct.error, zlib.error) as error:
        raise _RefusedError("Damaged", str(error) or type(error).__name__) from error
    return Decoded(pixels, size, mode, hashlib.blake2b(content).digest())


def _too_many_pixels(found: str) -> _RefusedError:
    return _RefusedError("TooLarge", f"{found}, at most {MOST_PIXELS} pixels are decoded")


def _pixels(image: Image.Image, image_size: int, channels: int) -> NDArray[np.uint8]:
    """Return uint8 [channels, size, size]: shorter side fitted, centre cropped, bilinear with antialiasing."""
    mode = "L" if channels == 1 else "RGB"
    if image.mode == "F":
        raise _RefusedError("Unsupported", "floating-point pixels, whose range is not known")
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.int64)
        image = Image.fromarray((wide.clip(0, 65535) // 257).astype(np.uint8))
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, (0, 0, 0, 255)), seen)
    fitted = ImageOps.fit(image.convert(mode), (image_size, image_size), Image.Resampling.BILINEAR)
    pixels = np.asarray(fitted, dtype=np.uint8)
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
