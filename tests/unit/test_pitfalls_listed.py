"""docs/design/pitfalls.md names, for each of the 20 pitfalls, code and tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/design/pitfalls.md"
PITFALLS = 20
PACKAGES = ("", "core/anchorage/")
"""Where the page's paths may begin."""


def rows() -> list[list[str]]:
    """Return the cells of the table's rows: number, mistake, code, tests."""
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def functions(path: Path) -> set[str]:
    """Return the names of all functions and methods of a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_pitfall_is_there_once_and_in_order() -> None:
    assert [row[0] for row in rows()] == [str(number) for number in range(1, PITFALLS + 1)]
    assert all(len(row) == 4 for row in rows())


def test_every_test_and_file_that_is_named_exists() -> None:
    known: dict[Path, set[str]] = {}
    for number, _, code, tests in rows():
        named = re.findall(r"`([^`]+)`", tests)
        assert named, number
        for name in named:
            path, _, function = name.partition("::")
            file = ROOT / path
            assert file.is_file(), name
            assert function in known.setdefault(file, functions(file)), name
        for path in re.findall(r"`([a-z_/]+(?:\.py|/))`", code):
            assert any((ROOT / package / path).exists() for package in PACKAGES), path
