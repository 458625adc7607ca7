"""Every case of the known answers is compared by some test."""

import ast
import json
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
READING = re.compile(r"\bknown\s*\.\s*(check|expected)\b")
"""What only few files hold; the others are not parsed."""


def compared() -> set[str]:
    """Return the strings of test functions that read a case's expected outputs by ``known.check`` or ``known.expected``."""
    names: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        for test in ast.walk(ast.parse(text)) if READING.search(text) else ():
            if isinstance(test, ast.FunctionDef) and any(map(_reads_answers, ast.walk(test))):
                texts = (node.value for node in ast.walk(test) if isinstance(node, ast.Constant))
                names |= {text for text in texts if isinstance(text, str)}
    return names


def _reads_answers(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in ("check", "expected")
        and isinstance(node.value, ast.Name)
        and node.value.id == "known"
    )


def test_no_case_is_left_out(known) -> None:
    assert sorted(known.cases.keys() - compared()) == []


def test_a_file_named_by_the_environment_takes_the_place_of_its_cases_alone(known, tmp_path) -> None:
    name, *others = known.cases
    outside = tmp_path / "outside.json"
    case = {"inputs": {"x": 1}, "expected": {"y": 2}}
    outside.write_text(json.dumps({"_meta": {"implicit_constants": {name: {"z": 3}}}, name: case}))
    both = type(known)(TESTS / "known_answers.json", outside)
    assert (both.inputs(name), both.expected(name)) == ({"x": 1, "z": 3}, {"y": 2})
    assert [both.cases[other] for other in others] == [
        type(known)(TESTS / "known_answers.json").cases[other] for other in others
    ]
