"""Frozen tensors at the start of a model: their chunks are the same in every model of a run, so they travel once."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anchorage.api.errors import AnchorageError, transfer
from anchorage.engine.buffers import ModelBuffer
from anchorage.transport.grpc.convert import manifest_from_proto, manifest_to_proto
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest, spans
from anchorage.transport.tensors.joined import behind_front
from anchorage.transport.tensors.large_arrays import LargeArrays, joined_behind
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_description, read_safetensors, write_safetensors

TENSORS = [
    ("encoder.weight", "F32", (600_001,)),
    ("encoder.steps", "I64", ()),
    ("classifier.weight", "F32", (3, 5)),
    ("anchor_head.weight", "F32", (2, 5)),
]
FROZEN = {"encoder.weight", "encoder.steps"}
LAYOUT = Layout.of(TENSORS, FROZEN)
FRONT = 600_001 * 4 + 8


def model_of(seed: int, encoder: int = 0) -> ModelBytes:
    fixed, moving = np.random.default_rng(encoder), np.random.default_rng(seed)
    arrays = {
        "encoder.weight": fixed.random(600_001, np.float32),
        "encoder.steps": np.array(encoder),
        "classifier.weight": moving.random((3, 5), np.float32),
        "anchor_head.weight": moving.random((2, 5), np.float32),
    }
    return ModelBytes.from_arrays(LAYOUT, arrays)


def fetched(buffer: ModelBuffer, model: ModelBytes) -> int:
    """Fetch what a buffer lacks of a model; return the bytes."""
    buffer.receive(model.manifest)
    missing = buffer.missing()
    for index in missing:
        buffer.write(index, model.chunk(index))
    assert buffer.array.tobytes() == model.buffer().tobytes()
    return sum(len(model.chunk(index)) for index in missing)


def new_buffer() -> ModelBuffer:
    return ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))


def test_frozen_tensors_come_first_and_the_others_begin_a_chunk() -> None:
    assert LAYOUT.front == FRONT and LAYOUT.trainable.nbytes == 100
    assert [t.name for t in LAYOUT.tensors if t.offset >= FRONT] == ["classifier.weight", "anchor_head.weight"]
    assert spans(LAYOUT.nbytes, FRONT)[-2:] == [(2 * CHUNK_BYTES, FRONT), (FRONT, FRONT + 100)]
    manifest = model_of(1).manifest
    assert [manifest.span(index) for index in range(manifest.count)] == spans(LAYOUT.nbytes, FRONT)
    for at in (0, CHUNK_BYTES, FRONT - 1, FRONT, FRONT + 99):
        index, offset = manifest.locate(at)
        assert manifest.span(index)[0] + offset == at


def test_a_layout_without_frozen_tensors_is_as_ever() -> None:
    plain = Layout.of(TENSORS)
    assert plain.trainable is plain and plain.freeze(()) == plain and "frozen" not in plain.to_json()
    assert LAYOUT.of_network() == plain and LAYOUT.digest != plain.digest


def test_json_keeps_what_is_frozen() -> None:
    assert Layout.from_json(LAYOUT.to_json()) == LAYOUT
    with pytest.raises(ValueError, match="not a layout|too long"):
        Layout.from_json('[["a","F32",[1],"frosty"]]')


def test_an_update_replaces_the_trainable_part_alone() -> None:
    before, other = model_of(1), model_of(2)
    part = ModelBytes.from_arrays(LAYOUT.select(["classifier.weight"]), other.arrays())
    after = before.with_tensors(part)
    assert after.layout == LAYOUT and after.manifest.fixed == before.manifest.fixed
    assert after.digest == ModelBytes.from_arrays(LAYOUT, {**before.arrays(), **part.arrays()}).digest
    assert before.with_tensors(other.trainable).digest == other.digest
    frozen = ModelBytes.from_arrays(LAYOUT.select(["encoder.steps"]).freeze(()), other.arrays())
    with pytest.raises(ValueError, match=r"no tensor encoder\.steps that changes"):
        before.with_tensors(frozen)


@pytest.mark.parametrize("layout", [None, LAYOUT])
def test_a_file_keeps_what_is_frozen(layout: Layout | None, tmp_path: Path) -> None:
    model = model_of(1)
    write_safetensors(tmp_path / "m", model, arrays={"state": np.ones(3)})
    if layout is None:
        layout, _ = read_description(tmp_path / "m")
        layout = layout.select(name for name in layout.by_name if name != "state")
    assert read_safetensors(tmp_path / "m", layout).model.digest == model.digest


def test_a_manifest_travels_with_its_front_which_is_no_longer_than_the_whole() -> None:
    manifest = model_of(1).manifest
    assert manifest_from_proto(manifest_to_proto(manifest)) == manifest
    wrong = manifest_to_proto(manifest)
    wrong.front = manifest.nbytes + 1
    with pytest.raises(AnchorageError) as caught:
        manifest_from_proto(wrong)
    assert caught.value.failure is transfer.MALFORMED_MESSAGE
    assert replace(manifest, front=0).digest != manifest.digest


def test_after_the_first_model_only_the_trainable_part_is_missing() -> None:
    buffer = new_buffer()
    assert [fetched(buffer, model_of(seed)) for seed in (1, 2, 2)] == [LAYOUT.nbytes, 100, 0]
    assert fetched(buffer, model_of(3, encoder=1)) == LAYOUT.nbytes, "another encoder"


def test_a_restarted_silo_finds_the_frozen_tensors_and_asks_for_those_that_it_lost() -> None:
    content = np.zeros(LAYOUT.nbytes, np.uint8)
    fetched(ModelBuffer(lambda nbytes: content), model_of(1))
    assert fetched(ModelBuffer(lambda nbytes: content), model_of(2)) == 100
    content[CHUNK_BYTES + 5] ^= 1
    assert fetched(ModelBuffer(lambda nbytes: content), model_of(3)) == CHUNK_BYTES + 100


def test_a_model_to_score_takes_the_frozen_tensors_of_the_one_to_train_on() -> None:
    training, scoring = new_buffer(), new_buffer()
    fetched(training, model_of(1))
    scoring.receive(model_of(2).manifest)
    scoring.borrow(training)
    assert fetched(scoring, model_of(2)) == 100
    scoring.receive(model_of(3, encoder=1).manifest)
    scoring.borrow(training)
    assert 0 in scoring.missing()


def test_an_update_is_scored_behind_the_frozen_tensors() -> None:
    model, up = model_of(1), LAYOUT.trainable.select(["classifier.weight"])
    update = ModelBytes.from_arrays(up, model_of(2).arrays())
    scored = behind_front(update, up, model)
    full_model = ModelBytes.from_arrays(up.behind(LAYOUT), {**model.arrays(), **update.arrays()})
    assert scored.manifest == full_model.manifest
    assert [scored.chunk(i) for i in range(scored.manifest.count)] == list(full_model.chunks)
    assert behind_front(update, up, update) is update


def test_large_arrays_come_behind_a_model_with_frozen_tensors() -> None:
    pool = ModelBytes.from_arrays(Layout.of([("pool", "F32", (300_000,))]), {"pool": np.ones(300_000, np.float32)})
    joined, layout = joined_behind(model_of(1), [LargeArrays(pool.layout, pool)])
    buffer = new_buffer()
    buffer.receive(joined.manifest)
    for index in buffer.missing():
        buffer.write(index, joined.chunk(index))
    assert joined.manifest.fixed == model_of(1).manifest.fixed and layout == pool.layout
    assert buffer.array.tobytes() == model_of(1).buffer().tobytes() + pool.buffer().tobytes()
    rows = LargeArrays(layout, joined, LAYOUT.nbytes).rows("pool", 299_990, 300_000)
    np.testing.assert_array_equal(rows, np.ones(10, np.float32))
    assert Manifest.of(layout.digest, buffer.array).front == 0
