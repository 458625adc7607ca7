"""Rounded models arrive as they were rounded, in fewer bytes; the server's own model keeps what rounding lost."""

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.transport.tensors.encoded_model import MODEL_CODINGS, ModelEncoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool

TENSORS = [
    ("f.weight", "F32", (3, 100_000)),
    ("n", "I64", ()),
    ("a.weight", "F32", (500, 777)),
    ("a.bias", "F32", (777,)),
    ("control.a.weight", "F32", (9, 1001)),
]
LAYOUTS = [Layout.of(TENSORS), Layout.of(TENSORS, {"f.weight"})]


def model_of(layout: Layout, size: float = 1.0) -> ModelBytes:
    rng = np.random.default_rng(3)
    arrays = {
        name: np.asarray(rng.standard_normal(shape) * size, np.float32 if kind == "F32" else np.int64)
        for name, kind, shape in TENSORS
    }
    return ModelBytes.from_arrays(layout, arrays)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "share", "error"), [("BFloat16", 2, 2**-8), ("Int8", 4, 1 / 63.6)])
def test_a_rounded_model_travels_short_and_arrives_to_the_bit(
    name: str, share: int, error: float, layout: Layout
) -> None:
    encoding, model = ModelEncoding(MODEL_CODINGS[name], layout), model_of(layout)
    rounded = encoding.round_model(model)
    spool = MemorySpool(rounded.manifest)
    sink = encoding.sink(spool)
    travelled = [rounded.chunk(index) for index in range(rounded.manifest.count)]
    for index, data in enumerate(travelled):
        sink.write(index, data)
    assert sink.missing() == ()
    assert b"".join(map(spool.chunk, range(len(travelled)))) == b"".join(rounded.model.chunks)
    coded = 500 * 777 + (0 if layout.front else 300_000)
    assert sum(map(len, travelled)) <= layout.nbytes - 4 * coded + coded * 4 / share * 1.02
    exact, near = model.arrays(), rounded.model.arrays()
    for tensor, array in exact.items():
        if tensor == "a.weight" or (tensor == "f.weight" and not layout.front):
            assert 0 < np.abs(near[tensor] - array).max() <= error * np.abs(array).max()
        else:
            assert (near[tensor] == array).all()
    assert encoding.round_model(model).manifest == rounded.manifest and encoding.fits(rounded.manifest)


@pytest.mark.parametrize("name", MODEL_CODINGS)
def test_what_rounding_loses_is_not_lost_for_the_rounds_to_come(name: str) -> None:
    """Steps that are far below what the coding can say add up: 200 of 1e-5 beside numbers around 1."""
    layout = LAYOUTS[1]
    encoding, model = ModelEncoding(MODEL_CODINGS[name], layout), model_of(layout)
    up = layout.trainable.select(["a.weight", "a.bias", "n"])
    first = model.arrays()["a.weight"].astype(np.float64)
    for _ in range(200):
        received = encoding.round_model(model).model
        arrays = received.arrays()
        mean = ModelBytes.from_arrays(
            up, {t.name: arrays[t.name] + np.float32(1e-5) if t.dtype == "F32" else arrays[t.name] for t in up.tensors}
        )
        model = model.with_tensors(encoding.exact_mean(mean, model, received))
    assert np.abs(model.arrays()["a.weight"] - first - 200 * 1e-5).max() < 200 * 2**-23 * 4
    received = encoding.round_model(model).model
    still = encoding.exact_mean(received.trainable, model, received)
    assert still.digest == model.trainable.digest, "silos that change nothing change nothing"


@pytest.mark.parametrize("name", MODEL_CODINGS)
def test_what_is_no_encoded_chunk_is_refused(name: str) -> None:
    layout = LAYOUTS[1]
    encoding = ModelEncoding(MODEL_CODINGS[name], layout)
    rounded = encoding.round_model(model_of(layout))
    spool, ahead = MemorySpool(rounded.manifest), len(rounded.manifest.fixed)
    sink, good = encoding.sink(spool), rounded.chunk(ahead)
    other = ModelEncoding(MODEL_CODINGS[next(each for each in MODEL_CODINGS if each != name)], layout)
    damaged = [b"", good[:-1], good + b"\0", b"\xff" * len(good), other.round_model(model_of(layout)).chunk(ahead)]
    for data in damaged:
        with pytest.raises(AnchorageError, match="ChunkMismatch"):
            sink.write(ahead, data)
    with pytest.raises(AnchorageError, match="ChunkMismatch"):
        sink.write(0, rounded.chunk(0)[:-1])
    assert spool.missing() == tuple(range(rounded.manifest.count))
    sink.write(ahead, good)
    assert ahead not in spool.missing()


@pytest.mark.parametrize("name", MODEL_CODINGS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38])
def test_what_cannot_be_rounded_travels_as_it_is(name: str, value: float) -> None:
    encoding, arrays = ModelEncoding(MODEL_CODINGS[name], LAYOUTS[0]), model_of(LAYOUTS[0]).arrays()
    arrays["f.weight"][0, 0] = value
    model = ModelBytes.from_arrays(LAYOUTS[0], arrays)
    rounded = encoding.round_model(model)
    assert rounded.chunk(0) == rounded.model.chunk(0) == model.chunk(0)
    assert len(rounded.chunk(1)) < len(model.chunk(1))
