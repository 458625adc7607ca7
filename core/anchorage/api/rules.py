"""Rules across the documents of a file: names, membership, quorum. Rules about methods are in `anchorage.methods`."""

from collections.abc import Mapping, Sequence
from typing import Any

from anchorage.api.errors.documents import (
    DUPLICATE_NAME,
    FOREIGN_SILO,
    NO_SILOS,
    QUORUM_UNREACHABLE,
    SELECTION_TOO_LARGE,
)
from anchorage.api.mistakes import Mistake


def members(federation: Any, silos: Sequence[Any]) -> list[Mistake]:
    """Check names and membership of documents given as plain values, so that these mistakes are reported with those inside the documents."""
    mistakes = []
    name = _at(federation, "metadata", "name")
    names: list[Any] = []
    for index, silo in enumerate(silos):
        silo_name, owner = _at(silo, "metadata", "name"), _at(silo, "spec", "federation")
        if silo_name is not None and silo_name in names:
            message = f"found {silo_name!r} a second time; give every silo its own name"
            mistakes.append(Mistake(DUPLICATE_NAME, ("metadata", "name"), message, silo=index))
        if isinstance(owner, str) and isinstance(name, str) and owner != name:
            message = f"found {owner!r}, allowed is {name!r}, the federation of this file"
            mistakes.append(Mistake(FOREIGN_SILO, ("spec", "federation"), message, silo=index))
        names.append(silo_name)
    return mistakes


def counts(federation: Any, silos: int) -> list[Mistake]:
    """Check quorum and selection of a federation given as plain values against the number of its silos."""
    if silos == 0:
        return [Mistake(NO_SILOS, (), "found no silo; add at least one document with kind: Silo")]
    mistakes = []
    protocol = _at(federation, "spec", "protocol")
    quorum, selected = _at(protocol, "minSilos"), _at(protocol, "silosPerRound")
    present = "1 silo" if silos == 1 else f"{silos} silos"
    if _is_integer(quorum) and quorum > silos:
        message = f"found {quorum}, but the federation has {present}; lower it, or add silos"
        mistakes.append(Mistake(QUORUM_UNREACHABLE, ("spec", "protocol", "minSilos"), message))
    if _is_integer(selected) and selected > silos:
        message = f"found {selected}, but the federation has {present}; lower it, or leave it out to take all"
        mistakes.append(Mistake(SELECTION_TOO_LARGE, ("spec", "protocol", "silosPerRound"), message))
    return mistakes or selection(federation)


def selection(federation: Any) -> list[Mistake]:
    """Check the quorum of a federation (plain values) against its silos per round."""
    protocol = _at(federation, "spec", "protocol")
    quorum, selected = _at(protocol, "minSilos"), _at(protocol, "silosPerRound")
    if not _is_integer(quorum) or not _is_integer(selected) or quorum <= selected:
        return []
    message = f"found {quorum}, but silosPerRound is {selected}; lower it to {selected} at most"
    return [Mistake(QUORUM_UNREACHABLE, ("spec", "protocol", "minSilos"), message)]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _at(value: Any, *path: str) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
