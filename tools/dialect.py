"""Names that do not say what they hold, counted by ``python tools/count.py --words``.

The words are participles and adverbs that stand alone as a name (``found``, ``told``, ``beside``), where a term of the field says what a
variable holds (``silo``, ``record``, ``auxiliary_data``). A word inside a longer name, as in ``held_out``, does not count.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

WORDS = frozenset(
    """again around arrived beside found given guessed heard kept
    left own said seen taken told whole""".split()  # noqa: SIM905
)
"""Words that count as names of variables, parameters and attributes."""
PARTICIPLES = frozenset(
    """arrived begun beside built chosen done drawn found given gone heard held kept known learnt left lost
    made meant own said seen sent shown spent stuck taken taught told whole written""".split()  # noqa: SIM905
)
"""Words that count as names of functions, with every word that ends in ``ed``."""
_NO_PARTICIPLES = frozenset(("embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"))

Kind = Literal["variable", "attribute", "function", "variadic"]

EXPLAINED: Mapping[str, Mapping[Kind, str]] = {
    "hooks and attributes of pieces, which their authors implement or read": {
        "function": "activated adopted beside chosen compared kept miscounted mixed predicted scored seen sent suppressed trained",
        "attribute": "kept",
    },
    "views of images by the name of their kind": {"function": "labelled learnt unchanged"},
    "pure functions that return what they are given, changed, as Python's sorted does": {
        "function": "normalised sharpened weighted"
    },
    "questions between the agent and a piece's process, by their name there": {
        "function": "chosen declared decoded encoded"
    },
    "what is called when the event of that name has happened": {"function": "done failed started"},
    "values of the status and keys of JSON that commands print": {"attribute": "arrived found"},
    "wrappers of a library's call, which pass on what they are called with": {
        "variadic": "**options *inputs *arguments"
    },
}
"""Names of the product that stay, by reason: the words of each kind, a variadic parameter with its stars."""
Trees = Mapping[str, ast.Module]
"""Syntax trees by path below the root, with forward slashes."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Name:
    """A name that counts, and where it is first bound."""

    kind: Kind
    name: str
    """As it is written; that of a variadic parameter with its stars."""
    place: str
    line: int

    @property
    def word(self) -> str:
        """Return the name in lower case, without underscores before and after it."""
        return self.name.strip("_").lower()


def collect(trees: Trees) -> list[Name]:
    """Return every name that counts, in the order of the files, those of `EXPLAINED` included.

    A variable counts once in each function, an attribute once in each class, however often it is assigned.
    """
    functions = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, _DEFINITIONS)}
    return [name for place, tree in trees.items() for name in _names_of(place, tree, functions)]


def unexplained(names: Iterable[Name]) -> list[Name]:
    """Return the names without those of `EXPLAINED`."""
    words = {(kind, word) for kinds in EXPLAINED.values() for kind, text in kinds.items() for word in text.split()}
    return [name for name in names if (name.kind, name.word) not in words]


def totals(names: Iterable[Name]) -> dict[str, dict[str, int]]:
    """Return how often each word stands, by kind in the plural."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in get_args(Kind)}
    for name in names:
        counts[name.kind][name.word] += 1
    return {f"{kind}s": dict(sorted(counter.items())) for kind, counter in counts.items()}


def _names_of(place: str, tree: ast.Module, functions: set[str]) -> Iterator[Name]:
    for scope in ast.walk(tree):
        if isinstance(scope, _FUNCTIONS):
            if _is_participle(scope):
                yield Name("function", scope.name, place, scope.lineno)
            yield from (Name("variadic", name, place, line) for name, line in _hiding(scope, functions))
        if isinstance(scope, (*_FUNCTIONS, ast.Lambda, ast.Module)):
            yield from (Name("variable", name, place, line) for name, line in _counted(_variables(scope)))
        elif isinstance(scope, ast.ClassDef):
            yield from (Name("attribute", name, place, line) for name, line in _counted(_attributes(scope)))


def _counted(bindings: Iterator[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield each name of `WORDS` with its first line; ``left`` beside ``right`` or ``top`` is a side and does not count."""
    first: dict[str, int] = {}
    for name, line in bindings:
        first[name] = min(line, first.get(name, line))
    for name, line in first.items():
        is_side = "left" in name and any(name.replace("left", side) in first for side in ("right", "top"))
        if name.strip("_").lower() in WORDS and not is_side:
            yield name, line


def _is_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell whether a function, which is not a property, is called by a participle."""
    word = function.name.strip("_")
    if any("property" in ast.unparse(decorator) for decorator in function.decorator_list):
        return False
    return word in PARTICIPLES or (re.fullmatch("[a-z]+ed", word) is not None and word not in _NO_PARTICIPLES)


def _hiding(function: ast.FunctionDef | ast.AsyncFunctionDef, functions: set[str]) -> Iterator[tuple[str, int]]:
    """Yield ``*x`` and ``**x`` that are passed on to a function of the product, whose arguments a type checker then cannot check.

    Positions of one type are checked, and so are names that ``Unpack`` or ``kwargs`` of a callable list.
    """
    passed = {
        getattr(value, "id", "")
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in functions
        for value in (
            *(argument.value for argument in call.args if isinstance(argument, ast.Starred)),
            *(keyword.value for keyword in call.keywords if keyword.arg is None),
        )
    }
    checked = {"*": r"^(?!.*\b(Any|object)\b).+", "**": r"Unpack\[|\.kwargs$"}
    for stars, parameter in (("*", function.args.vararg), ("**", function.args.kwarg)):
        if parameter is not None and parameter.arg in passed:
            annotation = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
            if not re.search(checked[stars], annotation):
                yield stars + parameter.arg, parameter.lineno


def _variables(scope: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that a function or module binds, but for those of functions and classes inside it."""
    if isinstance(scope, (*_FUNCTIONS, ast.Lambda)):
        yield from ((node.arg, node.lineno) for node in ast.walk(scope.args) if isinstance(node, ast.arg))
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name, node.lineno
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def _attributes(scope: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Yield a class's fields and what its methods assign to ``self``."""
    for node in scope.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from (
                (target.id, target.lineno)
                for target in ast.walk(node)
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
            )
    for inner in ast.walk(scope):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and getattr(inner.value, "id", "") == "self"
        ):
            yield inner.attr, inner.lineno
