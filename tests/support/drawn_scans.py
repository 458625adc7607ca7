"""Draws DICOM and NIfTI files."""

import struct
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from subprocess import run
from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

STORAGE = "1.2.840.10008.5.1.4.1.1."
CT, CR, MR, ULTRASOUND, SEGMENTATION, REPORT = (STORAGE + end for end in ("2", "1", "4", "6.1", "66.4", "88.11"))
ENHANCED_CT, CAPTURE = STORAGE + "2.1", STORAGE + "7"
AXIAL = (1, 0, 0, 0, 1, 0)
"""Directions of rows and columns of slices across the body: to the left, and to the back."""


def dataset(
    pixels: NDArray[Any] | None, *, bits: int = 16, syntax: str = ExplicitVRLittleEndian, **elements: Any
) -> Dataset:
    """Return a DICOM object of grey [h, w], frames [n, h, w] or colour [h, w, 3] pixels; `elements` by keyword, None removes one."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.SOPClassUID = elements.get("SOPClassUID", CT)
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = elements.get(
        "SOPInstanceUID", generate_uid()
    )
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = generate_uid(), generate_uid()
    dataset.PatientID, dataset.Modality = "p1", "CT"
    if pixels is not None:
        colour = pixels.ndim == 3 and pixels.shape[-1] == 3
        if pixels.ndim == 3 and not colour:
            dataset.NumberOfFrames = len(pixels)
        dataset.Rows, dataset.Columns = pixels.shape[:2] if colour else pixels.shape[-2:]
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = (3, "RGB") if colour else (1, "MONOCHROME2")
        if colour:
            dataset.PlanarConfiguration = 0
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = pixels.dtype.itemsize * 8, bits, bits - 1
        dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
        content = pixels.tobytes()
        dataset.PixelData = content + bytes(len(content) % 2)
        dataset["PixelData"].VR = "OB" if pixels.dtype.itemsize == 1 else "OW"
    for keyword, value in elements.items():
        if value is None:
            delattr(dataset, keyword)
        else:
            setattr(dataset, keyword, value)
    return dataset


def write_dicom(file: Path, pixels: NDArray[Any] | None, **options: Any) -> Path:
    """Write a DICOM object; options as of `dataset`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    dataset(pixels, **options).save_as(file, enforce_file_format=True)
    return file


def write_nifti(file: Path, values: NDArray[Any], affine: NDArray[np.float64] | None = None, **header: Any) -> Path:
    """Write a NIfTI volume [i, j, k]; without an affine its axes lead to the right, the front and the head, 1 mm apart."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine)
    for name, value in header.items():
        image.header[name] = value
    nibabel.save(image, file)
    return file


def slice_elements(place: int, *, spacing=(1.0, 1.0, 1.0), origin=(0.0, 0.0, 0.0), direction=AXIAL) -> dict[str, Any]:
    """Return what says where a slice lies, the one of number `place` of a series; `spacing` of columns, rows and slices in mm."""
    normal = np.cross(direction[:3], direction[3:])
    position = np.array(origin) + normal * place * spacing[2]
    return {
        "ImageOrientationPatient": [float(number) for number in direction],
        "ImagePositionPatient": [float(number) for number in position],
        "PixelSpacing": [spacing[1], spacing[0]],
    }


def write_series(
    folder: Path, volume: NDArray[Any], *, name="I{:04d}", uid="1.2.9", first=0, change=None, **options: Any
) -> tuple[Path, ...]:
    """Write a series of slices [columns, rows, slices]; `change` maps a place to other elements, or to None, where its slice is left out.

    Other options are of `slice_elements` or `dataset`. Files are named in the reverse order of their places.
    """
    where = {key: options.pop(key) for key in ("spacing", "origin", "direction") if key in options}
    files = []
    for place in range(volume.shape[2]):
        changed = (change or {}).get(place, {})
        if changed is None:
            continue
        file = folder / name.format(first + volume.shape[2] - place)
        elements = {"SeriesInstanceUID": uid, **slice_elements(place, **where), **options, **changed}
        files.append(write_dicom(file, np.ascontiguousarray(volume[:, :, place].T), **elements))
    return tuple(files)


def write_enhanced(file: Path, volume: NDArray[Any], *, stacks: int = 1, **where: Any) -> Path:
    """Write slices [columns, rows, slices] as frames of one object, the last one first, rescaled each by its number."""
    frames = Sequence()
    for place in reversed(range(volume.shape[2])):
        elements = slice_elements(place, **where)
        frame = Dataset()
        for group, name in (
            ("PlanePosition", "ImagePositionPatient"),
            ("PlaneOrientation", "ImageOrientationPatient"),
            ("PixelMeasures", "PixelSpacing"),
        ):
            item = Dataset()
            setattr(item, name, elements[name])
            setattr(frame, f"{group}Sequence", Sequence([item]))
        content, rescale = Dataset(), Dataset()
        content.StackID = str(place % stacks)
        frame.FrameContentSequence = Sequence([content])
        rescale.RescaleSlope, rescale.RescaleIntercept, rescale.RescaleType = "2", str(place), "HU"
        frame.PixelValueTransformationSequence = Sequence([rescale])
        frames.append(frame)
    pixels = np.ascontiguousarray(volume[:, :, ::-1].transpose(2, 1, 0))
    return write_dicom(file, pixels, SOPClassUID=ENHANCED_CT, PerFrameFunctionalGroupsSequence=frames)


def deflated_zeros(size: int) -> bytes:
    """Return a raw deflate stream of `size` zeros, whole MiB, whose blocks are all alike."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (size // 2**20) + packer.flush()


def gzipped(content: bytes, zeros: int) -> bytes:
    """Return a gzip file of `content`, less than 64 KiB, and zeros after it, whole MiB."""
    head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    stored = b"\x00" + struct.pack("<HH", len(content), 0xFFFF - len(content)) + content
    checksum = zlib.crc32(content)
    for _ in range(zeros // 2**20):
        checksum = zlib.crc32(bytes(2**20), checksum)
    return head + stored + deflated_zeros(zeros) + struct.pack("<II", checksum, len(content) + zeros)


def decode_apart(files: Iterable[Path], module: str, *, as_volumes: bool = False) -> tuple[list[str], float]:
    """Decode files one after another in a process of its own, as pictures or volumes; return why each is refused (``read``: it is not), and by how
    many MiB the process grew.
    """
    reading = "read_scan(file)" if as_volumes else "decode_content(file.read_bytes(), file.name, Input(8, 1))"
    code = (
        "import sys\nfrom importlib import import_module\nfrom pathlib import Path\n"
        "from anchorage.learning.data.cases import read_scan\n"
        "from anchorage.learning.data.decoders import decode_content\n"
        "from anchorage.learning.data.decoding import Input, RefusedImageError\n"
        "import_module(sys.argv[1])\n"
        # not getrusage, which begins with what the parent had
        "peak = lambda: int(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
        "before = peak()\n"
        "for file in map(Path, sys.argv[2:]):\n"
        f"    try:\n        {reading}\n        print('read')\n"
        "    except RefusedImageError as error:\n        print(error.reason)\n"
        "print(peak() - before)"
    )
    done = run([sys.executable, "-c", code, module, *map(str, files)], capture_output=True, text=True, check=True)
    *reasons, grown = done.stdout.split()
    return reasons, int(grown) / 1024
