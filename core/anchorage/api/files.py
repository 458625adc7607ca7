"""Reads and writes files of documents: a federation and its silos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorage.api import rules
from anchorage.api.base import Document
from anchorage.api.checking import check_document
from anchorage.api.copies import divide, multiply
from anchorage.api.errors.documents import NO_FEDERATION, NOT_A_DOCUMENT, SEVERAL_FEDERATIONS, UNKNOWN_KIND
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import DocumentError, FieldPath, Mistake, suggest
from anchorage.api.overrides import apply_override
from anchorage.api.sections import check_sections
from anchorage.api.source import RawDocument, read_documents, write_documents

_OF_SILOS = "silo."
"""Prefix of an override that applies to every silo's document."""


@dataclass(frozen=True)
class Study:
    """A federation and its silos, with the places in the file that they were read from."""

    federation: Federation
    """The federation, overrides applied."""
    silos: tuple[Silo, ...]
    """The silos in the order of the file."""
    file: Path
    sources: tuple[RawDocument, ...]
    """The federation's document, then the silos' as in the file, not multiplied."""

    def locate(self, path: FieldPath, silo: int | None = None) -> tuple[str, int]:
        """Return the place of a field of the federation, or of a silo by its index (``file:line`` or the override), and the line number."""
        written = len(self.sources) - 1
        return self.sources[0 if silo is None else silo % written + 1].where(str(self.file), path)

    def to_yaml(self) -> str:
        """Return the documents as YAML, overrides applied; read with the same number of silos they give the same study."""
        silos = [source.value for source in self.sources[1:]]
        federation = as_mapping(self.federation.model_copy(update={"status": None}))
        return write_documents([federation, *silos])

    def add_place(self, mistake: Mistake) -> Mistake:
        """Add file and line to a mistake."""
        where, line = self.locate(mistake.path, mistake.silo)
        return replace(mistake, where=where, line=line)


@dataclass(frozen=True)
class Reading:
    """Result of reading a file."""

    study: Study | None
    """None if a mistake prevents the conversion of a document; unknown fields are only left out."""
    mistakes: tuple[Mistake, ...]
    """All mistakes that the documents show, with file and line."""


def load_federation(path: Path, overrides: Sequence[str] = (), silos: int | None = None) -> Study:
    """Read a federation and its silos. The rules of methods are checked by `anchorage.methods.validate_study`.

    Parameters
    ----------
    path : Path
        A file of YAML documents.
    overrides : sequence of str
        ``path=value``, applied in their order to the federation's document; ``silo.path=value``, to every silo's.
    silos : int, optional
        Number of silos to make from those in the file, in turn, each with its own part of their pool.

    Raises
    ------
    DocumentError
        The documents have mistakes; all are reported.
    """
    reading = read_federation(path, overrides, silos)
    if reading.study is None or reading.mistakes:
        raise DocumentError(reading.mistakes)
    return reading.study


def read_federation(path: Path, overrides: Sequence[str] = (), silos: int | None = None) -> Reading:
    """Read as `load_federation` does, but return mistakes instead of raising.

    Raises
    ------
    DocumentError
        The file is not readable as YAML, or contains no federation.
    """
    federations: list[RawDocument] = []
    written: list[RawDocument] = []
    mistakes: list[Mistake] = []
    for raw in read_documents(path):
        kind = raw.value.get("kind") if isinstance(raw.value, dict) else None
        if kind == "Federation":
            federations.append(raw)
        elif kind == "Silo":
            written.append(raw)
        else:
            mistakes.append(_locate(_unknown(raw, kind), raw, path))
    for raw in federations[1:]:
        extra = Mistake(SEVERAL_FEDERATIONS, (), "found another Federation, allowed is one per file")
        mistakes.append(_locate(extra, raw, path))
    if not federations:
        nothing = Mistake(NO_FEDERATION, (), "found no document with kind: Federation", where=str(path))
        raise DocumentError(mistakes or [nothing])
    mistakes += _overridden(federations[0], written, overrides)
    if silos is not None:
        mistakes += [_locate(mistake, raw, path) for raw in written if (mistake := divide(raw.value, silos))]
    return _check_documents(path, federations[0], written, mistakes, silos)


def _overridden(federation: RawDocument, silos: Sequence[RawDocument], overrides: Sequence[str]) -> list[Mistake]:
    mistakes = []
    for override in overrides:
        of_silos = override.startswith(_OF_SILOS)
        if of_silos:
            override_mistakes = [apply_override(silo, Silo, override.removeprefix(_OF_SILOS)) for silo in silos]
        else:
            override_mistakes = [apply_override(federation, Federation, override)]
        mistakes += list(filter(None, override_mistakes))[:1]
    return mistakes


def _check_documents(
    path: Path, source: RawDocument, sources: list[RawDocument], mistakes: list[Mistake], count: int | None
) -> Reading:
    complete = not mistakes
    federation, document_mistakes = check_document(source, Federation)
    mistakes += [_locate(mistake, source, path) for mistake in document_mistakes]
    silos = []
    for raw in sources:
        silo, document_mistakes = check_document(raw, Silo)
        mistakes += [_locate(mistake, raw, path) for mistake in document_mistakes]
        silos.append(silo)
    for mistake in rules.members(source.value, [raw.value for raw in sources]):
        mistakes.append(_locate(mistake, source if mistake.silo is None else sources[mistake.silo], path))
    if complete:
        number = count if count is not None and sources else len(sources)
        mistakes += [_locate(mistake, source, path) for mistake in rules.counts(source.value, number)]
    made = tuple(silo for silo in silos if silo is not None)
    if federation is None or len(made) < len(silos) or not complete:
        return Reading(None, tuple(mistakes))
    members = made if count is None or not made else multiply(made, count)
    study = Study(federation, members, path, (source, *sources))
    mistakes += map(study.add_place, check_sections(federation, members))
    return Reading(study, tuple(mistakes))


def _unknown(raw: RawDocument, kind: Any) -> Mistake:
    if not isinstance(raw.value, dict):
        return Mistake(NOT_A_DOCUMENT, (), "found no mapping, allowed is a document with kind, metadata and spec")
    shown_kind = "nothing" if kind is None else repr(kind)
    hint = suggest(str(kind), ("Federation", "Silo"))
    return Mistake(UNKNOWN_KIND, ("kind",), f"found {shown_kind}, {hint}allowed are Federation, Silo")


def _locate(mistake: Mistake, raw: RawDocument, path: Path) -> Mistake:
    where, line = raw.where(str(path), mistake.path)
    return replace(mistake, where=where, line=line)


def as_mapping(document: Document) -> Mapping[str, Any]:
    """Return a document as plain values for JSON or YAML: the fields that are set, in camelCase, apiVersion and kind first, and the whole status.

    Slots of a method that are not set are left out, so that reading the result resolves the same method.
    """
    heads = {name: getattr(document, name) for name in ("api_version", "kind") if hasattr(document, name)}
    values = document.model_copy(update=heads).model_dump(mode="json", by_alias=True, exclude_unset=True)
    status = getattr(document, "status", None)
    if isinstance(status, Document):
        values["status"] = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    return values


def dump_yaml(documents: Sequence[Document]) -> str:
    """Return documents as one YAML text that `load_federation` can read."""
    return write_documents(map(as_mapping, documents))
