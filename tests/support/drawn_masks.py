"""Images with masks that the tests draw themselves: bright discs on dark noise."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

SIDE = 16


def disc(rng, side, *, empty=False):
    """Return an image, uint8 [side, side, 3], and its mask, uint8 [side, side], 1 on the disc."""
    rows, columns = np.mgrid[:side, :side]
    radius = rng.uniform(0.15, 0.3) * side
    centre = rng.uniform(radius, side - radius, 2)
    inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
    mask = np.zeros((side, side), np.uint8) if empty else inside.astype(np.uint8)
    picture = rng.integers(0, 90, (side, side, 3)) + mask[..., None] * rng.integers(90, 160)
    return picture.astype(np.uint8), mask


def write_pairs(folder, count, seed, *, side=16, value=1, masks=None, empty=0):
    """Write images and masks under equal names into folders `images` and `masks`; the first `empty` masks are empty, only `masks` are written."""
    rng = np.random.default_rng(seed)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for row in range(count):
        picture, mask = disc(rng, side, empty=row < empty)
        Image.fromarray(picture).save(folder / "images" / f"{row:03d}.png")
        if masks is None or row < masks:
            Image.fromarray(mask * value).save(folder / "masks" / f"{row:03d}.png")


def silos_of(federation: str, count: int, labels: str) -> list[dict[str, Any]]:
    """Return the documents of so many silos, each with a folder of images of its own name."""
    return [
        {
            "kind": "Silo",
            "metadata": {"name": f"site-{silo}"},
            "spec": {
                "federation": federation,
                "labels": labels,
                "managed": {"data": {"format": "ImageFolder", "claimName": f"site-{silo}"}},
            },
        }
        for silo in range(count)
    ]


def write_study(
    folder: Path,
    method: dict[str, Any],
    *,
    silos: int = 2,
    rounds: int = 2,
    labels: str = "All",
    masks: int | None = None,
    **spec: Any,
) -> Path:
    """Write a federation over drawn discs, and its images into `data`; of each site's six the first `masks` have one, or all."""
    for seed, name in enumerate(("server", "anchors", *(f"site-{silo}" for silo in range(silos)))):
        write_pairs(
            folder / "data" / name, 6, seed, side=SIDE, empty=1, masks=masks if name.startswith("site") else None
        )
    server = {"format": "ImageFolder", "claimName": "server"}
    name = method.get("name", "FedAvg")
    federation = {
        "kind": "Federation",
        "metadata": {"name": "discs"},
        "spec": {
            "rounds": rounds,
            "task": {"segmentation": {"classes": ["background", "disc"]}},
            "model": {"network": "SmallUNet", "imageSize": SIDE},
            "method": {"local": {"epochs": 1, "batchSize": 4}, **method},
            "protocol": {"mode": "Asynchronous" if name == "FedAsync" else "Synchronous"},
            "evaluation": {"validation": server},
            **({"anchorData": {**server, "claimName": "anchors"}} if "serverTraining" in method else {}),
            **spec,
        },
    }
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump_all([federation, *silos_of("discs", silos, labels)]))
    return file


def write_coloured(folder, count, seed, *, side=16, drawn=(1, 2)):
    """Write images with a red disc, a blue one, or both, and masks with those of `drawn`: class 1 is red, 2 is blue."""
    rng = np.random.default_rng(seed)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for row in range(count):
        picture, mask = rng.integers(0, 90, (side, side, 3)), np.zeros((side, side), np.uint8)
        for kind in (1, 2) if row % 3 == 0 else (row % 3,):
            inside = disc(rng, side)[1] == 1
            mask[inside] = kind if kind in drawn else 0
            picture[inside] = rng.integers(0, 90, (int(inside.sum()), 3))
            picture[inside, 0 if kind == 1 else 2] += 150
        Image.fromarray(picture.astype(np.uint8)).save(folder / "images" / f"{row:03d}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{row:03d}.png")
