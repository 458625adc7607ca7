"""Files are written whole or not at all."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from anchorage.transport import files
from anchorage.transport.files import partial_path, replacing, set_mode, sync, write_atomically, write_once


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files and folders that were made durable, in order."""
    names: list[str] = []

    def note(path: Path) -> None:
        names.append(path.name)
        sync(path)

    monkeypatch.setattr(files, "sync", note)
    return names


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_takes_the_place_of_the_one_before(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "state.json"
    for content in (b"a longer first content", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == {"state.json"} and synced == []


def test_a_durable_file_is_on_disk_before_it_has_its_name(tmp_path: Path, synced: list[str]) -> None:
    write_atomically(tmp_path / "key", b"secret", mode=0o600, durable=True)
    assert synced == ["key.partial"] and names(tmp_path) == {"key"}


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0o600), (0o644, 0o644), (None, 0o640)])
def test_permissions(tmp_path: Path, mode: int | None, expected: int) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", b"content", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected


def test_of_two_writers_of_a_shared_file_each_has_a_temporary_name(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path, shared=True) as first, replacing(path, shared=True) as second:
        first.write_bytes(b"of the first")
        second.write_bytes(b"of the second")
    assert path.read_bytes() == b"of the first" and names(tmp_path) == {"file"}


def test_what_an_earlier_process_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    partial_path(path).write_bytes(b"much more than is to be written")
    partial_path(path).chmod(0o666)
    write_atomically(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o600


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match="stop"), replacing(path) as partial:
        partial.write_bytes(b"half")
        raise ValueError("stop")
    assert path.read_bytes() == b"before" and names(tmp_path) == {"file"}
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", b"")


@pytest.fixture(params=["links", "no links"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With hard links and permissions, and as on exFAT or SMB, which have none."""
    if request.param == "no links":
        monkeypatch.setattr(os, "link", refuse)
        monkeypatch.setattr(os, "chmod", refuse)
    return request.param == "links"


def refuse(*arguments: object, **more: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_of_several_writers_one_writes_once(tmp_path: Path, links: bool) -> None:
    path, outcomes, start = tmp_path / "token", [], threading.Barrier(8)

    def write(number: int) -> None:
        start.wait()
        try:
            write_once(path, bytes([number]))
            outcomes.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    assert path.read_bytes() == bytes([winner])
    assert names(tmp_path) == ({"token"} if links else {"token", ".token.lock"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_written_once_is_never_there_in_part(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its name comes to be, the content is whole: an approval counts by its name alone."""
    path, reads = tmp_path / "approval", []

    def watched(of: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            result = of(*arguments, **more)
            reads.append(path.read_bytes() if path.exists() else None)
            return result

        return call

    for name in ("open", "replace", "fsync", "unlink"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    write_once(path, b"whole")
    monkeypatch.undo()
    assert reads and set(reads) <= {None, b"whole"} and path.read_bytes() == b"whole"


def test_a_writer_that_was_killed_keeps_no_other_out(tmp_path: Path, links: bool) -> None:
    (tmp_path / ".token.lock").touch()
    write_once(tmp_path / "token", b"x")
    with pytest.raises(FileExistsError):
        write_once(tmp_path / "token", b"y")
    assert (tmp_path / "token").read_bytes() == b"x"


def test_permissions_of_somebody_else_s_file_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "chmod", refuse)
    set_mode(tmp_path, 0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(PermissionError):
        set_mode(tmp_path, 0o700)


def test_what_is_written_once_is_durable(tmp_path: Path, synced: list[str]) -> None:
    write_once(tmp_path / "token", b"x")
    assert len(synced) == 1 and synced[0].startswith(".token.")
