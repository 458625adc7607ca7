"""The audit log in segments: what is set aside stays part of the chain, and what is not here any more is said or noticed."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from silo_fakes import terms_of

from anchorage.api.errors import AnchorageError
from anchorage_silo.audit import AuditLog, verify
from anchorage_silo.commands import describe_log
from anchorage_silo.policy import Policy
from anchorage_silo.verdict import Past, Request, RequestKind, judge

SEGMENT_BYTES = 1000


def opened(folder: Path) -> AuditLog:
    return AuditLog(folder / "audit.jsonl", lambda: 12.5, segment_bytes=SEGMENT_BYTES)


def update_of(policy: Policy, log: AuditLog, task: str, digest: str) -> None:
    asked = Request(RequestKind.UPDATE, terms_of("FedAvg"), task, 9, digest, frozenset(), 20, trained=20)
    judge(policy, asked, Past(log)).enforce()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a log of 12 updates in two runs, in three segments; the agent was started again for each run."""
    for run in ("one", "two"):
        with closing(opened(tmp_path)) as log:
            log.record("join", digest=run)
            for number in range(6):
                log.record("announce", f"{number}.train", digest=f"{run}{number}")
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["audit.1.jsonl", "audit.2.jsonl", "audit.jsonl"]
    return tmp_path


def test_segments_are_one_log(folder: Path) -> None:
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.glob("*.jsonl"))
    reading = verify(folder / "audit.jsonl")
    kinds = Counter(entry["kind"] for entry in reading)
    assert kinds == {"join": 2, "announce": 12, "segment": 2}
    assert (reading.lines, reading.segment, reading.missing) == (16, 3, 0)
    with closing(opened(folder)) as log:
        assert (
            len(log.read_sent("announce", all_runs=True)) == 12 and len(log.read_sent("announce", all_runs=False)) == 6
        )
        assert log.head == (reading.lines, reading.last)
    assert "not here" not in describe_log(folder / "audit.jsonl")[0]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_segment_is_checked(folder: Path, number: int) -> None:
    path = sorted(folder.glob("audit*.jsonl"))[number]
    text = path.read_text()
    path.write_text(text.replace("announce", "Announce", 1))
    with pytest.raises(AnchorageError, match="ANC-2220.*line"):
        opened(folder)


def _remove_the_last(folder: Path) -> None:
    (folder / "audit.jsonl").unlink()


def _remove_from_between(folder: Path) -> None:
    (folder / "audit.2.jsonl").unlink()


def _swap(folder: Path) -> None:
    for old, new in (("audit.1", "x"), ("audit.2", "audit.1"), ("x", "audit.2")):
        (folder / f"{old}.jsonl").rename(folder / f"{new}.jsonl")


def _rename(folder: Path) -> None:
    (folder / "audit.1.jsonl").unlink()
    (folder / "audit.2.jsonl").rename(folder / "audit.7.jsonl")


def _cut(folder: Path) -> None:
    path = folder / "audit.1.jsonl"
    path.write_bytes(path.read_bytes()[:-10])


def _put_back_an_older_copy(folder: Path) -> None:
    (folder / "audit.jsonl").unlink()
    (folder / "audit.2.jsonl").rename(folder / "audit.jsonl")


CHANGES = (_remove_the_last, _remove_from_between, _swap, _rename, _cut, _put_back_an_older_copy)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_segments_shows(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder)
    for check in (lambda folder: list(verify(folder / "audit.jsonl")), opened):
        with pytest.raises(AnchorageError, match="ANC-2220"):
            check(folder)


def test_segments_that_were_moved_away_are_named_and_still_counted(folder: Path) -> None:
    (folder / "audit.1.jsonl").unlink()
    assert "segments before number 2 are not here: 6 lines" in describe_log(folder / "audit.jsonl")[0]
    (folder / "audit.2.jsonl").unlink()
    assert "segments before number 3 are not here" in describe_log(folder / "audit.jsonl")[0]
    with closing(opened(folder)) as log:
        log.record("join", digest="three")
        here = len(log.read_sent("announce", all_runs=True))
        assert here < 12 == log.number_sent("announce", all_runs=True)
        update_of(Policy(maximum_rounds=13), log, "9.train", "new")
        log.record("announce", "9.train", digest="new")
        with pytest.raises(AnchorageError, match="ANC-2213.*13 updates were announced"):
            update_of(Policy(maximum_rounds=13), log, "10.train", "newer")
        update_of(Policy(relative_noise="0"), log, "10.train", "newer")
        for number in range(6):  # a further segment goes on counting
            log.record("announce", f"{number}.train", digest=f"three{number}")
    (folder / "audit.3.jsonl").unlink()
    with closing(opened(folder)) as log:
        assert log.number_sent("announce", all_runs=True) == 19
        assert log.number_sent("announce", all_runs=False) == len(log.read_sent("announce", all_runs=False))


def test_a_run_whose_lines_were_moved_away_does_not_go_on(folder: Path) -> None:
    """What it has revealed for secure aggregation would be forgotten."""
    (folder / "audit.1.jsonl").unlink()
    (folder / "audit.2.jsonl").unlink()
    with closing(opened(folder)) as log, pytest.raises(AnchorageError, match="ANC-2220.*put them back"):
        log.record("join", digest="two")


def test_a_crash_between_two_segments_loses_nothing(folder: Path) -> None:
    (folder / "audit.jsonl").rename(folder / "audit.3.jsonl")
    assert len(list(verify(folder / "audit.jsonl"))) == 16
    with closing(opened(folder)) as log:
        log.record("join", digest="three")
    assert [entry["kind"] for entry in verify(folder / "audit.jsonl")][-2:] == ["segment", "join"]


def test_a_log_that_is_set_aside_while_it_is_read_is_read_once(folder: Path) -> None:
    reading = verify(folder / "audit.jsonl")
    entries = iter(reading)
    next(entries)
    with closing(opened(folder)) as log:
        for number in range(6):
            log.record("announce", f"{number}.train", digest=f"late{number}")
    assert (folder / "audit.3.jsonl").exists()
    assert len([*entries]) == 15
