"""Pages name, for each row of their lists, code and tests that exist: mistakes and shortcuts of the methods reference, and holes that were found."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"tests/pitfalls.md": (20, 4), "tests/shortcuts.md": (31, 5), "tests/attacks/README.md": (None, 4)}
"""Rows (None: as many as there are) and columns of each page's table; the last two columns are what is done, where, and the tests."""
PACKAGES = ("", "core/anchorage/", "cli/")
"""Where a page's paths may begin."""


def rows(page: str) -> list[list[str]]:
    """Return the cells of a table's rows: number, what it is about, code, tests."""
    lines = (ROOT / page).read_text().splitlines()
    return [
        [cell.strip() for cell in re.split(r" \|", line.strip("|"))][: PAGES[page][1]]
        for line in lines
        if re.match(r"\| \d+\w* \|", line)
    ]


@cache
def functions(path: Path) -> set[str]:
    """Return the names of all functions and methods of a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_row_is_there_once_and_in_order(page: str) -> None:
    count, width = PAGES[page]
    numbers = [row[0] for row in rows(page)]
    assert numbers == [str(number) for number in range(1, (count or len(numbers)) + 1)] != []
    assert all(len(row) == width for row in rows(page))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_and_file_that_is_named_exists(page: str) -> None:
    for number, *_, code, tests in rows(page):
        named = re.findall(r"`([^`]+)`", tests)
        assert named or code.startswith("Not used"), number
        for name in named:
            path, _, function = name.partition("::")
            assert (ROOT / path).is_file(), name
            assert function in functions(ROOT / path), name
        for path in re.findall(r"`([a-z_/]+(?:\.py|/))`", code):
            assert any((ROOT / package / path).exists() for package in PACKAGES), path
