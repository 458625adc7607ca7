"""The audit log beside the head that the server keeps: an older copy in its place is a warning, an entry, and no end of training."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from anchorage.transport.pki import make_key
from anchorage.transport.signed_head import SignedHead
from anchorage_silo.audit import AuditLog
from anchorage_silo.audit_witness import AuditWitness, missing_lines

URI = "anchorage://derm/silo/a"
KEY = make_key()


def witness(audit: AuditLog) -> AuditWitness:
    return AuditWitness(audit, lambda: KEY, URI)


def opened(folder: Path, **options: int) -> AuditLog:
    return AuditLog(folder / "audit.jsonl", lambda: 12.5, **options)


def write(folder: Path, *digests: str) -> SignedHead:
    """Write an entry for each digest, and return the head."""
    with closing(opened(folder)) as audit:
        for digest in digests:
            audit.record("announce", "1.train", digest=digest)
        return witness(audit).head()


def kinds(folder: Path) -> list[str]:
    with closing(opened(folder)) as audit:
        return ["rollback" for _ in audit.read_sent("rollback", all_runs=True)]


def compare(folder: Path, held: SignedHead | None) -> None:
    with closing(opened(folder)) as audit:
        witness(audit).compare(held)


def test_a_head_is_the_logs_and_the_silos(tmp_path: Path) -> None:
    held = write(tmp_path, "a", "b")
    assert held.lines == 2 and held.bounded and held.is_by(KEY.public_key(), URI)
    assert not held.is_by(KEY.public_key(), "anchorage://derm/silo/b")
    assert not held.is_by(make_key().public_key(), URI)
    assert write(tmp_path, "c").digest != held.digest


def test_a_changed_key_signs_the_next_head(tmp_path: Path) -> None:
    keys = [KEY, make_key()]
    with closing(opened(tmp_path)) as audit:
        signer = AuditWitness(audit, lambda: keys[0], URI)
        assert signer.head().is_by(KEY.public_key(), URI)
        changed = keys.pop()
        keys[0] = changed
        assert signer.head().is_by(changed.public_key(), URI)


def test_a_log_that_went_on_is_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = write(tmp_path, "a", "b")
    for _ in range(2):
        compare(tmp_path, held)
        write(tmp_path, "c")
    compare(tmp_path, None)
    assert not caplog.records and kinds(tmp_path) == []


def _older_copy(folder: Path, copy: Path) -> None:
    shutil.rmtree(folder)
    copy.rename(folder)


def _older_copy_that_outgrew_it(folder: Path, copy: Path) -> None:
    _older_copy(folder, copy)
    write(folder, *"vwxyz")


def _removed(folder: Path, copy: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


CHANGES = (_older_copy, _older_copy_that_outgrew_it, _removed)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_missing_is_a_warning_and_one_entry(
    tmp_path: Path, change: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder, copy = tmp_path / "state", tmp_path / "copy"
    folder.mkdir()
    write(folder, "a")
    shutil.copytree(folder, copy)
    held = write(folder, "b", "c")
    change(folder, copy)
    assert missing_lines(folder / "audit.jsonl", held)
    for times in (1, 2, 3):
        compare(folder, held)
        assert caplog.text.count("ANC-2225 AuditRolledBack") == times
        assert kinds(folder) == ["rollback"]
    assert "made it up" not in caplog.text
    write(folder, *"hijkl")
    assert missing_lines(folder / "audit.jsonl", held), "it is noticed however long the log grows"


def test_the_newest_copy_put_back_is_whole_again(tmp_path: Path) -> None:
    folder, copy = tmp_path / "state", tmp_path / "copy"
    folder.mkdir()
    held = write(folder, "a", "b")
    shutil.copytree(folder, copy)
    _removed(folder, copy)
    compare(folder, held)
    _older_copy(folder, copy)
    compare(folder, held)
    assert kinds(folder) == []


def test_a_head_of_another_key_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, "a")
    compare(tmp_path, SignedHead.sign(make_key(), URI, 40, bytes(32)))
    assert "enrolled with another one before" in caplog.text and kinds(tmp_path) == ["rollback"]


def test_a_line_in_a_segment_that_was_moved_away_is_not_missed(tmp_path: Path) -> None:
    with closing(opened(tmp_path, segment_bytes=100)) as audit:
        audit.record("announce", "1.train", digest="a")
        early = witness(audit).head()
        audit.record("announce", "2.train", digest="b")
        late = witness(audit).head()
    (tmp_path / "audit.1.jsonl").unlink()
    path = tmp_path / "audit.jsonl"
    assert missing_lines(path, early) == missing_lines(path, late) == ""
    assert missing_lines(path, SignedHead(late.lines, early.digest, b""))
