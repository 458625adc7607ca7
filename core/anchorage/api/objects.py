"""Kubernetes objects of a federation and its silos, as typed documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorage.api import rules
from anchorage.api.checking import check_document
from anchorage.api.federation import Federation, Silo
from anchorage.api.mistakes import Mistake
from anchorage.api.sections import check_sections
from anchorage.api.source import RawDocument


@dataclass(frozen=True)
class ObjectReading:
    """Result of reading Kubernetes objects."""

    federation: Federation | None
    """None if a mistake prevents its conversion."""
    silos: tuple[Silo | None, ...]
    """In the order of the objects; None for a silo that cannot be converted."""
    mistakes: tuple[Mistake, ...]
    """All mistakes that the documents show; those of a silo have its name and index."""


def read_objects(federation: Mapping[str, Any], silos: Sequence[Mapping[str, Any]]) -> ObjectReading:
    """Check objects as `anchorage.api.files.read_federation` checks documents, except for the number of silos, which may change.

    Parameters
    ----------
    federation : mapping
        The object; of its metadata only name and namespace are used, its status is ignored.
    silos : sequence of mapping
        Likewise; all of them belong to this federation.
    """
    source, sources = _document(federation), [_document(silo) for silo in silos]
    values = [raw.value for raw in sources]
    made, mistakes = check_document(source, Federation)
    mistakes += rules.selection(source.value)
    members: list[Silo | None] = []
    for index, raw in enumerate(sources):
        silo, document_mistakes = check_document(raw, Silo)
        mistakes += [replace(mistake, silo=index) for mistake in document_mistakes]
        members.append(silo)
    mistakes += rules.members(source.value, values)
    if made is not None and all(members):
        mistakes += check_sections(made, [silo for silo in members if silo is not None])
    return ObjectReading(made, tuple(members), tuple(add_silo_name(mistake, silos) for mistake in mistakes))


def add_silo_name(mistake: Mistake, silos: Sequence[Mapping[str, Any]]) -> Mistake:
    """Add the object's name to a silo's mistake."""
    if mistake.silo is None:
        return mistake
    return replace(mistake, where=f"Silo {silos[mistake.silo].get('metadata', {}).get('name')}")


def _document(value: Mapping[str, Any]) -> RawDocument:
    metadata = value.get("metadata", {})
    if isinstance(metadata, Mapping):
        metadata = {key: item for key, item in metadata.items() if key in ("name", "namespace")}
    fields_without_status = {key: item for key, item in value.items() if key != "status"} | {"metadata": metadata}
    return RawDocument(fields_without_status, {(): 0})
