"""Drawn volumes: ellipsoids of two halves in noise, as arrays, as cases, and as NIfTI files."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from drawn_masks import silos_of

from anchorage.learning.data.cases import Case
from anchorage.learning.data.grids import Grid
from anchorage.learning.data.volumes import StoredVolumes, write_volume

CLASSES = ("background", "front", "back")
VOLUME = {"spacing": ["1", "1", "1"], "patch": [8, 8, 8], "foregroundShare": "0.7"}
MODEL = {"network": "SmallUNet", "channels": 1, "volume": VOLUME, "intensity": {"zScore": {}}}


def drawn_volume(rng, sides=(12, 14, 10)):
    """Values uint16 [1, x, y, z] that tell the class of each voxel, and the classes uint8 [x, y, z]."""
    places = np.stack(np.meshgrid(*map(np.arange, sides), indexing="ij"), -1)
    radii = np.array(sides) / 4
    centre = rng.uniform(radii + 1, np.array(sides) - radii - 1)
    inside = (((places - centre) / radii) ** 2).sum(-1) < 1
    mask = (inside * np.where(places[..., 1] > centre[1], 1, 2)).astype(np.uint8)
    values = np.array([10_000, 30_000, 50_000], np.uint16)[mask] + rng.integers(0, 5_000, sides).astype(np.uint16)
    return values[None], mask


def case_of_volume(values, mask, name=b"x"):
    """A case as a reader makes it, on a grid of 1 mm."""
    grid = Grid(values.shape[1:], np.eye(4))
    counts = np.zeros(3, np.int64) if mask is None else np.bincount(mask.ravel(), minlength=3)[:3]
    return Case(values, mask, counts, grid, grid, ("modality MR",), name.ljust(64, b"."), "drawn 1")


def stored_volumes(folder: Path, count: int, patch=(8, 8, 8), sides=(12, 14, 10), seed=0):
    """So many drawn volumes in files."""
    rng = np.random.default_rng(seed)
    files = [
        write_volume(folder / f"{row}.volume", case_of_volume(*drawn_volume(rng, sides), str(row).encode()), rng)
        for row in range(count)
    ]
    return StoredVolumes(files, (1, *patch))


def write_pairs(
    folder: Path, count: int, sides=(12, 14, 10), seed=0, scale=1.0, *, values=(0, 1, 2), spacing=(1, 1, 1), folders=("images", "masks"), masks=None
):  # fmt: skip
    """So many drawn volumes and masks as NIfTI files below ``images`` and ``masks``; `masks`: so many of them alone have one."""
    import nibabel

    rng = np.random.default_rng(seed)
    affine = np.diag([*map(float, spacing), 1.0])
    images, of_masks = (folder / name for name in folders)
    for each in (images, of_masks):
        each.mkdir(parents=True, exist_ok=True)
    for row in range(count):
        drawn, mask = drawn_volume(rng, sides)
        scaled = (drawn[0] * scale).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(scaled, affine), images / f"case-{row:02d}.nii.gz")
        if masks is None or row < masks:
            classes = np.array(values, np.uint8)[mask]
            nibabel.save(nibabel.Nifti1Image(classes, affine), of_masks / f"case-{row:02d}.nii.gz")


def split_channels(images: Path, endings: tuple[str, ...]) -> None:
    """Put in the place of each volume of a folder a file for each channel: the volume, and its values with 1,000 and more of noise added."""
    import nibabel

    for file in sorted(images.iterdir()):
        image, name = nibabel.load(file), file.name.removesuffix(".nii.gz")
        for channel, ending in enumerate(endings):
            values = image.get_fdata(dtype=np.float32)
            noise = np.random.default_rng(channel).normal(1000 * channel, channel, values.shape)
            nibabel.save(
                nibabel.Nifti1Image((values + noise).astype(np.float32), image.affine),
                file.with_name(f"{name}{ending}.nii.gz"),
            )
        file.unlink()


def write_study(
    folder: Path, method: dict[str, Any], *, silos: int = 2, rounds: int = 2, labels: str = "All", **spec: Any
) -> Path:
    """Write a federation over drawn volumes of sites with scales of their own, and its files into `data`."""
    for seed, name in enumerate(("server", "anchors", *(f"site-{silo}" for silo in range(silos)))):
        write_pairs(folder / "data" / name, 2, seed=seed, scale=10.0**seed)
    server = {"format": "ImageFolder", "claimName": "server"}
    federation = {
        "kind": "Federation",
        "metadata": {"name": "bodies"},
        "spec": {
            "rounds": rounds,
            "task": {"segmentation": {"classes": list(CLASSES)}},
            "model": MODEL,
            "method": {"local": {"epochs": 1, "batchSize": 2}, **method},
            "protocol": {"mode": "Asynchronous" if method.get("name") == "FedAsync" else "Synchronous"},
            "evaluation": {"validation": server},
            **({"anchorData": {**server, "claimName": "anchors"}} if "serverTraining" in method else {}),
            **spec,
        },
    }
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump_all([federation, *silos_of("bodies", silos, labels)]))
    return file
