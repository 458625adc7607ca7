"""Reads a file with one document, such as a process's configuration."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from anchorage.api.base import Document
from anchorage.api.checking import check_document
from anchorage.api.errors.documents import NOT_A_DOCUMENT
from anchorage.api.mistakes import DocumentError, Mistake
from anchorage.api.source import read_documents

D = TypeVar("D", bound=Document)


def read_document(path: Path, kind: type[D]) -> D:
    """Read a file with one document.

    Raises
    ------
    DocumentError
        The file is unreadable or not such a document; all mistakes are reported with line and field.
    """
    documents = read_documents(path)
    if len(documents) != 1:
        message = f"found {len(documents)} documents, allowed is one"
        raise DocumentError([Mistake(NOT_A_DOCUMENT, (), message, where=str(path))])
    document, mistakes = check_document(documents[0], kind)
    if document is None or mistakes:
        places = [documents[0].where(str(path), mistake.path) for mistake in mistakes]
        raise DocumentError([replace(m, where=at, line=line) for m, (at, line) in zip(mistakes, places, strict=True)])
    return document
