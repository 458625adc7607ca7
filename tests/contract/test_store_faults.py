"""What the round store on disk has when a file operation fails, and large data beside its checkpoints."""

import errno
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_world import IDENTITY, Open, announce, commit, content, model, play_round

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.storage import DISK_FULL, STORAGE_FAILED
from anchorage.engine.store import DiskStore
from anchorage.transport.tensors.chunks import CHUNK_BYTES
from anchorage.transport.tensors.layout import Layout


def test_a_file_size_limit_of_the_process_is_a_full_disk(open_store: Open) -> None:
    store = open_store()
    made = commit(store, 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK_BYTES // 2, before[1]))
    try:
        with pytest.raises(AnchorageError, match="checkpoint of round 1") as raised:
            commit(store, 1)
        with pytest.raises(AnchorageError, match="update of a") as spooling:
            store.spool("a", 1, announce(made))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert raised.value.failure is DISK_FULL
    assert spooling.value.failure is DISK_FULL
    latest = store.latest()
    assert latest is not None
    assert latest.model.chunks == made.chunks
    commit(store, 1)
    assert [r.round for r in open_store().history()] == [0, 1]


class Interrupted(BaseException):
    """Stands for the death of the process."""


class Faults:
    """Counts the file operations of a commit, and breaks the one at `at`."""

    NAMES = ("open", "write", "fsync", "ftruncate", "replace", "rename", "unlink")

    def __init__(self, patch: pytest.MonkeyPatch, at: int, error: BaseException) -> None:
        self.count = 0
        self._at = at
        self._error = error
        for name in self.NAMES:
            patch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count - 1 == self._at:
                raise self._error
            return real(*args, **kwargs)

        return call


def operations(tmp_path: Path) -> int:
    """Count the file operations of one round."""
    store = DiskStore(tmp_path / "count", IDENTITY)
    for number in range(5):
        play_round(store, number)
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, -1, Interrupted())
        play_round(store, 5)
    store.close()
    return faults.count


@pytest.mark.parametrize(
    "error", [Interrupted(), OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "x")]
)
def test_whatever_operation_fails_the_last_committed_round_and_its_contribution_survive(
    tmp_path: Path, error: BaseException
) -> None:
    total = operations(tmp_path)
    assert total > 8
    for at in range(total):
        folder = tmp_path / f"at-{at}"
        store = DiskStore(folder, IDENTITY)
        for number in range(5):
            play_round(store, number)
        with pytest.MonkeyPatch.context() as patch, pytest.raises((Interrupted, AnchorageError)) as raised:
            Faults(patch, at, error)
            play_round(store, 5)
        if isinstance(raised.value, AnchorageError):
            assert raised.value.failure is (DISK_FULL if error.args[0] == errno.ENOSPC else STORAGE_FAILED)
        store.close()
        store = DiskStore(folder, IDENTITY)
        latest = store.latest()
        assert latest is not None
        last = latest.record.round
        assert last in (4, 5)
        assert latest.model.chunks == model(float(last)).chunks
        ((weight, update),) = store.contributions().values()
        assert weight == last
        assert content(update) == b"".join(model(100.0 + last).chunks)
        play_round(store, last + 1)
        assert [r.round for r in store.history()] == list(range(last + 2))
        store.close()


LARGE = Layout.of([("pool", "U8", (CHUNK_BYTES + 10,))])


def test_large_data_outlives_the_process_and_is_checked(open_store: Open, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, LARGE.nbytes, np.uint8).tobytes()
    manifest = open_store().large.write("input_mixing", LARGE, [(0, data)]).manifest
    stored = open_store().large.read("input_mixing", manifest)
    assert stored.chunk(0) + stored.chunk(1) == data
    (file,) = (tmp_path / "state" / "large").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    content = bytearray(data)
    content[CHUNK_BYTES] ^= 1
    file.write_bytes(content)
    with pytest.raises(AnchorageError, match="CheckpointDamaged.*not those that were written"):
        open_store().large.read("input_mixing", manifest)
    file.unlink()
    with pytest.raises(AnchorageError, match="CheckpointDamaged.*is missing"):
        open_store().large.read("input_mixing", manifest)


def test_large_data_that_cannot_be_written_leaves_what_there_was(open_store: Open, tmp_path: Path) -> None:
    large = open_store().large
    manifest = large.write("input_mixing", LARGE, [(0, bytes(LARGE.nbytes))])

    def failing() -> Any:
        yield 0, bytes(5)
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(AnchorageError) as caught:
        large.write("input_mixing", LARGE, failing())
    assert caught.value.failure is DISK_FULL
    assert [path.stem for path in (tmp_path / "state" / "large").iterdir()] == [
        f"input_mixing-{manifest.manifest.digest}"
    ]
    assert manifest.chunk(1) == bytes(10)


def test_of_large_data_the_two_newest_files_stay(open_store: Open, tmp_path: Path) -> None:
    manifests = [
        open_store().large.write("input_mixing", Layout.of([("pool", "U8", (size,))]), [(0, bytes(size))]).manifest
        for size in (1, 2)
    ]
    large = open_store().large
    large.read("input_mixing", manifests[1])  # as a server does that was restarted
    newest = large.write("input_mixing", Layout.of([("pool", "U8", (3,))]), [(0, bytes(3))]).manifest
    remaining = {path.stem.removeprefix("input_mixing-") for path in (tmp_path / "state" / "large").iterdir()}
    assert remaining == {manifests[1].digest, newest.digest}
