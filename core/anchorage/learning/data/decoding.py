"""Image files and arrays to pixels of one size and kind. Imports nothing of this project: a registered model carries this file.

An image is resized so that its shorter side fits and cropped in the centre, or (`fit` Pad) so that its longer side fits, on black. It is never
squeezed: the shape of a lesion is one of its criteria. Transparent pixels become black. Of several pages or frames, the first counts; EXIF
orientation is applied.

A picture of more than 8 bits keeps its levels until a network's input is made of it: 65,535 is white then. Grey images of more than 8 bits do not say
how many of them they use, so it is taken from their largest value: the first of `WHITES` that is not below it becomes white, 0 black. Unlike the
image's own minimum and maximum, this gives images of one scanner one scale as long as each uses more than a quarter of the range, and leaves 64
of 256 grey levels or more where any value is above 255. Pixels without a known range (floating point, below 0, above 65535) are refused. Of
colour of 16 bits Pillow keeps the upper 8, which is the same window of 65535; where they hold next to nothing the image is refused.
"""

import hashlib
import io
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import PIL
from numpy.typing import DTypeLike, NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import BITSPERSAMPLE, PHOTOMETRIC_INTERPRETATION, PLANAR_CONFIGURATION, TiffImageFile

Fit = Literal["Crop", "Pad"]
"""How an image becomes square: Crop cuts the middle out, Pad keeps all of it."""

MOST_BYTES = 256 * 2**20
"""Largest file that is read."""
MOST_PIXELS = 50_000_000
"""Largest image that is decoded (a decompression bomb is a small file with more)."""

FORMATS: Mapping[str, tuple[str, ...]] = {
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "JPEG": (".jpeg", ".jpg"),
    "JPEG2000": (".jp2",),
    "PNG": (".png",),
    "PPM": (".pgm", ".ppm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
"""Pillow's names of the formats that are read, with their suffixes in lower case. No other parser sees a file, whatever its content: that of
PostScript, for one, would start another program."""
SUFFIXES = frozenset(suffix for suffixes in FORMATS.values() for suffix in suffixes)
"""Files that count as images, in lower case."""
WHITES = (255, 1023, 4095, 16383, 65535)
"""White of grey images of more than 8 bits: what 8, 10, 12, 14 and 16 bits hold."""

RULES = 2
"""Raised when this module makes other pixels of a file than before."""
DECODER = f"Pillow {PIL.__version__}, rules {RULES}"
"""What decodes the files of `FORMATS`: pixels of another version may differ."""
FEW_VALUES = 8
"""A picture of so many different pixels or fewer shows no tissue: it is a mask, or drawn."""
_OVERLAY = 0.001
"""Share of pixels far above a window that do not widen it: burnt-in marks."""
_NOISE = 2
"""Levels of 255 by which compression changes a picture of one value."""

_LUMA = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in grey (ITU-R BT.601), as Pillow has them."""
ORIENTATION = 0x0112
"""EXIF's tag of how an image is turned; 1: not at all."""

_PNG = b"\x89PNG\r\n\x1a\n"
_MOST_TEXTS = 1000
_JPEG = b"\xff\xd8"
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""Begin of a JPEG's segment; zero bytes and restarts belong to a scan."""
_MOST_SEGMENTS = 10_000
_END, _HUFFMAN, _PROGRESSIVE, _SCAN = 0xD9, 0xC4, 0xC2, 0xDA
_HOLE = bytes(512)
_COUNTS = 17
"""Bytes of a Huffman table in front of its values: its kind, and how many values have a code of each length."""

DAMAGE = (
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
class Measured:
    """What a scanner's values mean, of a picture whose pixels are float32.

    Parameters
    ----------
    low, high : float
        Least and largest value that the file's bits can hold, in the units of the pixels; infinite where the file does not say.
    window : callable or None
        The window or lookup table with which the file is to be shown: values to shades of 0 (black) to 1, in the same shape; None: it names none.
    inverted : bool
        Whether large values are dark, as in a radiograph of MONOCHROME1.
    padding : ndarray of bool, shape [h, w], or None
        Where there is no image, as outside of a CT's circle; None: nowhere.
    """

    low: float
    high: float
    window: Callable[[NDArray[np.float32]], NDArray[np.float32]] | None = None
    inverted: bool = False
    padding: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """What a decoder makes of a file: pixels of any size.

    Parameters
    ----------
    pixels : ndarray of uint8 or uint16, shape [h, w] (grey) or [h, w, 3] (RGB), or of float32, shape [h, w]
        Its content, upright; it may be smaller than in the file, but not than the wanted size. Of float32: values in the units of `measured`.
    size : tuple of int
        Width and height in the file.
    mode : str
        Name of the pixel format in the file; of those that Pillow has, Pillow's.
    white : int
        Value that is white, of pixels of uint16; 0 is black. Of uint8 it is 255.
    paged : bool
        Whether the file holds more pages or frames, which are not read.
    above : float
        Share of the pixels that were above `white` in the file, such as overlays and padding; they are white.
    measured : Measured or None
        What the values mean, where the file says it; exactly where pixels are float32.
    facts : tuple of str
        What a site's report counts of the file, such as ``modality CT``; nothing that names a patient, a place or a device.
    """

    pixels: NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.float32]
    size: tuple[int, int]
    mode: str
    white: int = 255
    paged: bool = False
    above: float = 0.0
    measured: Measured | None = None
    facts: tuple[str, ...] = ()


Intensity = Callable[[Picture], NDArray[np.float32] | None]
"""Shades of 0 (black) to 1 (white) of a picture, in its shape, before large values are made dark where they are; None: by its bits."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a network takes.

    Parameters
    ----------
    side : int
        Height and width in pixels.
    channels : int
        1 for grey, 3 for RGB.
    intensity : callable or None
        Which values become black and white; None: those that the file's bits can hold.
    fit : str
        How a picture becomes square: the middle of it is cropped, or all of it is padded with black.
    """

    side: int
    channels: int
    intensity: Intensity | None = None
    fit: Fit = "Crop"


@dataclass(frozen=True, slots=True)
class Decoded:
    """One decoded image, as a network takes it.

    Parameters
    ----------
    pixels : ndarray of uint8, or of uint16 where the picture has more levels, shape [channels, size, size]
        Its content; white is 255 or 65535.
    size : tuple of int
        Width and height in the file.
    mode : str
        Pillow's name of the pixel format in the file.
    digest : bytes
        BLAKE2b of the file's bytes.
    white : int or None
        Value that became white; None where a pixel has no more than 8 bits.
    paged : bool
        Whether the file holds more pages or frames, which are not read.
    decoder : str
        What decoded it, with its version.
    few_values : bool
        Whether it has at most `FEW_VALUES` different pixels, as masks have.
    blank : bool
        Whether it has one value everywhere.
    above : float
        Share of the pixels that were above `white` in the file.
    facts : tuple of str
        As of `Picture`.
    upright : tuple of int
        Width and height as it is seen, in pixels of the file.
    """

    pixels: NDArray[np.uint8] | NDArray[np.uint16]
    size: tuple[int, int]
    mode: str
    digest: bytes
    white: int | None = None
    paged: bool = False
    decoder: str = DECODER
    few_values: bool = False
    blank: bool = False
    above: float = 0.0
    facts: tuple[str, ...] = ()
    upright: tuple[int, int] = (0, 0)


class RefusedImageError(Exception):
    """Content that is not decoded: a reason of `anchorage.learning.data.listing.REASONS` and what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def decode_array(array: NDArray[np.uint8] | NDArray[np.uint16], wanted: Input) -> Decoded:
    """Fit pixels to a model, as those of a file.

    Parameters
    ----------
    array : ndarray of uint8, shape [h, w], [h, w, 3] or [h, w, 4], or of uint16, shape [h, w]
        Pixels of any size.
    wanted : Input
        What the model takes.

    Raises
    ------
    RefusedImageError
        It has another shape or dtype, or too many pixels.
    """
    colour = array.ndim == 3 and array.shape[-1] in (3, 4)
    if not (array.ndim == 2 and array.dtype in (np.uint8, np.uint16)) and not (colour and array.dtype == np.uint8):
        raise RefusedImageError("Unsupported", f"{array.dtype} of shape {list(array.shape)}, which is no image")
    height, width = array.shape[:2]
    if not 0 < width * height <= MOST_PIXELS:
        raise _too_many_pixels(f"{width}×{height} pixels")
    image = Image.fromarray(array)
    if image.mode.startswith("I"):
        pixels, white, above = _with_levels(image, negative=False)
        picture = Picture(pixels, image.size, image.mode, white, above=above)
    else:
        picture = Picture(_opaque(image, wanted.channels), image.size, image.mode)
    return fit_picture(picture, wanted, hashlib.blake2b(array.tobytes()).digest(), DECODER)


def read_content(source: Path | None, most: int | None = None) -> bytes:
    """Read a file whole.

    Parameters
    ----------
    source : Path or None
        The file; None: there is none.
    most : int or None
        Bytes that it may have; None: `MOST_BYTES`.

    Raises
    ------
    RefusedImageError
        It is not there, empty, too large, or cannot be read.
    """
    most = MOST_BYTES if most is None else most
    content = read_beginning(source, most + 1)
    if len(content) > most:
        raise RefusedImageError("TooLarge", f"more than {most // 2**20} MiB")
    return content


def read_beginning(source: Path | None, count: int) -> bytes:
    """Read the first bytes of a file, at most `count`.

    Raises
    ------
    RefusedImageError
        It is not there, empty, or cannot be read.
    """
    if source is None:
        raise RefusedImageError("Missing", "no such file")
    try:
        with open(source, "rb", opener=regular_opener) as file:
            # asked for no more than there is: read(count) would reserve so many bytes, of which a file needs few
            content = file.read(min(count, os.fstat(file.fileno()).st_size + 1))
    except FileNotFoundError as error:
        raise RefusedImageError("Missing", "no such file") from error
    except PermissionError as error:
        raise RefusedImageError("Unreadable", "the file may not be read") from error
    except OSError as error:
        raise RefusedImageError("Damaged", f"cannot be read: {error.strerror}") from error
    if not content:
        raise RefusedImageError("Empty", "0 bytes")
    return content


def regular_opener(path: str, flags: int) -> int:
    """Open a file as `open` asks its opener to, at once: as `anchorage.api.regular_files` does, which this module cannot import.

    Raises
    ------
    RefusedImageError
        It is a named pipe, a socket or a device.
    OSError
        It is not there, or may not be read.
    """
    _refuse_irregular(os.stat(path).st_mode)  # noqa: PTH116 - a Path takes longer to make
    try:
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except BlockingIOError:  # a file server holds a lease on it, which ends within the system's bound
        handle = os.open(path, flags)
    try:
        _refuse_irregular(os.fstat(handle).st_mode)  # the name may have become another one's meanwhile
    except RefusedImageError:
        os.close(handle)
        raise
    return handle


def _refuse_irregular(mode: int) -> None:
    for is_kind, kind in ((stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket")):
        if is_kind(mode):
            raise RefusedImageError("Unsupported", f"{kind}, not a regular file")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise RefusedImageError("Unsupported", "a device, not a regular file")


def decode_bytes(content: bytes, wanted: Input) -> Decoded:
    """Decode the content of an image file of one of `FORMATS`, and fit it to a model.

    Parameters
    ----------
    content : bytes
        The file.
    wanted : Input
        What the model takes.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    """
    picture = open_picture(content, wanted.side, wanted.channels)
    return fit_picture(picture, wanted, hashlib.blake2b(content).digest(), DECODER)


def open_picture(content: bytes, image_size: int, channels: int) -> Picture:
    """Decode the content of an image file by Pillow.

    Parameters
    ----------
    content : bytes
        The file; one of `FORMATS`.
    image_size : int
        Height and width to which it will be fitted, pixels; a JPEG that is much larger is decoded at a fraction of its size.
    channels : int
        1 for grey, 3 for RGB; grey of more than 8 bits stays grey.

    Raises
    ------
    RefusedImageError
        It cannot be used.
    """
    try:
        try:
            return _open(content, image_size, channels)
        except ValueError:
            if (shorter := _without_texts(content)) is content:
                raise
            return _open(shorter, image_size, channels)
    except Image.DecompressionBombError as error:
        raise _too_many_pixels(str(error).split(",")[0]) from error
    except UnidentifiedImageError as error:
        raise not_an_image(content) from error
    except (*DAMAGE, struct.error, zlib.error) as error:
        raise RefusedImageError("Damaged", str(error) or type(error).__name__) from error


def _open(content: bytes, image_size: int, channels: int) -> Picture:
    """Do what `open_picture` does; raise what Pillow raises."""
    with Image.open(io.BytesIO(content), formats=tuple(FORMATS)) as image:
        size, mode, paged = image.size, image.mode, bool(getattr(image, "is_animated", False))
        if size[0] * size[1] > MOST_PIXELS:
            raise _too_many_pixels(f"{size[0]}×{size[1]} pixels")
        deep, negative = _is_deep_colour(image), _is_negative(image)
        image.draft("L" if channels == 1 else "RGB", (image_size, image_size))
        image.load()
        if content.startswith(_JPEG):
            _refuse_holes(content)
        upright = ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
        if mode == "F" or mode.startswith("I"):
            levels, white, above = _with_levels(upright, negative)
            return Picture(levels, size, mode, white, paged, above)
        if deep:
            _refuse_dark(upright)
        return Picture(_opaque(upright, channels), size, mode, paged=paged)


def _without_texts(content: bytes) -> bytes:
    """Return a PNG without its texts and colour profile, which Pillow refuses where they are long; anything else as it is."""
    if not content.startswith(_PNG):
        return content
    chunks: list[bytes] = []
    begin, place = 0, len(_PNG)
    while place + 12 <= len(content) and len(chunks) < _MOST_TEXTS:
        end = place + 12 + int.from_bytes(content[place : place + 4])
        if content[place + 4 : place + 8] in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            chunks.append(content[begin:place])
            begin = end
        place = end
    return b"".join(chunks) + content[begin:] if chunks else content


def _orientation(image: Image.Image) -> int:
    """Return how an image is turned; 1, not at all, where that cannot be read."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except (*DAMAGE, struct.error):
        return 1


def _refuse_holes(content: bytes) -> None:
    """Refuse a JPEG that breaks off, or has a hole of zeros, of which libjpeg makes grey without a word.

    Raises
    ------
    RefusedImageError
        It is damaged.
    """
    place, plain = len(_JPEG), True
    for _ in range(_MOST_SEGMENTS):
        if (marker := _MARKER.search(content, place)) is None:
            break
        kind, start = content[marker.end() - 1], marker.end()
        if kind == _END:
            return
        place = start + int.from_bytes(content[start : start + 2])
        plain = plain and kind != _PROGRESSIVE and not (kind == _HUFFMAN and _is_flat_short(content[start + 2 : place]))
        if kind == _SCAN and plain:
            end = _MARKER.search(content, place)
            if (hole := content.find(_HOLE, place, end.start() if end else len(content))) >= 0:
                raise RefusedImageError("Damaged", f"{len(_HOLE)} bytes or more are 0 from byte {hole} on")
    if content.endswith(_HOLE):
        raise RefusedImageError("Damaged", f"the last {len(content) - len(content.rstrip(bytes(1)))} bytes are 0")


def _is_flat_short(tables: bytes) -> bool:
    """Return whether zeros are a code for "nothing more in this block" in one of the Huffman tables, as where much of a picture is flat."""
    while len(tables) > _COUNTS:
        if tables[0] >> 4 and tables[_COUNTS] == 0:
            return True
        tables = tables[_COUNTS + sum(tables[1:_COUNTS]) :]
    return False


def is_recognised(head: bytes) -> bool:
    """Return whether a file that begins so is of one of `FORMATS`."""
    Image.init()
    accepting = (Image.OPEN[name][1] for name in FORMATS)
    return any(accept is not None and accept(head[:16]) is True for accept in accepting)


def not_an_image(content: bytes) -> RefusedImageError:
    """Return the refusal of content that no decoder knows."""
    return RefusedImageError(
        "NotAnImage", "a DICOM file" if content[128:132] == b"DICM" else "no image format that is known"
    )


def _too_many_pixels(detail: str) -> RefusedImageError:
    return RefusedImageError("TooLarge", f"{detail}, at most {MOST_PIXELS} pixels are decoded")


def _with_levels(image: Image.Image, negative: bool) -> tuple[NDArray[np.uint16], int, float]:
    """Return a grey image of more than 8 bits with all its levels, the value that is white, and the share of pixels above that, which are white
    in the result, too; a negative, where 0 is white, is turned round.
    """
    if image.mode == "F":
        raise RefusedImageError("Unsupported", "floating-point pixels, whose range is not known; save it with 16 bits")
    wide = np.asarray(image)
    least, most = int(wide.min()), int(wide.max())
    if least < 0 or most > WHITES[-1]:
        detail = f"pixels from {least} to {most}; save it with 16 bits, 0 to {WHITES[-1]}, such as CT with 1024 added"
        raise RefusedImageError("Unsupported", detail)
    levels = wide.astype(np.uint16)
    white, above = _window(levels, most)
    levels = np.minimum(levels, np.uint16(white)) if above else levels
    return (np.uint16(white) - levels if negative else levels), white, above


def _window(levels: NDArray[np.uint16], most: int) -> tuple[int, float]:
    """Return which of `WHITES` is white, and the share of pixels above it.

    A smaller window than that of the largest value is taken where that is at least four times as far up, and next to nothing lies above the
    smaller one (marks), or a single value of 16 bits (padding).
    """
    widest = next(place for place, white in enumerate(WHITES) if most <= white)
    for white in WHITES[1:widest]:  # 255 is no window of more than 8 bits: what stays below it is dark, not overlaid
        if most < 4 * white:
            break
        above = np.count_nonzero(levels > white)
        padded = most > WHITES[-2] and above == np.count_nonzero(levels == most)
        if above <= _OVERLAY * levels.size or padded:
            return white, above / levels.size
    return WHITES[widest], 0.0


def _is_negative(image: Image.Image) -> bool:
    """Return whether a file not yet loaded says that 0 is white, of which Pillow takes no notice where pixels have 16 bits."""
    return isinstance(image, TiffImageFile) and image.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0


def _is_deep_colour(image: Image.Image) -> bool:
    """Return whether a file not yet loaded has colour (or grey with transparency) of 16 bits, of which Pillow keeps the upper 8.

    Raises
    ------
    RefusedImageError
        Its channels lie one after the other, which Pillow reads wrongly.
    """
    if isinstance(image, TiffImageFile):
        deep = len(image.getbands()) > 1 and max(image.tag_v2.get(BITSPERSAMPLE, (1,))) > 8
        if deep and image.tag_v2.get(PLANAR_CONFIGURATION) == 2:
            raise RefusedImageError("Unsupported", "colour of 16 bits, a plane per channel; save it with 8 bits")
        return deep
    arguments = image.tile[0].args if isinstance(image, ImageFile) and image.tile else None
    if isinstance(arguments, str):
        return image.format == "PNG" and len(image.getbands()) > 1 and ";16" in arguments
    return image.format == "PPM" and arguments == ("RGB", 65535)


def _refuse_dark(image: Image.Image) -> None:
    """Refuse what the upper 8 of 16 bits tell too little of.

    Raises
    ------
    RefusedImageError
        Grey of this range would have a narrower window, which is lost with the lower bits.
    """
    most = max(np.asarray(image.getchannel(band)).max() for band in image.getbands() if band != "A")
    if most < 64:
        detail = f"colour of 16 bits, of which the upper 8 are read, but they reach {most} of 255; save it with 8 bits"
        raise RefusedImageError("Unsupported", detail)


def _opaque(image: Image.Image, channels: int) -> NDArray[np.uint8]:
    """Return an image of 8 bits as grey [h, w] or RGB [h, w, 3]; what is transparent becomes black."""
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, (0, 0, 0, 255)), rgba)
    mode = "L" if channels == 1 else "RGB"
    return np.asarray(image if image.mode == mode else image.convert(mode), dtype=np.uint8)


def fit_picture(picture: Picture, wanted: Input, digest: bytes, decoder: str) -> Decoded:
    """Fit a picture to a model: shades by the model's intensity, then bilinear with antialiasing: shorter side fitted and centre cropped, or longer
    side fitted, on black.

    Parameters
    ----------
    picture : Picture
        The picture.
    wanted : Input
        What the model takes.
    digest : bytes
        Of the file's bytes.
    decoder : str
        What decoded it, with its version.

    Raises
    ------
    RefusedImageError
        Its values have no known range, and the model's intensity needs one.
    """
    few_values = _has_few_values(picture.pixels)
    shown, white = _shades(picture, wanted.intensity)
    deep = shown.pixels.dtype == np.uint16
    pixels: NDArray[Any] = _planes_of_levels(shown, wanted) if deep else shown.pixels
    if wanted.channels == 1 and pixels.ndim == 3:
        pixels = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
    if pixels.shape[:2] != (wanted.side, wanted.side):
        pixels = _fit(Image.fromarray(np.ascontiguousarray(pixels)), wanted.side, wanted.fit, upright_size(picture))
    planar = (
        np.broadcast_to(pixels, (wanted.channels, *pixels.shape)) if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    )
    return Decoded(
        np.ascontiguousarray(planar),
        picture.size,
        picture.mode,
        digest,
        white,
        picture.paged,
        decoder,
        few_values,
        _is_blank(shown),
        picture.above,
        picture.facts,
        upright_size(picture),
    )


def _shades(picture: Picture, intensity: Intensity | None) -> tuple[Picture, int | None]:
    """Return a picture of uint8 or uint16: as it is where its bits say what is white, else with the shades that an intensity gives.

    Behind it the value that is white by the bits; None where there are no more than 8 of them, or an intensity counts.
    """
    shades = intensity(picture) if intensity is not None else None
    measured, white = picture.measured, None
    if shades is None:
        if measured is None:
            return picture, picture.white if picture.pixels.dtype == np.uint16 else None
        if not measured.high - measured.low < np.inf:
            detail = "values whose range is not known; set spec.model.intensity to window, percentiles or zScore"
            raise RefusedImageError("Unsupported", detail)
        shades = (picture.pixels - np.float32(measured.low)) / np.float32(measured.high - measured.low)
        white = round(measured.high - measured.low)
    if measured is not None and measured.inverted:
        shades = 1 - shades
    if measured is not None and measured.padding is not None:
        shades = np.where(measured.padding, np.float32(0), shades)
    few = white is not None and white <= 255
    levels = np.rint(shades.astype(np.float64).clip(0, 1) * (255 if few else 65535)).astype(
        np.uint8 if few else np.uint16
    )
    return replace(picture, pixels=levels, white=255 if few else 65535, measured=None), None if few else white


def _sample_of(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return about 1,000 pixels, which mostly tell what is asked, [1, n] or [3, n]."""
    rows, columns = (max(1, side // 32) for side in pixels.shape[:2])
    return _channel_rows(pixels[::rows, ::columns])


def _channel_rows(pixels: NDArray[Any]) -> NDArray[Any]:
    """Return pixels [h, w] as [1, h w], [h, w, 3] as [3, h w]."""
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    return np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1)).reshape(channels, -1)


def _has_few_values(pixels: NDArray[Any]) -> bool:
    """Return whether pixels have at most `FEW_VALUES` values or colours."""
    if pixels.dtype.kind == "u" and len(set(zip(*_sample_of(pixels)[:, ::4].tolist(), strict=True))) > FEW_VALUES:
        return False  # np.unique takes ten times as long
    colours = pixels.reshape(-1, pixels.shape[2]) @ np.array((65536, 256, 1)) if pixels.ndim == 3 else pixels
    return len(np.unique(colours)) <= FEW_VALUES


def _is_blank(picture: Picture) -> bool:
    """Return whether a picture has one value everywhere."""
    white = picture.white if picture.pixels.dtype == np.uint16 else 255
    for part in (_sample_of, _channel_rows):
        rows = part(picture.pixels)
        least, most = rows.min(1).astype(np.int64), rows.max(1).astype(np.int64)
        if ((most - least) * 255 > _NOISE * white).any():
            return False
    return True


def _planes_of_levels(picture: Picture, wanted: Input) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return a picture of more than 8 bits fitted, with as many levels as it may have."""
    most = 255 if picture.white <= 255 else 65535
    values = picture.pixels.astype(np.float32)
    if values.ndim == 3 and wanted.channels == 1:
        values = values @ np.array(_LUMA, np.float32)
    size = upright_size(picture)
    if values.ndim == 2:
        sized = _fit(Image.fromarray(values), wanted.side, wanted.fit, size)
    else:
        planes = np.ascontiguousarray(values.transpose(2, 0, 1))
        sized = np.stack([_fit(Image.fromarray(plane), wanted.side, wanted.fit, size) for plane in planes], 2)
    levels = np.rint(sized.astype(np.float64) * most / picture.white).clip(0, most)
    return levels.astype(np.uint8) if most == 255 else levels.astype(np.uint16)


def with_levels_of(pixels: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return pixels of uint8 or uint16 as the other of the two, where they are not of it yet: 255 is 65535."""
    if pixels.dtype == dtype:
        return pixels
    if dtype == np.uint16:
        deep: NDArray[np.uint16] = np.multiply(pixels, 257, dtype=np.uint16)
        return deep
    return np.rint(pixels / np.float32(257)).astype(np.uint8)


def upright_size(picture: Picture) -> tuple[int, int]:
    """Return width and height of a picture as it is seen, in pixels of its file."""
    height, width = picture.pixels.shape[:2]
    wide, high = picture.size
    return (wide, high) if (width > height) == (wide > high) else (high, wide)


def fit_mask(mask: NDArray[np.uint8], image_size: int, fit: Fit, outside: int) -> NDArray[np.uint8]:
    """Fit a mask uint8 [h, w] as the image that it is of, by the nearest pixel; `outside` is what lies beside the image."""
    size = (mask.shape[1], mask.shape[0])
    nearest = Image.Resampling.NEAREST
    return np.asarray(_fit_image(Image.fromarray(mask), image_size, fit, size, nearest, outside), np.uint8)


def unfit_mask(mask: NDArray[np.uint8], size: tuple[int, int], fit: Fit) -> NDArray[np.uint8]:
    """Return a mask uint8 [side, side] on the grid of the image that was fitted, uint8 [h, w], by the nearest pixel; what was cut off is 0.

    Parameters
    ----------
    mask : ndarray
        Of the fitted image.
    size : tuple of int
        The image's width and height, at most `MOST_PIXELS` together.
    fit : str
        How it became square.
    """
    side, nearest = mask.shape[0], Image.Resampling.NEAREST
    image = Image.fromarray(mask)
    if fit == "Pad":
        margin, top, width, height = _padded_box(size, side)
        return np.asarray(image.crop((margin, top, margin + width, top + height)).resize(size, nearest), np.uint8)
    shorter = min(size)
    canvas = Image.new("L", size)
    canvas.paste(image.resize((shorter, shorter), nearest), ((size[0] - shorter) // 2, (size[1] - shorter) // 2))
    return np.asarray(canvas, np.uint8)


def _padded_box(size: tuple[int, int], side: int) -> tuple[int, int, int, int]:
    """Return left, top, width and height of a padded image of this width and height, whose longer side is the square's."""
    longer = max(size)
    width, height = (max(1, (2 * length * side + longer) // (2 * longer)) for length in size)
    return (side - width) // 2, (side - height) // 2, width, height


def _fit(image: Image.Image, image_size: int, fit: Fit, size: tuple[int, int]) -> NDArray[Any]:
    return np.asarray(_fit_image(image, image_size, fit, size, Image.Resampling.BILINEAR, 0))


def _fit_image(
    image: Image.Image, image_size: int, fit: Fit, size: tuple[int, int], method: Image.Resampling, outside: int
) -> Image.Image:
    """Return a square image; `size` is the file's width and height, which an image that was decoded smaller only has in proportion."""
    if fit == "Crop":
        return ImageOps.fit(image, (image_size, image_size), method)
    margin, top, width, height = _padded_box(size, image_size)
    canvas = Image.new(image.mode, (image_size, image_size), (outside,) * len(image.getbands()))
    canvas.paste(image.resize((width, height), method), (margin, top))
    return canvas
