"""Synchronous rounds whose updates arrive masked: the server learns their sum, and no single one (docs/privacy.md)."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import QUORUM_LOST, UNUSABLE_ANSWER
from anchorage.api.silo_state import SiloState
from anchorage.engine.aggregation.fixed_point_mean import fixed_point_mean
from anchorage.engine.cohort import OpenRound
from anchorage.engine.events import SiloChanged, StepBegan
from anchorage.engine.synchronous import SynchronousEngine
from anchorage.transport.messages import (
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
from anchorage.transport.secure_aggregation.member import (
    FEWEST,
    Keys,
    ProtocolError,
    roster_digest,
    threshold,
    unmasking,
)
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


@dataclass
class _Group:
    """Who agreed on keys for a round."""

    session: str = ""
    """Task id of the keys."""
    roster: Mapping[str, Keys] = field(default_factory=dict)
    shares: Mapping[str, Shares] = field(default_factory=dict)
    scale: int = 1


class SecureRounds(SynchronousEngine):
    """Synchronous rounds with secure aggregation.

    A round that a crash of the server cuts off is played again with fresh keys.
    """

    _group = _Group()

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
            self._group = _Group(scale=max(1, round(sum(each or 0 for each in most))))
            return cohort
        self.observer(StepBegan("agree on keys"))
        session = f"{number}.keys.{secrets.token_hex(8)}"
        opened = OpenRound(Task(session, TaskKind.SHOW_KEYS, number, _NO_MODEL), cohort, self.link.traffic())
        shown = self._step(
            opened, TaskKind.SHOW_KEYS, {silo: {} for silo in cohort}, partial(read, KeysMessage), FEWEST
        )
        self._absent = (self._absent or set()) | (set(cohort) - self.connected.keys())
        self._require(len(shown), FEWEST, number, "showed keys")
        roster = {silo: shown[silo].keys() for silo in cohort if silo in shown}
        message = as_auxiliary_data(Roster(keys={silo: shown[silo] for silo in roster}))
        least, asked = max(FEWEST, threshold(len(roster))), dict.fromkeys(roster, message)
        shares = self._step(opened, TaskKind.SHARE_SECRETS, asked, partial(read, Shares), least)
        self._require(len(shares), least, number, "agreed on keys")
        self._group = _Group(session, roster, shares, max(1, sum(keys.most for keys in roster.values())))
        return tuple(silo for silo in roster if silo in shares)

    @property
    def _ahead(self) -> bool:
        return not self.settings.masked

    @property
    def _attempt(self) -> str:
        return f".{self._group.session.rsplit('.', 1)[-1]}" if self._group.session else ""

    def _engine_auxiliary_data(self) -> AuxiliaryData:
        if not self.settings.masked:
            return as_auxiliary_data(Scale(scale=self._group.scale))
        return as_auxiliary_data(
            Agreement(signatures={silo: shares.signature for silo, shares in self._group.shares.items()})
        )

    def _aggregate(
        self, opened: OpenRound, evaluations: Mapping[str, Sequence[Evaluation]], model: ModelBytes
    ) -> tuple[ModelBytes | None, Mapping[str, float]]:
        self.observer(StepBegan("aggregate"))
        weights = None
        while opened.arrived() and weights is None:
            weights = self._weights(opened, {})
        if not weights:
            return None, {}
        silos, up, bits = list(weights), self.learner.up, self.settings.fractional_bits
        assert bits is not None, "secure aggregation has some"
        masks = self._unmasking(opened, silos) if self.settings.masked else []
        updates, sum_of = [opened.updates[silo] for silo in silos], math.fsum(weights.values())
        mean = fixed_point_mean(updates, masks, up, model.trainable, self._group.scale / sum_of, bits)
        return mean, {silo: weight / sum_of for silo, weight in weights.items()}

    def _unmasking(self, opened: OpenRound, silos: Sequence[str]) -> list[Mask]:
        """Return what takes the masks off the sum of these silos' updates, when enough of them confirm that it is of these.

        Raises
        ------
        AnchorageError
            QuorumLost: too few silos do; UnusableAnswer: their shares do not belong together.
        """
        roster, number = self._group.roster, opened.task.round
        need, survivors = threshold(len(roster)), tuple(silos)
        self._require(len(silos), need, number, "sent updates")
        asked = {silo: as_auxiliary_data(Survivors(survivors=survivors)) for silo in silos if silo in self.connected}
        confirmed = self._step(opened, TaskKind.CONFIRM_SURVIVORS, asked, partial(read, Confirmed), need, need)
        self._require(len(confirmed), need, number, "confirmed whose updates arrived")
        signed = {silo: answer.signature for silo, answer in confirmed.items()}
        asked = {
            silo: as_auxiliary_data(Lost(survivors=survivors, sealed=self._sealed_for(silo), signatures=signed))
            for silo in silos
            if silo in self.connected
        }
        answers = self._step(opened, TaskKind.REVEAL_SHARES, asked, partial(read, Revealed), need, need)
        self._require(len(answers), need, number, "revealed shares")
        revealed = {s: {of: bytes.fromhex(x) for of, x in a.shares.items()} for s, a in answers.items()}
        try:
            return unmasking(roster, roster_digest(self._group.session, roster), silos, revealed)
        except ProtocolError as error:
            raise AnchorageError(UNUSABLE_ANSWER, f"round {number}: {error}") from error

    def _sealed_for(self, silo: str) -> dict[str, str]:
        return {other: s.sealed[silo] for other, s in self._group.shares.items() if silo in s.sealed}

    def _require_quorum(self, opened: OpenRound) -> None:
        super()._require_quorum(opened)
        if self._group.roster and opened.arrived():
            need = threshold(len(self._group.roster))
            self._require(len(opened.arrived()), need, opened.task.round, f"sent updates ({opened.silence()})")

    def _require(self, found: int, needed: int, number: int, what: str) -> None:
        if found < needed:
            message = f"round {number}: {found} silos {what}, secure aggregation needs {needed}"
            raise AnchorageError(QUORUM_LOST, message)

    def _step(
        self,
        opened: OpenRound,
        kind: TaskKind,
        content: Mapping[str, AuxiliaryData],
        read_answer: Callable[[bytes], T],
        least: int,
        enough: int | None = None,
    ) -> dict[str, T]:
        """Ask silos for a step and return their answers, as soon as there are enough; who is slow is not waited for.

        Who leaves is waited for only where without it there would not be the `least` answers: it may be back at once, as with a new key.
        """
        session = opened.task.id if opened.task.kind.step else self._group.session
        task, found = f"{session}.{kind.lower()}", dict[str, T]()
        for silo, told_it in content.items():
            self.link.assign(silo, Task(task, kind, opened.task.round, _NO_MODEL, told_it))
        awaited, gone, deadline = set(content), set[str](), self.clock.now() + STEP_SECONDS
        while awaited - (gone if len(found) >= least else set()) and (enough is None or len(found) < enough):
            event = self._next(deadline)
            match event:
                case None:
                    break
                case Evaluated(silo, evaluation) if silo in awaited and evaluation.task == task:
                    awaited.discard(silo)
                    try:
                        found[silo] = read_answer(evaluation.answer)
                    except ProtocolError as error:
                        self.observer(SiloChanged(silo, SiloState.FAILED, 0, 0, UNUSABLE_ANSWER.code, str(error)))
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
        for silo in content.keys() - found.keys():
            self.link.dismiss(silo, task, "not needed any more")
        return found
