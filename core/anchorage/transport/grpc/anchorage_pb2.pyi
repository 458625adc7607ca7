from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TrustRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Authorities(_message.Message):
    __slots__ = ("certificates", "endorsements")
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    ENDORSEMENTS_FIELD_NUMBER: _ClassVar[int]
    certificates: bytes
    endorsements: bytes
    def __init__(self, certificates: _Optional[bytes] = ..., endorsements: _Optional[bytes] = ...) -> None: ...

class RawChunk(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("layout", "nbytes", "digests", "front")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    FRONT_FIELD_NUMBER: _ClassVar[int]
    layout: str
    nbytes: int
    digests: bytes
    front: int
    def __init__(self, layout: _Optional[str] = ..., nbytes: _Optional[int] = ..., digests: _Optional[bytes] = ..., front: _Optional[int] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("id", "kind", "round", "model", "auxiliary_data", "behind", "update_format", "model_encoded", "held_out", "repetitions", "repetition")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    AUXILIARY_DATA_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FORMAT_FIELD_NUMBER: _ClassVar[int]
    MODEL_ENCODED_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    REPETITIONS_FIELD_NUMBER: _ClassVar[int]
    REPETITION_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    round: int
    model: Manifest
    auxiliary_data: bytes
    behind: str
    update_format: str
    model_encoded: bool
    held_out: bool
    repetitions: int
    repetition: int
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., round: _Optional[int] = ..., model: _Optional[_Union[Manifest, _Mapping]] = ..., auxiliary_data: _Optional[bytes] = ..., behind: _Optional[str] = ..., update_format: _Optional[str] = ..., model_encoded: _Optional[bool] = ..., held_out: _Optional[bool] = ..., repetitions: _Optional[int] = ..., repetition: _Optional[int] = ...) -> None: ...

class Announcement(_message.Message):
    __slots__ = ("task", "samples", "auxiliary_data", "metrics", "update", "behind", "audit_head")
    class SamplesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    AUXILIARY_DATA_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    AUDIT_HEAD_FIELD_NUMBER: _ClassVar[int]
    task: str
    samples: _containers.ScalarMap[str, int]
    auxiliary_data: bytes
    metrics: _containers.ScalarMap[str, float]
    update: Manifest
    behind: str
    audit_head: SignedHead
    def __init__(self, task: _Optional[str] = ..., samples: _Optional[_Mapping[str, int]] = ..., auxiliary_data: _Optional[bytes] = ..., metrics: _Optional[_Mapping[str, float]] = ..., update: _Optional[_Union[Manifest, _Mapping]] = ..., behind: _Optional[str] = ..., audit_head: _Optional[_Union[SignedHead, _Mapping]] = ...) -> None: ...

class SignedHead(_message.Message):
    __slots__ = ("lines", "digest", "signature")
    LINES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    lines: int
    digest: bytes
    signature: bytes
    def __init__(self, lines: _Optional[int] = ..., digest: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("task", "tally", "images", "answer", "audit_head")
    TASK_FIELD_NUMBER: _ClassVar[int]
    TALLY_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    AUDIT_HEAD_FIELD_NUMBER: _ClassVar[int]
    task: str
    tally: bytes
    images: int
    answer: bytes
    audit_head: SignedHead
    def __init__(self, task: _Optional[str] = ..., tally: _Optional[bytes] = ..., images: _Optional[int] = ..., answer: _Optional[bytes] = ..., audit_head: _Optional[_Union[SignedHead, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("labels", "samples", "version", "fingerprint", "protocol", "time", "packages")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    labels: str
    samples: int
    version: str
    fingerprint: str
    protocol: int
    time: int
    packages: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, labels: _Optional[str] = ..., samples: _Optional[int] = ..., version: _Optional[str] = ..., fingerprint: _Optional[str] = ..., protocol: _Optional[int] = ..., time: _Optional[int] = ..., packages: _Optional[_Iterable[str]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("session", "run", "version", "protocol", "audit_head")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    AUDIT_HEAD_FIELD_NUMBER: _ClassVar[int]
    session: str
    run: str
    version: str
    protocol: int
    audit_head: SignedHead
    def __init__(self, session: _Optional[str] = ..., run: _Optional[str] = ..., version: _Optional[str] = ..., protocol: _Optional[int] = ..., audit_head: _Optional[_Union[SignedHead, _Mapping]] = ...) -> None: ...

class Permit(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: str
    def __init__(self, task: _Optional[str] = ...) -> None: ...

class Dismiss(_message.Message):
    __slots__ = ("task", "why")
    TASK_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    task: str
    why: str
    def __init__(self, task: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("welcome", "assign", "permit", "dismiss", "finish")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    DISMISS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    assign: Task
    permit: Permit
    dismiss: Dismiss
    finish: Finish
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., assign: _Optional[_Union[Task, _Mapping]] = ..., permit: _Optional[_Union[Permit, _Mapping]] = ..., dismiss: _Optional[_Union[Dismiss, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("task", "code", "message")
    TASK_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    task: str
    code: str
    message: str
    def __init__(self, task: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("task", "done", "total")
    TASK_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    task: str
    done: int
    total: int
    def __init__(self, task: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("committed_steps",)
    COMMITTED_STEPS_FIELD_NUMBER: _ClassVar[int]
    committed_steps: int
    def __init__(self, committed_steps: _Optional[int] = ...) -> None: ...

class ChunkList(_message.Message):
    __slots__ = ("model", "chunks")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    model: str
    chunks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., chunks: _Optional[_Iterable[int]] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("task", "update")
    TASK_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    task: str
    update: str
    def __init__(self, task: _Optional[str] = ..., update: _Optional[str] = ...) -> None: ...

class Lacking(_message.Message):
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, chunks: _Optional[_Iterable[int]] = ...) -> None: ...

class SigningRequest(_message.Message):
    __slots__ = ("silo", "token", "request")
    SILO_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    silo: str
    token: str
    request: bytes
    def __init__(self, silo: _Optional[str] = ..., token: _Optional[str] = ..., request: _Optional[bytes] = ...) -> None: ...

class Renewal(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    def __init__(self, request: _Optional[bytes] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...
