"""Drawn models whose tensors have many dtypes, for tests of aggregation."""

import numpy as np

from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
MIXED = Layout.of(
    [
        ("big", "F32", (300_000,)),
        ("count", "I64", ()),
        ("half", "F16", (301, 7)),
        ("none", "F32", (0, 3)),
        ("brain", "BF16", (11,)),
        ("mask", "BOOL", (5,)),
        ("double", "F64", (3,)),
        ("between", "I32", (4,)),
        ("more", "F32", (200_000,)),
    ]
)
"""Crosses chunk edges, mixes widths, has an integer tensor between floating ones."""


def random_model(seed: int, layout: Layout = MIXED) -> ModelBytes:
    draws = np.random.default_rng(seed)
    arrays = {}
    for t in layout.tensors:
        if t.dtype in FLOATS:
            arrays[t.name] = np.asarray(draws.normal(size=t.shape)).astype(FLOATS[t.dtype])
        elif t.dtype == "BF16":
            arrays[t.name] = (draws.normal(size=t.shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            dtype = {"I64": np.int64, "I32": np.int32, "BOOL": np.bool_}[t.dtype]
            arrays[t.name] = np.asarray(draws.integers(0, 2, t.shape)).astype(dtype)
    return ModelBytes.from_arrays(layout, arrays)


def with_value(model: ModelBytes, tensor: str, value: float) -> ModelBytes:
    arrays = model.arrays()
    arrays[tensor].reshape(-1)[-1] = value
    return ModelBytes.from_arrays(model.layout, arrays)
