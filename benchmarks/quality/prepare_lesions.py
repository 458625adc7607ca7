"""Unpack masks and findings of HAM10000 for the studies of segmentation and of several findings: images, masks, and tables of who holds which.

python benchmarks/quality/prepare_lesions.py --out DIR [--data DIR]

DIR is the data root of the studies; it belongs outside the repository. The folder DIR/ham-lesions gets images/*.jpg and masks/*.png (255 on the
lesion), 200 by 150 pixels, of the images that are used, and the tables below. Three sites train, and a fourth, vienna-dias, is a test alone.
Training, validation and test images of the three are of the three parts of a division by lesion; no lesion of vienna-dias is among the training
or validation images. Which images are taken is drawn once, whatever the seed of a run.

masks-SITE.csv         120 training images with masks; masks-pooled.csv: those of all three
masks-few-SITE.csv     the same images, three of them with masks; masks-few-pooled.csv: those of all three
findings-SITE.csv      200 training images with a column per finding, vidir-modern's without two of them; findings-pooled.csv: all three, with empty
                       cells where vidir-modern does not tell
*-validation.csv       30 (masks) or 100 (findings) images of each of the three sites
*-test.csv             100 or 150 of each; *-test-SITE.csv: those of one site, vienna-dias too
"""

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SITES = ("vidir-molemax", "vidir-modern", "rosendahl")
UNSEEN = "vienna-dias"
"""The site that trains nothing."""
FEW = 3
"""Masks of each site that the study of few masks has."""
LACKING, LACKED = "vidir-modern", ("keratinocytic", "large")
"""The site whose table has no column of two findings, and these: both are frequent enough among its test images to be scored."""
COUNTS = {"masks": {"train": 120, "val": 30, "test": 100}, "findings": {"train": 200, "val": 100, "test": 150}}
"""Images of each site, by study and part of the division by lesion."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Archive:
    """What is unpacked: rows of the packed files, and the findings of each."""

    content: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    masks: NDArray[np.uint8]
    shape: tuple[int, ...]
    names: NDArray[np.str_]
    lesions: NDArray[np.str_]
    sites: NDArray[np.str_]
    parts: NDArray[np.str_]
    findings: Mapping[str, Sequence[str]]
    """Cells by finding: 1, 0 or -1 for uncertain."""

    @classmethod
    def open(cls, folder: Path) -> "Archive":
        """Read the three files.

        Raises
        ------
        SystemExit
            They are of other images.
        """
        with (folder / "concepts.csv").open(newline="", encoding="utf-8") as text:
            rows = list(csv.DictReader(text))
        known = ("image_id", "lesion_id", "site", "part")
        with np.load(folder / "train_200x150.npz") as packed, np.load(folder / "masks_200x150.npz") as masks:
            names = packed["image_id"]
            if not names.tolist() == masks["image_id"].tolist() == [row["image_id"] for row in rows]:
                sys.exit(f"the files in {folder} hold other images than each other")
            return cls(
                content=packed["jpeg_bytes"],
                offsets=packed["offsets"],
                masks=masks["masks_packed"],
                shape=tuple(masks["shape"]),
                names=names,
                lesions=packed["lesion_id"],
                sites=np.char.replace(packed["site_names"][packed["site"]], "_", "-"),
                parts=packed["split_lesion_grouped"],
                findings={name: [row[name] for row in rows] for name in rows[0] if name not in known},
            )

    def drawn(self, site: str, part: str, count: int, rng: np.random.Generator) -> Rows:
        """Return so many images of a site and a part; of the unseen site those whose lesions are in no other part than the test."""
        wanted = (self.sites == site) & (self.parts == part)
        if site == UNSEEN:
            wanted = (self.sites == site) & ~np.isin(
                self.lesions, self.lesions[(self.parts != part) & (self.sites != site)]
            )
        return np.sort(rng.permutation(np.flatnonzero(wanted))[:count])

    def write_images(self, rows: Rows, folder: Path) -> None:
        """Write images and their masks."""
        for name in ("images", "masks"):
            (folder / name).mkdir(parents=True)
        for row in rows:
            jpeg = self.content[self.offsets[row] : self.offsets[row + 1]].tobytes()
            (folder / "images" / f"{self.names[row]}.jpg").write_bytes(jpeg)
            pixels = np.unpackbits(self.masks[row])[: np.prod(self.shape)].reshape(self.shape)
            Image.fromarray(pixels * np.uint8(255)).save(folder / "masks" / f"{self.names[row]}.png")

    def with_masks(self, rows: Rows, annotated: Rows) -> list[dict[str, str]]:
        """Return a table's rows, with the masks of those that are annotated."""
        named = [(self.names[row], self.lesions[row], row in annotated) for row in rows]
        return [
            {"image": f"images/{name}.jpg", "mask": f"masks/{name}.png" if has else "", "lesion_id": lesion}
            for name, lesion, has in named
        ]

    def with_findings(self, rows: Rows, lacked: Sequence[str] = ()) -> list[dict[str, str]]:
        """Return a table's rows without some columns."""
        recorded = [name for name in self.findings if name not in lacked]
        return [
            {
                "image": f"images/{self.names[row]}.jpg",
                "lesion_id": self.lesions[row],
                **{name: self.findings[name][row] for name in recorded},
            }
            for row in rows
        ]


def write_table(file: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write a table whose columns are those of all rows; cells that a row does not have are empty."""
    table_rows = list(rows)
    with file.open("w", newline="", encoding="utf-8") as text:
        table = csv.DictWriter(text, list(dict.fromkeys(name for row in table_rows for name in row)))
        table.writeheader()
        table.writerows(table_rows)
    print(f"{file}: {len(table_rows)} images")


def prepare(archive: Archive, folder: Path) -> None:
    """Write everything."""
    rng = np.random.default_rng(2018)
    drawn = {
        (study, part, site): archive.drawn(site, part, count, rng)
        for study, parts in COUNTS.items()
        for part, count in parts.items()
        for site in (SITES if part != "test" else (*SITES, UNSEEN))
    }
    archive.write_images(np.unique(np.concatenate(list(drawn.values()))), folder)
    few = np.concatenate([rng.permutation(drawn["masks", "train", site])[:FEW] for site in SITES])
    tables: dict[str, list[dict[str, str]]] = {}
    for (study, part, site), rows in drawn.items():
        lacked = LACKED if (part, site) == ("train", LACKING) else ()
        table = archive.with_masks(rows, rows) if study == "masks" else archive.with_findings(rows, lacked)
        table_name = {"train": "pooled", "val": "validation", "test": "test"}[part]
        if part != "val":
            tables[f"{study}-{site}" if part == "train" else f"{study}-test-{site}"] = table
        if site != UNSEEN:
            tables.setdefault(f"{study}-{table_name}", []).extend(table)
        if (study, part) == ("masks", "train"):
            tables[f"masks-few-{site}"] = archive.with_masks(rows, few)
            tables.setdefault("masks-few-pooled", []).extend(tables[f"masks-few-{site}"])
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)


def main() -> int:
    """Unpack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    default = os.environ.get("ANCHORAGE_DATA")
    parser.add_argument("--data", type=Path, default=default, help="folder with isic18/; default: ANCHORAGE_DATA")
    arguments = parser.parse_args()
    if arguments.data is None or not (arguments.data / "isic18" / "concepts.csv").is_file():
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds isic18/concepts.csv")
    if (folder := arguments.out / "ham-lesions").exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    prepare(Archive.open(arguments.data / "isic18"), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
