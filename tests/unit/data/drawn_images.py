"""Images that the tests draw themselves."""

import csv

import numpy as np
from PIL import Image


def draw(mode="RGB", size=(24, 18), seed=0):
    """Return noise in any of Pillow's modes that files have."""
    rng = np.random.default_rng(seed)
    width, height = size
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
    colour = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    if mode == "RGBA":
        colour.putalpha(128)
        return colour
    return colour.convert(mode)


def fill(folder, count, *, suffix=".png", start=0):
    """Write so many images of different content; return their names without suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"image{start + place:03d}" for place in range(count)]
    for place, name in enumerate(names):
        draw(seed=start + place).save(folder / f"{name}{suffix}")
    return names


def write_table(file, header, rows):
    """Write a CSV file."""
    with file.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([header, *rows])
