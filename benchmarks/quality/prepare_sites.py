"""Unpack HAM10000 for the studies over its four sites: all 10,015 images scaled, and tables of who holds which.

python benchmarks/quality/prepare_sites.py --out DIR [--side PIXELS] [--data DIR]

DIR is the data root of the studies; it belongs outside the repository. The folder DIR/ham-sites gets CLASS/IMAGE.png, decoded, scaled and cropped
once as Anchorage does it, so that no run pays for it again, and the tables

sites.csv   four silos, as the images were taken; training (7,007), validation (982) and test (2,026) share no lesion
pooled.csv  one silo that holds what the four hold
"""

import argparse
import csv
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from anchorage.learning.data.decoding import decode_bytes

Row = tuple[str, str, str]
"""Image, part, silo."""


def write_table(file: Path, rows: Iterable[Row]) -> None:
    """Write a partition file."""
    with file.open("w", newline="", encoding="utf-8") as text:
        table = csv.writer(text)
        table.writerow(["image", "part", "silo"])
        table.writerows(rows)


def main() -> int:
    """Unpack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    parser.add_argument("--side", type=int, default=32, help="pixels a side; default: 32")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("ANCHORAGE_DATA"),
        help="folder with isic18/; default: ANCHORAGE_DATA",
    )
    arguments = parser.parse_args()
    if arguments.data is None or not (source := arguments.data / "isic18" / "train_200x150.npz").is_file():
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds isic18/train_200x150.npz")
    folder = arguments.out / "ham-sites"
    if folder.exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    with np.load(source) as archive:
        content, offsets = archive["jpeg_bytes"], archive["offsets"]
        labels, classes, names = archive["labels"], archive["classes"], archive["image_id"]
        sites = np.char.replace(archive["site_names"][archive["site"]], "_", "-")
        parts = np.where(archive["split_lesion_grouped"] == "val", "validation", archive["split_lesion_grouped"])
    for row, name in enumerate(names):
        file = folder / str(classes[labels[row]]) / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = decode_bytes(content[offsets[row] : offsets[row + 1]].tobytes(), arguments.side, 3).pixels
        Image.fromarray(pixels.transpose(1, 2, 0)).save(file)
    for table, silos in {"sites.csv": sites, "pooled.csv": np.full_like(sites, "pooled")}.items():
        write_table(folder / table, zip(names, parts, silos, strict=True))
        counts = {str(silo): int(((parts == "train") & (silos == silo)).sum()) for silo in np.unique(silos)}
        print(f"{folder / table}: training images {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
