"""Write MR volumes of the hippocampus with masks into folders, one per site, for sites.yaml.

python examples/hippocampus/prepare.py --out DIR [--data DIR] [--drawn] [--cases N]

DIR/CLAIM/images/*.nii.gz and DIR/CLAIM/masks/*.nii.gz for three silos and for the server's validation and test volumes. DIR is the data root of the
federation. With --drawn nothing is needed but Anchorage: ellipsoids of two halves in noise, each site with a scale of its own.
"""

import argparse
import csv
import os
import shutil
import sys
from pathlib import Path

import nibabel
import numpy as np
from numpy.typing import NDArray

SEED = 4
SITES = {"uint8": 1, "thousands": 20, "hundredthousands": 5000}
"""Sites are named after the scale of their values; drawn ones are so many times as large."""


def copy(data: Path, out: Path) -> None:
    """Copy the volumes of the Medical Segmentation Decathlon that the README names; training volumes go to their site, the others to the server."""
    folder = data / "hippocampus"
    with (folder / "manifest.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            claim = row["scanner"] if row["part"] == "train" else f"server/{row['part']}"
            for column, name in (("image", "images"), ("mask", "masks")):
                target = out / claim / name / Path(row[column]).name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / row[column], target)


def drawn(out: Path, count: int) -> None:
    """Draw so many volumes of each site, and one of each for validation and one for the test."""
    rng = np.random.default_rng(SEED)
    for site, scale in SITES.items():
        for number in range(count + 2):
            claim = site if number < count else f"server/{('validation', 'test')[number - count]}"
            volume, mask = _volume(rng, scale)
            for name, values in (("images", volume), ("masks", mask)):
                target = out / claim / name / f"{site}-{number:03d}.nii.gz"
                target.parent.mkdir(parents=True, exist_ok=True)
                nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), target)


def _volume(rng: np.random.Generator, scale: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return a volume with an ellipsoid, brighter in its front half, and the classes of its voxels."""
    sides = rng.integers(20, 28, 3)
    places = np.stack(np.meshgrid(*map(np.arange, sides), indexing="ij"), -1)
    radii = rng.uniform(4, 7, 3)
    centre = rng.uniform(radii + 1, sides - radii - 1)
    inside = (((places - centre) / radii) ** 2).sum(-1) < 1
    front = places[..., 1] > centre[1]
    mask = (inside * np.where(front, 1, 2)).astype(np.uint8)
    values = np.array([40, 120, 200])[mask] + rng.normal(0, 12, sides)
    return (scale * values.clip(0, 255)).astype(np.float32), mask


def main(arguments: list[str]) -> None:
    """Write every site's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--data", type=Path, default=os.environ.get("ANCHORAGE_DATA"), help="default: $ANCHORAGE_DATA")
    parser.add_argument("--cases", type=int, default=8, help="drawn training volumes of each silo")
    parser.add_argument("--drawn", action="store_true", help="draw the volumes")
    given = parser.parse_args(arguments)
    if given.drawn:
        drawn(given.out, given.cases)
    elif given.data is None:
        parser.error("give --data, or set ANCHORAGE_DATA, or draw volumes with --drawn")
    else:
        copy(Path(given.data), given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
