"""Unpack JPEG CIFAR-10 or ISIC 2018 Task 3 into one folder per class, for the studies in this folder.

python benchmarks/quality/prepare.py cifar10|isic18 --out DIR [--data DIR] [--limit N [--classes C]]

DIR is the data root of the studies; it belongs outside the repository.

cifar10: DIR/cifar10/train/CLASS/00000.jpg, DIR/cifar10/test/CLASS/00000.jpg (a file's number is its row in the original order), and both once
    more below DIR/cifar10/all, as links without a copy. With --limit N the folder is DIR/cifar10-small and holds the first N of each class for
    training, and all for the test; with --classes C of the first C classes alone.
isic18: DIR/isic18/train/CLASS/IMAGE.jpg with 8,012 images and DIR/isic18/test/CLASS/IMAGE.jpg with 2,003 (FLamby's fold, as SemiAnAgg's numbers).
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Names = Iterable[tuple[str, str, NDArray[np.uint8]]]
"""Class, file name and JPEG of images."""


def cifar10(data: Path, part: str, limit: int | None, first: int | None) -> Names:
    """Yield the training or test images, class by class."""
    with np.load(data / "cifar10" / "cifar10_jpeg.npz") as archive:
        content, offsets = archive[f"{part}_bytes"], archive[f"{part}_offsets"]
        labels, classes = archive[f"y_{part}"], archive["classes"]
    for label, name in enumerate(classes[:first]):
        for row in np.flatnonzero(labels == label)[:limit]:
            yield str(name), f"{row:05d}", content[offsets[row] : offsets[row + 1]]


def isic18(data: Path, part: str, limit: int | None, first: int | None) -> Names:
    """Yield the training or test images of FLamby's fold, class by class."""
    with np.load(data / "isic18" / "train_200x150.npz") as archive:
        content, offsets = archive["jpeg_bytes"], archive["offsets"]
        labels, classes = archive["labels"], archive["classes"]
        names, folds = archive["image_id"], archive["flamby_fold"]
    for label, name in enumerate(classes[:first]):
        for row in np.flatnonzero((labels == label) & (folds == part))[:limit]:
            yield str(name), str(names[row]), content[offsets[row] : offsets[row + 1]]


READERS = {"cifar10": cifar10, "isic18": isic18}


def main() -> int:
    """Unpack."""
    default = os.environ.get("ANCHORAGE_DATA")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("dataset", choices=tuple(READERS))
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    parser.add_argument(
        "--data", type=Path, default=default, help="folder with cifar10/ and isic18/; default: ANCHORAGE_DATA"
    )
    parser.add_argument("--limit", type=int, help="only so many training images of each class")
    parser.add_argument("--classes", type=int, help="with --limit: only so many classes")
    arguments = parser.parse_args()
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit takes a number from 1")
    if arguments.classes is not None and (arguments.limit is None or arguments.classes < 2):
        parser.error("--classes takes a number from 2, beside --limit")
    if arguments.data is None or not (arguments.data / arguments.dataset).is_dir():
        parser.error(f"no images: set ANCHORAGE_DATA or --data to the folder that holds {arguments.dataset}/")
    folder = arguments.out / (arguments.dataset + ("-small" if arguments.limit else ""))
    if folder.exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    for part in ("train", "test"):
        count = 0
        limit = arguments.limit if part == "train" else None
        for label, name, jpeg in READERS[arguments.dataset](arguments.data, part, limit, arguments.classes):
            file = folder / part / label / f"{name}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(jpeg.tobytes())
            pooled = folder / "all" / label / f"{part}-{name}.jpg"
            pooled.parent.mkdir(parents=True, exist_ok=True)
            try:
                pooled.hardlink_to(file)
            except OSError:  # a file system without hard links
                shutil.copyfile(file, pooled)
            count += 1
        print(f"{folder / part}: {count} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
