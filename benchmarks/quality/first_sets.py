"""Folders of images as newcomers have them, for `first_study.py`: four drawn sets, and two real ones from ANCHORAGE_DATA.

Each set has labelled images of the server (``anchors``, ``validation``, ``test``) and three silos, which differ in how their images look and in
their class mix. Folders have a subfolder per class; whether its names are used as labels is the study's choice.
"""

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

SIDE = 32
"""Side in pixels at which images are drawn."""
STORED = 24
"""Side of every stored image: a network on one processor core learns a set within half a minute."""
DATA = Path(os.environ.get("ANCHORAGE_DATA", "../shared/data"))

Drawing = Callable[[int, int, np.random.Generator], Image.Image]
"""Draws an image of a class (its number) as a site (its number; 3 is the server's) would take it."""


@dataclass(frozen=True)
class DrawnSet:
    """A set that is drawn."""

    classes: tuple[str, ...]
    """Names of the classes."""
    draw: Drawing
    """Draws one image."""
    mixes: tuple[tuple[int, ...], ...]
    """Images of each class at each silo."""
    server: tuple[int, int, int] = (10, 30, 100)
    """Images of each class as anchors, for validation and for the test."""

    def write(self, folder: Path) -> None:
        """Draw every image into `folder`."""
        number = 0
        parts = {f"server/{part}": [n] * len(self.classes) for part, n in zip(PARTS, self.server, strict=True)}
        parts |= {name: list(mix) for name, mix in zip(SILOS, self.mixes, strict=True)}
        for place, counts in parts.items():
            site = SILOS.index(place) if place in SILOS else len(SILOS)
            for kind, name in enumerate(self.classes):
                (folder / place / name).mkdir(parents=True, exist_ok=True)
                for _ in range(counts[kind]):
                    number += 1
                    image = self.draw(kind, site, np.random.default_rng(number))
                    image.save(folder / place / name / f"{number:05d}.png")


PARTS = ("anchors", "validation", "test")
SILOS = ("north", "south", "west")


def _noisy(image: Image.Image, deviation: float, rng: np.random.Generator) -> Image.Image:
    pixels = np.asarray(image.resize((STORED, STORED), Image.Resampling.BILINEAR), np.float64)
    return Image.fromarray((pixels + rng.normal(0, deviation, pixels.shape)).clip(0, 255).astype(np.uint8))


def shape(kind: int, site: int, rng: np.random.Generator) -> Image.Image:
    """A grey circle, square or cross of any size and place; sites differ in brightness."""
    image = Image.new("L", (SIDE, SIDE), int(rng.integers(20, 50)) + 25 * (site % 3))
    pen, half = ImageDraw.Draw(image), int(SIDE * rng.uniform(0.2, 0.34))
    x, y = (SIDE // 2 + int(rng.integers(-4, 5)) for _ in "xy")
    shade, width = int(rng.integers(140, 240)), max(2, half // 3)
    if kind == 0:
        pen.ellipse((x - half, y - half, x + half, y + half), fill=shade)
    elif kind == 1:
        pen.rectangle((x - half, y - half, x + half, y + half), fill=shade)
    else:
        pen.rectangle((x - width, y - half, x + width, y + half), fill=shade)
        pen.rectangle((x - half, y - width, x + half, y + width), fill=shade)
    return _noisy(image, 12, rng)


def cell(kind: int, site: int, rng: np.random.Generator) -> Image.Image:
    """A stained white blood cell in colour: round, three-lobed, or two-lobed with granules; stains differ by site."""
    ground = np.array([240, 205, 210]) - np.array([[0, 0, 0], [25, 10, 0], [0, 20, 25], [10, 5, 5]][site])
    image = Image.new("RGB", (SIDE, SIDE), tuple(int(v) for v in ground + rng.integers(-8, 9, 3)))
    pen, middle = ImageDraw.Draw(image), SIDE // 2 + rng.integers(-3, 4, 2)
    _disc(pen, middle, 12, (235, 225, 240))
    if kind == 2:
        for _ in range(24):
            _disc(pen, middle + rng.uniform(-8, 8, 2), 1, (215, 70, 60))
    lobes, radius = ((1, 7), (3, 4), (2, 4))[kind]
    turn = rng.uniform(0, 2 * np.pi)
    for lobe in range(lobes):
        angle = turn + 2 * np.pi * lobe / lobes
        _disc(pen, middle + np.array([np.cos(angle), np.sin(angle)]) * (0 if lobes == 1 else 5), radius, (90, 50, 130))
    return _noisy(image, 10, rng)


def _disc(pen: ImageDraw.ImageDraw, middle: NDArray[np.float64], radius: int, colour: tuple[int, int, int]) -> None:
    x, y = middle
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def chest(kind: int, site: int, rng: np.random.Generator) -> Image.Image:
    """A chest of two dark lungs in grey, with a soft bright patch in one of them where it is diseased; exposures differ by site."""
    image = Image.new("L", (SIDE, SIDE), 150 + 20 * (site % 3))
    pen, lift = ImageDraw.Draw(image), int(rng.integers(-2, 3))
    lungs = ((4, 6 + lift, 14, 27 + lift), (18, 6 + lift, 28, 27 + lift))
    for lung in lungs:
        pen.ellipse(lung, fill=55 + int(rng.integers(0, 30)))
    for rib in range(5):
        y = 8 + 4 * rib + lift
        pen.arc((2, y - 3, 30, y + 9), 200, 340, fill=120)
    if kind == 1:
        left, top, right, bottom = lungs[int(rng.integers(2))]
        x, y, r = rng.uniform(left + 3, right - 3), rng.uniform(top + 5, bottom - 4), rng.uniform(2.5, 4)
        patch = Image.new("L", image.size, 0)
        ImageDraw.Draw(patch).ellipse((x - r, y - r, x + r, y + r), fill=int(rng.integers(150, 220)))
        image = Image.composite(Image.new("L", image.size, 175), image, patch.filter(ImageFilter.GaussianBlur(1)))
    return _noisy(image, 9, rng)


def tissue(kind: int, site: int, rng: np.random.Generator) -> Image.Image:
    """A field of stripes or dots in colour, fine or coarse: four textures at any angle and phase; hues differ by site."""
    wave = (0.55, 1.0)[kind % 2] * rng.uniform(0.9, 1.1)
    angle, phase = rng.uniform(0, np.pi), rng.uniform(0, 2 * np.pi, 2)
    y, x = np.mgrid[:SIDE, :SIDE]
    u, v = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    field = np.sin(wave * u + phase[0]) * (np.sin(wave * v + phase[1]) if kind >= 2 else 1.0)
    hue = np.array([[0.9, 0.6, 0.8], [0.7, 0.6, 1.0], [1.0, 0.7, 0.6], [0.85, 0.65, 0.8]][site])
    pixels = (150 + 45 * field[..., None]) * hue
    return _noisy(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), 22, rng)


DRAWN: Mapping[str, DrawnSet] = {
    "shapes": DrawnSet(
        ("circle", "cross", "square"),
        lambda k, s, r: shape((0, 2, 1)[k], s, r),
        ((40, 25, 25), (25, 40, 25), (25, 25, 40)),
    ),
    "cells": DrawnSet(
        ("eosinophil", "lymphocyte", "neutrophil"),
        lambda k, s, r: cell((2, 0, 1)[k], s, r),
        ((15, 60, 25), (10, 30, 60), (20, 50, 30)),
    ),
    "chest": DrawnSet(("normal", "opacity"), chest, ((90, 30), (40, 80), (100, 20)), server=(15, 40, 150)),
    "tissue": DrawnSet(
        ("coarse dots", "coarse stripes", "fine dots", "fine stripes"),
        lambda k, s, r: tissue((3, 1, 2, 0)[k], s, r),
        ((50, 20, 20, 10), (10, 50, 20, 20), (20, 10, 20, 50)),
    ),
}


def write_ham10000(folder: Path) -> None:
    """Write skin lesions of three sites of HAM10000, four diagnoses, lesions apart; needs ``isic18/train_200x150.npz``."""
    archive = np.load(DATA / "isic18" / "train_200x150.npz")
    data, offsets, split = archive["jpeg_bytes"], archive["offsets"], archive["split_lesion_grouped"].astype(str)
    labels, sites = (
        archive["classes"][archive["labels"]].astype(str),
        archive["site_names"][archive["site"]].astype(str),
    )
    rng, classes = np.random.default_rng(1), ("bcc", "bkl", "mel", "nv")
    silos = dict(zip(("vidir_modern", "rosendahl", "vidir_molemax"), SILOS, strict=True))

    def take(where: NDArray[np.bool_], count: int, place: str, name: str) -> None:
        for row in rng.permutation(np.flatnonzero(where & (labels == name)))[:count]:
            image = Image.open(io.BytesIO(data[offsets[row] : offsets[row + 1]].tobytes())).convert("RGB")
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            target = folder / place / name / f"{row:05d}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            image.crop((left, top, left + side, top + side)).resize((STORED, STORED), Image.Resampling.LANCZOS).save(
                target
            )

    train = rng.permutation(np.flatnonzero(split == "train"))
    anchors = np.isin(np.arange(len(labels)), train[: len(train) // 5])
    for name in classes:
        take((split == "train") & anchors, 20, "server/anchors", name)
        take(split == "val", 40, "server/validation", name)
        take(split == "test", 100, "server/test", name)
        for site, silo in silos.items():
            share = float(((sites == site) & (labels == name)).sum() / (sites == site).sum())
            take((split == "train") & ~anchors & (sites == site), max(4, round(200 * share)), silo, name)


def write_cifar10(folder: Path) -> None:
    """Write five classes of JPEG CIFAR-10, three silos by Dirichlet 0.5; needs ``cifar10/cifar10_jpeg.npz``."""
    archive = np.load(DATA / "cifar10" / "cifar10_jpeg.npz")
    classes, rng = archive["classes"].astype(str), np.random.default_rng(2)
    chosen_classes = ("airplane", "automobile", "frog", "horse", "ship")
    shares = rng.dirichlet([0.5] * len(SILOS), len(chosen_classes))

    def save(prefix: str, rows: NDArray[np.int64], place: str, name: str) -> None:
        (folder / place / name).mkdir(parents=True, exist_ok=True)
        data, offsets = archive[f"{prefix}_bytes"], archive[f"{prefix}_offsets"]
        for row in rows:
            image = Image.open(io.BytesIO(data[offsets[row] : offsets[row + 1]].tobytes())).convert("RGB")
            image.resize((STORED, STORED), Image.Resampling.LANCZOS).save(folder / place / name / f"{row:05d}.png")

    for kind, name in enumerate(chosen_classes):
        number = int(np.flatnonzero(classes == name)[0])
        rows = rng.permutation(np.flatnonzero(archive["y_train"] == number))
        tests = rng.permutation(np.flatnonzero(archive["y_test"] == number))
        save("train", rows[:20], "server/anchors", name)
        save("train", rows[20:60], "server/validation", name)
        save("test", tests[:100], "server/test", name)
        edges = 60 + np.rint(np.r_[0, shares[kind].cumsum()] * 300).astype(int)
        for silo, (start, end) in zip(SILOS, pairwise(edges), strict=True):
            save("train", rows[start : max(end, start + 2)], silo, name)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    **{name: drawn.write for name, drawn in DRAWN.items()},
    "ham10000": write_ham10000,
    "cifar10": write_cifar10,
}
"""What writes each set."""
