"""Waiting for a cohort: what silos announce and upload in a round, bounded by deadline and quorum (docs/design/round-protocol.md)."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.errors.rounds import QUORUM_LOST, SILO_ABSENT, SILO_LATE, SILO_REMOVED
from anchorage.api.silo_state import SiloState
from anchorage.engine.cohort import OpenRound
from anchorage.engine.engine import Engine
from anchorage.engine.events import SiloChanged, Step, StepBegan
from anchorage.transport.messages import (
    Announced,
    Announcement,
    Arrived,
    Evaluated,
    Event,
    Joined,
    MembersChanged,
    Progressed,
    TaskFailed,
)
from anchorage.transport.tensors.chunks import ChunkSource

SILENT_ROUNDS = 2
"""Rounds after which a silo that is connected and says nothing is left out, until it does; after a new connection it has one."""


class Gathering(Engine):
    """Waits until every silo of a cohort has answered or the deadline has passed."""

    _absent: set[str] | None = None  # None before the run's first round

    @cached_property
    def _silent(self) -> Counter[str]:
        """Deadlines in a row that found a silo connected, without a word since the one before."""
        return Counter()

    def _next(self, until: float | None) -> Event | None:
        event = super()._next(until)
        match event:
            case Joined(silo):
                self._silent[silo] = min(self._silent[silo], SILENT_ROUNDS - 1)
            case Announced(silo) | Arrived(silo) | Evaluated(silo) | Progressed(silo) | TaskFailed(silo):
                del self._silent[silo]
            case _:
                pass
        return event

    def _without_silent(self, silos: Sequence[str]) -> list[str]:
        """Return the silos that are worth waiting for: those that say something, or all where these are too few."""
        speaking = [silo for silo in silos if self._silent[silo] < SILENT_ROUNDS]
        return speaking if len(speaking) >= self.settings.min_silos else list(silos)

    def _take_kept(self, opened: OpenRound) -> None:
        """Take what a server before this one received whole."""
        for silo, (announcement, update) in self.store.load_updates(opened.task.round).items():
            if silo in opened.states and announcement.task == opened.task.id:
                self._arrive(opened, silo, announcement, update)

    def _conclude(self, opened: OpenRound) -> None:
        self.strategy.conclude(
            {silo: opened.announcements[silo] for silo in opened.silos_with_announcement()}, opened.large
        )

    def _arrive(self, opened: OpenRound, silo: str, announcement: Announcement, update: ChunkSource) -> None:
        opened.arrive(silo, announcement, update)
        self.observer(SiloChanged(silo, opened.states[silo]))

    def _gather(self, opened: OpenRound, barrier: bool) -> None:
        """Wait until every silo answered or the deadline passed.

        With a barrier, uploads start when everyone has announced, or at the deadline; then they have a deadline of their own.

        Raises
        ------
        AnchorageError
            QuorumLost when too few silos can still count.
        """
        self.observer(StepBegan(Step.TRAIN))
        deadline = self.clock.now() + self.settings.round_deadline_seconds
        for early in self._early.take():
            self._take(opened, early, barrier)
        while opened.awaited_silos():
            if barrier and not opened.working_silos():
                barrier = False
                self._open_barrier(opened)
                continue
            self._warn_of_quorum(opened)
            event = self._next(deadline)
            if event is not None:
                self._take(opened, event, barrier)
            elif (
                barrier
                and opened.announced_silos()
                and len(opened.announced_silos()) + opened.count_answers() >= self.settings.min_silos
            ):
                self._give_up(opened, opened.working_silos())
                deadline = self.clock.now() + self.settings.round_deadline_seconds
            else:
                self._give_up(opened, opened.awaited_silos())
        self._require_quorum(opened)
        self._say_going_on()

    def _take(self, opened: OpenRound, event: Event, barrier: bool) -> None:
        """Note what a silo says about this round's task; anything about another task is stale."""
        match event:
            case Announced(silo, announcement) if (
                announcement.task == opened.task.id and silo in opened.awaited_silos()
            ):
                self._hear(opened, silo, announcement, barrier)
            case Announced(silo, announcement):
                self.link.dismiss(silo, announcement.task, opened.states.get(silo, "not part of this round"))
            case Arrived(silo, task) if task == opened.task.id and opened.states.get(silo) == SiloState.UPLOADING:
                self.store.keep(silo, opened.task.round, opened.announcements[silo])
                self._arrive(opened, silo, opened.announcements[silo], opened.updates[silo])
            case Joined(silo, profile) if profile.samples == 0 and silo in opened.awaited_silos():
                opened.states[silo] = SiloState.INACTIVE
                self.link.dismiss(silo, opened.task.id, "a silo without images takes no part")
            case TaskFailed(silo, task, code, message) if task == opened.task.id and silo in opened.awaited_silos():
                self._fail(opened, silo, SiloState.FAILED, code, message)
                if (
                    code == PIECE_WRONG.code
                    and opened.count_answers() + len(opened.awaited_silos()) < self.settings.min_silos
                ):
                    self._require_quorum(
                        opened
                    )  # the others have the same piece; what they still train would be in vain
            case MembersChanged():
                for silo in [s for s in opened.cohort if event.voids(s) and s not in opened.failures]:
                    self._fail(opened, silo, SiloState.REMOVED, SILO_REMOVED.code, "no member any more")
                    self.link.dismiss(silo, opened.task.id, SiloState.REMOVED)
            case _:
                pass

    def _hear(self, opened: OpenRound, silo: str, announcement: Announcement, barrier: bool) -> None:
        """Note an announcement and permit the upload, or let it wait at the barrier."""
        wrong = self._refusal(silo, announcement)
        opened.announcements[silo] = announcement
        if wrong is not None:
            self._fail(opened, silo, SiloState.FAILED, wrong.code, wrong.message)
            self.link.dismiss(silo, announcement.task, str(wrong))
        elif announcement.update is None:
            opened.states[silo] = SiloState.INACTIVE
            self.observer(SiloChanged(silo, SiloState.INACTIVE))
        elif barrier and announcement.trained:
            opened.states[silo] = SiloState.ANNOUNCED
            self.observer(SiloChanged(silo, SiloState.ANNOUNCED))
        else:
            self._permit(opened, silo)

    def _permit(self, opened: OpenRound, silo: str) -> None:
        announcement = opened.announcements[silo]
        update = opened.updates[silo] = self.store.spool(silo, opened.task.round, announcement)
        opened.states[silo] = SiloState.UPLOADING
        self.observer(SiloChanged(silo, SiloState.UPLOADING))
        self.link.permit(silo, announcement.task, opened.sink(update))

    def _open_barrier(self, opened: OpenRound) -> None:
        """Weigh everyone who announced; a silo that weighs nothing while others do need not upload."""
        self.observer(StepBegan(Step.WEIGH))
        waiting = opened.announced_silos()
        weights = self.strategy.weigh(
            {s: opened.announcements[s] for s in opened.cohort if s in waiting or s in opened.arrived_silos()}, {}
        )
        for silo in waiting:
            if weights.get(silo, 0.0) == 0.0 and any(w > 0 for w in weights.values()):
                opened.states[silo] = SiloState.COUNTED
                self.observer(SiloChanged(silo, SiloState.COUNTED))
            else:
                self._permit(opened, silo)

    def _give_up(self, opened: OpenRound, silos: Sequence[str]) -> None:
        """Take silos out that the deadline found without an update."""
        for silo in silos:
            if silo in self.connected:
                self._silent[silo] += 1
                message = f"not whole after {self.settings.round_deadline_seconds:g} s"
                if self._silent[silo] >= SILENT_ROUNDS:
                    message += f", not a word in {self._silent[silo]} rounds: left out until it says something"
                self._fail(opened, silo, SiloState.LATE, SILO_LATE.code, message)
            else:
                assert self._absent is not None, "a round was dispatched"
                self._absent.add(silo)
                self._fail(opened, silo, SiloState.ABSENT, SILO_ABSENT.code, "not connected at the deadline")

    def _fail(self, opened: OpenRound, silo: str, state: SiloState, code: str, message: str) -> None:
        opened.fail(silo, state, code, message)
        self.observer(SiloChanged(silo, state, 0, 0, code, message))

    def _warn_of_quorum(self, opened: OpenRound) -> None:
        """Say so while too few silos are there for the round to succeed as things stand."""
        coming = [silo for silo in opened.awaited_silos() if silo in self.connected]
        if opened.count_answers() + len(coming) < self.settings.min_silos:
            self._say_waiting(f"round {opened.task.round} needs {self.settings.min_silos} silos: {opened.silence()}")
        else:
            self._say_going_on()

    def _require_quorum(self, opened: OpenRound) -> None:
        if opened.count_answers() < self.settings.min_silos:
            for silo, (code, message) in opened.failures.items():
                if code == PIECE_WRONG.code:
                    raise AnchorageError(PIECE_WRONG, f"silo {silo}: {message}")
            raise AnchorageError(
                QUORUM_LOST,
                f"round {opened.task.round}: {opened.count_answers()} silos answered, {self.settings.min_silos} needed (spec.protocol.minSilos): "
                f"{opened.silence()}",
            )

    def _change_members(self, silos: Sequence[str]) -> None:
        if self._absent is not None:
            self._absent |= set(silos) - set(self.silos) - self.connected.keys()
        super()._change_members(silos)
