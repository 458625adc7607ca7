"""Safetensors files: our own round trips, the reference implementation both ways, damage of every kind."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import FILE_UNREADABLE
from anchorage.api.errors.storage import TENSOR_FILE_UNUSABLE
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_safetensors, write_safetensors

ARRAYS = {
    "weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "empty": np.zeros((0, 5), np.float32),
    "steps": np.array(7),
    "mask": np.array([True, False, True]),
    "half": np.ones(3, np.float16),
}
LAYOUT = Layout.of(
    [
        ("weight", "F32", (3, 4)),
        ("empty", "F32", (0, 5)),
        ("steps", "I64", ()),
        ("mask", "BOOL", (3,)),
        ("half", "F16", (3,)),
    ]
)
MODEL = ModelBytes.from_arrays(LAYOUT, ARRAYS)


def test_round_trip_with_arrays_and_metadata(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    extra = {"state/momentum": np.arange(6.0).reshape(2, 3), "state/n": np.array(3), "ä": np.zeros(0, np.uint8)}
    write_safetensors(path, MODEL, arrays=extra, metadata={"round": "3"}, sync=True)
    stored = read_safetensors(path, LAYOUT)
    assert stored.model.digest == MODEL.digest
    assert stored.metadata == {"round": "3"}
    assert set(stored.arrays) == set(extra)
    assert all(np.array_equal(stored.arrays[n], a) and stored.arrays[n].dtype == a.dtype for n, a in extra.items())
    assert list(tmp_path.iterdir()) == [path]


def test_the_reference_implementation_reads_it(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, MODEL, arrays={"extra": np.arange(3.0)}, metadata={"a": "b"})
    read = load_file(path)
    assert set(read) == {*ARRAYS, "extra"}
    assert all(np.array_equal(read[n], a) for n, a in ARRAYS.items())


def test_it_reads_the_reference_implementations(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    save_file(dict(ARRAYS), path, metadata={"a": "b"})
    stored = read_safetensors(path, LAYOUT)
    assert stored.model.digest == MODEL.digest
    everything = read_safetensors(path)
    assert set(everything.model.layout.by_name) == set(ARRAYS)
    assert everything.arrays == {}
    assert everything.metadata == {"a": "b"}


def test_a_part_of_a_file_and_tensors_in_another_order(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, MODEL)
    part = LAYOUT.select(["half", "weight"])
    stored = read_safetensors(path, part)
    assert stored.model.digest == ModelBytes.from_arrays(part, ARRAYS).digest
    assert set(stored.arrays) == {"empty", "steps", "mask"}
    other = Layout.of(
        [("mask", "BOOL", (3,)), ("half", "F16", (3,)), ("empty", "F32", (0, 5)), ("weight", "F32", (3, 4))]
    )
    assert read_safetensors(path, other).model.digest == ModelBytes.from_arrays(other, ARRAYS).digest


def test_an_empty_model(tmp_path: Path):
    write_safetensors(tmp_path / "model.safetensors", ModelBytes(Layout(()), []))
    assert read_safetensors(tmp_path / "model.safetensors", Layout(())).model.chunks == ()


def test_a_name_taken_and_a_dtype_that_the_format_lacks(tmp_path: Path):
    with pytest.raises(ValueError, match="weight"):
        write_safetensors(tmp_path / "m", MODEL, arrays={"weight": np.zeros(1)})
    with pytest.raises(ValueError, match="dtype"):
        write_safetensors(tmp_path / "m", MODEL, arrays={"x": np.zeros(1, np.complex64)})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.mkdir()
    with pytest.raises(OSError, match="director"):
        write_safetensors(path, MODEL)
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def refused(path: Path, layout: Layout | None = None) -> str:
    with pytest.raises(AnchorageError) as raised:
        read_safetensors(path, layout)
    assert raised.value.failure is TENSOR_FILE_UNUSABLE
    assert "\n" not in raised.value.message
    return raised.value.message


@given(cut=st.integers(1, 500))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_a_file_cut_anywhere_is_refused(tmp_path, cut):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, MODEL)
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    refused(path, LAYOUT)


def header_file(path: Path, header: object, data: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize(
    "header",
    [
        [],
        "text",
        {"t": {}},
        {"t": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}},
        {"t": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}},
        {"t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"t": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}},
        {"t": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [1], "data_offsets": [0]}},
        {"__metadata__": 3},
    ],
)
def test_a_header_that_means_nothing_is_refused(tmp_path, header):
    refused(header_file(tmp_path / "m", header, b"1234"))


@pytest.mark.parametrize("data", [b"", b"123", b"\xff" * 8, b"\x04\0\0\0\0\0\0\0{[]}", b"\x02\0\0\0\0\0\0\0{}more"])
def test_a_file_of_another_kind_is_refused(tmp_path, data):
    (tmp_path / "m").write_bytes(data)
    refused(tmp_path / "m")


def test_another_model_is_refused_by_its_tensor(tmp_path: Path):
    write_safetensors(tmp_path / "m", MODEL)
    assert "no tensor bias" in refused(tmp_path / "m", Layout.of([("bias", "F32", (1,))]))
    assert "weight" in refused(tmp_path / "m", Layout.of([("weight", "F32", (4, 3))]))


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(AnchorageError) as raised:
        read_safetensors(tmp_path / "none")
    assert raised.value.failure is FILE_UNREADABLE
