"""Conversions between `anchorage.transport.messages` and protobuf, for gRPC and the trainer's pipe."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from anchorage.api.errors import AnchorageError, transfer
from anchorage.api.silo_state import MOST_PACKAGES
from anchorage.transport import messages
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.messages import AuxiliaryData, TaskKind
from anchorage.transport.peer_clock import LATEST, difference
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.tensors.chunks import Manifest, chunk_count
from anchorage.transport.tensors.layout import NOTHING, Layout
from anchorage.transport.versions import PROTOCOL, require_neighbour

DIGEST_BYTES = 16

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def encode_task(task: messages.Task) -> bytes:
    """Write a task as bytes."""
    return task_to_proto(task).SerializeToString()


def decode_task(data: bytes) -> messages.Task:
    """Read what `encode_task` wrote.

    Raises
    ------
    AnchorageError
        The bytes are not a task.
    """
    return task_from_proto(parse(pb.Task, data))


def encode_announcement(announcement: messages.Announcement) -> bytes:
    """Write an announcement as bytes."""
    update = announcement.update
    return pb.Announcement(
        task=announcement.task,
        samples=announcement.samples,
        auxiliary_data=arrays_to_bytes(announcement.auxiliary_data),
        metrics=announcement.metrics,
        update=None if update is None else manifest_to_proto(update),
        behind=_layout_to_text(announcement.behind),
        audit_head=head_to_proto(announcement.audit_head),
    ).SerializeToString()


def decode_announcement(data: bytes) -> messages.Announcement:
    """Read what `encode_announcement` wrote.

    Raises
    ------
    AnchorageError
        The bytes are not an announcement.
    """
    proto = parse(pb.Announcement, data)
    update = manifest_from_proto(proto.update) if proto.HasField("update") else None
    auxiliary, behind = arrays_from_bytes(proto.auxiliary_data), _layout_from_text(proto.behind)
    head = head_from_proto(proto)
    return messages.Announcement(proto.task, dict(proto.samples), auxiliary, dict(proto.metrics), update, behind, head)


def profile_to_proto(profile: messages.Profile) -> pb.Hello:
    """Convert what a silo says of itself, and say which protocol it speaks."""
    return pb.Hello(
        labels=profile.labels,
        samples=profile.samples,
        version=profile.version,
        fingerprint=profile.fingerprint,
        protocol=PROTOCOL,
        packages=profile.packages,
    )


def require_served(welcome: pb.Welcome) -> pb.Welcome:
    """Return a server's welcome.

    Raises
    ------
    AnchorageError
        The server's release is too far from this one.
    """
    require_neighbour("server", welcome.protocol, welcome.version)
    return welcome


def decode_profile(hello: pb.Hello, now: float) -> messages.Profile:
    """Read what a silo says of itself; `now` is the server's time, seconds since the epoch."""
    has_time = 0 < hello.time <= LATEST
    clock = difference(hello.time, now, "its clock", "the server's") if has_time else ""
    fields = hello.labels, hello.samples, hello.version, hello.fingerprint
    return messages.Profile(*fields, clock, tuple(hello.packages[: MOST_PACKAGES + 1]))


def encode_evaluation(evaluation: messages.Evaluation) -> bytes:
    """Write an evaluation as bytes."""
    return pb.Evaluation(
        task=evaluation.task,
        tally=arrays_to_bytes(evaluation.tally),
        images=evaluation.images,
        answer=evaluation.answer,
        audit_head=head_to_proto(evaluation.audit_head),
    ).SerializeToString()


def decode_evaluation(data: bytes) -> messages.Evaluation:
    """Read what `encode_evaluation` wrote.

    Raises
    ------
    AnchorageError
        The bytes are not an evaluation.
    """
    proto = parse(pb.Evaluation, data)
    tally, head = arrays_from_bytes(proto.tally), head_from_proto(proto)
    return messages.Evaluation(proto.task, tally, proto.images, proto.answer, head)


def parse(kind: type[M], data: bytes) -> M:
    """Parse one protobuf message.

    Raises
    ------
    AnchorageError
        The bytes are not such a message.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise _malformed_error(kind.__name__, error) from error


def manifest_to_proto(manifest: Manifest) -> pb.Manifest:
    """Convert a manifest."""
    return pb.Manifest(
        layout=manifest.layout, nbytes=manifest.nbytes, digests=b"".join(manifest.digests), front=manifest.front
    )


def manifest_from_proto(proto: pb.Manifest) -> Manifest:
    """Convert a manifest.

    Raises
    ------
    AnchorageError
        The number of digests does not fit the number of bytes, or the front is longer than the whole.
    """
    if proto.front > proto.nbytes:
        detail = f"a manifest of {proto.nbytes} bytes has a front of {proto.front}"
        raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{detail}; bring both sides to the same version")
    chunks = chunk_count(proto.nbytes, proto.front)
    if len(proto.digests) != chunks * DIGEST_BYTES:
        detail = (
            f"a manifest of {proto.nbytes} bytes needs {chunks} digests, found {len(proto.digests) / DIGEST_BYTES:g}"
        )
        raise AnchorageError(transfer.MALFORMED_MESSAGE, f"{detail}; bring both sides to the same version")
    digests = (proto.digests[i : i + DIGEST_BYTES] for i in range(0, len(proto.digests), DIGEST_BYTES))
    return Manifest(proto.layout, proto.nbytes, tuple(digests), proto.front)


def head_to_proto(head: SignedHead | None) -> pb.SignedHead | None:
    """Convert the head of an audit log."""
    return None if head is None else pb.SignedHead(lines=head.lines, digest=head.digest, signature=head.signature)


def head_from_proto(proto: pb.Announcement | pb.Evaluation | pb.Welcome) -> SignedHead | None:
    """Return the head of an audit log in a message; None without one."""
    head = proto.audit_head
    return SignedHead(head.lines, head.digest, head.signature) if proto.HasField("audit_head") else None


def task_to_proto(task: messages.Task) -> pb.Task:
    """Convert a task."""
    model, auxiliary, behind = (
        manifest_to_proto(task.model),
        arrays_to_bytes(task.auxiliary_data),
        _layout_to_text(task.behind),
    )
    return pb.Task(
        id=task.id,
        kind=task.kind,
        round=task.round,
        model=model,
        auxiliary_data=auxiliary,
        behind=behind,
        update_format=task.update_format,
        model_encoded=task.model_encoded,
        held_out=task.held_out,
        repetitions=task.repetitions,
        repetition=task.repetition,
    )


def task_from_proto(proto: pb.Task) -> messages.Task:
    """Convert a task.

    Raises
    ------
    AnchorageError
        A part of it is malformed.
    """
    kind = _check("Task", TaskKind, proto.kind)
    model, auxiliary, behind = (
        manifest_from_proto(proto.model),
        arrays_from_bytes(proto.auxiliary_data),
        _layout_from_text(proto.behind),
    )
    return messages.Task(
        proto.id,
        kind,
        proto.round,
        model,
        auxiliary,
        behind,
        _check("Task", messages.UpdateFormat, proto.update_format),
        proto.model_encoded,
        proto.held_out,
        proto.repetitions or 1,
        proto.repetition if proto.HasField("repetition") else None,
    )


def order_to_proto(order: messages.Order) -> pb.Order:
    """Convert an order."""
    match order:
        case messages.Assigned(task):
            return pb.Order(assign=task_to_proto(task))
        case messages.Permit(task_id):
            return pb.Order(permit=pb.Permit(task=task_id))
        case messages.Dismissed(task_id, why):
            return pb.Order(dismiss=pb.Dismiss(task=task_id, why=why))
        case messages.Finished(why):
            return pb.Order(finish=pb.Finish(why=why))


def order_from_proto(proto: pb.Order) -> messages.Order:
    """Convert an order other than the welcome.

    Raises
    ------
    AnchorageError
        It is none that this version knows.
    """
    match proto.WhichOneof("order"):
        case "assign":
            return messages.Assigned(task_from_proto(proto.assign))
        case "permit":
            return messages.Permit(proto.permit.task)
        case "dismiss":
            return messages.Dismissed(proto.dismiss.task, proto.dismiss.why)
        case "finish":
            return messages.Finished(proto.finish.why)
        case other:
            raise _malformed_error("Order", ValueError(f"the order is {other}"))


def arrays_to_bytes(auxiliary: AuxiliaryData) -> bytes:
    """Write named arrays as safetensors; empty for none."""
    return save({name: np.asarray(array, order="C") for name, array in auxiliary.items()}) if auxiliary else b""


def arrays_from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """Read what `arrays_to_bytes` wrote.

    Raises
    ------
    AnchorageError
        The bytes are not such arrays.
    """
    return _check("auxiliary data", load, data) if data else {}


def _layout_to_text(layout: Layout) -> str:
    return layout.to_json() if layout.tensors else ""


def _layout_from_text(text: str) -> Layout:
    return _check("layout", Layout.from_json, text) if text else NOTHING


def _check(what: str, read: Callable[[Any], T], value: Any) -> T:
    try:
        return read(value)
    except (ValueError, KeyError, SafetensorError) as error:
        raise _malformed_error(what, error) from error


def _malformed_error(what: str, error: Exception) -> AnchorageError:
    return AnchorageError(transfer.MALFORMED_MESSAGE, f"{what}: {error}; bring both sides to the same version")
