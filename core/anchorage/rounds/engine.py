"""What the synchronous and the asynchronous engine have in common: who is there, deadlines, the first and the last round.

Only events move the engine, and it waits in one place (`Engine._next`), so every timing rule can be tested with a scripted link and clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from anchorage.errors import AnchorageError
from anchorage.errors.rounds import DEADLINE_EXCEEDED, QUORUM_LOST, STOPPED, WRONG_LAYOUT
from anchorage.messages import Announced, Announcement, Event, Joined, Left, Profile, Progressed, Report, StopRequested
from anchorage.rounds.interfaces import Clock, RoundRecord, RoundStore, ServerLearner, SiloLink, Weigher
from anchorage.rounds.observer import Observer
from anchorage.rounds.settings import RoundSettings
from anchorage.tensors.model import ModelBytes


class Engine(ABC):
    """Plays a federation's rounds from the last committed one to the last.

    Parameters
    ----------
    link : SiloLink
        How tasks and updates travel.
    store : RoundStore
        What survives.
    clock : Clock
        Time.
    learner : ServerLearner
        What happens to the model at the server.
    weigher : Weigher
        How much each update counts.
    settings : RoundSettings
        Bounds of the run.
    observer : Observer
        Who watches.
    """

    def __init__(
        self,
        *,
        link: SiloLink,
        store: RoundStore,
        clock: Clock,
        learner: ServerLearner,
        weigher: Weigher,
        settings: RoundSettings,
        observer: Observer,
    ) -> None:
        self.link = link
        self.store = store
        self.clock = clock
        self.learner = learner
        self.weigher = weigher
        self.settings = settings
        self.observer = observer
        self.silos = list(settings.silos)
        self.connected: dict[str, Profile] = {}
        self._waiting = False
        self._early: dict[str, Announced] = {}
        limit = settings.active_deadline_seconds
        self._ends_at = None if limit is None else clock.now() + limit

    def run(self) -> RoundRecord:
        """Play the remaining rounds and return the last record.

        Raises
        ------
        AnchorageError
            QuorumLost, DeadlineExceeded, Stopped, or what the store or the learner raised. Everything committed stays, and a new run
            on the same store resumes.
        """
        try:
            record = self._play_all(*self._begin())
        except AnchorageError as error:
            self.observer.ended(error.code, error.message)
            raise
        self.link.finish("every round is committed")
        self.observer.ended("", f"{record.round} rounds committed")
        return record

    @abstractmethod
    def _play_all(self, record: RoundRecord, model: ModelBytes) -> RoundRecord:
        """Play what is left after `record`."""

    def _begin(self) -> tuple[RoundRecord, ModelBytes]:
        """Return the last committed round, making round 0 in a new run."""
        checkpoint = self.store.latest()
        if checkpoint is not None:
            return checkpoint.record, checkpoint.model
        self.observer.step("server training")
        model = self.learner.initialise()
        return self._commit(0, model, self._evaluate(model, 0)), model

    def _evaluate(self, model: ModelBytes, number: int) -> Report | None:
        """Score the model at the server where this round is due."""
        due = number % self.settings.evaluate_every == 0 or number == self.settings.rounds
        if not due:
            return None
        self.observer.step("evaluate")
        return self.learner.evaluate(model, number)

    def _commit(
        self,
        number: int,
        model: ModelBytes,
        report: Report | None,
        *,
        metrics: Mapping[str, float] | None = None,
        state: Mapping[str, NDArray[Any]] | None = None,
        **parts: Any,
    ) -> RoundRecord:
        """Make a round durable and tell the observer; `parts` are fields of the record."""
        self.observer.step("commit")
        scores = {**(metrics or {}), **(report.metrics if report else {})}
        record = RoundRecord(number, model.digest, self.clock.now(), metrics=scores, **parts)
        self.store.commit(record, model, state or {})
        self.observer.committed(record, model, report)
        return record

    def _next(self, until: float | None) -> Event | None:
        """Wait for the next event until `until`; keeps track of who is connected.

        Raises
        ------
        AnchorageError
            Stopped, or DeadlineExceeded for the whole run.
        """
        limits = [t for t in (until, self._ends_at) if t is not None]
        event = self.link.next_event(min(limits) if limits else None)
        if event is None and self._ends_at is not None and self.clock.now() >= self._ends_at:
            raise AnchorageError(
                DEADLINE_EXCEEDED,
                f"not finished after {self.settings.active_deadline_seconds:g} s (spec.activeDeadlineSeconds); start again to resume",
            )
        match event:
            case StopRequested(reason):
                raise AnchorageError(STOPPED, f"{reason}; start again to resume at the last committed round")
            case Joined(silo, profile):
                self.connected[silo] = profile
                if silo not in self.silos:
                    self.silos.append(silo)
                self.observer.silo_joined(silo, profile)
            case Left(silo, reason):
                self.connected.pop(silo, None)
                self.observer.silo_left(silo, reason)
            case Progressed(silo, _, done, total):
                self.observer.silo_changed(silo, "Training", done, total)
            case _:
                pass
        return event

    def _await_quorum(self) -> None:
        """Wait until enough silos are connected.

        Raises
        ------
        AnchorageError
            QuorumLost when they are not within the round's deadline.
        """
        deadline = self.clock.now() + self.settings.round_deadline_seconds
        while len(self.connected) < self.settings.min_silos:
            self._say_waiting(
                f"{len(self.connected)} of {self.settings.min_silos} silos connected, missing: {self._missing()}"
            )
            event = self._next(deadline)
            if isinstance(event, Announced):  # said again by a silo that an earlier server had given the task
                self._early[event.silo] = event
            if event is None and len(self.connected) < self.settings.min_silos:
                raise AnchorageError(
                    QUORUM_LOST,
                    f"{len(self.connected)} silos connected, {self.settings.min_silos} needed (spec.protocol.minSilos), after "
                    f"{self.settings.round_deadline_seconds:g} s; missing: {self._missing()}",
                )
        self._say_going_on()

    def _take_early(self) -> list[Announced]:
        """Return what silos announced before there was a quorum, and forget it."""
        early, self._early = list(self._early.values()), {}
        return early

    def _missing(self) -> str:
        return ", ".join(silo for silo in self.silos if silo not in self.connected) or "none"

    def _say_waiting(self, message: str) -> None:
        self._waiting = True
        self.observer.waiting(QUORUM_LOST.reason, message)

    def _say_going_on(self) -> None:
        if self._waiting:
            self._waiting = False
            self.observer.waiting("", "")

    def _wrong_layout(self, announcement: Announcement) -> AnchorageError | None:
        """Return what is wrong with the tensors of an announced update."""
        update, expected = announcement.update, self.learner.up
        if update is None or (update.layout == expected.digest and update.nbytes == expected.nbytes):
            return None
        return AnchorageError(
            WRONG_LAYOUT,
            f"the update has layout {update.layout[:12]} and {update.nbytes} bytes, the run {expected.digest[:12]} and {expected.nbytes}",
        )
