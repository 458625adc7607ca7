"""Two sets of drawn images, laid out as docs/quickstart-your-images.md shows: a coordinating site and three hospitals, each in its own way."""

import csv
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 32


def shape(kind: int, rng: np.random.Generator) -> Image.Image:
    """A grey circle, square or cross of any size and place."""
    image = Image.new("L", (SIDE, SIDE), int(rng.integers(20, 70)))
    pen, half = ImageDraw.Draw(image), int(SIDE * rng.uniform(0.22, 0.36))
    x, y = (SIDE // 2 + int(rng.integers(-3, 4)) for _ in "xy")
    shade, width = int(rng.integers(140, 240)), max(2, half // 3)
    if kind == 0:
        pen.ellipse((x - half, y - half, x + half, y + half), fill=shade)
    elif kind == 1:
        pen.rectangle((x - half, y - half, x + half, y + half), fill=shade)
    else:
        pen.rectangle((x - width, y - half, x + width, y + half), fill=shade)
        pen.rectangle((x - half, y - width, x + half, y + width), fill=shade)
    return image


def cell(kind: int, rng: np.random.Generator) -> Image.Image:
    """A stained white blood cell in colour: a round nucleus, one of three lobes, or one of two with red granules."""
    red, green, blue = (int(value) for value in rng.integers((225, 190, 195), (250, 220, 225)))
    image = Image.new("RGB", (SIDE, SIDE), (red, green, blue))
    pen, middle = ImageDraw.Draw(image), SIDE // 2 + rng.integers(-2, 3, 2)
    disc(pen, middle, 12, (235, 225, 240))
    if kind == 2:
        for _ in range(24):
            disc(pen, middle + rng.uniform(-8, 8, 2), 1, (215, 70, 60))
    lobes, radius = ((1, 8), (3, 4), (2, 4))[kind]
    turn = rng.uniform(0, 2 * np.pi)
    for lobe in range(lobes):
        angle = turn + 2 * np.pi * lobe / lobes
        away = np.array([np.cos(angle), np.sin(angle)]) * (0 if lobes == 1 else 5)
        disc(pen, middle + away, radius, (90, 50, 130))
    return image


def disc(pen: ImageDraw.ImageDraw, middle: Sequence[float], radius: int, colour: tuple[int, int, int]) -> None:
    x, y = middle
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


@dataclass(frozen=True)
class Hospitals:
    """A set of images, and how three hospitals keep them."""

    draw: Callable[[int, np.random.Generator], Image.Image]
    """Draws a class by its position."""
    classes: tuple[str, str, str]
    local: tuple[str, str, str]
    """What hospital-b calls them."""
    suffixes: tuple[str, str, str]
    """Of the files of hospital-a, -b and -c."""
    one_hot: bool = False
    """Whether the table of hospital-c has a column per class."""

    def lay_out(self, data: Path, server: Sequence[int] = (8, 12, 20), silo: int = 30) -> None:
        """Draw every folder: `server` images of each class as anchors, for validation and test, and `silo` of each at a hospital."""
        seeds, rows = itertools.count(), []
        for part, each in zip(("anchors", "validation", "test"), server, strict=True):
            for kind, name in enumerate(self.classes):
                for number in range(each):
                    self._save(data / "server" / part / name / f"{name}{number:03d}.png", kind, seeds)
        first, second, third = self.suffixes
        for number in range(silo * len(self.classes)):
            kind = number % len(self.classes)
            self._save(data / "hospital-a" / "scans" / f"a{number:03d}{first}", kind, seeds)
            self._save(data / "hospital-b" / self.local[kind] / f"b{number:03d}{second}", kind, seeds)
            self._save(data / "hospital-c" / "img" / f"c{number:03d}{third}", kind, seeds)
            name = self.classes[kind].upper()
            label = [str(int(each == name)) for each in self._columns()] if self.one_hot else [name]
            rows.append((f"c{number:03d}{third}", *label, f"p{number // 2}"))
        with (data / "hospital-c" / "labels.csv").open("w", newline="") as text:
            csv.writer(text).writerows(
                [("image", *(self._columns() if self.one_hot else ["label"]), "patient_id"), *rows]
            )

    def _columns(self) -> list[str]:
        return [name.upper() for name in self.classes]

    def _save(self, path: Path, kind: int, seeds: Iterator[int]) -> None:
        """Draw a class with noise of its own; a TIFF has 16 bits, of which 12 are used."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(next(seeds))
        image = np.asarray(self.draw(kind, rng))
        pixels = (image + rng.normal(0, 8, image.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels.astype(np.uint16) * 16 if path.suffix == ".tif" else pixels).save(path)


SHAPES = Hospitals(shape, ("circle", "square", "cross"), ("Circles", "Squares", "Crosses"), (".jpg", ".tif", ".png"))
"""Those of the page."""
CELLS = Hospitals(
    cell,
    ("lymphocyte", "neutrophil", "eosinophil"),
    ("Lymphocytes", "Neutrophils", "Eos"),
    (".bmp", ".jpg", ".webp"),
    one_hot=True,
)
