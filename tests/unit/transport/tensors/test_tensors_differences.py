"""Updates that travel as differences arrive as they were, and what is no difference is refused."""

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest
from anchorage.transport.tensors.differences import Differences, Restored
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool

COUNT = 300_001
LAYOUT = Layout.of([("n", "I64", ()), ("w", "F32", (COUNT,))])


def model_of(weights: np.ndarray, layout: Layout = LAYOUT) -> ModelBytes:
    arrays = {"n": np.array(3), "w": weights.astype(np.float32), "behind": np.ones(50_000, np.float32)}
    return ModelBytes.from_arrays(layout, arrays)


BASE = np.random.default_rng(1).standard_normal(COUNT)
CHANGES = {
    "nothing": BASE,
    "a tenth": np.where(np.arange(COUNT) % 10 == 0, BASE * 1.001, BASE),
    "everything": np.random.default_rng(2).standard_normal(COUNT),
    "not finite": np.where(np.arange(COUNT) == 7, np.nan, BASE),
}


@pytest.mark.parametrize(("change", "most"), [*zip(CHANGES, [0.01, 0.2, 1.0, 0.01], strict=True)])
def test_what_stayed_hardly_travels_and_nothing_is_lost(change, most):
    behind = Layout.of([("n", "I64", ()), ("w", "F32", (COUNT,)), ("behind", "F32", (50_000,))])
    update, received = model_of(CHANGES[change]), model_of(BASE, behind)
    sent, spool = Differences(update, received), MemorySpool(update.manifest)
    sink = Restored(spool, model_of(BASE))
    assert sent.manifest == sink.manifest == update.manifest and sink.missing() == (0, 1)
    travelled = [sent.chunk(index) for index in range(2)]
    for index, data in enumerate(travelled):
        sink.write(index, data)
    assert sink.missing() == () and [spool.chunk(i) for i in range(2)] == list(update.chunks)
    assert sum(map(len, travelled)) <= most * update.layout.nbytes


def test_bytes_that_are_no_words_travel_as_they_are():
    layout = Layout.of([("b", "I8", (5,))])
    update = ModelBytes.from_arrays(layout, {"b": np.arange(5, dtype=np.int8)})
    assert Differences(update, update).chunk(0) == update.chunk(0)


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 9, b"\x03\x00", np.random.default_rng(3).bytes(CHUNK_BYTES - 1), b"0" * (CHUNK_BYTES + 1)]
)
def test_what_is_no_difference_is_refused(data):
    update = model_of(BASE)
    spool = MemorySpool(update.manifest)
    with pytest.raises(AnchorageError, match="ChunkMismatch"):
        Restored(spool, update).write(0, data)
    assert spool.missing() == (0, 1)


def test_a_bomb_stays_small():
    import tracemalloc
    import zlib

    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = deflate.compress(bytes(1 << 27)) + deflate.flush()
    update = ModelBytes.of(Layout.of([("w", "F32", (1 << 18,))]), np.ones(1 << 20, np.uint8))
    assert len(bomb) < CHUNK_BYTES
    tracemalloc.start()
    with pytest.raises(AnchorageError, match="ChunkMismatch"):
        Restored(MemorySpool(Manifest("l", CHUNK_BYTES, (b"x" * 16,))), update).write(0, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * CHUNK_BYTES
