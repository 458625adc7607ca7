"""Write chest X-rays with several findings as two hospitals and a coordinating site have them, for federation.yaml.

python examples/chest-findings/prepare.py --out DIR [--data DIR | --drawn]

DIR is the federation's data root, with DIR/CLAIM/*.png and DIR/CLAIM/labels.csv for the claims hospital-a, hospital-b, validation and test.
hospital-a lists findings in one column, as the NIH does; hospital-b has a column per finding, as CheXpert does, and none for Pneumothorax.
No patient is in two of them.

Images are those of cxr14/nih_64.npz below the folder --data (default: ANCHORAGE_DATA), or with --drawn pictures with marks for findings.
"""

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

FINDINGS = ("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Pneumothorax")
"""Those that the federation learns."""
UNTOLD = "Pneumothorax"
"""The finding of which hospital-b does not tell."""
DRAWN_PATIENTS = 120
_SIDE = 32


@dataclass(frozen=True)
class Images:
    """Images [n, H, W] with labels [n, L] of `names`, 1 or 0, and the patient and part of each."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    names: Sequence[str]
    patients: NDArray[np.str_]
    parts: NDArray[np.str_]


def opened(file: Path) -> Images:
    """Read nih_64.npz."""
    with np.load(file) as packed:
        names = [str(name) for name in packed["label_names"]]
        return Images(packed["images"], packed["labels"].astype(np.int64), names, packed["patient"], packed["part"])


def drawn() -> Images:
    """Draw two images of each patient: noise, and a bright band for each finding."""
    rng = np.random.default_rng(14)
    count = 2 * DRAWN_PATIENTS
    labels = (rng.random((count, len(FINDINGS))) < (0.3, 0.3, 0.4, 0.3, 0.25)).astype(np.int64)
    pixels = rng.integers(40, 120, (count, _SIDE, _SIDE))
    for place in range(len(FINDINGS)):
        pixels[:, 6 * place + 1 : 6 * place + 6] += 80 * labels[:, place, None, None]
    patients = np.arange(count) // 2
    parts = np.array(["train", "train", "train", "validation", "test"])[patients % 5]
    return Images(pixels.astype(np.uint8), labels, FINDINGS, patients.astype(str), parts)


def write_images(images: Images, rows: NDArray[np.int64], folder: Path) -> list[str]:
    """Write images as PNG, and return the names of the files."""
    folder.mkdir(parents=True)
    names = [f"image-{row:04d}.png" for row in rows]
    for row, name in zip(rows, names, strict=True):
        Image.fromarray(images.pixels[row]).save(folder / name)
    return names


def write_list(images: Images, rows: NDArray[np.int64], folder: Path) -> None:
    """Write a table with one column that lists every finding, those that the federation does not learn too."""
    lists = ("|".join(name for name, has in zip(images.names, images.labels[row], strict=True) if has) for row in rows)
    cells = ([name, images.patients[row]] for name, row in zip(write_images(images, rows, folder), rows, strict=True))
    _write(
        folder,
        ["image", "Patient ID", "Finding Labels"],
        [[*c, listed or "No Finding"] for c, listed in zip(cells, lists, strict=True)],
    )


def write_columns(images: Images, rows: NDArray[np.int64], folder: Path, findings: Sequence[str]) -> None:
    """Write a table with a column of 1 and 0 for each of these findings."""
    places = [list(images.names).index(name) for name in findings]
    names = write_images(images, rows, folder)
    cells = [[name, images.patients[row], *images.labels[row, places]] for name, row in zip(names, rows, strict=True)]
    _write(folder, ["image", "Patient ID", *findings], cells)


def _write(folder: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as text:
        table = csv.writer(text)
        table.writerow(header)
        table.writerows(rows)


def prepare(images: Images, out: Path) -> None:
    """Write the four claims."""
    train = np.flatnonzero(images.parts == "train")
    _, patient = np.unique(images.patients[train], return_inverse=True)
    write_list(images, train[patient % 2 == 0], out / "hospital-a")
    stated = [name for name in FINDINGS if name != UNTOLD]
    write_columns(images, train[patient % 2 == 1], out / "hospital-b", stated)
    for part in ("validation", "test"):
        write_columns(images, np.flatnonzero(images.parts == part), out / part, FINDINGS)


def main() -> None:
    """Write what the command line asks for."""
    parser = argparse.ArgumentParser(description="Write chest X-rays as two hospitals have them.")
    parser.add_argument("--out", type=Path, required=True, help="new folder, the data root of the federation")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("ANCHORAGE_DATA"), help="folder with cxr14/nih_64.npz"
    )
    parser.add_argument("--drawn", action="store_true", help="draw pictures instead")
    given = parser.parse_args()
    if given.out.exists():
        sys.exit(f"{given.out} exists; name a new folder")
    if given.drawn:
        prepare(drawn(), given.out)
        return
    file = Path(given.data or ".") / "cxr14" / "nih_64.npz"
    if not file.is_file():
        sys.exit(f"{file} is missing; name the folder with --data, or use --drawn")
    prepare(opened(file), given.out)


if __name__ == "__main__":
    main()
