"""What a process may still take of memory, within drawn control groups."""

from pathlib import Path

import psutil
import pytest

from anchorage.transport.memory import available_bytes

V2 = {"limit": "memory.max", "used": "memory.current", "stat": "inactive_file 100\nactive_file 50\nanon 7\n"}
V1 = {
    "limit": "memory.limit_in_bytes",
    "used": "memory.usage_in_bytes",
    "stat": "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n",
}


def draw(folder: Path, version: dict[str, str], limit: object, used: int, *, stat: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / version["limit"]).write_text(f"{limit}\n")
    (folder / version["used"]).write_text(f"{used}\n")
    if stat:
        (folder / "memory.stat").write_text(version["stat"])


def available(tmp_path: Path, membership: str = "") -> int:
    (tmp_path / "membership").write_text(membership)
    return available_bytes(tmp_path / "groups", tmp_path / "membership")


@pytest.mark.parametrize(("version", "mount"), [(V2, ""), (V2, "unified"), (V1, "memory")], ids=["v2", "hybrid", "v1"])
def test_the_limit_of_a_container_counts(tmp_path, version, mount):
    draw(tmp_path / "groups" / mount, version, 1000, 400, stat=False)
    assert available(tmp_path, "4:memory:/docker/abc\n0::/docker/abc\n") == 600  # which is not mounted inside it


@pytest.mark.parametrize(("version", "mount"), [(V2, ""), (V1, "memory")], ids=["v2", "v1"])
def test_cached_files_are_no_memory_in_use(tmp_path, version, mount):
    draw(tmp_path / "groups" / mount, version, 1000, 400)
    assert available(tmp_path) == 750


@pytest.mark.parametrize(
    ("version", "mount", "line"), [(V2, "", "0::/a/b"), (V1, "memory", "4:cpu,memory:/a/b")], ids=["v2", "v1"]
)
def test_the_narrowest_of_a_group_and_those_around_it_counts(tmp_path, version, mount, line):
    groups = tmp_path / "groups" / mount
    draw(groups / "a" / "b", version, 9000, 100, stat=False)
    draw(groups / "a", version, 5000, 3000, stat=False)
    draw(groups / "elsewhere", version, 10, 0, stat=False)
    assert available(tmp_path, f"9:pids:/elsewhere\n{line}\n") == 2000
    draw(groups / "a" / "b", version, 1000, 100, stat=False)
    assert available(tmp_path, f"{line}\n") == 900


def test_a_group_above_its_limit_has_nothing_left(tmp_path):
    draw(tmp_path / "groups", V2, 1000, 1200, stat=False)
    assert available(tmp_path) == 0


@pytest.mark.parametrize(("version", "limit"), [(V2, "max"), (V1, 9223372036854771712)], ids=["v2", "v1"])
def test_without_a_limit_the_machine_counts(tmp_path, version, limit, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 12345})())
    for mount in ("", "memory"):
        draw(tmp_path / "groups" / mount, version, limit, 100)
    assert available(tmp_path) == 12345
    assert available_bytes(tmp_path / "none", tmp_path / "none") == 12345
    draw(tmp_path / "groups", V2, 99999, 0, stat=False)
    assert available(tmp_path) == 12345  # a limit is no memory


def test_a_group_outside_of_the_namespace_is_not_looked_for(tmp_path):
    draw(tmp_path / "groups", V2, 1000, 400, stat=False)
    draw(tmp_path / "outside", V2, 10, 0, stat=False)
    assert available(tmp_path, "0::/../outside\n") == 600


def test_a_real_process_has_some_memory_left():
    assert 1_000_000 < available_bytes() <= psutil.virtual_memory().total
