"""Messages keep their values through protobuf; bytes that are none are refused with a code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.messages import (
    Announcement,
    Assigned,
    Dismissed,
    Evaluation,
    Finished,
    Permit,
    Task,
    TaskKind,
    UpdateFormat,
)
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest

names = st.text(min_size=1, max_size=12)
manifests = st.integers(0, 5 * CHUNK_BYTES).flatmap(
    lambda nbytes: st.builds(
        Manifest,
        st.text("0123456789abcdef", min_size=64, max_size=64),
        st.just(nbytes),
        st.tuples(*[st.binary(min_size=16, max_size=16)] * -(-nbytes // CHUNK_BYTES)),
    )
)
dtypes = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_])
arrays = npst.arrays(dtypes, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
sides = st.dictionaries(names.filter(lambda name: name != "__metadata__"), arrays, max_size=3)
counts = st.dictionaries(names, st.integers(0, 2**62), max_size=4)
metrics = st.dictionaries(names, st.floats(allow_nan=False), max_size=4)


def same(actual, expected) -> None:
    assert set(actual) == set(expected)
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(actual[name], array)


flags = st.fixed_dictionaries(
    {
        "update_format": st.sampled_from(UpdateFormat),
        "model_encoded": st.booleans(),
        "held_out": st.booleans(),
        "repetitions": st.integers(1, 100),
        "repetition": st.none() | st.integers(0, 99),
    }
)


@given(names, st.sampled_from(TaskKind), st.integers(0, 2**31), manifests, sides, flags)
def test_tasks_come_back(task_id, kind, number, manifest, auxiliary, flagged) -> None:
    task = convert.decode_task(convert.encode_task(Task(task_id, kind, number, manifest, auxiliary, **flagged)))
    assert {name: getattr(task, name) for name in flagged} == flagged
    assert (task.id, task.kind, task.round, task.model) == (task_id, kind, number, manifest)
    assert task.model.digest == manifest.digest
    same(task.auxiliary_data, auxiliary)


heads = st.none() | st.builds(SignedHead, st.integers(0, 2**64 - 1), st.binary(), st.binary())


@given(names, counts, sides, metrics, st.none() | manifests, heads)
def test_announcements_come_back(task, samples, auxiliary, numbers, update, head) -> None:
    sent = Announcement(task, samples, auxiliary, numbers, update, audit_head=head)
    announcement = convert.decode_announcement(convert.encode_announcement(sent))
    assert (announcement.task, announcement.samples, announcement.metrics, announcement.update) == (
        task,
        samples,
        numbers,
        update,
    )
    assert announcement.audit_head == head
    same(announcement.auxiliary_data, auxiliary)


@given(sides, st.integers(0, 2**63), heads)
def test_evaluations_come_back(tally, images, head) -> None:
    sent = Evaluation("e", tally, images, audit_head=head)
    evaluation = convert.decode_evaluation(convert.encode_evaluation(sent))
    same(evaluation.tally, tally)
    assert (evaluation.task, evaluation.images, evaluation.audit_head) == ("e", images, head)


@pytest.mark.parametrize("order", [Permit("t"), Dismissed("t", "Counted"), Finished("over")])
def test_orders_come_back(order) -> None:
    assert convert.order_from_proto(convert.order_to_proto(order)) == order


def test_an_assignment_comes_back() -> None:
    order = Assigned(Task("t", TaskKind.TRAIN, 1, Manifest("ab", 0, ())))
    assert convert.order_from_proto(convert.order_to_proto(order)) == order


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (convert.decode_task, b"\xff"),
        (convert.decode_task, pb.Task(id="t", kind="Dance").SerializeToString()),
        (convert.decode_task, pb.Task(kind="Train", model=pb.Manifest(nbytes=5)).SerializeToString()),
        (convert.decode_task, pb.Task(kind="Train", auxiliary_data=b"no safetensors").SerializeToString()),
        (convert.decode_announcement, pb.Announcement(update=pb.Manifest(digests=b"x")).SerializeToString()),
        (convert.decode_evaluation, pb.Evaluation(tally=b"no safetensors").SerializeToString()),
        (lambda data: convert.order_from_proto(pb.Order.FromString(data)), b""),
    ],
)
def test_malformed_messages_are_refused(decode, data) -> None:
    with pytest.raises(AnchorageError) as caught:
        decode(data)
    assert caught.value.failure is transfer.MALFORMED_MESSAGE
    assert "\n" not in caught.value.message
