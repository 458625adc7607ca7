"""Mistakes in documents: each with its place, and all of them in one error."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anchorage.api.errors import AnchorageError, Failure

FieldPath = tuple[str | int, ...]
"""Names and list indices from a document's root, as they are written in the file."""


def without_password(text: str) -> str:
    """Blank what stands before the host of a URI."""
    return re.sub(r"//[^@/\s]*@", "//…@", text)


def dotted(path: FieldPath) -> str:
    """Write a field path for people: ``spec.local.epochs``, ``spec.list[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    Parameters
    ----------
    failure : Failure
        Entry of the catalogue.
    path : tuple
        The field in its document; empty where the mistake is the document's or the file's.
    message : str
        What was found and what is allowed, without the place.
    silo : int or None
        Index of the silo's document among the file's silos; None for the federation's.
    where : str
        File and line, or the override that brought the value; empty until it is located.
    line : int
        The line alone, 0 where there is none; mistakes are told in this order.
    """

    failure: Failure
    path: FieldPath
    message: str
    silo: int | None = None
    where: str = ""
    line: int = 0

    @property
    def code(self) -> str:
        """The stable code, such as ``ANC-1010``."""
        return self.failure.code

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, dotted(self.path)) if part)
        return f"{self.failure.code} {self.failure.reason}: {place}: {self.message}"


class DocumentError(AnchorageError):
    """Every mistake of a file's documents; its text has one line per mistake, its code is the first one's.

    Parameters
    ----------
    mistakes : sequence of Mistake
        At least one; told in the order of their lines.
    """

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda mistake: mistake.line))
        text = "\n".join(map(str, self.mistakes))
        super().__init__(self.mistakes[0].failure, text.split(": ", 1)[1])
