"""Rounded updates arrive as they were rounded, in fewer bytes, and what no encoder wrote is refused."""

from fractions import Fraction

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, TopCoding
from anchorage.transport.tensors.encoded import Decoded, Encoded, Encoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool

LAYOUT = Layout.of(
    [("n", "I64", ()), ("a.weight", "F32", (500, 777)), ("a.bias", "F32", (777,)), ("b.weight", "F32", (9, 1001))]
)
INT4, INT8, BFLOAT16 = BlockCoding(bits=4), BlockCoding(bits=8), BFloat16Coding()
TOP = TopCoding(share=Fraction(1, 100))
COUNT = LAYOUT.nbytes // 4
SIZES = [(1, 1e-2), (1, 1e-5), (1, 1e-7), (1e-3, 1), (0.05, 1e-3), (1, 0), (1e-30, 1e-30), (1e-38, 1e-40)]


def floats(model: float, change: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a model and an update as bytes whose changes are of very different sizes."""
    rng = np.random.default_rng(1)
    base = (rng.standard_normal(COUNT) * model).astype(np.float32)
    spread = np.exp(2 * rng.standard_normal(COUNT))
    update = base + (rng.standard_normal(COUNT) * change * spread).astype(np.float32)
    return base.view(np.uint8), update.view(np.uint8)


def of(data: np.ndarray) -> ModelBytes:
    return ModelBytes.of(LAYOUT, data)


@pytest.mark.parametrize(
    ("coding", "share", "error"), [(INT4, 0.134, 4.9), (INT8, 0.256, 0.55), (BFLOAT16, 0.505, 2**-8)]
)
@pytest.mark.parametrize(("model", "change"), SIZES)
def test_a_rounded_update_travels_short_and_arrives_to_the_bit(coding, share, error, model, change):
    encoding = Encoding(coding, LAYOUT, LAYOUT)
    base, changed_values = floats(model, change)
    update = changed_values.copy()
    encoding.round_update(update, base)
    once = update.copy()
    encoding.round_update(update, base)
    assert (once == update).all()

    sent, spool = Encoded(of(update), of(base), encoding), MemorySpool(of(update).manifest)
    sink = Decoded(spool, of(base), encoding)
    travelled = [sent.chunk(index) for index in range(sent.manifest.count)]
    for index, data in enumerate(travelled):
        sink.write(index, data)
    assert sink.missing() == () and b"".join(map(spool.chunk, range(sent.manifest.count))) == update.tobytes()
    assert sum(map(len, travelled)) <= share * LAYOUT.nbytes

    exact = LAYOUT.by_name["a.bias"]
    span = slice(exact.offset, exact.offset + exact.nbytes)
    assert (update[span] == changed_values[span]).all() and (update[:8] == changed_values[:8]).all()
    old, new, true = (LAYOUT.by_name["b.weight"].offset + np.arange(256 * 4), update, changed_values)
    changed, wanted = (
        each[old].view(np.float32).astype(np.float64) - base[old].view(np.float32) for each in (new, true)
    )
    spacing = np.spacing(np.abs(changed_values[old].view(np.float32))).astype(np.float64) * 2
    bound = error * np.abs(wanted) + 2 * spacing + 2.0**-120
    if coding is not BFLOAT16:  # a step of the block, or what its largest number is rounded to
        bound = (
            2 * error * np.abs(wanted).max() / 63.6
            + np.abs(changed_values[old].view(np.float32)).max() * 2.0**-20
            + 2.0**-120
        )
    assert (np.abs(changed - wanted) <= bound).all()


@pytest.mark.parametrize(("model", "change"), SIZES)
def test_the_largest_changes_travel_short_and_arrive_to_the_bit(model, change):
    encoding = Encoding(TOP, LAYOUT, LAYOUT)
    base, changed = floats(model, change)
    update = changed.copy()
    encoding.round_update(update, base)
    once = update.copy()
    encoding.round_update(update, base)
    assert (once == update).all()
    sent, spool = Encoded(of(update), of(base), encoding), MemorySpool(of(update).manifest)
    travelled = [sent.chunk(index) for index in range(sent.manifest.count)]
    for index, data in enumerate(travelled):
        Decoded(spool, of(base), encoding).write(index, data)
    assert b"".join(map(spool.chunk, range(sent.manifest.count))) == update.tobytes()
    chosen = (3885 + 91) if change else 0  # of 388,500 and 9,009 numbers; pages: 4 in the first chunk, 3 in the second
    assert sum(map(len, travelled)) == 8 + 777 * 4 + 7 * 4 + chosen * 6
    for name in ("a.weight", "b.weight"):
        entry = LAYOUT.by_name[name]
        span = slice(entry.offset, entry.offset + entry.nbytes)
        new, wanted, old = (each[span].view(np.float32) for each in (update, changed, base))
        moved, change_of = new != old, np.abs(wanted - old)
        assert (new[moved] == wanted[moved]).all()
        assert not moved.any() or change_of[moved].min() >= change_of[~moved].max()


@pytest.mark.parametrize("coding", [INT4, INT8, BFLOAT16])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38])
def test_what_cannot_be_rounded_travels_as_it_is(coding, value):
    encoding = Encoding(coding, LAYOUT, LAYOUT)
    base, update = floats(1, 1e-3)
    update.view(np.float32)[5000] = value
    changed = update.copy()
    encoding.round_update(update, base)
    assert (update[: 1 << 20] == changed[: 1 << 20]).all() and (update != changed).any()
    sent = Encoded(of(update), of(base), encoding)
    assert sent.chunk(0) == update[: 1 << 20].tobytes() and len(sent.chunk(1)) < len(update[1 << 20 :])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_tensor_that_is_not_finite_travels_whole(value):
    encoding = Encoding(TOP, LAYOUT, LAYOUT)
    base, update = floats(1, 1e-3)
    update.view(np.float32)[5000] = value
    changed, tensor = update.copy(), LAYOUT.by_name["a.weight"]
    encoding.round_update(update, base)
    span = slice(tensor.offset, tensor.offset + tensor.nbytes)
    assert (update[span] == changed[span]).all() and (update != changed).any()
    assert Encoded(of(update), of(base), encoding).chunk(0) == update[: 1 << 20].tobytes()


@pytest.mark.parametrize("coding", [INT4, INT8, BFLOAT16, TOP])
def test_what_is_no_encoded_chunk_is_refused(coding):
    encoding = Encoding(coding, LAYOUT, LAYOUT)
    base, update = floats(1, 1e-2)
    encoding.round_update(update, base)
    spool = MemorySpool(of(update).manifest)
    sink, good = Decoded(spool, of(base), encoding), Encoded(of(update), of(base), encoding).chunk(0)
    damaged = [b"", good[:-1], good + b"\0", b"\xff" * len(good), good[:20] + bytes(20) + good[40:], bytes(1 << 21)]
    for data in damaged:
        with pytest.raises(AnchorageError, match="ChunkMismatch"):
            sink.write(0, data)
    assert spool.missing() == (0, 1)
    sink.write(0, good)
    assert spool.missing() == (1,)


def test_an_update_may_have_fewer_tensors_than_the_model_and_stand_behind_frozen_ones():
    named = [(t.name, t.dtype, t.shape) for t in LAYOUT.tensors]
    for down in (Layout.of([("f", "F32", (3, 300)), *named], {"f"}), Layout.of([*named, ("c.weight", "F32", (2, 2))])):
        encoding = Encoding(INT8, down, LAYOUT)
        base, update = floats(1, 1e-2)
        tensors = {t.name: base[t.offset : t.offset + t.nbytes] for t in LAYOUT.tensors}
        model = np.zeros(down.nbytes, np.uint8)
        for t in down.tensors:
            model[t.offset : t.offset + t.nbytes] = tensors.get(t.name, 0)
        encoding.round_update(update, encoding.base(model))
        code = Encoded(of(update), encoding.base_of(ModelBytes.of(down, model)), encoding).chunk(0)
        assert encoding.decode(0, code, base[: 1 << 20].data) == update[: 1 << 20].tobytes() and len(code) < 1 << 19
