"""Spools in memory and in files: one contract, and what only files have."""

import copy
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import CHUNK_MISMATCH, UNKNOWN_TASK
from anchorage.transport.tensors.chunks import CHUNK_BYTES, LateManifest, Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool, SpoolFile

Open = Callable[[Manifest], MemorySpool | SpoolFile]


def model_of(nbytes: int, seed: int = 0) -> ModelBytes:
    data = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    return ModelBytes.of(Layout.of([("t", "U8", (nbytes,))]), data)


MODEL = model_of(3 * CHUNK_BYTES + 5)


@pytest.fixture(params=["memory", "file"])
def open_spool(request, tmp_path) -> Open:
    if request.param == "memory":
        return MemorySpool
    return lambda manifest: SpoolFile(tmp_path / "0000.bin", manifest)


@given(order=st.lists(st.integers(0, 3), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_chunks_arrive_in_any_order_and_more_than_once(open_spool, order):
    spool = open_spool(MODEL.manifest)
    for index in order:
        spool.write(index, MODEL.chunk(index))
    assert spool.missing() == tuple(i for i in range(4) if i not in order)
    assert all(spool.chunk(i) == MODEL.chunk(i) for i in set(order))


def test_wrong_bytes_are_refused_and_leave_no_trace(open_spool):
    spool = open_spool(MODEL.manifest)
    spool.write(3, MODEL.chunk(3))
    for index, data in ((0, MODEL.chunk(1)), (0, b""), (3, MODEL.chunk(3) + b"x"), (4, b""), (-1, MODEL.chunk(3))):
        with pytest.raises(AnchorageError) as raised:
            spool.write(index, data)
        assert raised.value.failure is CHUNK_MISMATCH
    assert spool.missing() == (0, 1, 2)
    assert spool.chunk(3) == MODEL.chunk(3)


def test_an_empty_model_is_whole_at_once(open_spool):
    assert open_spool(model_of(0).manifest).missing() == ()


def test_several_threads_write_and_read(open_spool):
    spool = open_spool(MODEL.manifest)
    threads = [threading.Thread(target=spool.write, args=(i, MODEL.chunk(i))) for i in (2, 0, 3, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert spool.missing() == ()
    assert ModelBytes(MODEL.layout, map(spool.chunk, range(4))).digest == MODEL.digest


@pytest.mark.parametrize("nbytes", [0, 10, 5 * CHUNK_BYTES])
def test_a_file_is_used_again(tmp_path: Path, nbytes: int):
    path = tmp_path / "0000.bin"
    path.write_bytes(b"x" * nbytes)
    spool = SpoolFile(path, MODEL.manifest)
    assert spool.missing() == (0, 1, 2, 3)
    for index, data in enumerate(MODEL.chunks):
        spool.write(index, data)
    assert ModelBytes(MODEL.layout, map(spool.chunk, range(4))).digest == MODEL.digest
    assert path.stat().st_size == max(nbytes, MODEL.layout.nbytes)
    spool.close()


def test_a_new_file_has_its_room_and_is_private(tmp_path: Path):
    SpoolFile(tmp_path / "0000.bin", MODEL.manifest).close()
    status = (tmp_path / "0000.bin").stat()
    assert status.st_size == MODEL.layout.nbytes
    assert status.st_blocks * 512 >= MODEL.layout.nbytes
    assert status.st_mode & 0o777 == 0o600


def test_what_a_crash_left_is_believed_as_far_as_its_digests_say(tmp_path: Path):
    path = tmp_path / "0000.bin"
    spool = SpoolFile(path, MODEL.manifest)
    for index in (0, 1, 3):
        spool.write(index, MODEL.chunk(index))
    spool.close()
    with path.open("r+b") as file:
        file.seek(CHUNK_BYTES + 17)
        file.write(b"torn")
    recovered_again = SpoolFile.recover(path, MODEL.manifest)
    assert recovered_again.missing() == (1, 2)
    recovered_again.write(1, MODEL.chunk(1))
    recovered_again.write(2, MODEL.chunk(2))
    recovered_again.close()
    recovered = SpoolFile.recover(path, MODEL.manifest)
    assert recovered.missing() == ()
    recovered.close()


def test_a_closed_file_takes_and_gives_nothing(tmp_path: Path):
    spool = SpoolFile(tmp_path / "0000.bin", MODEL.manifest)
    spool.close()
    spool.close()
    for call in (lambda: spool.write(0, MODEL.chunk(0)), lambda: spool.chunk(0)):
        with pytest.raises(AnchorageError) as raised:
            call()
        assert raised.value.failure is UNKNOWN_TASK


def test_a_file_cut_short_is_reported(tmp_path: Path):
    path = tmp_path / "0000.bin"
    spool = SpoolFile(path, MODEL.manifest)
    path.write_bytes(b"")
    with pytest.raises(AnchorageError, match="ANC-3103"):
        spool.chunk(0)
    spool.close()


def test_a_late_manifest_is_the_manifest_and_hashes_when_it_is_asked():
    buffer, layout = MODEL.buffer(), MODEL.layout.digest
    late = LateManifest(layout, buffer)
    assert (late.count, late.nbytes, late == late) == (4, buffer.nbytes, True)
    assert "digests" not in vars(late)
    assert late == MODEL.manifest == late
    assert (late.digest, hash(late)) == (MODEL.digest, hash(MODEL.manifest))
    assert late != LateManifest(layout, buffer[1:]) and late != "a manifest"
    travelled = copy.copy(LateManifest(layout, buffer))
    assert travelled == MODEL.manifest and type(travelled) is Manifest, "without the bytes"
