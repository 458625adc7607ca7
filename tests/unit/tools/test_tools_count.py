"""What tools/count.py takes for code, and which comparisons and names it counts."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import count
import dialect

ROOT = Path(__file__).parents[3]

SLOTS = """
class Weighting:
    type: Literal["None", "SemiAnAgg"] = "None"
    order: Literal["Paper", "Code"] = "Paper"

class Mixup:
    at: Literal["None", "Client"] = "None"
"""
PIECE = """
@piece("adam")
class Adam(ServerStep):
    def hook(self, slot): return slot.type == "adam"
"""
TREES = {
    "core/anchorage/api/method.py": ast.parse(SLOTS),
    "core/anchorage/api/data.py": ast.parse('labels: Literal["None", "Partial"] = "None"'),
    "core/anchorage/methods/fedanchor.py": ast.parse('PRESET = Preset(slots("FedAnchor"), labels=("None",))'),
    "core/anchorage/methods/checks.py": ast.parse('_KNOWN = ("FedAnchor",)'),
    "core/anchorage/pieces/server_step/adam.py": ast.parse(PIECE),
}


def counted(source: str, place: str = "core/anchorage/engine/engine.py") -> int:
    tree = ast.parse(source)
    return len(count.comparisons(tree, count.collect_names({**TREES, place: tree}), place))


def test_lines_of_code_are_those_that_hold_more_than_prose() -> None:
    source = '"""A module."""\n\n# a remark\nX = 1  # counts\n"""What X is."""\n\ndef f():\n    """Return\n\n    X."""\n    return """two\nlines"""\n'
    assert count.code_lines(ast.parse(source), count.tokens_of(source)) == 4


def test_words_of_classes_are_names_and_not_prose() -> None:
    source = '"""The softmax of logits."""\n\ndef f(logits, num_classes):\n    return logits.log_softmax(1)  # argmax\n'
    assert count.class_words(count.tokens_of(source)) == 2


@pytest.mark.parametrize(
    "source",
    [
        'method.weighting.type == "SemiAnAgg"',
        'method.weighting.type != "None"',
        'method.mixup.at in ("Client", "Both")',
        "method.name in _KNOWN",
        'kind == "SemiAnAgg"',
        'kind = method.weighting.type\nkind == "None"',
        'run.get("weighting", {}).get("type") != "SemiAnAgg"',
        'method["server_step"] == "adam"',
        '"adam" in method.server_step',
        "isinstance(step, Adam)",
        'match slot.type:\n    case "SemiAnAgg": pass\n    case _: pass',
    ],
)
def test_a_name_that_decides_counts_once(source: str) -> None:
    assert counted(source) == 1


@pytest.mark.parametrize(
    "source",
    [
        'condition.type == "Ready"',
        'silo.spec.labels == "None"',
        'optimiser.order == "Code"',
        'device.type == "cuda"',
        'argument == "adam"',
        'x = Weighting(type="SemiAnAgg")',
        'TABLE = {"SemiAnAgg": 1}',
        "isinstance(event, Joined)",
    ],
)
def test_other_words_and_uses_do_not_count(source: str) -> None:
    assert counted(source) == 0


def test_a_piece_may_ask_for_its_own_name_and_for_no_other() -> None:
    place = "core/anchorage/pieces/server_step/adam.py"
    assert counted(PIECE, place) == 0
    assert counted(PIECE + 'x = slot.type == "SemiAnAgg"', place) == 1
    assert counted('x = slot.type == "adam"', "core/anchorage/pieces/server_step/yogi.py") == 1


def test_it_prints_the_numbers_of_this_checkout_without_importing_it() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "tools" / "count.py"], capture_output=True, text=True, check=True
    )
    numbers = json.loads(done.stdout)
    assert set(numbers) == {"code_lines", "name_comparisons", "class_words", "crd_bytes"}
    assert numbers["crd_bytes"] == (ROOT / "crds" / "federations.yaml").stat().st_size
    assert numbers["code_lines"] > 10_000


def dialect_of(source: str) -> list[str]:
    return sorted(f"{name.kind} {name.name}" for name in dialect.collect({"core/one.py": ast.parse(source)}))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def read(told): found = told; found = 2; return found", ["variable found", "variable told"]),
        ("f = lambda own: own", ["variable own"]),
        ("KEPT = 1", ["variable KEPT"]),
        ("for a in b:\n    if (seen := a): pass", ["variable seen"]),
        ("try: pass\nexcept E as found: pass", ["variable found"]),
        ("match a:\n    case {'b': left}: pass", ["variable left"]),
        ("x = [kept for kept in y]", ["variable kept"]),
        (
            "class A:\n    told: int = 0\n    def f(self): self._seen = 1; other._seen = 2",
            ["attribute _seen", "attribute told"],
        ),
        ("def _drawn(): pass\nasync def validated(): pass", ["function _drawn", "function validated"]),
        ("def f(**how): return g(**how)\ndef g(a): pass", ["variadic **how"]),
        ("def f(*what: Any): return g(*what)\ndef g(a): pass", ["variadic *what"]),
    ],
)
def test_names_that_do_not_say_what_they_hold_count_once_a_scope(source: str, names: list[str]) -> None:
    assert dialect_of(source) == names


@pytest.mark.parametrize(
    "source",
    [
        "held_out = told.found(own=1)",
        "def f(left, right): pass",
        "left, top = corner",
        "class A:\n    @property\n    def closed(self): pass\n    @cached_property\n    def drawn(self): pass",
        "def feed(): pass\ndef send_all(): pass\ndef moved_maps(): pass",
        "def f(*paths: Path): return g(*paths)\ndef g(*paths): pass",
        "def f(**options: Any): return library(**options)",
        "def f(*a: P.args, **k: P.kwargs): return g(*a, **k)\ndef g(a): pass",
        "def f(**k: Unpack[Options]): return g(**k)\ndef g(a): pass",
    ],
)
def test_longer_names_sides_properties_and_checked_arguments_do_not_count(source: str) -> None:
    assert dialect_of(source) == []


def test_it_counts_the_words_of_this_checkout_and_lists_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "one.py").write_text("found = 1\n\n\ndef f(found, own): pass\n")
    command = [sys.executable, "-I", "-S", ROOT / "tools" / "count.py", "--root", tmp_path, "--words", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "variables": {"found": 2, "own": 1},
        "attributes": {},
        "functions": {},
        "variadics": {},
    }
    assert done.stderr.splitlines() == [
        "core/one.py:1: variable found",
        "core/one.py:4: variable found",
        "core/one.py:4: variable own",
    ]


def test_a_name_that_is_explained_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "one.py").write_text("def kept(): pass\n\n\ndef moved(): pass\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def moved(told): pass\n")
    numbers, places = count.count_words(tmp_path)
    assert numbers == {"variables": {"told": 1}, "attributes": {}, "functions": {"moved": 1}, "variadics": {}}
    assert places == ["core/one.py:4: function moved", "tests/test_one.py:1: variable told"]


def test_every_name_of_this_checkout_says_what_it_holds_or_is_explained() -> None:
    numbers, places = count.count_words(ROOT)
    assert not any(numbers.values()), "\n".join(places)
