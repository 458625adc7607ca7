"""Where a federation is watched: one interface over a run on this machine and a federation in a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from anchorage.api.status import FederationStatus

Round = Mapping[str, Any]
"""A committed round as JSON values (`anchorage.engine.interfaces.RoundRecord`, camelCase)."""

SiloRow = Mapping[str, Any]
"""A silo as JSON values (`anchorage.api.status.SiloStatus`, camelCase; in a cluster ``role``, ``approved`` and ``certificate`` too)."""

BOOKKEEPING = frozenset({"schemaVersion", "checksum", "contributions"})
"""Fields of the journal that are the server's own."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A federation at one time."""

    document: Mapping[str, Any]
    """The Federation with its status, as JSON values."""
    status: FederationStatus
    """What the server, or the operator, says or said last."""
    live: bool
    """Whether the server answered now."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    time: str
    """RFC 3339 in UTC; the last time, where it happened again and again."""
    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    """One word."""
    about: str
    """What it happened to, such as ``Federation/derm``."""
    message: str
    """One line."""
    count: int = 1
    """How often it happened."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model of a federation as a file of this machine."""

    path: Path
    """Safetensors."""
    digest: str
    """What its content address must be."""
    round: int
    """The round that it came from."""
    description: Mapping[str, Any]
    """What the server wrote about it; empty where it wrote nothing yet."""


class Source(Protocol):
    """One federation, wherever it runs. Every method raises `AnchorageError` where it cannot be read."""

    def observe(self) -> Observation:
        """Return the federation with its status."""

    def silos(self) -> Sequence[SiloRow]:
        """Return every silo, in the order of their names or documents."""

    def rounds(self) -> Sequence[Round]:
        """Return every committed round, ascending."""

    def events(self) -> Sequence[Event]:
        """Return what happened, the latest last."""

    def processes(self) -> Sequence[str]:
        """Return whose logs can be read here: ``server`` and names of silos, sorted."""

    def log(self, process: str, tail: int, *, follow: bool) -> Iterator[str]:
        """Return the last `tail` lines of a process's log, and with `follow` those that come, for ever."""

    def model(self, *, best: bool) -> AbstractContextManager[ModelFile]:
        """Give the last (or the best) model for as long as the context lasts."""
