"""Synchronous rounds whose updates arrive masked: the server learns their sum, and no single one (docs/privacy.md)."""

import math
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from anchorage.api.errors import AnchorageError, Failure
from anchorage.api.errors.rounds import IMPOSSIBLE_SUM, QUORUM_LOST, SILO_LATE, UNUSABLE_ANSWER
from anchorage.api.errors.transfer import OUT_OF_BOUNDS
from anchorage.api.silo_state import SiloState
from anchorage.engine.aggregation.fixed_point_mean import ImpossibleSumError, fixed_point_mean
from anchorage.engine.aggregation.weigher import is_weight
from anchorage.engine.cohort import OpenRound
from anchorage.engine.distrust import Distrust
from anchorage.engine.events import SiloChanged, Step, StepBegan
from anchorage.engine.synchronous import SynchronousEngine
from anchorage.transport.messages import (
    Announcement,
    AuxiliaryData,
    Evaluated,
    Evaluation,
    Joined,
    Left,
    MembersChanged,
    Task,
    TaskFailed,
    TaskKind,
)
from anchorage.transport.secure_aggregation.masks import Mask
from anchorage.transport.secure_aggregation.member import FEWEST, Dealing, Keys, ProtocolError
from anchorage.transport.secure_aggregation.unmasking import Group, Opening, UnknownSumError
from anchorage.transport.secure_aggregation.wire import (
    Agreement,
    Confirmed,
    KeysMessage,
    Lost,
    Revealed,
    Roster,
    Scale,
    Shares,
    Survivors,
    as_auxiliary_data,
    read,
)
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.model import ModelBytes

STEP_SECONDS = 60.0
"""How long a silo may take for a step's answer, a few kilobytes."""
_NO_MODEL = Manifest("", 0, ())
T = TypeVar("T")


class SecureRounds(SynchronousEngine):
    """Synchronous rounds with secure aggregation.

    A round that a crash of the server cuts off is played again with fresh keys. A silo that gives a wrong answer is named and left out from then on.
    Where a sum is wrong, or its masks do not come off, nothing of it is committed: the round changes nothing, and the next one starts from the same
    model. It has another number, since a silo reveals the sum of a round for one set of silos alone: from two sums of the same updates the one
    that was left out would be known.
    """

    _group: Group | None = None
    _session = ""
    """What the tasks of a round's agreement have in common."""
    _scale = 1
    _sought_in_vain = False
    """Whether the last sum was wrong, and too few silos are there to leave one out of the next."""

    @cached_property
    def _distrust(self) -> Distrust:
        return Distrust()

    def _without_silent(self, silos: Sequence[str]) -> list[str]:
        """Return the silos that are worth waiting for, without those that are named, or left out to search for the reason of a wrong sum."""
        answering = super()._without_silent([silo for silo in silos if silo not in self._distrust.named])
        resting = self._distrust.resting(answering, max(self.settings.min_silos, self._fewest))
        for silo in resting:
            message = "left out of a round, to find whose update makes sums wrong; it may be another's"
            self.observer(SiloChanged(silo, SiloState.INACTIVE, 0, 0, IMPOSSIBLE_SUM.code, message))
        return [silo for silo in answering if silo not in resting]

    @property
    def _fewest(self) -> int:
        return max(FEWEST, self.settings.least_summed)

    def _agree(self, number: int, cohort: tuple[str, ...]) -> tuple[str, ...]:
        """Have the cohort agree on keys; return who takes part.

        Raises
        ------
        AnchorageError
            QuorumLost: too few silos do.
        """
        if not self.settings.masked:
            while set(cohort) - self.connected.keys() and (event := self._next(self.clock.now())) is not None:
                self._early.keep(event)
            most = [self.strategy.weigher.most(self.connected[s].samples) for s in cohort if s in self.connected]
            self._scale = max(1, round(sum(each or 0 for each in most)))
            return cohort
        self.observer(StepBegan(Step.AGREE_ON_KEYS))
        while True:
            named = set(self._distrust.named)
            if named:
                remaining_count = len([silo for silo in cohort if silo not in named])
                self._require(remaining_count, max(self._fewest, self.settings.min_silos), number, "are left")
            opened, group = self._shown_keys(number, tuple(silo for silo in cohort if silo not in named))
            self._deal(opened, group)
            if len(group.dealt) >= max(self._fewest, group.threshold):
                self._group, self._scale = group, group.scale
                return group.participants
            if named == self._distrust.named.keys():  # without those that were named now it may do
                self._require(len(group.dealt), max(self._fewest, group.threshold), number, "agreed on keys")

    def _shown_keys(self, number: int, cohort: tuple[str, ...]) -> tuple[OpenRound, Group]:
        self._session = f"{number}.keys.{secrets.token_hex(8)}"
        task = self._task(TaskKind.SHOW_KEYS)
        opened = OpenRound(Task(task, TaskKind.SHOW_KEYS, number, _NO_MODEL), cohort, self.link.traffic())

        def read_keys(silo: str, content: bytes) -> Keys:
            keys = read(KeysMessage, content).keys()
            assert self.settings.check_keys is not None, "masked rounds have it"
            self.settings.check_keys(task, silo, keys)
            images = self._profiles[silo].samples
            if keys.most > (most := int(self.strategy.weigher.most(images) or 0)):
                raise ProtocolError(
                    f"{silo} says that it weighs up to {keys.most}, and with its {images} images up to {most}"
                )
            return keys

        shown = self._step(opened, TaskKind.SHOW_KEYS, {silo: {} for silo in cohort}, read_keys, self._fewest)
        self._absent = (self._absent or set()) | (set(cohort) - self.connected.keys())
        self._require(len(shown), self._fewest, number, "showed keys")
        return opened, Group(task, {silo: shown[silo] for silo in cohort if silo in shown})

    def _deal(self, opened: OpenRound, group: Group) -> None:
        message = as_auxiliary_data(Roster(keys={silo: KeysMessage.of(keys) for silo, keys in group.roster.items()}))

        def read_dealing(silo: str, content: bytes) -> Dealing:
            return group.check_dealing(silo, read(Shares, content).dealing())

        least, asked = max(self._fewest, group.threshold), dict.fromkeys(group.roster, message)
        group.dealt.update(self._step(opened, TaskKind.SHARE_SECRETS, asked, read_dealing, least))

    @property
    def _ahead(self) -> bool:
        return not self.settings.masked

    @property
    def _attempt(self) -> str:
        return f".{self._session.rsplit('.', 1)[-1]}" if self._session else ""

    def _task(self, kind: TaskKind) -> str:
        return f"{self._session}.{kind.lower()}"

    def _engine_auxiliary_data(self) -> AuxiliaryData:
        if self._group is None:
            return as_auxiliary_data(Scale(scale=self._scale))
        signatures = {silo: dealing.signature.hex() for silo, dealing in self._group.dealt.items()}
        return as_auxiliary_data(Agreement(signatures=signatures))

    def _refusal(self, silo: str, announcement: Announcement) -> AnchorageError | None:
        """Return why a silo's announcement cannot count: also where it weighs more than the silo said that it could."""
        wrong = super()._refusal(silo, announcement)
        if wrong is not None or self._group is None or not announcement.trained:
            return wrong
        weight, most = self.strategy.weigh({silo: announcement}, {})[silo], self._group.roster[silo].most
        if not is_weight(weight) or weight <= most:
            return None
        return AnchorageError(OUT_OF_BOUNDS, f"samples: they weigh {weight:g}, and {silo} showed keys for {most}")

    def _aggregate(
        self, opened: OpenRound, evaluations: Mapping[str, Sequence[Evaluation]], model: ModelBytes
    ) -> tuple[ModelBytes | None, Mapping[str, float]]:
        self.observer(StepBegan(Step.AGGREGATE))
        weights = None
        while opened.arrived_silos() and weights is None:
            weights = self._weights(opened, {})
        if not weights:
            return None, {}
        silos, up, bits = list(weights), self.learner.up, self.settings.fractional_bits
        assert bits is not None, "secure aggregation has some"
        updates, sum_of = [opened.updates[silo] for silo in silos], math.fsum(weights.values())
        try:
            masks = self._unmasking(opened, self._group, silos) if self._group else []
            mean = fixed_point_mean(updates, masks, up, model.trainable, self._scale / sum_of, bits)
        except UnknownSumError as error:
            if error.silo:
                self._name(error.silo, str(error))
            self._count_nobody(opened, str(error), () if error.silo else silos)
            return None, {}
        except ImpossibleSumError:
            self._count_nobody(opened, f"no updates have the sum of those of {', '.join(silos)}", silos)
            return None, {}
        self._sought_in_vain = False
        if (suspect := self._distrust.right_sum(silos)) is not None:
            self._name(suspect, self._distrust.named[suspect], IMPOSSIBLE_SUM)
        return mean, {silo: weight / sum_of for silo, weight in weights.items()}

    def _name(self, silo: str, why: str, failure: Failure = UNUSABLE_ANSWER) -> None:
        """Leave a silo out from now on, and report it."""
        self._distrust.named[silo] = why
        message = f"left out until the server starts again: {why}"
        self.observer(SiloChanged(silo, SiloState.FAILED, 0, 0, failure.code, message))

    def _count_nobody(self, opened: OpenRound, why: str, suspects: Sequence[str]) -> None:
        """Take every update out of a round whose sum cannot be used; who of the suspects is at fault is sought, unless it is named by now.

        Raises
        ------
        AnchorageError
            ImpossibleSum: it is the second such sum, and none of the suspects can be left out, for the others would be too few.
        """
        message = f"{why}: nothing of round {opened.task.round} is in the model, and nobody reveals another sum of it"
        for silo in opened.arrived_silos():
            code = UNUSABLE_ANSWER if silo in self._distrust.named else IMPOSSIBLE_SUM
            self._fail(opened, silo, SiloState.FAILED, code.code, message)
        if not suspects or self._distrust.named.keys() & set(suspects):
            return
        self._distrust.wrong_sum(suspects)
        others = [silo for silo in self.silos if silo not in self._distrust.named]
        in_vain = not self._distrust.resting(others, max(self.settings.min_silos, self._fewest))
        if in_vain and self._sought_in_vain:
            raise AnchorageError(
                IMPOSSIBLE_SUM, f"round {opened.task.round}, again: {why}; too few silos to leave one out"
            )
        self._sought_in_vain = in_vain

    def _unmasking(self, opened: OpenRound, group: Group, silos: Sequence[str]) -> list[Mask]:
        """Return what takes the masks off the sum of these silos' updates, when enough of them confirm that it is of these.

        Raises
        ------
        AnchorageError
            QuorumLost: too few silos do.
        UnknownSumError
            What they reveal does not take them off.
        """
        number, survivors, need = opened.task.round, tuple(silos), group.threshold
        self._require(len(silos), max(need, self.settings.least_summed), number, "sent updates")

        def read_signature(silo: str, content: bytes) -> bytes:
            return group.check_confirmed(silo, survivors, bytes.fromhex(read(Confirmed, content).signature))

        def read_opening(silo: str, content: bytes) -> Opening:
            return group.check_opening(silo, survivors, read(Revealed, content).opening())

        there = [silo for silo in silos if silo in self.connected]
        asked = dict.fromkeys(there, as_auxiliary_data(Survivors(survivors=survivors)))
        kind = TaskKind.CONFIRM_SURVIVORS
        confirmed = self._step(opened, kind, asked, read_signature, need, lambda answers: len(answers) >= need)
        self._require(len(confirmed), need, number, "confirmed whose updates arrived")
        signed = {silo: signature.hex() for silo, signature in confirmed.items()}
        sealed = {silo: self._loss_request(group, silo, survivors, signed) for silo in silos if silo in self.connected}
        openings = self._step(opened, TaskKind.REVEAL_SHARES, sealed, read_opening, need, group.suffice)
        for silo in group.false_complainers(openings):
            self._name(silo, f"it could not open the shares of {', '.join(openings[silo].unreadable)}")
        self._require(len(openings), need, number, "revealed shares")
        return group.masks(survivors, openings)

    def _loss_request(
        self, group: Group, silo: str, survivors: tuple[str, ...], signed: Mapping[str, str]
    ) -> AuxiliaryData:
        dealt = {other: dealing for other, dealing in group.dealt.items() if other != silo}
        sealed = {other: dealing.sealed[silo].hex() for other, dealing in dealt.items()}
        commitments = {other: dealing.commitments[silo].hex() for other, dealing in dealt.items()}
        return as_auxiliary_data(
            Lost(survivors=survivors, sealed=sealed, commitments=commitments, signatures=dict(signed))
        )

    def _require_quorum(self, opened: OpenRound) -> None:
        super()._require_quorum(opened)
        if self._group is not None and opened.arrived_silos():
            need = max(self._group.threshold, self.settings.least_summed)
            self._require(len(opened.arrived_silos()), need, opened.task.round, f"sent updates ({opened.silence()})")

    def _require(self, count: int, needed: int, number: int, what: str) -> None:
        if count < needed:
            message = f"round {number}: {count} silos {what}, secure aggregation needs {needed}"
            message += "".join(f"; {silo} is left out: {why}" for silo, why in self._distrust.named.items())
            raise AnchorageError(QUORUM_LOST, message)

    def _step(
        self,
        opened: OpenRound,
        kind: TaskKind,
        content: Mapping[str, AuxiliaryData],
        read_answer: Callable[[str, bytes], T],
        least: int,
        enough: Callable[[Mapping[str, T]], bool] = lambda answers: False,
    ) -> dict[str, T]:
        """Ask silos for a step and return their answers, as soon as there are enough; who is slow is not waited for. A wrong answer names its sender.

        Who leaves is waited for only where without it there would not be the `least` answers: it may be back at once, as with a new key.
        """
        task, answers = self._task(kind), dict[str, T]()
        for silo, told_it in content.items():
            self.link.assign(silo, Task(task, kind, opened.task.round, _NO_MODEL, told_it))
        awaited, gone, deadline = set(content), set[str](), self.clock.now() + STEP_SECONDS
        while awaited - (gone if len(answers) >= least else set()) and not enough(answers):
            event = self._next(deadline)
            match event:
                case None:
                    self._say_late(kind, awaited & self.connected.keys())
                    break
                case Evaluated(silo, evaluation) if silo in awaited and evaluation.task == task:
                    awaited.discard(silo)
                    try:
                        answers[silo] = read_answer(silo, evaluation.answer)
                    except ProtocolError as error:
                        self._name(silo, str(error))
                case TaskFailed(silo, failed, code, message) if failed == task:
                    awaited.discard(silo)
                    self.observer(SiloChanged(silo, SiloState.FAILED, 0, 0, code, message))
                case Left(silo):
                    gone.add(silo)
                case MembersChanged():
                    self._take(opened, event, barrier=False)
                    awaited = {silo for silo in awaited if not event.voids(silo)}
                case _:
                    if isinstance(event, Joined):
                        gone.discard(event.silo)
                    self._take(opened, event, barrier=False)
        for silo in sorted(content.keys() - answers.keys()):
            self.link.dismiss(silo, task, "not needed any more")
        return answers

    def _say_late(self, kind: TaskKind, silos: Collection[str]) -> None:
        """Report who is connected and did not answer a step; who never does is left out until it says something."""
        for silo in sorted(silos):
            self._silent[silo] += 1
            message = f"no answer to {kind} within {STEP_SECONDS:g} s"
            self.observer(SiloChanged(silo, SiloState.LATE, 0, 0, SILO_LATE.code, message))
