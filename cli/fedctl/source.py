"""One interface for runs on this machine and federations in a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.model_card import ModelCard
from anchorage.api.status import FederationStatus

Round = Mapping[str, Any]
"""A committed round as JSON values (`anchorage.engine.interfaces.RoundRecord`, camelCase)."""

SiloRow = Mapping[str, Any]
"""A silo as JSON values (`anchorage.api.status.SiloStatus`, camelCase; in a cluster ``role``, ``approved`` and ``certificate`` too)."""

BOOKKEEPING = frozenset({"schemaVersion", "checksum", "contributions"})
"""Fields of the journal that are the server's own."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A federation with its status at one time."""

    document: Mapping[str, Any]
    """The Federation with its status, as JSON values."""
    status: FederationStatus
    """Last status of the server or the operator."""
    live: bool
    """Whether the server answered now."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a federation."""

    time: str
    """RFC 3339 in UTC; the last time of a repeated event."""
    type: str
    """``Normal`` or ``Warning``."""
    reason: str
    """One word."""
    about: str
    """The object that it is about, such as ``Federation/derm``."""
    message: str
    """One line."""
    count: int = 1
    """Number of repetitions."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model of a federation as a file of this machine."""

    path: Path
    """Safetensors."""
    digest: str
    """Expected content address."""
    round: int
    """The round that it was committed in."""
    description: Mapping[str, Any]
    """The server's description of it; empty if there is none yet."""


def parse_card(content: bytes, where: str) -> ModelCard:
    """Return a model card from its JSON, which is at `where`.

    Raises
    ------
    AnchorageError
        It is damaged.
    """
    try:
        return ModelCard.model_validate_json(content)
    except ValidationError as error:
        raise AnchorageError(commands.NO_RESULTS, f"{where} is no model card: {error.errors()[0]['msg']}") from error


def no_model(where: str) -> AnchorageError:
    """Return the failure of a run without a model: round 0 is the model before any training."""
    message = f"{where} has no model yet: no round of training is committed; `fedctl status` shows how far it is"
    return AnchorageError(commands.NO_MODEL_YET, message)


class Source(Protocol):
    """One federation. Every method raises `AnchorageError` if it cannot be read."""

    def observe(self) -> Observation:
        """Return the federation with its status."""

    def silos(self) -> Sequence[SiloRow]:
        """Return every silo, in the order of their names or documents."""

    def rounds(self) -> Sequence[Round]:
        """Return every committed round, ascending."""

    def events(self) -> Sequence[Event]:
        """Return all events, the latest last."""

    def processes(self) -> Sequence[str]:
        """Return the processes whose logs can be read: ``server`` and names of silos, sorted."""

    def log(self, process: str, tail: int, *, follow: bool) -> Iterator[str]:
        """Return the last `tail` lines of a process's log, and with `follow` further lines, without end."""

    def card(self) -> ModelCard | None:
        """Return the model card, None while the run is not over."""

    def model(self, *, best: bool) -> AbstractContextManager[ModelFile]:
        """Return the best model, or the last; before the run's end the last committed one. Available while the context is open."""
