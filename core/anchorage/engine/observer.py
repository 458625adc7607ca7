"""What the engine tells those who watch: the status, tracking, tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anchorage.engine.interfaces import RoundRecord
from anchorage.transport.messages import Profile, Report
from anchorage.transport.tensors.model import ModelBytes


class Observer(Protocol):
    """Called from the engine's thread; must return quickly and never raise."""

    def silo_joined(self, silo: str, profile: Profile) -> None:
        """A silo connected."""

    def silo_left(self, silo: str, reason: str) -> None:
        """A silo's connection ended."""

    def silo_changed(
        self, silo: str, state: str, done: int = 0, total: int = 0, code: str = "", message: str = ""
    ) -> None:
        """A silo's part in the open round changed, or its task moved on.

        States: ``Training``, ``Announced``, ``Uploading``, ``Arrived``, ``Evaluating``, ``Counted``, ``Inactive``, ``Failed``, ``Late``,
        ``Absent``, ``Removed``.
        """

    def waiting(self, reason: str, message: str) -> None:
        """The run cannot go on now; `reason` is of the catalogue, empty when it goes on again."""

    def round_started(self, round_number: int, silos: Sequence[str]) -> None:
        """A round was dispatched to these silos."""

    def step(self, name: str) -> None:
        """The round's step began.

        Steps: ``select``, ``dispatch``, ``train``, ``weigh``, ``evaluate at silos``, ``aggregate``, ``server training``, ``evaluate``, ``commit``.
        """

    def committed(self, record: RoundRecord, model: ModelBytes, report: Report | None) -> None:
        """A round is durable."""

    def ended(self, code: str, message: str) -> None:
        """The run is over; `code` is empty when every round is committed."""


@dataclass(frozen=True)
class Observers:
    """Several observers as one, called in order."""

    all: tuple[Observer, ...] = ()

    def silo_joined(self, silo: str, profile: Profile) -> None:
        """Pass on."""
        for observer in self.all:
            observer.silo_joined(silo, profile)

    def silo_left(self, silo: str, reason: str) -> None:
        """Pass on."""
        for observer in self.all:
            observer.silo_left(silo, reason)

    def silo_changed(
        self, silo: str, state: str, done: int = 0, total: int = 0, code: str = "", message: str = ""
    ) -> None:
        """Pass on."""
        for observer in self.all:
            observer.silo_changed(silo, state, done, total, code, message)

    def waiting(self, reason: str, message: str) -> None:
        """Pass on."""
        for observer in self.all:
            observer.waiting(reason, message)

    def round_started(self, round_number: int, silos: Sequence[str]) -> None:
        """Pass on."""
        for observer in self.all:
            observer.round_started(round_number, silos)

    def step(self, name: str) -> None:
        """Pass on."""
        for observer in self.all:
            observer.step(name)

    def committed(self, record: RoundRecord, model: ModelBytes, report: Report | None) -> None:
        """Pass on."""
        for observer in self.all:
            observer.committed(record, model, report)

    def ended(self, code: str, message: str) -> None:
        """Pass on."""
        for observer in self.all:
            observer.ended(code, message)
