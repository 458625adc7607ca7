"""Models, records and updates of a small run, for the tests of round stores."""

import math
from collections.abc import Callable

import numpy as np

from anchorage.engine.interfaces import RoundRecord, SiloRecord, SpooledUpdate
from anchorage.engine.store import DiskStore, Identity, RoundStore
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

LAYOUT = Layout.of([("encoder.weight", "F32", (CHUNK_BYTES // 4 + 7,)), ("encoder.steps", "I64", ())])
STUDY = {"metadata.name": "derm", "spec.method.name": "FedAvg", "spec.model.initial": None}
IDENTITY = Identity(STUDY, (LAYOUT,))
Open = Callable[..., DiskStore]


def model(value: float, layout: Layout = LAYOUT) -> ModelBytes:
    arrays = {t.name: np.full(t.shape, value, np.float32 if t.dtype == "F32" else np.int64) for t in layout.tensors}
    return ModelBytes.from_arrays(layout, arrays)


def record(number: int, made: ModelBytes, **metrics: float) -> RoundRecord:
    part = SiloRecord("a", "Counted", 0.5, {"train": 10}, {"loss": math.nan}, "ANC-3006", "late")
    return RoundRecord(number, made.digest, 1000.0 + number, metrics, (part,), {"silos": 0.5}, 7, 8, documents="d")


def commit(store: RoundStore, number: int, value: float | None = None, **metrics: float) -> ModelBytes:
    made = model(float(number) if value is None else value)
    store.commit(record(number, made, **metrics), made, {"momentum": np.arange(3.0), "flags": np.array([True, False])})
    return made


def announce(made: ModelBytes, task: str = "1.train.x") -> Announcement:
    return Announcement(task, {"train": 3}, {"similarity": np.array([0.5, math.nan])}, {"loss": 0.1}, made.manifest)


def fill(sink: SpooledUpdate, made: ModelBytes) -> None:
    for index in sink.missing():
        sink.write(index, made.chunk(index))


def content(source: SpooledUpdate) -> bytes:
    return b"".join(source.chunk(i) for i in range(len(source.manifest.digests)))


def play_round(store: RoundStore, number: int) -> None:
    made = model(100.0 + number)
    fill(store.spool("a", number, announce(made)), made)
    store.keep("a", number, announce(made))
    store.contribute("a", number, float(number))
    commit(store, number)
    store.release(number)
