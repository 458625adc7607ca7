"""The parsers of foreign bytes, each with good input to damage; only failures of the catalogue may come out of them."""

import io
import json
import resource
import struct
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from fuzz_damage import damaged, damaged_json
from fuzz_messages import (
    CLASSES,
    RUN,
    TO_AGENT,
    TO_SERVER,
    _Clock,
    _file,
    description,
    secure,
    secure_messages,
    to_agent,
    to_server,
)
from fuzz_operator import configurations, feed_configurations, feed_secrets, feed_statuses, secrets, statuses
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save

from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError, silo
from anchorage.engine.accounting import Mechanism
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.decoding import Input, RefusedImageError, decode_bytes
from anchorage.learning.data.index_files import MatchedIndex, read_index
from anchorage.learning.data.manifests import list_manifest
from anchorage.methods import PRESETS, validate_study
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.pki import Authority, Registrar, SigningRequest, SiloKeys, Tokens, silo_uri
from anchorage.transport.pki.credentials import certificates_of
from anchorage.transport.pki.keys import make_key
from anchorage.transport.pki.succession import accepted_authorities
from anchorage.transport.server_client import ServerClient
from anchorage.transport.tensors.safetensors_file import read_description as read_header
from anchorage.transport.tensors.safetensors_file import read_safetensors, write_safetensors
from anchorage_server.access import ClusterAdmission
from anchorage_server.members import MemberList
from anchorage_server.request_queue import RequestAnswers
from anchorage_silo.audit import AuditLog, verify
from anchorage_silo.audit_head import AuditHead
from anchorage_silo.chained_log import _chain
from anchorage_silo.ledger import PrivacyLedger
from anchorage_silo.limits import Limits
from anchorage_silo.policy import read_policy
from anchorage_silo.verdict import Past, Request, RequestKind, RunTerms, judge


@dataclass(frozen=True)
class Target:
    """One parser."""

    name: str
    feed: Callable[[bytes, Path], object]
    """Parses bytes, and what it makes of them as far as strangers' input is used; the folder is its own."""
    seeds: Callable[[], tuple[bytes, ...]]
    """Makes good input."""
    tree: bool = False
    """Whether it is JSON, whose values are damaged, too."""
    examples: int = 150
    """How many inputs the bounded part draws: fewer where each takes long."""
    memory: int = 256 << 20
    """Most bytes that it may take."""

    @property
    def inputs(self) -> "st.SearchStrategy[bytes]":
        """What it is fed with."""
        seeds = self.seeds()
        return st.one_of(damaged(seeds), damaged_json(seeds)) if self.tree else damaged(seeds)

    def try_one(self, data: bytes, folder: Path) -> None:
        """Feed it; whatever comes out but a failure of the catalogue is raised, and MemoryError where it took too much."""
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with suppress(AnchorageError, RefusedImageError):
            self.feed(data, folder)
        if (took := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 > self.memory:
            raise MemoryError(f"{took >> 10} MiB")


FEDERATION = b"""apiVersion: anchorage.dev/v1alpha1
kind: Federation
metadata: {name: derm}
spec:
  task: {classification: {classes: [a, b]}}
  rounds: 3
  model: {network: ResNet18, imageSize: 32}
  method: {name: FedAvg, local: {epochs: 1, batchSize: 16}, weighting: {sampleCount: {}}}
  protocol: {minSilos: 1, roundDeadlineSeconds: 600}
  anchorData: {format: CsvManifest, claimName: anchors, path: x, manifest: anchors.csv}
---
kind: Silo
apiVersion: anchorage.dev/v1alpha1
metadata: {name: a}
spec: {federation: derm, labels: All, managed: {data: {format: ImageFolder, claimName: a, path: images}}}
"""


def _documents(data: bytes, folder: Path) -> None:
    validate_study(_file(folder, "federation.yaml", data))


POLICY = b"""requireApproval: true
allowedMethods: [FedAvg, FedAnchor]
allowedAuxiliaryData: [confusion]
minimumSamples: 10
maximumRounds: 5
clipNorm: "1.5"
noiseStd: "0.1"
privacyBudget: {epsilon: "2", delta: "0.00001", ledger: /tmp/ledger}
"""


def _policy(data: bytes, folder: Path) -> None:
    policy = read_policy(_file(folder, "policy.yaml", data))
    for preset in PRESETS.values():
        judge(policy, Request(RequestKind.JOIN, RunTerms((preset.slots,), Limits(1, 0))), Past())


def _tensors() -> tuple[bytes, ...]:
    arrays = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "n": np.array(3, np.int64),
        "empty": np.zeros((0, 4), np.float16),
    }
    by_hand = json.dumps(
        {"w": {"dtype": "F32", "shape": [2.0, 1], "data_offsets": [0, 8]}, "__metadata__": {"frozen_bytes": "8"}}
    ).encode()
    return save(arrays), save(arrays, {"a": "b"}), struct.pack("<Q", len(by_hand)) + by_hand + bytes(8)


def _safetensors(data: bytes, folder: Path) -> None:
    path = _file(folder, "model.safetensors", data)
    with suppress(AnchorageError):
        read_header(path)
    arrays = read_safetensors(path)
    write_safetensors(folder / "again.safetensors", arrays.model, arrays=arrays.arrays, metadata=arrays.metadata)


def _headers(data: bytes, folder: Path) -> None:
    """Feed a header with as many bytes behind it as it asks for, where these are few."""
    for nbytes in (0, 36):
        with suppress(AnchorageError):
            _safetensors(struct.pack("<Q", len(data)) + data + bytes(nbytes), folder)


def _images() -> tuple[bytes, ...]:
    colour = Image.fromarray(np.arange(12 * 9 * 3, dtype=np.uint8).reshape(9, 12, 3))
    deep = Image.fromarray(np.arange(108, dtype=np.uint16).reshape(9, 12) * 500)
    faults = []
    for kind in ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP"):
        for image in (colour, deep) if kind in ("PNG", "TIFF") else (colour,):
            out = io.BytesIO()
            more = {"save_all": True, "append_images": [image.rotate(90)]} if kind in ("GIF", "WEBP") else {}
            image.save(out, kind, **more)
            faults.append(out.getvalue())
    return tuple(faults)


def _image(data: bytes, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow says of some files what is wrong with them, and reads on
        decode_bytes(data, Input(8, 3))


MANIFESTS = (
    b"image,label,patient_id,silo,part,labelled\nx,a,1,0,train,1\ny.png,b,2,1,test,0\n../z,a,,0,train,1\n",
    b"image;a;b;sex\nx;1.0;0.0;1\ny;0;1;0\n",
    '﻿"file"\t"dx"\n"x"\t"a"\n'.encode(),
)


def _manifest(data: bytes, folder: Path) -> None:
    site = folder / "site"
    if not site.exists():
        site.mkdir()
        for name in ("x.png", "y.png"):
            (site / name).write_bytes(b"")
    _file(site, "table.csv", data)
    _file(site, "list.csv", data)
    section = SiloData(format="CsvManifest", claim_name="site", manifest="table.csv")
    pool = None
    with suppress(AnchorageError):
        pool = list_manifest(section, folder, SiteClasses(CLASSES, {}))
    index = read_index(site / "list.csv")
    if pool is not None:
        for part in index.parts:
            MatchedIndex(index, pool).rows(part)


INDEXES = (
    b'{"0": ["x", "y"], "1": [0, 1]}',
    b'{"labeled": {"0": [0]}, "unlabeled": {"0": [1]}, "test_list": [1], "train_list": [0, 1]}',
    b'{"data_partition": [[0], [1]], "validation_list": ["x"]}',
    b"[[0], [1]]",
)


def _index(data: bytes, folder: Path) -> None:
    for name in ("list.json", "list.txt"):
        with suppress(AnchorageError):
            index = read_index(_file(folder, name, data))
            pool = cast(Any, type("Pool", (), {"ids": ("x", "y"), "__len__": lambda self: 2})())
            for part in index.parts:
                with suppress(AnchorageError):
                    MatchedIndex(index, pool).rows(part)


@cache
def _authority(folder: Path) -> tuple[Registrar, ClusterAdmission, str]:
    authority, tokens = Authority.create(folder / "authority", "derm"), Tokens(folder / "authority" / "tokens")
    return (
        Registrar(authority, tokens, SiloKeys(folder)),
        ClusterAdmission("derm", folder, _Clock()),
        tokens.create("a"),
    )


ENROLMENTS = tuple(
    pb.SigningRequest(silo=name, token="t", request=SigningRequest.make(make_key(), silo_uri("derm", name))).SerializeToString()
    for name in ("a", "b")
)  # fmt: skip


def _enrolment(data: bytes, folder: Path) -> None:
    """Feed what anybody may send to the enrolment port with a token that is known, to a server with an authority and to one with an operator."""
    registrar, admission, token = _authority(folder)
    asked = convert.parse(pb.SigningRequest, data)
    for call in (
        lambda: registrar.enrol(asked.request, token, "a"),
        lambda: registrar.enrol(asked.request, asked.token, asked.silo),
        lambda: registrar.renew(asked.request, "a"),
        lambda: admission.enrol(asked.request, asked.token, asked.silo),
        lambda: admission.renew(asked.request, "a"),
    ):
        with suppress(AnchorageError):
            call()


@cache
def _endorsed() -> tuple[bytes, Authority]:
    """Return the answer of a server to who asks for its authorities, of which one is new, and the former one."""
    old, new = Authority.make("derm"), Authority.make("derm")
    both = pb.Authorities(certificates=new.certificate_pem + old.certificate_pem, endorsements=old.endorse(new))
    return both.SerializeToString(), old


def _authorities(data: bytes, folder: Path) -> None:
    message = convert.parse(pb.Authorities, data)
    trusted = certificates_of(_endorsed()[1].certificate_pem, "")
    for endorsements in (message.endorsements, message.certificates):
        with suppress(AnchorageError):
            accepted_authorities(trusted, message.certificates, endorsements, "derm", time.time())


@cache
def _audit_files() -> dict[str, bytes]:
    """Return the files of an audit log of two segments, by name."""
    with tempfile.TemporaryDirectory(prefix="anchorage-fuzz-") as folder:
        with closing(AuditLog(Path(folder) / "audit.jsonl", lambda: 1.0, segment_bytes=100)) as log:
            log.record("join", digest="ab")
            log.record("announce", "1.train", auxiliary=("confusion",), digest="cd")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@cache
def _ledger_files() -> dict[str, bytes]:
    """Return the files of a ledger, by name."""
    with tempfile.TemporaryDirectory(prefix="anchorage-fuzz-") as folder:
        ledger = PrivacyLedger(Path(folder), 8.0, 1e-5, lambda: 1.0)
        ledger.spend(Mechanism(5.0), federation="derm", task="1", digest="ab")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.suffix != ".lock"}


def _audit(data: bytes, folder: Path) -> None:
    """Feed each file of a log with the bytes, beside the others as they were; and a log whose chain was made anew."""
    audit_files = _audit_files()
    for name in audit_files:
        _restore(folder, audit_files)
        _file(folder, name, data)
        with suppress(AnchorageError), closing(AuditLog(folder / "audit.jsonl")) as log:
            log.read_sent("announce", all_runs=True)
    _restore(folder, audit_files)
    (folder / "audit.1.jsonl").unlink()
    _file(folder, "audit.jsonl", _chain_anew(data))
    reading = verify(folder / "audit.jsonl")
    with suppress(AnchorageError):
        list(reading)
    AuditHead(folder / "audit.jsonl", silo.AUDIT_BROKEN).sign(reading.lines, reading.last)
    with closing(AuditLog(folder / "audit.jsonl")) as log:
        log.read_sent("announce", all_runs=True)


def _chain_anew(data: bytes) -> bytes:
    """Return lines in which every hash is right, whatever stands before it, as somebody with the key can write them."""
    out, last = b"", ""
    with suppress(ValueError, RecursionError, LookupError, TypeError):  # it may go on with segments that are not here
        last = str(json.loads(data.splitlines()[0])["digest"]) if b'"segment": ' in data else ""
    for line in data.splitlines():
        body = line.decode(errors="replace").rpartition(', "hash": "')[0] + "}"
        last = _chain(last, body)
        out += f'{body[:-1]}, "hash": "{last}"}}\n'.encode(errors="replace")
    return out


def _ledger(data: bytes, folder: Path) -> None:
    ledger_files = _ledger_files()
    for name in ledger_files:
        _restore(folder, ledger_files)
        _file(folder, name, data)
        with suppress(AnchorageError):
            PrivacyLedger(folder, 8.0, 1e-5).spent_epsilon()


def _restore(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        _file(folder, name, content)


CONTROL = (
    b'{"members": [{"name": "a", "labels": "All", "key": "' + b"0" * 64 + b'"}], "generation": 3}',
    b'{"requests": [{"id": "x", "kind": "Enrol", "silo": "a", "token": "t", "csr": "c", "time": "2026-11-01T00:00:00Z"}]}',
    b'{"answers": [{"id": "x", "code": "ANC-2001", "message": "no"}]}',
    b'{"unknown": ["x"]}',
)


class _Answering(ServerClient):
    """A client whose server answers with given bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__("127.0.0.1", 1)
        self._data = data

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        return self._data


def _control(data: bytes, folder: Path) -> None:
    """Feed what an operator puts to the server, and what a server answers its operator."""
    for kind in (MemberList, RequestAnswers):
        with suppress(ValueError):  # pydantic's, which the control endpoint answers with 400
            kind.model_validate_json(data)
    client = _Answering(data)
    for ask in (client.status, client.members, client.requests):
        with suppress(AnchorageError):
            ask()


def _header_texts() -> tuple[bytes, ...]:
    return tuple(each[8 : 8 + struct.unpack("<Q", each[:8])[0]] for each in _tensors())


TARGETS = {
    target.name: target
    for target in (
        Target("documents", _documents, lambda: (FEDERATION,)),
        Target("policy", _policy, lambda: (POLICY,)),
        Target("to-server", to_server, lambda: TO_SERVER),
        Target("to-agent", to_agent, lambda: TO_AGENT),
        Target("run-description", description, lambda: (RUN.to_json().encode(),), tree=True),
        Target("safetensors", _safetensors, _tensors),
        Target("safetensors-header", _headers, _header_texts, tree=True),
        Target("images", _image, _images, memory=1 << 30),
        Target("manifests", _manifest, lambda: MANIFESTS),
        Target("index-files", _index, lambda: INDEXES, tree=True),
        Target("enrolment", _enrolment, lambda: ENROLMENTS),
        Target("authorities", _authorities, lambda: (_endorsed()[0],)),
        Target("audit", _audit, lambda: (*_audit_files().values(),), examples=20),
        Target("ledger", _ledger, lambda: (*_ledger_files().values(),), examples=20),
        Target("secure-aggregation", secure, secure_messages, tree=True),
        Target("operator-secrets", feed_secrets, secrets, examples=6),
        Target("operator-configurations", feed_configurations, configurations, examples=25),
        Target("operator-statuses", feed_statuses, statuses, tree=True, examples=40),
        Target("control", _control, lambda: CONTROL, tree=True),
    )
}
