"""Every case of the known answers is compared by some test."""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def compared(fixture: str = "known") -> set[str]:
    """Return the strings of test functions that read a case's expected outputs by ``FIXTURE.check`` or ``FIXTURE.expected``."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        for test in ast.walk(ast.parse(path.read_text())):
            if isinstance(test, ast.FunctionDef) and any(_reads_answers(node, fixture) for node in ast.walk(test)):
                texts = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
                found |= {text for text in texts if isinstance(text, str)}
    return found


def _reads_answers(node: ast.AST, fixture: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("check", "expected")
        and isinstance(node.value, ast.Name)
        and node.value.id == fixture
    )


def test_no_case_is_left_out(known) -> None:
    cases = {name for name in known.cases if not name.startswith("_")}
    assert sorted(cases - compared()) == []


def test_no_case_of_the_newer_methods_is_left_out(known_newer) -> None:
    cases = {name for name in known_newer.cases if not name.startswith("_")}
    assert sorted(cases - compared("known_newer")) == []
