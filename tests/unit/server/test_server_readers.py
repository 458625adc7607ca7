"""A server that is to end waits for those who read its results."""

import fcntl
from contextlib import ExitStack
from pathlib import Path

import pytest

from anchorage_server import readers
from anchorage_server.readers import await_readers, reading


class Steps:
    """A clock that goes on by a second whenever somebody waits."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(readers.time, "sleep", steps.sleep)
    return steps


def test_nobody_is_waited_for_where_nobody_reads(tmp_path: Path, clock: Steps) -> None:
    assert await_readers(tmp_path, clock, 10)
    with reading(tmp_path), reading(tmp_path):
        pass
    assert await_readers(tmp_path, clock, 10) and clock.seconds == 0


def test_the_last_reader_is_waited_for(tmp_path: Path, clock: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as copies:
        copies.enter_context(reading(tmp_path))
        copies.enter_context(reading(tmp_path))

        def read_on(seconds: float) -> None:
            clock.seconds += 1.0
            if clock.seconds == 3:
                copies.close()

        monkeypatch.setattr(readers.time, "sleep", read_on)
        assert await_readers(tmp_path, clock, 10) and clock.seconds == 3


def test_the_wait_ends(tmp_path: Path, clock: Steps) -> None:
    with reading(tmp_path):
        assert not await_readers(tmp_path, clock, 10) and clock.seconds == 10


def test_a_file_system_without_locks_keeps_nobody(
    tmp_path: Path, clock: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with reading(tmp_path):
        assert await_readers(tmp_path, clock, 10)
    with reading(tmp_path / "absent"):
        assert await_readers(tmp_path / "absent", clock, 10)
