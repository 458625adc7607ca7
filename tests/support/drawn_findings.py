"""A drawn study of several findings per image: marks in corners of small grey pictures, at sites that know not all of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from drawn_images import write_table
from PIL import Image

FINDINGS = ("Mass", "Effusion", "Edema")
_PLACES = ((0, 0), (0, 4), (4, 0))


def draw_site(folder: Path, count: int, seed: int, columns: Sequence[str] = FINDINGS, unlabelled: int = 0) -> None:
    """Write pictures of 8 pixels, and a table with a column per finding; every fourth cell of what is left is uncertain or empty.

    Parameters
    ----------
    folder : Path
        Made; gets ``table.csv`` and pictures.
    count, unlabelled : int
        Pictures, and those of them, the last, whose cells are empty.
    seed : int
        Draws them.
    columns : sequence of str
        Findings that the table has.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    rows: list[list[Any]] = []
    for row in range(count):
        present = rng.random(len(FINDINGS)) < (0.5, 0.4, 0.3)
        pixels = rng.integers(0, 60, (8, 8))
        for here, (top, left) in zip(present, _PLACES, strict=True):
            pixels[top : top + 4, left : left + 4] += 150 * here
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"p{seed}-{row}.png")
        entries = [str(int(value)) if rng.random() < 0.85 else ("-1", "")[int(rng.random() < 0.5)] for value in present]
        known = row < count - unlabelled
        cells = [entries[FINDINGS.index(name)] if known else "" for name in columns]
        rows.append([f"p{seed}-{row}.png", f"s{seed} patient {row // 2}", *cells])
    write_table(folder / "table.csv", ["image", "patient", *columns], rows)


def documents(
    method: Mapping[str, Any],
    *,
    labels: Sequence[str] = ("All", "All"),
    claims: Sequence[str] = "abcde",
    rounds: int = 2,
    **spec: Any,
) -> list[dict[str, Any]]:
    """Return a federation of the sites ``a``, ``b`` and so on, of these folders below the data root, validated at the server on ``check``."""
    model = {"network": "LeafCnn", "imageSize": 8, "channels": 1}
    rows: list[dict[str, Any]] = [
        {
            "kind": "Federation",
            "metadata": {"name": "chests"},
            "spec": {
                "rounds": rounds,
                "task": {"multiLabel": {"labels": list(FINDINGS)}},
                "model": model,
                "method": dict(method),
                "evaluation": {"validation": section("check")},
                **spec,
            },
        }
    ]
    for name, has, claim in zip("abcde", labels, claims, strict=False):
        silo = {"federation": "chests", "labels": has, "managed": {"data": section(claim)}}
        rows.append({"kind": "Silo", "metadata": {"name": name}, "spec": silo})
    return rows


def section(name: str) -> dict[str, Any]:
    """Return the data section of a site's folder and table."""
    return {"format": "CsvManifest", "claimName": name, "manifest": "table.csv"}


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """Write documents as one file, and return it."""
    file = folder / "chests.yaml"
    file.write_text(yaml.safe_dump_all(rows))
    return file
