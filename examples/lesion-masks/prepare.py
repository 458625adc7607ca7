"""Write dermoscopy images with masks of their lesions into folders, one per site, for sites.yaml.

python examples/lesion-masks/prepare.py --out DIR [--data DIR] [--images N] [--drawn]

DIR/CLAIM/images/*.jpg and DIR/CLAIM/masks/*.png, 255 on the lesion, for the three silos and for the server's validation and test images. DIR is
the data root of the federation. With --drawn nothing is needed but Anchorage: spots are drawn on a background, each site with colours of its own.
"""

import argparse
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SEED = 2018
SILOS = ("vidir_molemax", "vidir_modern", "rosendahl")
UNSEEN = "vienna_dias"
"""The site whose images are the test: it trains nothing."""


@dataclass(frozen=True)
class Case:
    """An image with the mask of its lesion."""

    name: str
    site: str
    lesion: str
    content: bytes
    """A JPEG."""
    mask: NDArray[np.uint8]
    """1 on the lesion, [h, w]."""


def real(folder: Path) -> Iterator[Case]:
    """Yield the cases of HAM10000, in the files that the README names."""
    with (
        np.load(folder / "isic18" / "train_200x150.npz") as packed,
        np.load(folder / "isic18" / "masks_200x150.npz") as masks,
    ):
        if not np.array_equal(packed["image_id"], masks["image_id"]):
            raise SystemExit("the two files hold other images")
        content, offsets, names = packed["jpeg_bytes"], packed["offsets"], packed["image_id"]
        sites, lesions = packed["site_names"][packed["site"]], packed["lesion_id"]
        bits, shape = masks["masks_packed"], tuple(masks["shape"])
        for row in range(len(names)):
            mask = np.unpackbits(bits[row])[: shape[0] * shape[1]].reshape(shape)
            jpeg = content[offsets[row] : offsets[row + 1]].tobytes()
            yield Case(str(names[row]), str(sites[row]), str(lesions[row]), jpeg, mask)


def drawn(count: int) -> Iterator[Case]:
    """Yield drawn cases, so many of each site."""
    rng = np.random.default_rng(SEED)
    rows, columns = np.mgrid[:48, :64]
    for number, site in enumerate((*SILOS, UNSEEN)):
        skin, spot = np.array([220, 170 - 15 * number, 160]), np.array([120 - 15 * number, 70, 60])
        for row in range(count):
            high, wide = rng.uniform(6, 16, 2)
            centre = rng.uniform((high, wide), (48 - high, 64 - wide))
            inside = ((rows - centre[0]) / high) ** 2 + ((columns - centre[1]) / wide) ** 2 < 1
            pixels = np.where(inside[..., None], spot, skin) + rng.normal(0, 12, (48, 64, 3))
            file = io.BytesIO()
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "jpeg", quality=90)
            yield Case(f"{site}-{row:03d}", site, f"{site}-{row}", file.getvalue(), inside.astype(np.uint8))


def chosen(cases: list[Case], count: int, taken: set[str], rng: np.random.Generator) -> list[Case]:
    """Return so many cases whose lesions nobody has taken, and take them."""
    selected: list[Case] = []
    for row in rng.permutation(len(cases)):
        if len(selected) < count and cases[row].lesion not in taken:
            selected.append(cases[row])
    taken.update(case.lesion for case in selected)
    return selected


def write(folder: Path, cases: list[Case]) -> None:
    """Write images and masks under equal names."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for case in cases:
        (folder / "images" / f"{case.name}.jpg").write_bytes(case.content)
        Image.fromarray(case.mask * np.uint8(255)).save(folder / "masks" / f"{case.name}.png")


def main(arguments: list[str]) -> None:
    """Write every site's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--data", type=Path, default=os.environ.get("ANCHORAGE_DATA"), help="default: $ANCHORAGE_DATA")
    parser.add_argument("--images", type=int, default=120, help="training images of each silo")
    parser.add_argument("--drawn", action="store_true", help="draw the images")
    given = parser.parse_args(arguments)
    if not given.drawn and given.data is None:
        parser.error("give --data, or set ANCHORAGE_DATA, or draw images with --drawn")
    held_out = max(1, given.images // 4)
    by_site: dict[str, list[Case]] = {}
    for case in drawn(given.images + held_out + 1) if given.drawn else real(given.data):
        by_site.setdefault(case.site, []).append(case)
    rng, taken = np.random.default_rng(SEED), set[str]()
    validation: list[Case] = []
    for site in SILOS:
        validation += chosen(by_site[site], held_out, taken, rng)
        write(given.out / site.replace("_", "-"), chosen(by_site[site], given.images, taken, rng))
    write(given.out / "server" / "validation", validation)
    write(given.out / "server" / "test", chosen(by_site[UNSEEN], given.images, taken, rng))


if __name__ == "__main__":
    main(sys.argv[1:])
