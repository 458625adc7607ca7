"""FedAnchor's pseudo-labels by class prototypes, compared with the similarity to every anchor: ``make bench-pseudo ARGS="--json FILE"``.

Both are exact (methods reference, 9.2 number 1); the table counts the images whose label or acceptance differs. One thread, as in a silo's trainer.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from anchorage.pieces.pseudo_labels.anchor_similarity import accept, anchor_scores, class_prototypes

THRESHOLD = 0.1


def every_anchor(queries: Tensor, anchors: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Score as printed in the paper: the [n, S] similarity matrix, its mean per class, argmax and threshold."""
    similarity = functional.normalize(queries) @ functional.normalize(anchors).T
    member = (labels[:, None] == torch.arange(classes)).to(similarity.dtype)
    return accept(similarity @ member / member.sum(0), THRESHOLD)


def by_prototypes(queries: Tensor, anchors: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Score as Anchorage does."""
    return accept(anchor_scores(queries, *class_prototypes(anchors, labels, classes)), THRESHOLD)


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(images: int, anchors: int, width: int, classes: int, repeats: int) -> dict[str, float | int | bool]:
    """Return one row: both times, their ratio, and whether labels and acceptance agree."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=draw)
    labels = torch.arange(anchors) % classes
    bank = centres[labels] + 2 * torch.randn(anchors, width, generator=draw)
    queries = centres[torch.arange(images) % classes] + 2 * torch.randn(images, width, generator=draw)
    slow, fast = every_anchor(queries, bank, labels, classes), by_prototypes(queries, bank, labels, classes)
    naive = seconds(lambda: every_anchor(queries, bank, labels, classes), max(1, repeats // 5))
    ours = seconds(lambda: by_prototypes(queries, bank, labels, classes), repeats)
    return {
        "images": images,
        "anchors": anchors,
        "width": width,
        "classes": classes,
        "median_s": ours,
        "naive_median_s": naive,
        "ratio": naive / ours,
        "labels_differ": int((slow[0] != fast[0]).sum()),
        "acceptance_differs": int((slow[1] != fast[1]).sum()),
    }


def main() -> None:
    """Print a table, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--anchors", type=int, default=5_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--classes", type=int, nargs="+", default=[10])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(arguments.images, arguments.anchors, arguments.width, c, arguments.repeats) for c in arguments.classes
    ]
    print(
        f"{'images':>8} {'anchors':>8} {'width':>6} {'classes':>8} {'prototypes':>12} {'naive':>10} {'ratio':>7} {'differ':>7}"
    )
    for row in rows:
        print(
            f"{row['images']:>8} {row['anchors']:>8} {row['width']:>6} {row['classes']:>8} "
            f"{1000 * row['median_s']:>9.2f} ms {row['naive_median_s']:>8.2f} s {row['ratio']:>7.0f} "
            f"{row['labels_differ'] + row['acceptance_differs']:>7}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "pseudo", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
