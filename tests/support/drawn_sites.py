"""Tiny sites that the tests draw themselves, whose images have labels for every task: a class, several findings, a number and a mask."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from drawn_images import write_table
from PIL import Image

SIDE = 8
KINDS, FINDINGS, REGIONS = ("dark", "light"), ("left", "right"), ("background", "bright")
TASKS: Mapping[str, Mapping[str, Any]] = {
    "classification": {"classification": {"classes": list(KINDS)}},
    "multiLabel": {"multiLabel": {"labels": list(FINDINGS)}},
    "segmentation": {"segmentation": {"classes": list(REGIONS)}},
    "acme.Regression": {
        "plugin": {"name": "acme.Regression", "options": {"quantity": "shade", "mean": "128", "deviation": "64"}}
    },
}
"""Tasks by name, as documents have them; the last one is of docs/writing-a-task.md."""
_LABEL_COLUMNS = {"classification": "kind", "acme.Regression": "shade"}


def draw_site(folder: Path, count: int, seed: int, *, every_label: bool = True) -> None:
    """Write grey images into `images`, masks of their bright halves into `masks`, and their other labels into ``table.csv``.

    Parameters
    ----------
    folder : Path
        Made.
    count : int
        Images, of which the odd ones are light.
    seed : int
        Draws them.
    every_label : bool
        Else every third image has neither mask nor other labels.
    """
    rng = np.random.default_rng(seed)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    rows: list[list[Any]] = []
    for number in range(count):
        findings = [number % 4 in (1, 2), number % 4 in (2, 3)]  # all pairs in turn
        mask = np.tile(np.repeat(findings, SIDE // 2), (SIDE, 1)).astype(np.uint8)
        shade = 30 + 90 * (number % 2)
        pixels = rng.integers(0, 30, (SIDE, SIDE)) + shade + 90 * mask
        name = f"{number:02d}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / name)
        labelled = every_label or number % 3 > 0
        if labelled:
            Image.fromarray(mask).save(folder / "masks" / name)
        labels = [KINDS[number % 2], *map(int, findings), shade]
        rows.append([f"images/{name}", *(labels if labelled else [""] * len(labels))])
    write_table(folder / "table.csv", ["image", "kind", *FINDINGS, "shade"], rows)


def section(task: str, claim: str) -> dict[str, Any]:
    """Return the data section of a site for a task."""
    if task == "segmentation":
        return {"format": "ImageFolder", "claimName": claim}
    column = {"labelColumn": _LABEL_COLUMNS[task]} if task in _LABEL_COLUMNS else {}
    return {"format": "CsvManifest", "claimName": claim, "manifest": "table.csv", **column}
