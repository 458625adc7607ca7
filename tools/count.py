"""Counts what the house is measured by: ``python tools/count.py [--words] [--list]``.

Prints JSON with four numbers:

- ``code_lines``: lines of the product's Python that hold code, without blank lines, comments, docstrings and generated files.
- ``name_comparisons``: lines that decide by the name of a slot's alternative or of a preset, outside the piece that owns the name.
- ``class_words``: names in code that say classes, outside the pieces of tasks and methods and their calculations.
- ``crd_bytes``: size of the Federation's CustomResourceDefinition.

With ``--words`` it prints instead how often each name that does not say what it holds stands in the product, its tests
and programs, see `dialect`; names that `dialect.EXPLAINED` gives a reason for do not count.

Source is read and never imported, so it works in a checkout without any package installed.
"""

import argparse
import ast
import io
import json
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).resolve().parent))  # where Python is run isolated

import dialect

PRODUCT = ("core", "server", "silo_agent", "operator", "cli")
PROGRAMS = ("benchmarks", "tests", "tools")
"""Folders of which variables and attributes count, too; names of functions there do not."""
CRD = "crds/federations.yaml"
SLOTS = ("core/anchorage/api/method.py", "core/anchorage/api/model.py")
"""Documents that hold slots whose alternatives are values of a field."""
DECIDING = (
    *("type", "name", "second", "at", "policy", "start"),
    *("online_classifier", "consistency", "contrastive", "adjustment"),
)
"""Fields of slots that choose what is computed; every other field tunes it."""
DOCUMENTS = "core/anchorage/api/"
PIECES = "core/anchorage/pieces/"
PRESETS = "core/anchorage/methods/"
ALGORITHMS = "core/anchorage/algorithms/"
CLASS_WORDS = ("argmax", "cross_entropy", "softmax", "confusion", "num_classes")

_NO_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}

Trees = Mapping[str, ast.Module]
"""Syntax trees by path below the root, with forward slashes."""


@dataclass(slots=True)
class Names:
    """Names of alternatives and presets, and where they may be compared."""

    fields: dict[str, set[str]] = field(default_factory=dict)
    """Field to the names that it may hold. A piece's name stands under ``name``, ``type`` and its slot, a preset's under ``name``."""
    owned: dict[str, set[str]] = field(default_factory=dict)
    """File of a piece to its names, which it may compare."""
    classes: dict[str, str] = field(default_factory=dict)
    """Class of a piece to its file."""
    constants: dict[str, set[str]] = field(default_factory=dict)
    """Module constant to its strings, where all of them are such names; of a mapping, its keys."""
    ambiguous: set[str] = field(default_factory=set)
    """Names that mean something else elsewhere, so that a comparison counts only where its subject is known to be a slot's field."""

    def distinct(self) -> set[str]:
        """Return the names that no other part of the product uses for something else."""
        every = set().union(*self.fields.values())
        return {name for name in every - self.ambiguous if name.lower() != name}


def count(root: Path) -> tuple[dict[str, int], list[str]]:
    """Return the four numbers of a checkout, and the places of the comparisons as ``path:line: source``."""
    sources = _sources(root)
    trees = {place: ast.parse(source) for place, source in sources.items()}
    names = collect_names(trees)
    places = [
        f"{place}:{line}: {sources[place].splitlines()[line - 1].strip()}"
        for place, tree in trees.items()
        for line in comparisons(tree, names, place)
    ]
    numbers = {
        "code_lines": 0,
        "name_comparisons": len(places),
        "class_words": 0,
        "crd_bytes": (root / CRD).stat().st_size,
    }
    for place, source in sources.items():
        tokens = tokens_of(source)
        numbers["code_lines"] += code_lines(trees[place], tokens)
        if not place.startswith((PIECES, PRESETS, ALGORITHMS)):
            numbers["class_words"] += class_words(tokens)
    return numbers, places


def count_words(root: Path) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return how often each unexplained name of the dialect stands in a checkout, and the places as ``path:line: kind name``."""
    product, programs = (
        dialect.collect({place: ast.parse(source) for place, source in _sources(root, folders).items()})
        for folders in (PRODUCT, PROGRAMS)
    )
    names = dialect.unexplained(product) + [name for name in programs if name.kind in ("variable", "attribute")]
    return dialect.totals(names), [f"{each.place}:{each.line}: {each.kind} {each.name}" for each in names]


def _sources(root: Path, folders: Sequence[str] = PRODUCT) -> dict[str, str]:
    """Return the Python of folders by path below the root, with forward slashes, without generated files."""
    paths = (path for part in folders for path in sorted((root / part).rglob("*.py")) if "_pb2" not in path.name)
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def tokens_of(source: str) -> list[tokenize.TokenInfo]:
    """Return a file's tokens."""
    return list(tokenize.generate_tokens(io.StringIO(source).readline))


def code_lines(tree: ast.Module, tokens: Sequence[tokenize.TokenInfo]) -> int:
    """Count a file's lines that hold code; any string that stands as a statement of its own is a docstring."""
    prose = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    held = (range(token.start[0], token.end[0] + 1) for token in tokens if token.type not in _NO_CODE)
    return len({line for lines in held for line in lines} - prose)


def class_words(tokens: Sequence[tokenize.TokenInfo]) -> int:
    """Count the names that hold one of `CLASS_WORDS`; prose does not count."""
    return sum(token.type == tokenize.NAME and any(word in token.string for word in CLASS_WORDS) for token in tokens)


def collect_names(trees: Trees) -> Names:
    """Read the names from the slots' documents, from the pieces' decorators and from what the methods call their presets."""
    names = Names(fields={"name": set()})
    for place, tree in trees.items():
        chosen: dict[str, set[str]] = {}
        if place in SLOTS:
            for key, words in _literals(tree).items():
                if key in DECIDING:
                    chosen[key] = words
                else:
                    names.ambiguous |= words
        elif place.startswith(DOCUMENTS):
            names.ambiguous.update(*_literals(tree).values())
        elif place.startswith(PRESETS):
            chosen = {"name": _preset_names(tree)}
        elif place.startswith(PIECES) and (members := {word for node in ast.walk(tree) for word in _members(node)}):
            names.owned[place] = members
            names.classes |= {node.name: place for node in tree.body if isinstance(node, ast.ClassDef)}
            chosen = dict.fromkeys(("type", PurePosixPath(place).parent.name), members)
            chosen["name"] = {
                word for word in members if word.lower() != word
            }  # processes and files have such names too
        for key, words in chosen.items():
            names.fields.setdefault(key, set()).update(words)
    every = set().union(*names.fields.values())
    assigned = (pair for tree in trees.values() for pair in _assignments(ast.walk(tree)))
    constants = [(target, value) for target, value in assigned if target.isupper()]
    for target, value in constants * 2:  # a constant may hold another one
        words = _words(value, names)
        if words and words <= every:
            names.constants[target] = words
    return names


def _literals(tree: ast.Module) -> dict[str, set[str]]:
    """Return what each field annotated with ``Literal`` may hold."""
    literals: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            for part in ast.walk(node.annotation):
                if isinstance(part, ast.Subscript) and getattr(part.value, "id", "") == "Literal":
                    literals.setdefault(node.target.id, set()).update(_strings(part.slice))
    return {key: words for key, words in literals.items() if words}


def _strings(node: ast.AST) -> set[str]:
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _members(node: ast.AST) -> set[str]:
    """Return the name that a class is registered under by the decorator ``@piece("...")``."""
    if not isinstance(node, ast.ClassDef):
        return set()
    calls = [one for one in node.decorator_list if isinstance(one, ast.Call) and getattr(one.func, "id", "") == "piece"]
    return set().union(*(_strings(call) for call in calls))


def _preset_names(tree: ast.Module) -> set[str]:
    """Return what a module calls the presets it makes: a call's first argument or ``name``, or the key ``name`` of changes."""
    expressions: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            expressions += [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            expressions += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "name"]
    words = {one.value for one in expressions if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return {word for word in words if word.isalnum() and word[0].isupper()}


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                yield from ((getattr(a, "id", ""), b) for a, b in zip(target.elts, value.elts, strict=False))
            else:
                yield getattr(target, "id", ""), value
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            yield getattr(node.target, "id", ""), node.value


def _words(node: ast.expr | None, names: Names) -> set[str]:
    """Return the strings that an expression is or holds, constants of other modules included."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return set().union(*(_words(one, names) for one in node.elts))
    if isinstance(node, ast.Dict):
        return set().union(*(_words(key, names) for key in node.keys))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("frozenset", "set", "tuple"):
        return set().union(*(_words(one, names) for one in node.args))
    if isinstance(node, ast.Starred):
        return _words(node.value, names)
    return names.constants.get(getattr(node, "id", getattr(node, "attr", "")), set())


def comparisons(tree: ast.Module, names: Names, place: str) -> list[int]:
    """Return the lines of a file that decide by a name which is not its own."""
    fields, nodes = names.fields, list(ast.walk(tree))
    bound: dict[str, set[str]] = {}
    for target, value in _assignments(nodes):
        if isinstance(value, ast.Attribute) and value.attr in fields:
            bound.setdefault(target, set()).update(fields[value.attr])
    distinct, piece_names = names.distinct(), names.owned.get(place, set())

    def decides(subject: ast.expr, words: set[str]) -> bool:
        """Tell whether one of the words is a name that the subject may hold."""
        key = _key(subject)
        known = fields.get(key, set()) | bound.get(key, set()) if isinstance(key, str) else set()
        return bool(words & (known | distinct) - piece_names)

    lines: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = (pair for left, right in pairwise(sides) for pair in ((left, right), (right, left)))
            if any(decides(subject, _words(other, names)) for subject, other in pairs):
                lines.add(node.lineno)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                values = [part.value for part in ast.walk(case.pattern) if isinstance(part, ast.MatchValue)]
                if any(decides(node.subject, _words(value, names)) for value in values):
                    lines.add(case.pattern.lineno)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            kinds = {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node.args[1])}
            if any(names.classes.get(kind, place) != place for kind in kinds):
                lines.add(node.lineno)
    return sorted(lines)


def _key(subject: ast.expr) -> str | None:
    """Return what an expression is called: its attribute, its name, or the string by which a mapping is asked."""
    if isinstance(subject, ast.Attribute):
        return subject.attr
    if isinstance(subject, ast.Name):
        return subject.id
    asked: Sequence[ast.expr] = ()
    if isinstance(subject, ast.Subscript):
        asked = (subject.slice,)
    elif isinstance(subject, ast.Call) and getattr(subject.func, "attr", "") == "get":
        asked = subject.args[:1]
    return next((one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str)), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the numbers as JSON, and with ``--list`` the places of the comparisons or names before it."""
    parser = argparse.ArgumentParser(prog="python tools/count.py", description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the checkout")
    parser.add_argument("--words", action="store_true", help="count names that do not say what they hold")
    parser.add_argument(
        "--list", action="store_true", help="print where the comparisons or names are, to standard error"
    )
    options = parser.parse_args(arguments)
    numbers, places = count_words(options.root) if options.words else count(options.root)
    if options.list:
        sys.stderr.write("".join(f"{place}\n" for place in places))
    sys.stdout.write(json.dumps(numbers) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
