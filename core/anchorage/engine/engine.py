"""What the synchronous and the asynchronous engine have in common: who is there, deadlines, the first and the last round.

Only events move the engine, and it waits in one place (`Engine._next`), so every timing rule can be tested with a scripted link and clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import DEADLINE_EXCEEDED, QUORUM_LOST, STOPPED, WRONG_LAYOUT
from anchorage.api.errors.transfer import OUT_OF_BOUNDS
from anchorage.api.metrics import in_order, score
from anchorage.api.piece_faults import naming_pieces
from anchorage.api.silo_state import SiloState
from anchorage.engine.aggregation.model_average import ModelAverage
from anchorage.engine.early import EarlyEvents
from anchorage.engine.embedding_plane import EmbeddingPlane, is_pictured, plane_of
from anchorage.engine.events import (
    Observer,
    RoundCommitted,
    RunEnded,
    SiloChanged,
    SiloJoined,
    SiloLeft,
    Step,
    StepBegan,
    Waiting,
)
from anchorage.engine.interfaces import RoundRecord, ServerLearner, SiloRecord
from anchorage.engine.settings import RoundSettings
from anchorage.engine.stages import Stage
from anchorage.engine.store import RoundStore
from anchorage.engine.strategy import Strategy
from anchorage.transport.bounds import IMAGE_COUNTS, MOST_IMAGES
from anchorage.transport.exchange import Exchange
from anchorage.transport.link import Clock
from anchorage.transport.messages import (
    Announcement,
    Broken,
    Event,
    Joined,
    Left,
    MembersChanged,
    Profile,
    Progressed,
    Report,
    StopRequested,
)
from anchorage.transport.tensors.model import ModelBytes


@runtime_checkable
class Keeper(Protocol):
    """A part of the run whose state a checkpoint keeps."""

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays to keep, by name."""

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from arrays that `state` returned."""


GROWTH = 2
"""Largest number of images that a silo may count in a round, as a multiple of those that it had when it became a member."""


class Engine(ABC):
    """Plays a federation's rounds from the last committed one to the last.

    Parameters
    ----------
    link : Exchange
        How tasks and updates travel.
    store : RoundStore
        What survives.
    clock : Clock
        Time.
    learner : ServerLearner
        What happens to the model at the server.
    strategy : Strategy
        What the method does at the server.
    settings : RoundSettings
        Bounds of the run.
    observer : Observer
        Who watches.
    started : float, optional
        When the run's first process started, the clock's seconds; from then its deadline counts. None: now.
    warm_up : sequence of Stage
        What the rounds before those of `learner` and its like are played with; synchronous only.
    """

    def __init__(
        self,
        *,
        link: Exchange,
        store: RoundStore,
        clock: Clock,
        learner: ServerLearner,
        strategy: Strategy,
        settings: RoundSettings,
        observer: Observer,
        started: float | None = None,
        warm_up: Sequence[Stage] = (),
    ) -> None:
        self.link = link
        self.store = store
        self.clock = clock
        self.observer = observer
        self._keepers: dict[str, Keeper | None] = {}
        self._stages = (*warm_up, Stage(settings, learner, strategy))
        for stage in self._stages:
            stage.strategy.keep_in(store.large)
        self._enter(self._stages[0])
        self.silos = list(settings.silos)
        self.connected: dict[str, Profile] = {}
        self._profiles: dict[str, Profile] = {}
        self._images: dict[str, int] = {
            part.name: part.images for r in store.history() for part in r.silos if part.images
        }
        self._waiting = False
        self._gathered = False
        self._early = EarlyEvents()
        limit = settings.active_deadline_seconds
        self._ends_at = None if limit is None else (clock.now() if started is None else started) + limit

    def run(self) -> RoundRecord:
        """Play the remaining rounds and return the last record.

        Raises
        ------
        AnchorageError
            QuorumLost, DeadlineExceeded, Stopped, PieceWrong, or what the store or the learner raised. Everything committed stays, and a
            new run on the same store resumes.
        """
        try:
            with naming_pieces():
                record = self._play_all()
        except AnchorageError as error:
            self.observer(RunEnded(error.code, error.message))
            raise
        self.link.finish("every round is committed")
        self.observer(RunEnded("", f"{record.round} rounds committed"))
        return record

    @abstractmethod
    def _play_all(self) -> RoundRecord:
        """Play what is left, from `_begin` on; whoever called it holds no model, so that the first one goes with its round."""

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self.settings, self.learner, self.strategy = stage.settings, stage.learner, stage.strategy
        learner = stage.learner if isinstance(stage.learner, Keeper) else None
        decay = stage.settings.average_decay
        self._average = None if decay is None else ModelAverage(decay)
        self._keepers = {"strategy/": stage.strategy, "learner/": learner, "average/": self._average}

    def _stage_of(self, number: int) -> Stage:
        return next((stage for stage in self._stages if number <= stage.last), self._stages[-1])

    def _go_on(self, number: int, model: ModelBytes) -> ModelBytes:
        """Enter the stage of a round that is not this one's any more, and return the model that it starts from."""
        stage = self._stage_of(number)
        if stage is self._stage:
            return model
        self.observer(StepBegan(Step.SERVER_TRAINING))
        if self._average is not None:
            model = self._average.apply(model)
        self._enter(stage)
        return self.learner.adopt(model)

    def _begin(self) -> tuple[RoundRecord, ModelBytes]:
        """Return the last committed round, making round 0 in a new run, and the model that training goes on from."""
        checkpoint = self.store.latest()
        if checkpoint is not None:
            self._enter(self._stage_of(checkpoint.record.round))
            for prefix, keeper in self._keepers.items():
                state = {key.removeprefix(prefix): a for key, a in checkpoint.state.items() if key.startswith(prefix)}
                if keeper is not None and state:
                    keeper.restore(state)
            model = checkpoint.model
            return checkpoint.record, model if self._average is None else self._average.resume(model)
        self.observer(StepBegan(Step.SERVER_TRAINING))
        model = self.learner.initialise()
        return self._commit(0, model, self._evaluate(model, 0), state=self._method_state()), model

    def _method_state(self) -> Mapping[str, NDArray[Any]]:
        """Return what the strategy and the learner must find again after a restart."""
        keepers = [(prefix, keeper) for prefix, keeper in self._keepers.items() if keeper is not None]
        return {prefix + key: array for prefix, keeper in keepers for key, array in keeper.state().items()}

    def _due(self, number: int) -> bool:
        return number % self.settings.evaluate_every == 0 or number == self.settings.rounds

    def _evaluate(self, model: ModelBytes, number: int) -> Report | None:
        """Score the model on the validation images where this round is due."""
        if not self._due(number):
            return None
        self.observer(StepBegan(Step.EVALUATE))
        return self.learner.evaluate(model, number)

    def _test(self, number: int, model: ModelBytes, metrics: Mapping[str, float]) -> Mapping[str, Report]:
        """Score the final and the best model on the test images; `metrics` are those of the last round, which is being committed."""
        final = self.learner.test(model, number)
        if not final.metrics:
            return {}
        best = None if self.store.excels(number, metrics) else self.store.best()
        if best is None or score(best.record.metrics) is None:
            return {"final": final, "best": final}
        return {"final": final, "best": self.learner.test(best.model, best.record.round)}

    def _commit(
        self,
        number: int,
        model: ModelBytes,
        report: Report | None,
        *,
        metrics: Mapping[str, float] | None = None,
        state: Mapping[str, NDArray[Any]] | None = None,
        test: Mapping[str, Report] | None = None,
        silos: Sequence[SiloRecord] = (),
        seconds: Mapping[str, float] | None = None,
        bytes_up: int = 0,
        bytes_down: int = 0,
    ) -> RoundRecord:
        """Make a round durable and report it. The last round is tested first, unless `test` says how it did."""
        scores = in_order({**(metrics or {}), **(report.metrics if report else {})})
        if test is None:
            test = self._test(number, model, scores) if number == self.settings.rounds else {}
        self.observer(StepBegan(Step.COMMIT))
        record = RoundRecord(
            number,
            model.digest,
            self.clock.now(),
            metrics=scores,
            silos=tuple(map(self._with_profile, silos)),
            seconds=seconds or {},
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            test={name: in_order(scored.metrics) for name, scored in test.items()},
            documents=self.settings.documents,
            embeddings=self._plane(number, report),
        )
        self.store.commit(record, model, state or {})
        self.observer(RoundCommitted(record, model, report, test))
        return record

    def _plane(self, number: int, report: Report | None) -> EmbeddingPlane | None:
        """Return the embeddings of a report in two dimensions, in the rounds in which they are drawn."""
        settings = self.settings
        if settings.embeddings is None or report is None or report.embeddings is None or not report.layer:
            return None
        if not is_pictured(number, settings.rounds, settings.evaluate_every):
            return None
        return plane_of(report.embeddings, report.layer, settings.embeddings, settings.seed)

    def _with_profile(self, part: SiloRecord) -> SiloRecord:
        """Return a silo's part with what the silo said of its images when it joined."""
        part = replace(part, images=self._images.get(part.name, 0))
        profile = self._profiles.get(part.name)
        return part if profile is None else replace(part, fingerprint=profile.fingerprint, labels=profile.labels)

    def _next(self, until: float | None) -> Event | None:
        """Wait for the next event until `until`; keeps track of who is connected.

        Raises
        ------
        AnchorageError
            Stopped, DeadlineExceeded for the whole run, or what broke the link's own end; a defect there is raised as it is.
        """
        limits = [t for t in (until, self._ends_at) if t is not None]
        event = self.link.next_event(min(limits) if limits else None)
        match event:
            case StopRequested(reason):
                raise AnchorageError(STOPPED, f"{reason}; start again to resume at the last committed round")
            case Broken(error):
                raise error
            case _ if self._ends_at is not None and self.clock.now() >= self._ends_at:
                limit = f"{self.settings.active_deadline_seconds:g} s"
                raise AnchorageError(
                    DEADLINE_EXCEEDED, f"not finished {limit} after its first start (spec.activeDeadlineSeconds)"
                )
            case MembersChanged(silos, gone):
                for silo in gone:
                    self._images.pop(silo, None)
                self._change_members(silos)
            case Joined(silo, profile):
                grown = GROWTH * self._images.get(silo, MOST_IMAGES)
                profile = replace(profile, samples=min(profile.samples, self.settings.most_images, grown))
                self.connected[silo] = profile
                self._profiles[silo] = profile
                if profile.samples:
                    self._images.setdefault(silo, profile.samples)
                if silo not in self.silos:
                    self.silos.append(silo)
                self.observer(SiloJoined(silo, profile))
            case Left(silo, reason):
                self.connected.pop(silo, None)
                self.observer(SiloLeft(silo, reason))
            case Progressed(silo, _, done, total):
                self.observer(SiloChanged(silo, SiloState.TRAINING, done, total))
            case _:
                pass
        return event

    def _change_members(self, silos: Sequence[str]) -> None:
        """Take silos in and out; an engine that has work open with them overrides this."""
        self.silos = list(silos)
        for silo in self.connected.keys() - set(silos):
            self.connected.pop(silo)

    def _await_quorum(self) -> None:
        """Wait until enough silos are connected; what else happens meanwhile is kept in `_early`.

        Raises
        ------
        AnchorageError
            QuorumLost when they are not within the round's deadline; not before they ever were if the settings say so.
        """
        deadline = self.clock.now() + self.settings.round_deadline_seconds
        while len(self.connected) < self.settings.min_silos:
            self._say_waiting(
                f"{len(self.connected)} of {self.settings.min_silos} silos connected, missing: {self._missing()}"
            )
            event = self._next(deadline)
            if event is not None:
                self._early.keep(event)
            elif self.settings.awaits_first_silos and not self._gathered:
                deadline = self.clock.now() + self.settings.round_deadline_seconds
            elif len(self.connected) < self.settings.min_silos:
                raise AnchorageError(
                    QUORUM_LOST,
                    f"{len(self.connected)} silos connected, {self.settings.min_silos} needed (spec.protocol.minSilos), after "
                    f"{self.settings.round_deadline_seconds:g} s; missing: {self._missing()}",
                )
        self._gathered = True
        self._say_going_on()

    def _missing(self) -> str:
        missing = [silo for silo in self.silos if silo not in self.connected]
        wanted = self.settings.min_silos - len(self.silos)
        if wanted > 0:
            missing.append(f"{wanted} more that would have to become members")
        return ", ".join(missing)

    def _say_waiting(self, message: str) -> None:
        self._waiting = True
        self.observer(Waiting(QUORUM_LOST.reason, message))

    def _say_going_on(self) -> None:
        if self._waiting:
            self._waiting = False
            self.observer(Waiting("", ""))

    def _refusal(self, silo: str, announcement: Announcement) -> AnchorageError | None:
        """Return why a silo's announcement cannot count: its tensors, or more images than the silo began with can have become."""
        first, most = self._images.get(silo, MOST_IMAGES), self.settings.most_images
        for name in sorted(IMAGE_COUNTS & announcement.samples.keys()):
            if (count := announcement.samples[name]) > most:
                detail = f"samples: {name} is {count}, more than {most} (spec.protocol.maximumImages)"
                return AnchorageError(OUT_OF_BOUNDS, detail)
            if count > GROWTH * first:
                detail = f"samples: {name} is {count}, and {silo} had {first} images when it became a member"
                return AnchorageError(OUT_OF_BOUNDS, f"{detail}; where that is right, take it out and admit it again")
        return self._wrong_layout(announcement)

    def _wrong_layout(self, announcement: Announcement) -> AnchorageError | None:
        """Return what is wrong with the tensors of an announced update."""
        update, behind, expected = announcement.update, announcement.behind, self.learner.up
        if (refusal := self.strategy.refusal(behind)) is not None:
            return refusal
        sizes = [expected.nbytes * (1 + repetition) for repetition in range(self.strategy.weigher.repetitions)]
        model_bytes = -behind.nbytes if update is None else update.nbytes - behind.nbytes
        fits = update is None or (update.layout == expected.digest and not update.front)
        if fits and model_bytes in (sizes if announcement.trained else [0]):
            return None
        return AnchorageError(
            WRONG_LAYOUT,
            f"the update has layout {update.layout[:12] if update else 'none'} and {model_bytes} bytes, the run {expected.digest[:12]} and "
            f"{expected.nbytes}",
        )
