"""Frozen weights that agents of several federations share: fetched once, checked, bounded, and never needed."""

import logging
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from silo_fakes import FakeLink, train_task

from anchorage.engine.silo import SiloWorker
from anchorage.transport.messages import Assigned
from anchorage.transport.tensors.chunks import CHUNK_BYTES, chunk_digest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_silo.mapped_buffers import MappedBuffers
from anchorage_silo.null_learner import NullLearner
from anchorage_silo.shared_weights import SharedWeights

LAYOUT = Layout.of([("encoder.weight", "F32", (600_000,)), ("classifier.weight", "F32", (700,))], {"encoder.weight"})
CHUNKS = -(-LAYOUT.front // CHUNK_BYTES)


def model_of(head: float, encoder: float = 1.0) -> ModelBytes:
    encoded = np.arange(600_000, dtype=np.float32) * np.float32(encoder)
    return ModelBytes.from_arrays(
        LAYOUT, {"encoder.weight": encoded, "classifier.weight": np.full(700, head, np.float32)}
    )


def fetched_by(state: Path, shared: Path | None, model: ModelBytes) -> list[int]:
    """Give an agent a task on a model, and return the chunks that it asked the server for; its buffer holds the model."""
    state.mkdir(exist_ok=True)
    link, buffers, task = FakeLink(model), MappedBuffers(state, shared=shared), train_task(model)
    SiloWorker(link, NullLearner(LAYOUT, LAYOUT.trainable, 0.5, 7), buffers).handle(Assigned(task))
    assert ("announce", task.id) in link.messages
    assert bytes(buffers.model(task.kind).array) == model.buffer().tobytes()
    return link.fetched


def test_the_agent_of_a_second_federation_fetches_no_byte_of_the_same_frozen_weights(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    everything = list(range(CHUNKS + 1))
    assert fetched_by(tmp_path / "first", shared, model_of(1.0)) == everything
    assert sum(file.stat().st_size for file in shared.iterdir()) == LAYOUT.front
    assert fetched_by(tmp_path / "second", shared, model_of(2.0)) == [CHUNKS]  # the head alone
    assert fetched_by(tmp_path / "apart", None, model_of(3.0)) == everything
    assert fetched_by(tmp_path / "third", shared, model_of(3.0, encoder=2.0)) == everything
    assert len(list(shared.iterdir())) == 2 * CHUNKS


@pytest.mark.parametrize("damage", ["cut", "other bytes", "empty"])
def test_a_damaged_chunk_is_fetched_and_replaced(tmp_path: Path, damage: str) -> None:
    shared = tmp_path / "shared"
    fetched_by(tmp_path / "first", shared, model_of(1.0))
    digest = model_of(1.0).manifest.digests[1]
    content = (shared / digest.hex()).read_bytes()
    changed = {"cut": content[:-1], "other bytes": content[:-1] + b"\x7f", "empty": b""}[damage]
    (shared / digest.hex()).write_bytes(changed)
    assert fetched_by(tmp_path / "second", shared, model_of(2.0)) == [1, CHUNKS]
    assert (shared / digest.hex()).read_bytes() == content
    assert fetched_by(tmp_path / "third", shared, model_of(3.0)) == [CHUNKS]


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    shared = SharedWeights(tmp_path, most_bytes=30)
    digests = [chunk_digest(bytes([number]) * 10) for number in range(3)]
    for number, digest in enumerate(digests):
        shared.keep(digest, bytes([number]) * 10)
        os.utime(tmp_path / digest.hex(), (number, number))
    assert shared.read(digests[0], 10) == bytes(10)  # used now
    assert shared.make_room(15)
    assert [shared.read(digest, 10) is not None for digest in digests] == [True, False, False]
    assert not shared.make_room(31) and shared.read(digests[0], 10) is not None


def test_two_writers_of_the_same_chunk_leave_it_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096
    together, digest = threading.Barrier(4), chunk_digest(data)

    def write() -> None:
        shared = SharedWeights(tmp_path)
        together.wait()
        shared.keep(digest, data)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.name for file in tmp_path.iterdir()] == [digest.hex()]
    assert SharedWeights(tmp_path).read(digest, len(data)) == data


def test_a_folder_that_cannot_be_used_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert fetched_by(tmp_path / "first", tmp_path / "file", model_of(1.0)) == list(range(CHUNKS + 1))
    assert [record.message for record in caplog.records] == [
        f"frozen weights are not shared in {tmp_path / 'file'} from now on: File exists"
    ]
