"""Reads YAML text as plain values with line numbers.

Scalars follow YAML 1.2: only true and false are booleans, so that a name such as ``on`` stays text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from anchorage.api.errors.documents import DUPLICATE_FIELD, FILE_TOO_LARGE, FILE_UNREADABLE, NOT_YAML, WRONG_TYPE
from anchorage.api.mistakes import DocumentError, FieldPath, Mistake
from anchorage.api.regular_files import open_regular

MOST_BYTES = 2**20
MOST_VALUES = 100_000
MOST_DEPTH = 32

_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class RawDocument:
    """One YAML document as plain values."""

    value: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    """Line number, from 1, of the document itself (the empty path), of every field and item."""
    numbers: dict[FieldPath, str] = field(default_factory=dict)
    """Unquoted numbers as written in the file."""
    overridden: dict[FieldPath, str] = field(default_factory=dict)
    """Overridden fields, each with its override."""

    def where(self, file: str, path: FieldPath) -> tuple[str, int]:
        """Return the place of a field or its closest parent (override, or ``file:line``), and the line number."""
        ancestors = [path[:length] for length in range(len(path), -1, -1)]
        brought = [place for place in self.overridden if path not in self.lines and place[: len(path)] == path]
        for place in (*brought, *ancestors):
            if override := self.overridden.get(place):
                return override, 0
        line = next(self.lines[place] for place in ancestors if place in self.lines)
        return f"{file}:{line}", line


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars like YAML 1.2's core schema; never constructs objects."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name


class TextDumper(yaml.SafeDumper):
    """Quotes text that some reader of YAML takes for something else, such as ``no``, ``08``, ``1e3`` and ``y``."""


_RESOLVERS: Mapping[str, tuple[str, str, Callable[[str], Any]]] = {
    "null": (r"~|null|Null|NULL|", "~nN", lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]{1,30}", "-+0123456789", int),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789.", float),
}
for _name, (_pattern, _first, _) in _RESOLVERS.items():
    for _kind in (_Loader, TextDumper):
        _kind.add_implicit_resolver(
            _TAG + _name, re.compile(f"^(?:{_pattern})$"), [*_first, ""] if _name == "null" else list(_first)
        )

# helm and kubectl read these so
TextDumper.add_implicit_resolver(_TAG + "bool", re.compile("^[yYnN]$"), list("yYnN"))
TextDumper.add_implicit_resolver(_TAG + "int", re.compile("^0o[0-7]+$"), ["0"])


def write_documents(values: Iterable[Any], *, explicit_start: bool = True) -> str:
    """Return plain values as YAML documents that `read_documents` reads as they were."""
    return yaml.dump_all(values, Dumper=TextDumper, sort_keys=False, allow_unicode=True, explicit_start=explicit_start)


def read_documents(path: Path) -> list[RawDocument]:
    """Read the documents of a file, without empty ones.

    Raises
    ------
    DocumentError
        The file is unreadable, not YAML, too large, or has a field twice.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refusal(FILE_UNREADABLE, f"{error.strerror}; check the path and the permissions", str(path)) from error
    if len(content) > MOST_BYTES:
        raise _refusal(FILE_TOO_LARGE, f"found more than {MOST_BYTES} bytes; name a file of documents", str(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(NOT_YAML, "found bytes that are not UTF-8 text", f"{path}:{line}") from error
    return parse_documents(text, str(path))


def parse_documents(text: str, file: str) -> list[RawDocument]:
    """Read the documents of a text; `file` names it in messages.

    Raises
    ------
    DocumentError
        As `read_documents`.
    """
    try:
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark else file
        raise _refusal(NOT_YAML, f"{error.problem or error.context}", where) from error
    except yaml.YAMLError as error:
        raise _refusal(NOT_YAML, " ".join(str(error).split()), file) from error
    except RecursionError as error:
        raise _refusal(FILE_TOO_LARGE, f"found values nested deeper than {MOST_DEPTH}", file) from error
    documents, mistakes = [], []
    for node in nodes:
        reader = _Reader(file)
        reader.document.lines[()] = node.start_mark.line + 1
        reader.document.value = reader.value(node, ())
        mistakes += reader.mistakes
        if reader.document.value is not None:
            documents.append(reader.document)
    if mistakes:
        raise DocumentError(mistakes)
    return documents


def _refusal(failure: Any, message: str, where: str) -> DocumentError:
    return DocumentError([Mistake(failure, (), message, where=where)])


class _Reader:
    """Converts a tree of YAML nodes to values."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.document = RawDocument()
        self.mistakes: list[Mistake] = []
        self.count = 0

    def value(self, node: yaml.Node, path: FieldPath) -> Any:
        self.count += 1
        if self.count > MOST_VALUES or len(path) > MOST_DEPTH:
            raise _refusal(
                FILE_TOO_LARGE,
                f"found more than {MOST_VALUES} values, or values nested deeper than {MOST_DEPTH}",
                f"{self.file}:{node.start_mark.line + 1}",
            )
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.item(child, (*path, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and kind == "str":
            return node.value
        if isinstance(node, yaml.ScalarNode) and kind in _RESOLVERS and re.fullmatch(_RESOLVERS[kind][0], node.value):
            if kind in ("int", "float"):
                self.document.numbers[path] = node.value
            return _RESOLVERS[kind][2](node.value)
        self.mistake(WRONG_TYPE, path, f"found the tag {node.tag}, allowed are plain values", node)
        return None

    def mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.mistake(WRONG_TYPE, path, "found a list or mapping as a field's name, allowed is text", key)
                continue
            place = (*path, key.value)
            if key.value in values:
                first = self.document.lines[place]
                self.mistake(DUPLICATE_FIELD, place, f"found a second time, first in line {first}; remove one", key)
                continue
            self.document.lines[place] = key.start_mark.line + 1
            values[key.value] = self.value(child, place)
        return values

    def item(self, node: yaml.Node, path: FieldPath) -> Any:
        self.document.lines[path] = node.start_mark.line + 1
        return self.value(node, path)

    def mistake(self, failure: Any, path: FieldPath, message: str, node: yaml.Node) -> None:
        line = node.start_mark.line + 1
        self.mistakes.append(Mistake(failure, path, message, where=f"{self.file}:{line}", line=line))
