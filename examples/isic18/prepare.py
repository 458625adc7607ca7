"""Unpack ISIC 2018 Task 3 into the layout in which it is published, one folder per silo, for sites.yaml and published-split.yaml.

python examples/isic18/prepare.py --out DIR [--data DIR] [--limit N]

DIR/CLAIM/ISIC2018_Task3_Training_Input/*.jpg for every silo, and for the two servers also ISIC2018_Task3_Training_GroundTruth.csv, and
ISIC2018_Task3_Test_Input/*.jpg with ISIC2018_Task3_Test_GroundTruth.csv. The tables have a column lesion_id more than the published ones.
DIR is the data root of the two federations.
"""

import argparse
import csv
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from anchorage.learning.data.splits import anchor_rows
from anchorage.learning.randomness import generator

SEED = 2018
ANCHORS = 70
"""Labelled images at the server of sites.yaml, ten per class, as many as the published split has."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Archive:
    """The images as they are handed out: JPEG files, one after the other."""

    content: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    names: NDArray[np.str_]
    lesions: NDArray[np.str_]
    sites: NDArray[np.str_]
    parts: NDArray[np.str_]

    @classmethod
    def open(cls, file: Path) -> "Archive":
        """Read train_200x150.npz."""
        with np.load(file) as packed:
            return cls(
                content=packed["jpeg_bytes"],
                offsets=packed["offsets"],
                labels=packed["labels"],
                classes=tuple(str(name).upper() for name in packed["classes"]),
                names=packed["image_id"],
                lesions=packed["lesion_id"],
                sites=packed["site_names"][packed["site"]],
                parts=packed["split_lesion_grouped"],
            )

    def write(self, rows: Rows, folder: Path, part: str, *, labelled: bool) -> None:
        """Write images, and their labels where the folder's owner has them, as the challenge names its files."""
        images = folder / f"ISIC2018_Task3_{part}_Input"
        images.mkdir(parents=True)
        for row in rows:
            jpeg = self.content[self.offsets[row] : self.offsets[row + 1]]
            (images / f"{self.names[row]}.jpg").write_bytes(jpeg.tobytes())
        if labelled:
            with (folder / f"ISIC2018_Task3_{part}_GroundTruth.csv").open("w", newline="", encoding="utf-8") as text:
                table = csv.writer(text)
                table.writerow(["image", *self.classes, "lesion_id"])
                for row in rows:
                    one_hot = [float(c == self.labels[row]) for c in range(len(self.classes))]
                    table.writerow([self.names[row], *one_hot, self.lesions[row]])


def acquisition_sites(archive: Archive) -> tuple[Rows, Rows, dict[str, Rows]]:
    """Return the server's images, its test part, and every site's images; no lesion is in two of the three."""
    training = np.flatnonzero(archive.parts == "train")
    rng = generator(SEED, "anchors")
    server = training[anchor_rows(archive.labels[training], archive.classes, ANCHORS, rng)]
    remaining = training[~np.isin(archive.lesions[training], archive.lesions[server])]
    silos = {
        str(site).replace("_", "-"): remaining[archive.sites[remaining] == site] for site in np.unique(archive.sites)
    }
    return server, np.flatnonzero(archive.parts == "test"), silos


def published_split(archive: Archive, file: Path) -> tuple[Rows, Rows, dict[str, Rows]]:
    """Return the server's images, its test part, and the silos' images of the published split."""
    row_of = {str(name): row for row, name in enumerate(archive.names)}
    rows_by_part: dict[str, list[int]] = {}
    with file.open(newline="", encoding="utf-8") as text:
        for line in csv.DictReader(text):
            part = line["silo"] if line["part"] == "train" else line["part"]
            rows_by_part.setdefault(part, []).append(row_of[line["image_id"]])
    rows = {part: np.array(members) for part, members in rows_by_part.items()}
    silos = {f"split-{part}": rows[part] for part in sorted(rows) if part.isdigit()}
    return rows["server"], rows["test"], silos


def limited(silos: Mapping[str, Rows], limit: int | None) -> dict[str, Rows]:
    """Draw at most so many images of each silo; the class mix stays as it is."""
    if limit is None:
        return dict(silos)
    return {
        name: np.sort(generator(SEED, "limit", silo=name).permutation(rows)[:limit]) for name, rows in silos.items()
    }


def main() -> int:
    """Unpack."""
    default = os.environ.get("ANCHORAGE_DATA")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="data root to make")
    parser.add_argument("--data", type=Path, default=default, help="folder with isic18/; default: ANCHORAGE_DATA")
    parser.add_argument("--limit", type=int, help="at most so many images per silo; the server and its test stay whole")
    arguments = parser.parse_args()
    if arguments.limit is not None and arguments.limit < 1:
        parser.error("--limit takes a number from 1")
    if arguments.data is None or not (folder := arguments.data / "isic18").is_dir():
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds isic18/")
    if arguments.out.exists() and any(arguments.out.iterdir()):
        parser.error(f"{arguments.out} is not empty: name a new folder, or remove this one first")
    archive = Archive.open(folder / "train_200x150.npz")
    studies = {
        "sites-server": acquisition_sites(archive),
        "split-server": published_split(archive, folder / "split_labels_at_server.csv"),
    }
    for server, (anchors, test, silos) in studies.items():
        archive.write(anchors, arguments.out / server, "Training", labelled=True)
        archive.write(test, arguments.out / server, "Test", labelled=True)
        print(f"{server}: {len(anchors)} labelled images, {len(test)} test images")
        for name, rows in limited(silos, arguments.limit).items():
            archive.write(rows, arguments.out / name, "Training", labelled=False)
            mix = np.bincount(archive.labels[rows], minlength=len(archive.classes))
            print(f"{name}: {len(rows)} images without labels (truly {' '.join(map(str, mix))})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
