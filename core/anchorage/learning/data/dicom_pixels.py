"""The pixel data of DICOM files: found, compared with bounds, and decoded to stored values.

Sizes are compared with bounds before anything is decoded, also those that a compressed frame states itself. Which codec decodes a transfer syntax is
fixed here, so that every site sees the same pixels. Nothing that a library says in an exception is passed on: it may quote a file's values.
"""

import io
import logging
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version as version_of
from typing import Any, BinaryIO

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom import config as pydicom_config
from pydicom.dataset import Dataset
from pydicom.encaps import get_frame
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.filereader import read_dataset, read_preamble
from pydicom.pixels.decoders.base import get_decoder
from pydicom.pixels.processing import convert_color_space
from pydicom.pixels.utils import as_pixel_options
from pydicom.tag import Tag
from pydicom.uid import UID

from anchorage.learning.data.decoding import DAMAGE, MOST_BYTES, MOST_PIXELS, RefusedImageError
from anchorage.learning.data.gdcm_client import decode_by_gdcm

UNREADABLE = (*DAMAGE, struct.error, zlib.error, AssertionError, BytesLengthException, InvalidDicomError)
"""What libraries raise on files that are damaged."""
MOST_FRAMES = 10_000
"""Frames of one file; more are refused before any is decoded."""
logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)  # it quotes values of headers
pydicom_config.settings.reading_validation_mode = pydicom_config.IGNORE
ELEMENTS = (
    "SOPClassUID", "Modality", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames", "Rows", "Columns",
    "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PixelPaddingValue", "PixelPaddingRangeLimit", "RescaleIntercept",
    "RescaleSlope", "ModalityLUTSequence", "VOILUTSequence", "WindowCenter", "WindowWidth", "VOILUTFunction",
    "RedPaletteColorLookupTableDescriptor", "GreenPaletteColorLookupTableDescriptor", "BluePaletteColorLookupTableDescriptor",
    "RedPaletteColorLookupTableData", "GreenPaletteColorLookupTableData", "BluePaletteColorLookupTableData",
    "SegmentedRedPaletteColorLookupTableData", "SegmentedGreenPaletteColorLookupTableData", "SegmentedBluePaletteColorLookupTableData",
    "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence", "ExtendedOffsetTable", "ExtendedOffsetTableLengths",
)  # fmt: skip
_TAGS = [Tag(name) for name in ELEMENTS]

_EXPLICIT, _DEFLATED, _IMPLICIT = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2"
_BIG_ENDIAN, RLE, _EXTENDED = "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4.51"
NATIVE = (_IMPLICIT, _EXPLICIT, _DEFLATED, _BIG_ENDIAN)
_CODECS: Mapping[str, str] = {
    **dict.fromkeys((*NATIVE, RLE), "pydicom"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.50", _EXTENDED), "pillow"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.57", "1.2.840.10008.1.2.4.70"), "gdcm"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.80", "1.2.840.10008.1.2.4.81"), "pyjpegls"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.90", "1.2.840.10008.1.2.4.91"), "pylibjpeg"),
    **dict.fromkeys(("1.2.840.10008.1.2.4.201", "1.2.840.10008.1.2.4.202", "1.2.840.10008.1.2.4.203"), "pylibjpeg"),
}
"""What decodes each transfer syntax that is read."""
_NEWER: Mapping[str, str] = {
    "1.2.840.10008.1.2.8.1": "Deflated Image Frame Compression",
    "1.2.840.10008.1.2.4.110": "JPEG XL Lossless",
    "1.2.840.10008.1.2.4.111": "JPEG XL JPEG Recompression",
    "1.2.840.10008.1.2.4.112": "JPEG XL",
}
"""Transfer syntaxes that pydicom's dictionary does not have yet, which are not read."""
_BYTE = 8
"""JPEG of more bits is decoded by GDCM, since Pillow refuses it."""
_RLE_GROWTH, _RLE_LEAST = 64, 2**20
"""Times by which run lengths can lengthen what is compressed, and bytes of it below which that does no harm."""

_PIXELS = Tag("FloatPixelData")
"""The first tag of pixels, of whatever type."""
_SIZES = ("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "BitsAllocated")
"""Elements whose product is how many bits the pixels have."""
_MOST_HEADER, _BEHIND_PIXELS, _INFLATED_PART = 16 * 2**20, 2**20, 2**18
"""Bytes of a deflated file that may stand before its pixels, and behind them, and that are inflated at once."""
_START_OF_FRAME = re.compile(rb"\xff[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf\xf7]..[\x02-\x10](.{5})", re.DOTALL)
_CODESTREAM = re.compile(rb"\xff\x4f\xff\x51.{4}(.{34})", re.DOTALL)


def version() -> str:
    """Return the versions of the libraries that decode."""
    return f"pydicom {pydicom.__version__}, gdcm {version_of('python-gdcm')}, openjpeg {version_of('pylibjpeg-openjpeg')}, "


@dataclass(frozen=True, slots=True)
class PixelData:
    """The pixel data of a file, not decoded."""

    dataset: Dataset
    """Elements of `ELEMENTS`."""
    syntax: str
    """UID of the transfer syntax."""
    file: BinaryIO
    """The file, inflated."""
    start: int
    """Where the value of the element begins."""
    nbytes: int
    """How many bytes there are of it, at most."""

    def value(self) -> BinaryIO:
        """Return the file at the beginning of the value."""
        self.file.seek(self.start)
        return self.file


def inflate(file: BinaryIO) -> BinaryIO:
    """Return a file that can be read; of one that is deflated as a whole the content, if it has no more than its header says.

    Raises what pydicom raises on the header.

    Raises
    ------
    RefusedImageError
        There is more, or more than any file may have.
    """
    read_preamble(file, force=True)
    meta = _meta_of(file)  # as pydicom does, which inflates without a bound what it takes for deflated
    start = file.tell()
    file.seek(0)
    if meta.get("TransferSyntaxUID") != _DEFLATED:
        return file
    content = file.read()
    result, most = io.BytesIO(), None
    result.write(content[:start].replace(_DEFLATED.encode(), _EXPLICIT.encode().ljust(len(_DEFLATED), b"\0")))
    for part in _inflated_parts(memoryview(content)[start:]):
        result.write(part)
        if most is None and result.tell() > _MOST_HEADER:
            most = _length_by_header(result, start)
        if most is not None and result.tell() > most:
            raise RefusedImageError("TooLarge", "more than its header says when it is inflated")
    result.seek(0)
    return result


def _meta_of(file: BinaryIO) -> Dataset:
    """Return a file's meta information, behind which the file then stands: in explicit VR, else, where its first element has none, in implicit."""
    start = file.tell()
    meta = read_dataset(file, False, True, stop_when=_ends_meta)
    try:
        _ = [meta[tag] for tag in [*meta.keys()][:1]]
    except NotImplementedError:
        file.seek(start)
        meta = read_dataset(file, True, True, stop_when=_ends_meta)
    return meta


def _ends_meta(tag: int, vr: str | None, length: int) -> bool:
    return tag >> 16 != 2


def _inflated_parts(content: memoryview) -> Iterator[bytes]:
    """Yield what raw deflate packed, a bounded number of bytes at a time."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    for place in range(0, len(content), _INFLATED_PART):
        packed: bytes | memoryview = content[place : place + _INFLATED_PART]
        while packed and not unpacker.eof:
            yield unpacker.decompress(packed, _INFLATED_PART)
            packed = unpacker.unconsumed_tail
    yield unpacker.flush()


def _length_by_header(file: BinaryIO, start: int) -> int:
    """Return how many bytes a file, of which there is the beginning, may have by its header, from `start` on; it is at its end, and stays there.

    Raises
    ------
    RefusedImageError
        The header has no end, or says more than any file may have.
    """
    end = file.tell()
    file.seek(start)
    last = -1

    def ends(tag: int, vr: str | None, length: int) -> bool:
        nonlocal last
        last, before = tag, last
        return tag <= before or tag >= _PIXELS  # elements ascend: a bomb of zeros ends at the second

    dataset = read_dataset(file, False, True, stop_when=ends, specific_tags=[Tag(name) for name in _SIZES])
    length = file.tell()
    if length >= end:
        raise RefusedImageError("TooLarge", f"a header of more than {_MOST_HEADER // 2**20} MiB when it is inflated")
    file.seek(end)
    bits = math.prod(int(dataset.get(name) or 1) for name in _SIZES)
    if bits // 8 > MOST_BYTES:
        raise RefusedImageError("TooLarge", f"more than {MOST_BYTES // 2**20} MiB when it is inflated")
    return length + bits // 8 + _BEHIND_PIXELS


def pixel_data_of(content: bytes) -> PixelData:
    """Find the pixel data of a file; nothing is decoded yet. Raises what pydicom raises, and RefusedImageError: its encoding is not read."""
    file: BinaryIO = io.BytesIO(content)
    if _DEFLATED.encode() in content:  # a search costs less than to read the file's header twice
        file = inflate(file)
    dataset = pydicom.dcmread(file, stop_before_pixels=True, force=True, specific_tags=_TAGS)
    implicit, little = dataset.original_encoding
    encoded = _IMPLICIT if implicit else _EXPLICIT if little else _BIG_ENDIAN
    syntax = str(dataset.file_meta.get("TransferSyntaxUID") or encoded).strip()
    if syntax not in _CODECS:
        raise RefusedImageError("TransferSyntax", f"{_name_of(syntax)} is not read")
    order = "<" if little else ">"
    element = file.read(8)
    if len(element) < 8:
        raise RefusedImageError("Unsupported", "it has no pixels")
    if struct.unpack(f"{order}HH", element[:4]) != (0x7FE0, 0x0010):
        raise RefusedImageError("Unsupported", "floating-point pixels, or none")
    length = struct.unpack(f"{order}I", element[4:8] if implicit else file.read(4))[0]
    start = file.tell()
    available = file.seek(0, io.SEEK_END) - start
    return PixelData(dataset, syntax, file, start, min(available, length))


def _name_of(syntax: str) -> str:
    """Return a transfer syntax with its name, where it is one of the standard."""
    known = UID(syntax)
    name = _NEWER.get(syntax) or (known.name if known.type == "Transfer Syntax" else "")
    return f"the transfer syntax {syntax} ({name})" if name else "a transfer syntax that is none of the standard"


def check_bounds(pixels: PixelData, frame: int) -> None:
    """Refuse what is too large, before anything is decoded.

    Raises
    ------
    RefusedImageError
        It is.
    """
    dataset = pixels.dataset
    rows, columns, frames = int(dataset.Rows), int(dataset.Columns), int(dataset.get("NumberOfFrames") or 1)
    if not (0 < rows * columns <= MOST_PIXELS and frames <= MOST_FRAMES):
        most = f"at most {MOST_PIXELS} pixels and {MOST_FRAMES} frames are decoded"
        raise RefusedImageError("TooLarge", f"{columns}×{rows} pixels, {frames} frames; {most}")
    samples = int(dataset.get("SamplesPerPixel", 1))
    if samples not in (1, 3) or int(dataset.BitsAllocated) not in (1, 8, 16, 32) or not 0 <= frame < frames:
        raise RefusedImageError("Unsupported", f"{samples} samples of {dataset.BitsAllocated} bits per pixel")
    frame_bytes = rows * columns * samples * int(dataset.BitsAllocated) // 8
    if pixels.syntax in NATIVE:
        if pixels.nbytes < frame_bytes * frames * (2 / 3 if dataset.PhotometricInterpretation == "YBR_FULL_422" else 1):
            raise RefusedImageError("Damaged", "it ends before its last pixel")
        return
    coded = _coded_frame(pixels, frame)
    if pixels.syntax == RLE:
        if (
            len(coded) > _RLE_LEAST
            and len(coded) * _RLE_GROWTH > 2 * frame_bytes
            and _unpacked_length(coded) > 2 * frame_bytes
        ):
            raise RefusedImageError("TooLarge", "its run lengths make more pixels than its header says")
        return
    sizes = [struct.unpack(">HHB", match[1]) for match in _START_OF_FRAME.finditer(coded, 0, 2**16)]
    if match := _CODESTREAM.search(coded, 0, 2**16):
        right, bottom, left, top, components = struct.unpack(">IIII16xH", match[1])
        sizes = [(bottom - top, right - left, components)]
    if (rows, columns, samples) not in sizes:
        raise RefusedImageError("Damaged", "a frame of another size than its header says")


def _coded_frame(pixels: PixelData, frame: int) -> bytes:
    """Return a frame as it is compressed."""
    dataset = pixels.dataset
    offsets = None
    if "ExtendedOffsetTable" in dataset and "ExtendedOffsetTableLengths" in dataset:
        offsets = (dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths)
    frames = int(dataset.get("NumberOfFrames") or 1)
    return get_frame(pixels.value(), frame, extended_offsets=offsets, number_of_frames=frames)


def _unpacked_length(coded: bytes) -> int:
    """Return how many bytes run lengths (PS3.5 G.3) come to, without making them; behind a header of 64 bytes."""
    place, length = 64, 0
    while place < len(coded):
        count = coded[place]
        length += 257 - count if count > 128 else count + 1 if count < 128 else 0
        place += 2 if count > 128 else count + 2 if count < 128 else 1
    return length


def stored_values(pixels: PixelData, frame: int, *, raw: bool) -> NDArray[Any]:
    """Return the values of a frame, from 0, as they are stored, [h, w] or [h, w, samples]; colours as RGB, unless wanted raw.

    Raises what codecs raise.
    """
    dataset, syntax = pixels.dataset, pixels.syntax
    if (codec := _codec_of(pixels)) == "gdcm":
        return _by_gdcm(pixels, frame, raw=raw)
    options: dict[str, Any] = as_pixel_options(dataset, transfer_syntax_uid=UID(syntax), pixel_keyword="PixelData")
    array, _ = get_decoder(UID(syntax)).as_array(
        pixels.value(), index=frame, raw=raw, decoding_plugin="" if syntax in NATIVE else codec, **options
    )
    return np.asarray(array)


def _codec_of(pixels: PixelData) -> str:
    """Return what decodes a file."""
    deep = pixels.syntax == _EXTENDED and int(pixels.dataset.BitsStored) > _BYTE
    return "gdcm" if deep else _CODECS[pixels.syntax]


def _by_gdcm(pixels: PixelData, frame: int, *, raw: bool) -> NDArray[Any]:
    """Decode a frame of JPEG Lossless, or of 12 bits."""
    dataset = pixels.dataset
    rows, columns, samples = int(dataset.Rows), int(dataset.Columns), int(dataset.get("SamplesPerPixel", 1))
    photometric = str(dataset.PhotometricInterpretation)
    signed = int(dataset.get("PixelRepresentation", 0))
    dtype = np.dtype(f"<{'i' if signed else 'u'}{int(dataset.BitsAllocated) // _BYTE}")
    content = decode_by_gdcm(
        _coded_frame(pixels, frame),
        rows * columns * samples * dtype.itemsize,
        rows=rows,
        columns=columns,
        samples=samples,
        allocated=int(dataset.BitsAllocated),
        stored=12 if pixels.syntax == _EXTENDED else int(dataset.BitsStored),
        signed=signed,
        photometric=photometric if samples > 1 else "MONOCHROME2",
        syntax=pixels.syntax,
    )
    array = np.frombuffer(content, dtype).reshape((rows, columns, samples) if samples > 1 else (rows, columns))
    if raw or photometric not in ("YBR_FULL", "YBR_FULL_422"):
        return array
    return np.asarray(convert_color_space(array, "YBR_FULL", "RGB"))
