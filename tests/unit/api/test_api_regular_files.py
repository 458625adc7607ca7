"""Regular files alone are opened: of pipes, sockets and devices their names are told, at once."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from irregular_files import DESCRIPTIONS, KINDS, SECONDS, put

from anchorage.api import regular_files
from anchorage.api.regular_files import NotARegularFileError, check_regular, open_regular, read_regular, regular_opener

ROOT = Path(__file__).parents[3]
OPENERS: dict[str, Callable[[Path], object]] = {
    "open": open_regular,
    "read": read_regular,
    "check": check_regular,
    "handle": lambda path: regular_opener(path, os.O_RDONLY),
}


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str, opener: str) -> None:
    path = put(kind, tmp_path / "x.png")
    with pytest.raises(NotARegularFileError) as raised:
        OPENERS[opener](path)
    assert (raised.value.strerror, raised.value.filename) == (f"{DESCRIPTIONS[kind]}, not a regular file", str(path))
    assert str(tmp_path) not in (raised.value.failure().redacted or str(tmp_path))


def open_files() -> int:
    """Return how many files this process has open, where the system tells."""
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0


@pytest.mark.timeout(SECONDS)
def test_a_file_that_becomes_a_pipe_meanwhile_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(b"x")

    def check_then_swap(name: Path) -> None:
        check_regular(name)
        path.unlink()
        put("pipe", path)

    monkeypatch.setattr(regular_files, "check_regular", check_then_swap)
    before = open_files()
    with pytest.raises(NotARegularFileError, match="named pipe"):
        regular_opener(path, os.O_RDONLY)
    assert open_files() == before


def test_files_links_folders_and_nothing_are_as_ever(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"content"
    with open_regular(str(tmp_path / "file"), buffering=0) as file:
        assert file.read(4) == b"cont"
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone")


HOLDER = """
import fcntl, os, signal, sys
handle = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGIO, lambda *_: fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK))
fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
@pytest.mark.timeout(SECONDS)
def test_a_file_that_a_file_server_holds_a_lease_on_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip(f"no leases here: {holder.stderr.read().decode().splitlines()[-1]}")
        assert read_regular(tmp_path / "file") == b"content"
        holder.stdin.close() if holder.stdin else None


OWN_READERS = {
    "core/anchorage/api/regular_files.py": "it is what opens them",
    "core/anchorage/engine/tracking/mlflow_run.py": "the server's own outbox",
    "core/anchorage/engine/tracking/outbox.py": "the server's own outbox",
    "core/anchorage/engine/tracking/process.py": "the server's own outbox",
    "core/anchorage/engine/tracking/progress.py": "the server's own outbox",
    "core/anchorage/engine/tracking/serving.py": "what MLflow fetched for itself",
    "core/anchorage/engine/tracking/serving_volumes.py": "a mask that was just written",
    "core/anchorage/learning/data/digits.py": "a file of scikit-learn's package",
    "core/anchorage/learning/exporting.py": "a program that was just written",
    "core/anchorage/methods/advice.py": "a file of the package",
    "core/anchorage/methods/variants.py": "a file of the package",
    "core/anchorage/simulation/footprint.py": "files of the process that started this one, and the kernel's",
    "core/anchorage/transport/files.py": "the lock file that it makes, and files that were just written",
    "core/anchorage/transport/memory.py": "the kernel's files",
    "cli/fedctl/cluster_checks.py": "a file of the package",
    "cli/fedctl/published.py": "a file of the package",
    "server/anchorage_server/readers.py": "the lock file that it makes",
    "silo_agent/anchorage_silo/system_files.py": "the kernel's files, and those of installed packages",
}
"""Modules that open files in another way, and which: nobody else names them."""


def other_openings(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield what opens a file for reading by its name, and is none of `anchorage.api.regular_files`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        of_os = called == "open" and ast.unparse(node.func) == "os.open"
        reads = (
            called in ("read_bytes", "read_text")
            or (of_os and "O_RDONLY" in text)
            or (called == "open" and isinstance(node.func, ast.Name) and "opener=regular_opener" not in text)
            or (called == "open" and not of_os and isinstance(first, str) and first.startswith("r"))
            or (ast.unparse(node.func) == "gzip.open")
        )
        if reads:
            yield node


def test_shipped_code_opens_what_others_name_as_regular_files_alone() -> None:
    opens: dict[str, list[str]] = {}
    for package in ("core/anchorage", "cli/fedctl", "server", "operator", "silo_agent"):
        for file in sorted((ROOT / package).rglob("*.py")):
            if calls := [ast.unparse(call) for call in other_openings(ast.parse(file.read_text()))]:
                opens[str(file.relative_to(ROOT))] = calls
    assert opens.keys() - OWN_READERS.keys() == set(), "open these with anchorage.api.regular_files"
    assert OWN_READERS.keys() - opens.keys() - {"core/anchorage/api/regular_files.py"} == set(), (
        "these open nothing any more"
    )
