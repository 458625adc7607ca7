"""What server and agent make of messages of the other side."""

import json
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from cryptography import x509
from safetensors.numpy import save

from anchorage.api.errors import AnchorageError
from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.repeating import repetitions_of
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification
from anchorage.transport import messages
from anchorage.transport.exchange import Exchange
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.pki import Authority
from anchorage.transport.pki.keys import make_key
from anchorage.transport.secure_aggregation import wire
from anchorage.transport.secure_aggregation.member import Dealing, Keys, ProtocolError
from anchorage.transport.secure_aggregation.unmasking import Group
from anchorage.transport.signed_head import SignedHead
from anchorage.transport.silo_tasks import Upload
from anchorage.transport.tensors.chunks import CHUNK_BYTES, Manifest
from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, TopCoding
from anchorage.transport.tensors.differences import Restored
from anchorage.transport.tensors.encoded import Decoded, Encoding
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool
from anchorage_silo.audit import AuditLog
from anchorage_silo.limits import Limits
from anchorage_silo.outbound_gate import OutboundGate
from anchorage_silo.policy import Policy
from anchorage_silo.review import read_description
from anchorage_silo.state import AgentState
from anchorage_silo.verdict import RunTerms

CLASSES = ("a", "b")


LAYOUT = Layout.of([("weight", "F32", (300, 1000)), ("bn.running_mean", "F32", (5,)), ("count", "I64", ())])


MODEL = ModelBytes.of(LAYOUT, np.zeros(LAYOUT.nbytes, np.uint8))


TASK = messages.Task("1.train", messages.TaskKind.TRAIN, 1, MODEL.manifest, {"scores": np.zeros(3, np.float32)})


class _Clock:
    def now(self) -> float:
        return 0.0


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _announcement(**auxiliary: Any) -> bytes:
    arrays = {"validation": np.eye(2, dtype=np.int64), **auxiliary}
    return convert.encode_announcement(
        messages.Announcement(
            TASK.id, {"train": 10, "selected": 3}, arrays, {"loss": 0.5, "system/memory_mb": 9.0}, MODEL.manifest
        )
    )


_KEY = make_key()


HEAD = SignedHead.sign(_KEY, "anchorage://derm/silo/a", 7, bytes(32))


def _packed(**arrays: Any) -> bytes:
    """Return a message with a safetensors text in it that numpy cannot read, or that holds strange numbers."""
    return pb.Announcement(task=TASK.id, auxiliary_data=save(arrays), behind=LAYOUT.to_json()).SerializeToString()


TOP = TopCoding(share=Fraction(1, 9))


def _few_changes() -> bytes:
    """Return the second chunk of an update that differs from the model in two places, as it travels."""
    update = np.zeros(LAYOUT.nbytes - CHUNK_BYTES, np.uint8)
    update[[8, 4000]] = 1
    code = Encoding(TOP, LAYOUT, LAYOUT).encode(1, update.tobytes(), bytes(len(update)))
    assert code is not None
    return code


TO_SERVER = (
    _few_changes(),
    _announcement(),
    _announcement(validation=np.array([np.nan, np.inf])),
    _packed(validation=np.array([[1, 2], [3, 4]], np.complex64)),
    _packed(validation=np.array([1, 2], np.bool_)),
    convert.encode_evaluation(
        messages.Evaluation(TASK.id, {"confusion": np.eye(2, dtype=np.int64)}, 2, audit_head=HEAD)
    ),
    pb.Evaluation(task=TASK.id, tally=b"\x00" * 8, images=2**63).SerializeToString(),
    pb.Hello(labels="All", samples=100, version="1", fingerprint="ab").SerializeToString(),
    pb.Failure(task=TASK.id, code="ANC-1301", message="x" * 3000).SerializeToString(),
    pb.Progress(task=TASK.id, done=3, total=2**32 - 1).SerializeToString(),
    pb.Offer(task=TASK.id, update=MODEL.manifest.digest).SerializeToString(),
    pb.ChunkList(model=MODEL.manifest.digest, chunks=[0, 1, 2**32 - 1]).SerializeToString(),
)


def _decoders() -> Iterator[Decoded]:
    """Yield where a silo's update arrives in each encoding."""
    for coding in (BlockCoding(bits=4), BlockCoding(bits=8), BFloat16Coding(), TOP):
        yield Decoded(MemorySpool(MODEL.manifest), MODEL, Encoding(coding, LAYOUT, LAYOUT))


def to_server(data: bytes, folder: Path) -> None:
    """Feed every call of a silo with the same bytes, whatever they were meant for, in a session with an open task and an upload."""
    exchange = Exchange(_Clock())
    profile = messages.Profile("All", 100, "1")
    for read in (
        lambda session: exchange.join("b", convert.decode_profile(convert.parse(pb.Hello, data), 1_800_000_000.0)),
        lambda session: session.announce(convert.decode_announcement(data)),
        lambda session: session.report(convert.decode_evaluation(data)),
        lambda session: _is_signed(convert.parse(pb.Evaluation, data)),
        lambda session: session.fail(*_of(pb.Failure, data, "task", "code", "message")),
        lambda session: session.progress(*_of(pb.Progress, data, "task", "done", "total")),
        lambda session: session.source(convert.parse(pb.ChunkList, data).model),
        lambda session: session.upload(convert.parse(pb.Offer, data).task),
        *(lambda session, sink=sink: Upload(sink).write(TASK.id, 1, data[:CHUNK_BYTES]) for sink in _decoders()),
        lambda session: Upload(Restored(MemorySpool(MODEL.manifest), MODEL)).write(TASK.id, 1, data[:CHUNK_BYTES]),
    ):
        session = exchange.join("a", profile)
        exchange.assign("a", TASK)
        with suppress(AnchorageError):
            read(session)


def _is_signed(message: pb.Evaluation | pb.Welcome) -> None:
    head = convert.head_from_proto(message)
    if head is not None and head.bounded:
        head.is_by(_KEY.public_key(), "anchorage://derm/silo/a")


def _of(kind: Any, data: bytes, *fields: str) -> list[Any]:
    message = convert.parse(kind, data)
    return [getattr(message, field) for field in fields]


RUN = RunDescription(
    federation="derm", seed=1, rounds=50, mode="Synchronous", method=cast(ResolvedMethod, PRESETS["FedAvg"].slots),
    model=ModelDescription(network="SmallCnn", task=Classification(classes=CLASSES), image_size=8, channels=1),
    down=LAYOUT.to_json(), up=LAYOUT.to_json(),
)  # fmt: skip


@cache
def _gate(folder: Path) -> OutboundGate:
    state = AgentState(folder / "silo.crt")
    state.set_joined(1000)
    log = AuditLog(folder / "gate.jsonl")
    return OutboundGate(cast(Any, None), Policy(), log, RunTerms.of(RUN, "All"), state)


_TASKS = (
    TASK,
    messages.Task("e", messages.TaskKind.EVALUATE, 2, MODEL.manifest, held_out=True),
    messages.Task(
        "r", messages.TaskKind.TRAIN, 2**32 - 1, MODEL.manifest, {"steps": np.ones(3, np.complex64)}, repetitions=2**31
    ),
    messages.Task("h", messages.TaskKind.TRAIN, 1, Manifest("x", 4 << 30, (bytes(16),) * 4096)),
    messages.Task("l", messages.TaskKind.TRAIN, 1, MODEL.manifest, {}, Layout.of([("x", "F64", (2**40, 2**30))])),
)


TO_AGENT = (
    *(pb.Order(assign=convert.task_to_proto(task)).SerializeToString() for task in _TASKS),
    pb.Order(permit=pb.Permit(task="t")).SerializeToString(),
    pb.Order(dismiss=pb.Dismiss(task="t", why="late")).SerializeToString(),
    pb.Order(finish=pb.Finish(why="over")).SerializeToString(),
    pb.Order(welcome=pb.Welcome(session="s", run="{}")).SerializeToString(),
    pb.Welcome(run="{}", audit_head=convert.head_to_proto(HEAD)).SerializeToString(),
)


def to_agent(data: bytes, folder: Path) -> None:
    with suppress(AnchorageError):
        _is_signed(convert.parse(pb.Welcome, data))
    order = convert.order_from_proto(convert.parse(pb.Order, data))
    if isinstance(order, messages.Assigned):
        _gate(folder).admit(order.task)
        repetitions_of(order.task)
        MemoryBuffers().model(order.task.kind).receive(order.task.model)


def description(data: bytes, folder: Path) -> None:
    Limits.of(read_description(data.decode(errors="surrogateescape")), "All")


def secure_messages() -> tuple[bytes, ...]:
    keys = {"mask": "ab" * 32, "seal": "cd" * 32, "most": 5, "certificate": "-----BEGIN", "signature": "ef" * 70}
    commitments = {"commitments": {"b": "cd" * 64}}
    shares = {"sealed": {"b": "ab" * 148}, **commitments, "seed": "ab" * 32, "signature": "ef" * 70}
    lost, by_silo = (
        {"survivors": ["a", "b"], "sealed": {"b": "ab" * 148}, "signatures": {"b": "ef" * 70}, **commitments},
        {"b": "ab" * 66},
    )
    roster = {"keys": {"a": keys, "b": keys, "c": keys}}
    confirmation = ({"survivors": ["a", "b"]}, {"signature": "ef" * 70})
    messages_ = (
        keys,
        roster,
        shares,
        {"signatures": by_silo},
        *confirmation,
        lost,
        {"shares": by_silo, "unreadable": ["a"]},
    )
    return tuple(json.dumps(each).encode() for each in messages_)


def secure(data: bytes, folder: Path) -> None:
    """Read messages of secure aggregation, and check the keys in them, as a silo does."""
    answers = (wire.KeysMessage, wire.Shares, wire.Confirmed, wire.Revealed)
    for kind in (*answers, wire.Roster, wire.Agreement, wire.Survivors, wire.Lost):
        with suppress(ProtocolError):
            message = wire.read(kind, data)
            if isinstance(message, wire.KeysMessage):
                wire.KeysMessage.of(keys := message.keys())
                keys.check("derm", TASK.id, "a", _ROOT, 0.0)
            elif isinstance(message, wire.Shares):
                _GROUP.check_dealing("a", message.dealing())
            elif isinstance(message, wire.Revealed):
                _GROUP.check_opening("a", ("a", "b"), message.opening())


_KEYS = Keys(bytes(32), bytes(32), 5, b"", b"")
_GROUP = Group(TASK.id, {"a": _KEYS, "b": _KEYS})
_GROUP.dealt.update(dict.fromkeys("ab", Dealing({}, {"a": bytes(64)}, bytes(32), b"")))
_ROOT = x509.load_pem_x509_certificate(Authority.make("derm").certificate_pem)
