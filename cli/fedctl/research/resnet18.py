"""The tensors of a ResNet-18 (7×7 stem, batch normalisation) without torch: the benchmark's load."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

STAGES = (64, 128, 256, 512)
BLOCKS = 2

Entry = tuple[str, tuple[int, ...], type[np.generic]]


def entries(classes: int) -> Iterator[Entry]:
    """Yield name, shape and dtype of each of the 122 tensors (62 parameters, 60 buffers), 4-byte floats and 8-byte counters."""
    yield "conv1.weight", (64, 3, 7, 7), np.float32
    yield from _norm("bn1", 64)
    width = 64
    for stage, out in enumerate(STAGES, start=1):
        for block in range(BLOCKS):
            name = f"layer{stage}.{block}"
            yield f"{name}.conv1.weight", (out, width, 3, 3), np.float32
            yield from _norm(f"{name}.bn1", out)
            yield f"{name}.conv2.weight", (out, out, 3, 3), np.float32
            yield from _norm(f"{name}.bn2", out)
            if width != out:
                yield f"{name}.downsample.0.weight", (out, width, 1, 1), np.float32
                yield from _norm(f"{name}.downsample.1", out)
            width = out
    yield "fc.weight", (classes, width), np.float32
    yield "fc.bias", (classes,), np.float32


def _norm(name: str, width: int) -> Iterator[Entry]:
    for part in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{part}", (width,), np.float32
    yield f"{name}.num_batches_tracked", (), np.int64


def random_model(copies: int, classes: int, generator: np.random.Generator) -> Mapping[str, NDArray[Any]]:
    """Return the tensors of several ResNet-18 side by side, every number drawn at random.

    Parameters
    ----------
    copies : int
        How many networks.
    classes : int
        Width of each classifier.
    generator : Generator
        Source of the numbers: floats uniform in [-1, 1), counters uniform in [0, 1000).
    """
    arrays: dict[str, NDArray[Any]] = {}
    for copy in range(copies):
        for name, shape, dtype in entries(classes):
            if dtype is np.int64:
                arrays[f"copy{copy}.{name}"] = np.asarray(generator.integers(0, 1000, shape), np.int64)
            else:
                arrays[f"copy{copy}.{name}"] = generator.random(shape, np.float32) * np.float32(2) - np.float32(1)
    return arrays
