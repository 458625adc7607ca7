"""The heads of audit logs at the server: the newest of each silo, on the disk, whatever the file had before."""

from pathlib import Path

import pytest

from anchorage.transport.signed_head import SignedHead
from anchorage_server.held_heads import HeldHeads

KEY, OTHER_KEY = "a" * 64, "b" * 64


def head(lines: int, digest: bytes = bytes(32)) -> SignedHead:
    return SignedHead(lines, digest, b"signature")


def test_keeps_the_one_with_the_most_lines_across_restarts(tmp_path: Path) -> None:
    for lines, expected_lines in ((5, 5), (3, 5), (5, 5), (8, 8)):
        heads = HeldHeads(tmp_path / "heads")
        heads.keep("silo-a", KEY, head(lines))
        assert heads.newest("silo-a") == HeldHeads(tmp_path / "heads").newest("silo-a") == head(expected_lines)
    assert heads.newest("silo-b") is None
    file = tmp_path / "heads" / "silo-a.json"
    assert file.stat().st_mode & 0o777 == 0o600 and file.stat().st_size < 500


def test_two_logs_of_one_key_are_named_and_the_first_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heads = HeldHeads(tmp_path)
    heads.keep("a", KEY, head(5))
    heads.keep("a", KEY, head(5))
    assert not caplog.records
    heads.keep("a", KEY, head(5, b"x" * 32))
    assert heads.newest("a") == head(5) and "two audit logs" in caplog.text


def test_a_silo_that_enrolled_anew_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heads = HeldHeads(tmp_path)
    heads.keep("a", KEY, head(5))
    heads.keep("a", OTHER_KEY, head(2))
    assert heads.newest("a") == head(2) and "a new key" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{", b'{"lines": 0}', b"\xff", b"[" * 10_000])
def test_a_damaged_file_is_named_and_replaced(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").write_bytes(content)
    heads = HeldHeads(tmp_path)
    assert heads.newest("a") is None and "not as it was written" in caplog.text
    heads.keep("a", KEY, head(1))
    assert HeldHeads(tmp_path).newest("a") == head(1)


def test_a_head_in_a_file_is_bounded(tmp_path: Path) -> None:
    HeldHeads(tmp_path).keep("a", KEY, head(1))
    text = (tmp_path / "a.json").read_text()
    for wrong in (text.replace("00" * 32, "00" * 31), text.replace("00" * 32, "0" * 63)):
        (tmp_path / "a.json").write_text(wrong)
        assert wrong != text and HeldHeads(tmp_path).newest("a") is None


def test_a_disk_that_fails_keeps_what_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    heads = HeldHeads(tmp_path / "file")
    heads.keep("a", KEY, head(1))
    assert heads.newest("a") is None and "not kept" in caplog.text
