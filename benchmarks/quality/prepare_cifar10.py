"""Unpack JPEG CIFAR-10 into one folder per class, for the studies beside this file.

python benchmarks/quality/prepare_cifar10.py --out DIR [--data DIR] [--limit N]

DIR/cifar10/train/CLASS/00000.jpg and DIR/cifar10/test/CLASS/00000.jpg; a file's number is its row in the original order. DIR is the data root
of the studies. With --limit N the folder is DIR/cifar10-small and holds the first N training and N test images of each class.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np


def main() -> int:
    """Unpack."""
    default = os.environ.get("ANCHORAGE_DATA")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    parser.add_argument("--data", type=Path, default=default, help="folder with cifar10/; default: ANCHORAGE_DATA")
    parser.add_argument("--limit", type=int, help="only so many images of each class, for training and for the test")
    arguments = parser.parse_args()
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit takes a number from 1")
    if arguments.data is None or not (packed := arguments.data / "cifar10" / "cifar10_jpeg.npz").is_file():
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds cifar10/cifar10_jpeg.npz")
    folder = arguments.out / ("cifar10" if arguments.limit is None else "cifar10-small")
    if folder.exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    with np.load(packed) as archive:
        for part in ("train", "test"):
            arrays = (archive[name] for name in (f"{part}_bytes", f"{part}_offsets", f"y_{part}", "classes"))
            unpack(*arrays, folder / part, arguments.limit)
    return 0


def unpack(
    content: np.ndarray, offsets: np.ndarray, labels: np.ndarray, classes: np.ndarray, folder: Path, limit: int | None
) -> None:
    """Write the JPEG files (uint8, one after the other) of every class into a folder of its own."""
    for label, name in enumerate(classes):
        rows = np.flatnonzero(labels == label)[:limit]
        target = folder / str(name)
        target.mkdir(parents=True)
        for row in rows:
            (target / f"{row:05d}.jpg").write_bytes(content[offsets[row] : offsets[row + 1]].tobytes())
        print(f"{target}: {len(rows)} images")


if __name__ == "__main__":
    sys.exit(main())
