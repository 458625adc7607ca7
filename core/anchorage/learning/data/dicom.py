"""DICOM files to pictures: what their headers say, and values as the standard's modality transformation makes them (PS3.3 C.7.6.3, C.11.1, C.11.2).

Only elements of two lists are read of a header, so that no patient's name is in memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_color_lut
from pydicom.uid import UID

from anchorage.learning.data import dicom_pixels
from anchorage.learning.data.decoding import Measured, Picture, RefusedImageError
from anchorage.learning.data.dicom_pixels import (
    MOST_FRAMES,
    NATIVE,
    RLE,
    UNREADABLE,
    PixelData,
    check_bounds,
    inflate,
    pixel_data_of,
    stored_values,
)
from anchorage.learning.data.file_header import Caution, Header

RULES = 1
"""Raised when this module makes other pixels of a file than before."""
_BYTE = 8
_IDENTITY = (
    "SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "PatientID", "IssuerOfPatientID", "AccessionNumber", "NumberOfFrames",
    "BurnedInAnnotation", "PresentationIntentType", "Rows", "ImageType",
)  # fmt: skip

_STORAGE = "1.2.840.10008.5.1.4.1.1."
_RADIOGRAPHS = ("1", "1.1", "1.1.1", "1.2", "1.2.1", "1.3", "1.3.1")
_CAPTURES = ("7", "7.1", "7.2", "7.3", "7.4")
_WITH_TEXT = (
    "6", "6.1", "3", "3.1", *_CAPTURES, "12.1", "12.1.1", "12.2", "12.2.1", "77.1.1", "77.1.1.1", "77.1.2", "77.1.2.1",
    "77.1.4", "77.1.4.1",
)  # fmt: skip
"""Ultrasound, secondary captures, angiography and fluoroscopy, visible light: text is often burned into their pixels."""
IMAGES = frozenset(
    _STORAGE + end
    for end in (
        *_RADIOGRAPHS, *_WITH_TEXT, "2", "2.1", "2.2", "4", "4.1", "4.3", "4.4", "13.1.1", "13.1.2", "13.1.3", "14.1", "14.2", "20", "128", "128.1",
        "130",         "77.1.3", "77.1.5.1", "77.1.5.2", "77.1.5.4", "77.1.7",
    )
)  # fmt: skip
"""Classes of objects (SOP classes) that are images."""
CAPTURES = frozenset(_STORAGE + end for end in _CAPTURES)
"""Those that are made of other images, such as pictures of a screen."""
_MAY_HAVE_TEXT = frozenset(_STORAGE + end for end in _WITH_TEXT)
_TILES = _STORAGE + "77.1.6"
_MODALITIES = frozenset(
    (
        "BI", "CR", "CT", "DG", "DMS", "DX", "ECG", "ES", "GM", "IO", "IVOCT", "IVUS", "LS", "MG", "MR", "NM", "OAM", "OCT", "OP", "OPM", "OPT",
        "OPV", "OT", "PT", "PX", "RF", "RG", "RTIMAGE", "SC", "SEG", "SM", "TG", "US", "VA", "XA", "XC",
    )
)  # fmt: skip
"""Modalities of the standard (PS3.3 C.7.3.1.1.1) that are told; others count as other."""


def version() -> str:
    """Return the versions of all that decodes."""
    return f"{dicom_pixels.version()}, rules {RULES}"


def header_of(file: BinaryIO) -> Header:
    """Return what a file says of itself.

    Raises
    ------
    RefusedImageError
        It is damaged.
    """
    try:
        dataset = pydicom.dcmread(inflate(file), stop_before_pixels=True, force=True, specific_tags=list(_IDENTITY))
        kind = str(dataset.get("SOPClassUID", "")).strip()
        text = {name: str(dataset.get(name) or "").strip(" \0") for name in _IDENTITY}
        cautions = {Caution.BURNED_IN_TEXT} if text["BurnedInAnnotation"] == "YES" else set[Caution]()
        if text["PresentationIntentType"] == "FOR PROCESSING":
            cautions.add(Caution.FOR_PROCESSING)
        return Header(
            kind=_kind_of(kind),
            image=kind in IMAGES or (not kind and bool(text["Rows"])),
            patient=_patient_of(text["PatientID"], text["IssuerOfPatientID"]),
            study=text["StudyInstanceUID"],
            series=text["SeriesInstanceUID"],
            instance=text["SOPInstanceUID"],
            accession=text["AccessionNumber"],
            frames=min(max(1, int(text["NumberOfFrames"] or 1)), MOST_FRAMES),
            cautions=frozenset(cautions),
            may_have_text=kind in _MAY_HAVE_TEXT and not text["BurnedInAnnotation"],
            in_volumes=kind not in CAPTURES and "LOCALIZER" not in (dataset.get("ImageType") or ()),
        )
    except UNREADABLE as error:
        raise _damage_error(error) from None


def _patient_of(number: str, issuer: str) -> str:
    """Return a patient's identifier with who gave it: two of different issuers are different."""
    return f"{number} ({issuer})" if number and issuer else number


def picture_of(content: bytes, frame: int) -> Picture:
    """Decode a frame, from 0, of a file.

    Raises
    ------
    RefusedImageError
        It is damaged, too large, or has what is not read.
    """
    return next(pictures_of(content, [frame]))


def pictures_of(content: bytes, frames: Iterable[int]) -> Iterator[Picture]:
    """Decode frames, from 0, of a file whose header is read once. Raises what `picture_of` raises."""
    try:
        pixels = pixel_data_of(content)
        _refuse_others(pixels.dataset)
        for frame in frames:
            check_bounds(pixels, frame)
            yield _picture(pixels, frame)
    except MemoryError:
        raise RefusedImageError("TooLarge", "the memory is not enough to decode it") from None
    except UNREADABLE as error:
        raise _damage_error(error) from None


def _damage_error(error: BaseException) -> RefusedImageError:
    """Return the refusal of a file that a library could not read; of its words the kind of error alone is told."""
    return RefusedImageError("Damaged", f"its header or pixels cannot be read ({type(error).__name__})")


def _refuse_others(dataset: Dataset) -> None:
    """Refuse objects that are no images.

    Raises
    ------
    RefusedImageError
        It is one.
    """
    kind = str(dataset.get("SOPClassUID", "")).strip()
    if kind and kind not in IMAGES:
        tiles = "a whole-slide image, which is stored in tiles"
        raise RefusedImageError(
            "Unsupported", tiles if kind == _TILES else f"{_kind_of(kind)}, which is no image that is read"
        )


def _kind_of(uid: str) -> str:
    """Return what objects of a class are, in the words of the standard."""
    return f"DICOM {UID(uid).name}" if UID(uid).type == "SOP Class" else "DICOM of another class"


def _picture(pixels: PixelData, frame: int) -> Picture:
    dataset, photometric = pixels.dataset, str(pixels.dataset.get("PhotometricInterpretation", ""))
    size = (int(dataset.Columns), int(dataset.Rows))
    paged = int(dataset.get("NumberOfFrames") or 1) > 1
    facts = _facts(pixels, photometric)
    if photometric in ("MONOCHROME1", "MONOCHROME2"):
        values, measured = _measure(pixels, frame, photometric == "MONOCHROME1")
        return Picture(values, size, photometric, paged=paged, measured=measured, facts=facts)
    if photometric == "PALETTE COLOR":
        colours = apply_color_lut(stored_values(pixels, frame, raw=True), dataset)
        wide = colours.dtype.itemsize > 1
        return Picture(
            (colours >> 8 if wide else colours).astype(np.uint8), size, photometric, paged=paged, facts=facts
        )
    if photometric not in ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT"):
        raise RefusedImageError("Unsupported", "a photometric interpretation that is not read")
    colours = stored_values(pixels, frame, raw=False)
    bits = int(dataset.BitsStored)
    if colours.dtype == np.uint8 and bits == _BYTE:
        return Picture(colours, size, photometric, paged=paged, facts=facts)
    if colours.dtype not in (np.uint8, np.uint16) or not 1 < bits <= 16:
        raise RefusedImageError("Unsupported", f"colour of {bits} bits")
    return Picture(colours.astype(np.uint16), size, photometric, 2**bits - 1, paged, facts=facts)


def _measure(pixels: PixelData, frame: int, inverted: bool) -> tuple[NDArray[np.float32], Measured]:
    """Return the values of a grey frame in its units, float32 [h, w], and what they mean."""
    dataset = pixels.dataset
    stored = stored_values(pixels, frame, raw=True)
    padding = _padding(stored, dataset)
    bits, signed = int(dataset.BitsStored), int(dataset.get("PixelRepresentation", 0)) == 1
    if not 0 < bits <= int(dataset.BitsAllocated):
        raise RefusedImageError("Damaged", f"{bits} bits stored of {dataset.BitsAllocated}")
    if pixels.syntax in (*NATIVE, RLE) and bits < int(dataset.BitsAllocated):
        shift = int(dataset.get("HighBit", bits - 1)) + 1 - bits
        stored = (stored.astype(np.int64) >> max(0, shift)) & (2**bits - 1)  # overlays may lie above the highest bit
        stored = np.where(stored >> (bits - 1), stored - 2**bits, stored) if signed else stored
    ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    values, low, high = _rescale(
        stored, ends, functional_group(dataset, frame, "PixelValueTransformationSequence"), dataset, signed
    )
    shown = _display_function(functional_group(dataset, frame, "FrameVOILUTSequence"), dataset, low < 0)
    return values, Measured(low, high, shown, inverted, padding)


def _padding(stored: NDArray[Any], dataset: Dataset) -> NDArray[np.bool_] | None:
    """Return where stored values are padding; None: nowhere."""
    value = dataset.get("PixelPaddingValue")
    if not isinstance(value, int):
        return None
    limit = dataset.get("PixelPaddingRangeLimit")
    least, most = sorted((value, limit if isinstance(limit, int) else value))
    padding = (stored >= least) & (stored <= most)
    return padding if padding.any() else None


def functional_group(dataset: Dataset, frame: int, name: str) -> Dataset | None:
    """Return the functional group of a frame, its own or else that of all frames; None: the file has none of this name."""
    of_frames, shared = (
        dataset.get("PerFrameFunctionalGroupsSequence") or (),
        dataset.get("SharedFunctionalGroupsSequence") or (),
    )
    for groups in (*of_frames[frame : frame + 1], *shared[:1]):
        if group := groups.get(name):
            first: Dataset = group[0]
            return first
    return None


def _rescale(
    stored: NDArray[Any], ends: tuple[int, int], group: Dataset | None, dataset: Dataset, signed: bool
) -> tuple[NDArray[np.float32], float, float]:
    """Apply the modality transformation; return the values, and the least and largest that there can be."""
    if group is None and (tables := dataset.get("ModalityLUTSequence")):
        table, first, bits = _table(tables[0], signed)
        return table[np.clip(stored.astype(np.int64) - first, 0, len(table) - 1)], 0, 2**bits - 1
    source = dataset if group is None else group
    slope, intercept = float(source.get("RescaleSlope", 1) or 1), float(source.get("RescaleIntercept", 0) or 0)
    if not (np.isfinite(slope) and np.isfinite(intercept)):
        raise RefusedImageError("Damaged", "its rescaling is no number")
    values = stored.astype(np.float32) * np.float32(slope) + np.float32(intercept)
    low, high = sorted(slope * end + intercept for end in ends)
    return values, low, high


def _table(item: Dataset, signed: bool) -> tuple[NDArray[np.float32], int, int]:
    """Return the entries of a lookup table, the value of the first, and the bits of an entry."""
    count, first, bits = (int(number) for number in item.LUTDescriptor)
    count, first = count or 65536, first - 65536 if signed and first > 32767 else first
    data = item.LUTData
    if isinstance(data, bytes | bytearray):
        data = np.frombuffer(data, np.uint8 if len(data) < 2 * count else np.uint16)
    entries = np.asarray(data, np.float32).reshape(-1)[:count]
    if len(entries) < count or not 0 < bits <= 16:
        raise RefusedImageError("Damaged", "a lookup table that is shorter than it says")
    return entries, first, bits


def _display_function(
    group: Dataset | None, dataset: Dataset, signed: bool
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]] | None:
    """Return the lookup table or first window with which a file is to be shown; None: it names none."""
    if group is None and (tables := dataset.get("VOILUTSequence")):
        table, first, bits = _table(tables[0], signed)
        scaled = table / np.float32(2**bits - 1)
        return lambda values: scaled[np.clip(np.rint(values).astype(np.int64) - first, 0, len(scaled) - 1)]
    source = dataset if group is None else group
    centre, width = _first(source.get("WindowCenter")), _first(source.get("WindowWidth"))
    if centre is None or width is None:
        return None
    function = str(source.get("VOILUTFunction") or "LINEAR")
    return lambda values: apply_window(values, float(centre), float(width), function)


def _first(value: Any) -> Any:
    """Return the first of several values; None where there is none."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[0] if len(value) else None
    return value if value not in (None, "") else None


def apply_window(values: NDArray[np.float32], centre: float, width: float, function: str) -> NDArray[np.float32]:
    """Return shades of 0 to 1 (PS3.3 C.11.2.1.2 and C.11.2.1.3).

    Parameters
    ----------
    values : ndarray of float32
        In the units of the window.
    centre, width : float
        Of the window.
    function : str
        ``LINEAR``, ``LINEAR_EXACT`` or ``SIGMOID``.

    Raises
    ------
    RefusedImageError
        The window has no such width, or the function is another.
    """
    c, w = np.float32(centre), np.float32(width)
    if not (np.isfinite(c) and np.isfinite(w)) or w <= 0 or (function == "LINEAR" and w < 1):
        raise RefusedImageError("Damaged", f"a window of width {width:g}")
    if function == "SIGMOID":
        sigmoid: NDArray[np.float32] = 1 / (1 + np.exp((-4 * (values - c) / w).clip(-80, 80)))
        return sigmoid
    if function == "LINEAR_EXACT":
        return ((values - c) / w + np.float32(0.5)).clip(0, 1)
    if function != "LINEAR":
        raise RefusedImageError("Unsupported", "a window function that the standard does not have")
    if w == 1:
        return (values > c - np.float32(0.5)).astype(np.float32)
    return ((values - (c - np.float32(0.5))) / (w - 1) + np.float32(0.5)).clip(0, 1)


def _facts(pixels: PixelData, photometric: str) -> tuple[str, ...]:
    """Return what a site's report counts of a file."""
    modality = str(pixels.dataset.get("Modality", "")).strip()
    groups = functional_group(pixels.dataset, 0, "FrameVOILUTSequence")
    shown = "VOILUTSequence" in pixels.dataset or _first((groups or pixels.dataset).get("WindowCenter")) is not None
    known = photometric if re.fullmatch("[A-Z0-9_ ]{1,16}", photometric) else "other"
    return (
        f"modality {modality if modality in _MODALITIES else 'other'}",
        f"transfer syntax {UID(pixels.syntax).name}",
        f"photometric interpretation {known}",
        "window in the file" if shown else "no window in the file",
    )
