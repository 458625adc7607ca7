"""Mistakes in documents, each with its place, and the error that reports all of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from anchorage.api.errors import AnchorageError, Failure

FieldPath = tuple[str | int, ...]
"""Path of a field from the document's root: names and list indices as in the file."""


def without_password(text: str) -> str:
    """Remove user and password from URIs in a text."""
    return re.sub(r"//[^@/\s]*@", "//…@", text)


def format_path(path: FieldPath) -> str:
    """Format a field path, such as ``spec.local.epochs`` or ``spec.list[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def suggest(word: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return ``did you mean …? `` with the known word nearest to one in spelling, whatever its case and signs; empty where none is near.

    `cutoff` is the ratio of `difflib` from which a word is near.
    """
    plain = {_plain(name): name for name in reversed(known)}
    near = get_close_matches(_plain(word), plain, n=1, cutoff=cutoff)
    return f"did you mean {plain[near[0]]}? " if near else ""


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word)).lower()


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a document."""

    failure: Failure
    path: FieldPath
    """The field in its document; empty for a mistake of the whole document or file."""
    message: str
    """What was found and what is allowed, without the place."""
    silo: int | None = None
    """Index of the silo's document among the file's silos; None for the federation's."""
    where: str = ""
    """File and line, or the override with the value; empty until it is located."""
    line: int = 0
    """Line number, 0 without one; mistakes are reported in this order."""

    @property
    def code(self) -> str:
        """The stable code, such as ``ANC-1010``."""
        return self.failure.code

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, format_path(self.path)) if part)
        return f"{self.failure.code} {self.failure.reason}: {place}: {self.message}"


class DocumentError(AnchorageError):
    """All mistakes of a file's documents (at least one), in the order of their lines.

    The text has one line per mistake; the code is that of the first one.
    """

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line))
        text = "\n".join(map(str, self.mistakes))
        super().__init__(self.mistakes[0].failure, text.split(": ", 1)[1])
