"""Data sets of MedMNIST as they are published: one `.npz` file of small images, divided into training, validation and test.

Parts, shapes and class names: MedMNIST v2 (Yang et al., Scientific Data 10:41, 2023), https://github.com/MedMNIST/MedMNIST, `medmnist/info.py`.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.data import DataSection
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, IMAGES_EXCEED_MEMORY, MANIFEST_WRONG, TASK_UNSUPPORTED
from anchorage.api.regular_files import open_regular
from anchorage.learning.data.folders import file_of, folder_of
from anchorage.learning.data.labels import LabelReader
from anchorage.learning.data.listing import TEST_ROW, TRAINING_ROW, VALIDATION_ROW, BadImage, Listing
from anchorage.transport.memory import available_bytes

SUFFIX = ".npz"
_PARTS: Mapping[str, int] = {"train": TRAINING_ROW, "val": VALIDATION_ROW, "test": TEST_ROW}
_RGB = 3
_ORGANS = (
    "bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver", "lung-left", "lung-right", "pancreas", "spleen",
)  # fmt: skip
CLASSES: Mapping[str, tuple[str, ...]] = {
    "pathmnist": (
        "adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal colon mucosa", "cancer-associated stroma",
        "colorectal adenocarcinoma epithelium",
    ),
    "dermamnist": (
        "actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma", "benign keratosis-like lesions", "dermatofibroma",
        "melanoma", "melanocytic nevi", "vascular lesions",
    ),
    "octmnist": ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal"),
    "pneumoniamnist": ("normal", "pneumonia"),
    "breastmnist": ("malignant", "normal, benign"),
    "bloodmnist": (
        "basophil", "eosinophil", "erythroblast", "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)", "lymphocyte",
        "monocyte", "neutrophil", "platelet",
    ),
    "tissuemnist": (
        "Collecting Duct, Connecting Tubule", "Distal Convoluted Tubule", "Glomerular endothelial cells", "Interstitial endothelial cells",
        "Leukocytes", "Podocytes", "Proximal Tubule Segments", "Thick Ascending Limb",
    ),
    "organamnist": _ORGANS,
    "organcmnist": _ORGANS,
    "organsmnist": _ORGANS,
}  # fmt: skip
"""Names of the classes by the data set that a file is called after; the grades of retinamnist are called 0 to 4."""


def list_med_mnist(section: DataSection, root: Path, reader: LabelReader) -> Listing:
    """List a file's images, training part first, with the names of their classes; they lie in memory.

    Raises
    ------
    AnchorageError
        DATA_MISSING: there is no file, or it cannot be read. MANIFEST_WRONG: it holds something else. TASK_UNSUPPORTED: volumes, or several
        findings per image. IMAGES_EXCEED_MEMORY. OUTSIDE_FOLDER, or as of `LabelReader.read`.
    """
    file = file_of(section, root, section.manifest or _only_file(folder_of(section, root)))
    images, labels = _read(file)
    classes = CLASSES.get(file.stem.split("_")[0].casefold(), ())
    ids, numbers, split = [], [], []
    for part, row in _PARTS.items():
        ids += [f"{part}-{place:06d}" for place in range(len(labels[part]))]
        numbers += labels[part].tolist()
        split += [row] * len(labels[part])
    names = [classes[number] if 0 <= number < len(classes) else str(number) for number in numbers]
    read = reader.read(names, file, "label")
    return Listing.of(
        ids=tuple(ids),
        groups=tuple(ids),
        sources=tuple(image for part in _PARTS for image in images[part]),
        labels=read,
        bad={row: BadImage(ids[row], *bad_image) for row, bad_image in read.wrong.items()},
        split=np.array(split, np.int8) if section.split else None,
    )


def is_med_mnist(file: Path) -> bool:
    """Return whether a file is one of MedMNIST's, without reading its images."""
    try:
        with open_regular(file) as opened, zipfile.ZipFile(opened) as archive:
            return {f"{part}_images.npy" for part in _PARTS} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def _only_file(folder: Path) -> str:
    files = sorted(file.name for file in folder.glob(f"*{SUFFIX}"))
    if len(files) != 1:
        detail = f"{len(files)} files *{SUFFIX}" if files else f"no file *{SUFFIX}"
        detail += "; name the one of the data set as `manifest` of the section"
        raise AnchorageError(DATA_MISSING, f"{folder} has {detail}", redacted=f"the folder has {detail}")
    return files[0]


def _read(file: Path) -> tuple[dict[str, NDArray[np.uint8]], dict[str, NDArray[np.int64]]]:
    images, labels = {}, {}
    try:
        with open_regular(file) as opened:
            with zipfile.ZipFile(opened) as archive:
                _refuse_too_large(file, archive)
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as arrays:
                for part in _PARTS:
                    images[part] = _images(_array(arrays, f"{part}_images"))
                    labels[part] = _labels(_array(arrays, f"{part}_labels"), len(images[part]))
    except OSError as error:
        message = f"{file} cannot be read ({error.strerror or error}); check the manifest and the permissions"
        raise AnchorageError(DATA_MISSING, message) from error
    except MemoryError as error:
        raise AnchorageError(
            IMAGES_EXCEED_MEMORY, f"{file} does not fit into memory; use its edition of smaller images"
        ) from error
    except (zipfile.BadZipFile, zlib.error, RuntimeError, KeyError, ValueError, EOFError) as error:
        detail = " ".join(str(error).split())
        message = f"{file} is no data set of MedMNIST: {detail}; it has train_images, train_labels and the same for val and test"
        raise AnchorageError(MANIFEST_WRONG, message) from error
    return images, labels


def _refuse_too_large(file: Path, archive: zipfile.ZipFile) -> None:
    needed = sum(entry.file_size for entry in archive.infolist())
    if needed > available_bytes() // 2:
        message = f"{file} unpacks to {needed >> 20} MiB, more than half of the free memory; use its edition of smaller images"
        raise AnchorageError(IMAGES_EXCEED_MEMORY, message)


def _array(arrays: Mapping[str, Any], name: str) -> NDArray[Any]:
    array = arrays[name]
    if not isinstance(array, np.ndarray):  # numpy returns the bytes of what is no array
        raise ValueError(f"{name} is no array")
    return array


def _images(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype != np.uint8 or array.ndim < _RGB or not array.size:
        raise ValueError(f"images of shape {array.shape} and type {array.dtype}")
    if array.ndim > _RGB and array.shape[-1] != _RGB:
        raise AnchorageError(
            TASK_UNSUPPORTED, f"images of shape {array.shape} are volumes, which are not supported yet"
        )
    return array


def _labels(array: NDArray[Any], count: int) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or len(array) != count or array.ndim > 2:
        raise ValueError(f"labels of shape {array.shape} and type {array.dtype} for {count} images")
    if array.size != count:
        several = "several findings per image are read of tables, not of this format"
        raise AnchorageError(TASK_UNSUPPORTED, f"labels of shape {array.shape}: {several}")
    return array.reshape(count).astype(np.int64)
