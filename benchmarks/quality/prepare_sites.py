"""Unpack HAM10000 for the studies over its four sites: all 10,015 images scaled, and tables of who holds which.

python benchmarks/quality/prepare_sites.py --out DIR [--side PIXELS] [--data DIR]

DIR is the data root of the studies; it belongs outside the repository. The folder DIR/ham-sites gets CLASS/IMAGE.png, decoded, scaled and cropped
once as Anchorage does it, so that no run pays for it again, and the tables

sites.csv        four silos, as the images were taken; training (7,007), validation (982) and test (2,026) share no lesion
pooled.csv       one silo that holds what the four hold
server-350.csv   as sites.csv, but 50 training images of each diagnosis (the first 50 of an order drawn once) are the server's
server-70-K.csv  the same, K of 0 to 4, but the server has only ten of the 50, others for each K, and nobody the rest
labels-at-SITE.csv  as sites.csv, for one labelled site: SITE is called labelled, the others unlabelled-0 to unlabelled-2
ten-server.csv   the published split for labels at the server, 70 there and ten silos, unlabelled-0 to unlabelled-9. Its validation images
                 (1,000) are part of its test images: the test part has the other 1,003
ten-K.csv        the same silos, K of 0 to 9, without the server's images: silo K is called labelled
"""

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anchorage.learning.data.decoding import Input, decode_bytes

Row = tuple[str, str, str]
"""Image, part, silo."""
Names = NDArray[np.str_]

SERVER, FOLDS = 10, 5
"""Images of each diagnosis at the server, and how many such sets are drawn, without an image in common."""


def write_table(file: Path, rows: Iterable[Row]) -> None:
    """Write a partition file."""
    with file.open("w", newline="", encoding="utf-8") as text:
        table = csv.writer(text)
        table.writerow(["image", "part", "silo"])
        table.writerows(rows)


def write_image(folder: Path, kind: str, name: str, jpeg: bytes, side: int) -> None:
    """Write an image into the folder of its class, decoded, scaled and cropped as Anchorage does it."""
    file = folder / kind / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(decode_bytes(jpeg, Input(side, 3)).pixels.transpose(1, 2, 0)).save(file)


def at_server(names: Names, labels: NDArray[np.integer], parts: Names, sites: Names) -> Iterator[tuple[str, list[Row]]]:
    """Yield tables of labels at the server, and their names."""
    order = np.random.default_rng(1).permutation(len(names))
    ranks = np.full(len(names), SERVER * FOLDS)
    for label in np.unique(labels):
        candidates = [row for row in order if labels[row] == label and parts[row] == "train"][: SERVER * FOLDS]
        ranks[candidates] = np.arange(len(candidates))
    at_the_server = ranks < SERVER * FOLDS
    silos = np.where(at_the_server, "server", sites)
    yield "server-350", list(zip(names, parts, silos, strict=True))
    for fold in range(FOLDS):
        unused = at_the_server & (ranks // SERVER != fold)
        yield f"server-70-{fold}", list(zip(names, np.where(unused, "unused", parts), silos, strict=True))


def at_one(name: str, rows: list[Row], labelled: str) -> tuple[str, list[Row]]:
    """Return a table whose silos are called after whether they have labels, and its name."""
    others = sorted({silo for _, part, silo in rows if part == "train"} - {labelled})
    called = {labelled: "labelled", **{silo: f"unlabelled-{number}" for number, silo in enumerate(others)}}
    return name, [(image, part, called.get(silo, silo)) for image, part, silo in rows]


def published(split: Path) -> list[Row]:
    """Return the published split's rows, each image once: those of the validation part stand in its test part, too."""
    with split.open(newline="", encoding="utf-8") as text:
        rows = [(row["image_id"], row["part"], row["silo"]) for row in csv.DictReader(text)]
    validation = {image for image, part, _ in rows if part == "validation"}
    return [row for row in rows if row[1] != "test" or row[0] not in validation]


def tables(
    data: Path, names: Names, labels: NDArray[np.integer], parts: Names, sites: Names
) -> Iterator[tuple[str, list[Row]]]:
    """Yield every table with its name."""
    natural = list(zip(names, parts, sites, strict=True))
    yield "sites", natural
    yield "pooled", [(image, part, "pooled") for image, part, _ in natural]
    yield from at_server(names, labels, parts, sites)
    yield from (at_one(f"labels-at-{site}", natural, site) for site in np.unique(sites))
    ten = published(data / "isic18" / "split_labels_at_server.csv")
    yield "ten-server", [(i, p, s if s == "server" or p != "train" else f"unlabelled-{s}") for i, p, s in ten]
    silos = [row for row in ten if row[1:] != ("train", "server")]
    yield from (at_one(f"ten-{number}", silos, str(number)) for number in range(10))


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
        jpeg = content[offsets[row] : offsets[row + 1]].tobytes()
        write_image(folder, str(classes[labels[row]]), str(name), jpeg, arguments.side)
    for table, rows in tables(arguments.data, names, labels, parts, sites):
        write_table(folder / f"{table}.csv", rows)
        counts = Counter(silo for _, part, silo in rows if part == "train")
        print(f"{folder / table}.csv: training images {dict(sorted(counts.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
