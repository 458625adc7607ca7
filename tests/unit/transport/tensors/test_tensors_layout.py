"""Layouts, chunks and manifests: round trips of every dtype and shape."""

import json
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest, chunk_digests
from anchorage.transport.tensors.layout import ITEM_BYTES, Layout
from anchorage.transport.tensors.model import ModelBytes, array_dtype, dtype_name, read_arrays

shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
tensors = st.lists(
    st.tuples(st.text(min_size=1, max_size=12), st.sampled_from(sorted(ITEM_BYTES)), shapes),
    max_size=8,
    unique_by=lambda t: t[0],
)


@st.composite
def models(draw: st.DrawFn) -> ModelBytes:
    layout = Layout.of(draw(tensors))
    data = np.frombuffer(draw(st.binary(min_size=layout.nbytes, max_size=layout.nbytes)), np.uint8).copy()
    for t in layout.tensors:
        if t.dtype == "BOOL":
            data[t.offset : t.offset + t.nbytes] &= 1
    return ModelBytes.of(layout, data)


@given(tensors)
def test_tensors_lie_without_gaps_and_aligned(given_tensors):
    layout = Layout.of(given_tensors)
    at = 0
    for entry in layout.tensors:
        assert (entry.offset, entry.nbytes) == (at, prod(entry.shape) * ITEM_BYTES[entry.dtype])
        assert entry.offset % ITEM_BYTES[entry.dtype] == 0
        at += entry.nbytes
    assert layout.nbytes == at
    assert sorted((t.name, t.dtype, t.shape) for t in layout.tensors) == sorted(given_tensors)


@given(tensors)
def test_json_keeps_the_layout(given_tensors):
    layout = Layout.of(given_tensors)
    reread = Layout.from_json(layout.to_json())
    assert reread == layout
    assert reread.digest == layout.digest


@given(tensors, st.data())
def test_selecting_keeps_order_and_packs_anew(given_tensors, data):
    layout = Layout.of(given_tensors)
    names = data.draw(st.sets(st.sampled_from([t.name for t in layout.tensors]))) if layout.tensors else set()
    part = layout.select(names)
    assert [t.name for t in part.tensors] == [t.name for t in layout.tensors if t.name in names]
    assert part.nbytes == sum(t.nbytes for t in part.tensors)


@given(models())
def test_arrays_come_back_bit_for_bit(model):
    rebuilt = ModelBytes.from_arrays(model.layout, model.arrays())
    assert rebuilt.chunks == model.chunks
    assert rebuilt.digest == model.digest
    assert {n: a.shape for n, a in model.arrays().items()} == {t.name: t.shape for t in model.layout.tensors}


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_every_dtype_and_shape(dtype, shape):
    layout = Layout.of([("t", dtype, shape)])
    array = np.zeros(shape, array_dtype(dtype))
    model = ModelBytes.from_arrays(layout, {"t": array})
    assert model.arrays()["t"].dtype == array.dtype
    assert np.array_equal(model.arrays()["t"], array)
    assert array_dtype(dtype).itemsize == ITEM_BYTES[dtype]
    if dtype != "BF16":
        assert dtype_name(array.dtype) == dtype


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("chunks", [1, 2])
def test_chunk_edges(chunks, extra):
    nbytes = chunks * CHUNK_BYTES + extra
    layout = Layout.of([("t", "U8", (nbytes,))])
    data = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    model = ModelBytes.of(layout, data)
    assert [len(c) for c in model.chunks] == [
        stop - start for start, stop in map(model.manifest.span, range(len(model.chunks)))
    ]
    assert len(model.chunks) == -(-nbytes // CHUNK_BYTES)
    assert chunk_digests(data) == model.manifest.digests
    assert np.array_equal(model.buffer(), data)


def test_manifests_tell_layouts_lengths_and_bytes_apart():
    digests = (b"1" * 32, b"2" * 32)
    manifests = [
        Manifest("a", 5, digests),
        Manifest("b", 5, digests),
        Manifest("a", 6, digests),
        Manifest("a", 5, digests[::-1]),
        Manifest("a", 5, digests[:1]),
    ]
    assert len({m.digest for m in manifests}) == len(manifests)
    assert Manifest("a", 5, digests).digest == manifests[0].digest


def test_replacing_some_tensors():
    layout = Layout.of([("a", "F32", (2,)), ("b", "F32", (1,))])
    model = ModelBytes.from_arrays(layout, {"a": np.zeros(2, np.float32), "b": np.ones(1, np.float32)})
    part = ModelBytes.from_arrays(layout.select(["a"]), {"a": np.full(2, 7, np.float32)})
    replaced = model.with_tensors(part).arrays()
    assert replaced["a"].tolist() == [7, 7]
    assert replaced["b"].tolist() == [1]
    with pytest.raises(ValueError, match="no tensor c"):
        model.with_tensors(ModelBytes(Layout.of([("c", "F32", (0,))]), []))


def test_mistakes_are_refused():
    with pytest.raises(ValueError, match="twice"):
        Layout.of([("a", "F32", ()), ("a", "F32", ())])
    with pytest.raises(ValueError, match="dtype"):
        Layout.of([("a", "C64", ())])
    for text in ("[[1]]", json.dumps([["a", "F32", None]]), "{", '[["a", "F32", ["x"]]]'):
        with pytest.raises(ValueError):
            Layout.from_json(text)
    layout = Layout.of([("a", "F32", (2,))])
    with pytest.raises(ValueError, match="chunks"):
        ModelBytes(layout, [b"123"])
    for arrays in ({}, {"a": np.zeros(3, np.float32)}, {"a": np.zeros(2)}):
        with pytest.raises(ValueError, match="tensor a"):
            ModelBytes.from_arrays(layout, arrays)
    with pytest.raises(ValueError, match="complex"):
        dtype_name(np.dtype(np.complex64))


def test_arrays_are_views_of_the_given_buffer():
    layout = Layout.of([("a", "F32", (2,))])
    buffer = np.zeros(8, np.uint8)
    read_arrays(layout, buffer)["a"][:] = 1
    assert buffer.any()
