"""Models and updates travel whole or encoded, updates as differences, too, and nothing else is taken for one."""

from fractions import Fraction

import numpy as np
import pytest
from link_steps import MODEL, OTHER, at_work, content, refused, uploading
from link_world import World, announcement_of, model_of, order_of

from anchorage.api.errors import transfer
from anchorage.transport.messages import (
    Announced,
    Arrived,
    Permit,
)
from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, Coding, TopCoding
from anchorage.transport.tensors.differences import Differences, Restored
from anchorage.transport.tensors.encoded import Decoded, Encoded, Encoding
from anchorage.transport.tensors.encoded_model import MODEL_CODINGS, ModelEncoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool


def test_only_missing_chunks_travel(world: World) -> None:
    silo, task = at_work(world)
    model = MemorySpool(MODEL.manifest)
    model.write(1, MODEL.chunk(1))
    silo.fetch(task.model, model)
    assert world.link.traffic() == (0, MODEL.manifest.nbytes - len(MODEL.chunk(1)))
    silo.announce(announcement_of(task, OTHER))
    update = MemorySpool(OTHER.manifest)
    update.write(0, OTHER.chunk(0))
    world.link.permit("a", task.id, update)
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, OTHER)
    assert world.link.traffic()[0] == OTHER.manifest.nbytes - len(OTHER.chunk(0))


def test_a_whole_sink_arrives_at_once(world: World) -> None:
    silo, task = at_work(world)
    silo.announce(announcement_of(task, OTHER))
    assert isinstance(world.event(), Announced)
    sink = MemorySpool(OTHER.manifest)
    for index, chunk in enumerate(OTHER.chunks):
        sink.write(index, chunk)
    world.link.permit("a", task.id, sink)
    assert world.event() == Arrived("a", task.id)


def test_an_update_that_was_not_announced_is_refused(world: World) -> None:
    silo, task, sink = uploading(world)
    refused(transfer.UNEXPECTED_UPDATE, silo.push, task.id, MODEL)
    refused(transfer.UNEXPECTED_UPDATE, silo.push, task.id, model_of(1))
    assert len(sink.missing()) == 3


def test_bytes_that_are_not_the_announced_ones_are_refused(world: World) -> None:
    silo, task, sink = uploading(world)

    class Damaged:
        manifest = OTHER.manifest

        def chunk(self, index: int) -> bytes:
            return OTHER.chunk(index) if index != 1 else bytes(len(OTHER.chunk(1)))

    class Short(Damaged):
        def chunk(self, index: int) -> bytes:
            return OTHER.chunk(index)[:-1]

    refused(transfer.CHUNK_MISMATCH, silo.push, task.id, Damaged())
    assert {1} <= set(sink.missing())
    refused(transfer.UNEXPECTED_UPDATE, silo.push, task.id, Short())
    silo.push(task.id, OTHER)
    assert world.event() == Arrived("a", task.id)


def test_an_update_may_travel_as_differences(world: World) -> None:
    silo, task = at_work(world)
    silo.announce(announcement_of(task, OTHER))
    world.event()
    update = MemorySpool(OTHER.manifest)
    world.link.permit("a", task.id, Restored(update, OTHER))
    assert order_of(silo) == Permit(task.id)
    silo.push(task.id, Differences(OTHER, OTHER))
    assert world.event() == Arrived("a", task.id)
    assert content(update) == b"".join(OTHER.chunks)
    assert 0 < world.link.traffic()[0] < OTHER.manifest.nbytes / 100


@pytest.mark.parametrize(
    "coding", [BlockCoding(bits=4), BlockCoding(bits=8), BFloat16Coding(), TopCoding(share=Fraction(1, 9))]
)
def test_an_update_may_travel_encoded(world: World, coding: Coding) -> None:
    """Cut and resumed; damaged chunks and those of another encoding are refused, and what arrives is the announced update."""
    layout = Layout.of([("weight", "F32", (700, 1000))])
    base, rounded = (np.random.default_rng(seed).standard_normal(700_000, np.float32) for seed in range(2))
    encoding = Encoding(coding, layout, layout)
    encoding.round_update(rounded.view(np.uint8), base.view(np.uint8))
    model, update = (ModelBytes.of(layout, each.view(np.uint8)) for each in (base, rounded))
    silo, task = at_work(world)
    silo.announce(announcement_of(task, update))
    world.event()
    spool = MemorySpool(update.manifest)
    world.link.permit("a", task.id, Decoded(spool, model, encoding))
    assert order_of(silo) == Permit(task.id)

    class Damaged(Encoded):
        def chunk(self, index: int) -> bytes:
            return super().chunk(index) if index != 1 else super().chunk(index)[:-1]

    other = Encoding(BlockCoding(bits=4 if coding == BlockCoding(bits=8) else 8), layout, layout)
    for wrong in (Damaged(update, model, encoding), _Unchecked(update, model, other)):
        refused(transfer.CHUNK_MISMATCH, silo.push, task.id, wrong)
        assert 1 in spool.missing()
    silo.push(task.id, Encoded(update, model, encoding))
    assert world.event() == Arrived("a", task.id)
    assert content(spool) == b"".join(update.chunks)


@pytest.mark.parametrize("name", MODEL_CODINGS)
def test_a_model_may_travel_encoded(world: World, name: str) -> None:
    """What is missing arrives as the rounded model; chunks in another encoding, or in none, are refused."""
    layout = Layout.of([("frozen", "F32", (9, 1000)), ("weight", "F32", (700, 1000))], {"frozen"})
    exact = np.random.default_rng(1).standard_normal(709_000, np.float32)
    encoding = ModelEncoding(MODEL_CODINGS[name], layout)
    rounded = encoding.round_model(ModelBytes.of(layout, exact.view(np.uint8)))
    other = ModelEncoding(MODEL_CODINGS[next(each for each in MODEL_CODINGS if each != name)], layout)
    silo, task = at_work(world, model=rounded)
    spool = MemorySpool(rounded.manifest)
    encoding.sink(spool).write(2, rounded.chunk(2))
    before = world.link.traffic()[1]
    here = sum(len(rounded.chunk(index)) for index in spool.missing())
    silo.fetch(task.model, encoding.sink(spool))
    assert world.link.traffic()[1] - before == here
    assert content(spool) == b"".join(rounded.model.chunks)
    assert here < layout.nbytes / 2
    unfilled = MemorySpool(rounded.manifest)
    for wrong in (other.sink(unfilled), unfilled):
        refused(transfer.CHUNK_MISMATCH, silo.fetch, task.model, wrong)
        assert {1, 2, 3} <= set(unfilled.missing())


class _Unchecked(Encoded):
    """Sends every chunk encoded, right or wrong."""

    def chunk(self, index: int) -> bytes:
        code = self._encoding.encode(index, self._update.chunk(index), self._base.chunk(index))
        assert code is not None
        return code


def test_a_sink_for_other_bytes_is_refused(world: World) -> None:
    silo, task = at_work(world)
    refused(transfer.UNEXPECTED_UPDATE, silo.fetch, task.model, MemorySpool(OTHER.manifest))
