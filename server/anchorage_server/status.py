"""What is known of the run, for everyone who asks: the status document, the rounds, and whether the engine still moves."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.identity import CLOCK_OFF
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.metric_names import EPSILON
from anchorage.api.metrics import headline, score
from anchorage.api.silo_state import AT_WORK, UNFINISHED, SiloState
from anchorage.api.status import (
    ALL_ROUNDS_COMMITTED,
    STORING_RESULTS,
    CheckpointStatus,
    Condition,
    ConditionType,
    FederationStatus,
    SiloStatus,
    StoredModel,
    TrackingStatus,
    metrics_of,
    timestamp,
)
from anchorage.engine.events import (
    RoundCommitted,
    RoundStarted,
    RunEnded,
    RunEvent,
    SiloChanged,
    SiloJoined,
    SiloLeft,
    StepBegan,
    Waiting,
)
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.records import record_to_json
from anchorage.transport.files import write_atomically
from anchorage.transport.link import Clock
from anchorage.transport.messages import TaskKind
from anchorage.transport.pace import Travel
from anchorage_server.tracking import Tracked

Truth = Literal["True", "False", "Unknown"]

LINE = 1024
"""Characters of a message in the status."""
MOST = 2**31
"""Largest rate and time of a transfer that are told."""
GRACE_SECONDS = 600.0
"""How much longer than a round's deadline the engine may be silent before it counts as stuck."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Silo:
    """What is known of one silo."""

    name: str
    connected: bool = False
    state: SiloState = SiloState.WAITING
    done: int = 0
    total: int = 0
    samples: int = 0
    weight: float = 0.0
    last_seen: float | None = None
    code: str = ""
    message: str = ""
    acceptance: str = ""
    epsilon: str = ""
    fingerprint: str = ""
    changed: str = ""
    clock: str = ""
    packages: tuple[str, ...] = ()

    def compare(self, record: RoundRecord, fingerprint: str) -> None:
        """Note that a silo's images are others than in an earlier round."""
        if self.fingerprint and fingerprint and self.fingerprint != fingerprint:
            self.changed = f"its images changed before round {record.round}"
        self.fingerprint = fingerprint or self.fingerprint

    def enter(self, state: SiloState, code: str = "", message: str = "") -> None:
        """Change the state; nothing is done in it yet."""
        self.state, self.done, self.total, self.code, self.message = state, 0, 0, code, message

    def document(self, travel: Travel) -> SiloStatus:
        """Return it as a part of the status, with what is on its way to or from it."""
        return SiloStatus(
            name=self.name,
            connected=self.connected,
            state=self.state,
            task=TaskKind.EVALUATE.value
            if self.state == SiloState.EVALUATING
            else TaskKind.TRAIN.value
            if self.state in UNFINISHED
            else "",
            progress=min(100 * self.done // self.total, 100) if self.total else 0,
            rate=min(round(travel.rate), MOST),
            seconds_left=None if travel.seconds_left is None else min(math.ceil(travel.seconds_left), MOST),
            samples=self.samples,
            weight=f"{self.weight:.4g}",
            acceptance=self.acceptance,
            epsilon=self.epsilon,
            packages=self.packages,
            last_seen_time=None if self.last_seen is None else timestamp(self.last_seen),
            code=self.code,
            message=(self.message or self.clock or self.changed)[:LINE],
        )


class StatusStore:
    """Is told what the engine reports (`anchorage.engine.events.Observer`), and answers any thread.

    Conditions: ``Ready`` (silos can connect and the engine plays), ``QuorumMet``, ``Succeeded`` (every round is committed and its results are
    stored), ``Failed`` and ``Tracked`` (MLflow has the results).

    Parameters
    ----------
    file : Path
        Where the status is written at each commit and at the end.
    clock : Clock
        Time.
    rounds : int
        Rounds of the whole run.
    started : float
        When the run started first, seconds since the epoch.
    silos : sequence of str
        The members at first.
    round_deadline_seconds : float
        How long the engine may rightly wait without a word.
    history : sequence of RoundRecord
        Rounds that were committed before.
    checkpoint : callable
        ``checkpoint(round)`` returns the path of a round's checkpoint.
    notice : str
        What people should know of this start; the message of ``Ready``.
    """

    def __init__(
        self,
        *,
        file: Path,
        clock: Clock,
        rounds: int,
        started: float,
        silos: Sequence[str],
        round_deadline_seconds: float,
        history: Sequence[RoundRecord],
        checkpoint: Callable[[int], Path],
        notice: str = "",
    ) -> None:
        self._file = file
        self._clock = clock
        self._rounds = rounds
        self._longest_silence = round_deadline_seconds + GRACE_SECONDS
        self._checkpoint, self._notice = checkpoint, notice
        self._lock = Lock()
        self.folder = file.parent
        """Where the server keeps its state."""
        self._silos = {name: _Silo(name) for name in silos}
        self._members: frozenset[str] | None = None
        self._conditions: dict[ConditionType, Condition] = {}
        self._records: list[RoundRecord] = []
        self._metrics: dict[str, float] = {}
        self._bytes = [0, 0]
        self._step = ""
        self._model: StoredModel | None = None
        self._best_model: StoredModel | None = None
        self._tracking = TrackingStatus()
        self._travels: Callable[[], Mapping[str, Travel]] = dict
        self._last_event_time = clock.now()
        self._started = started
        self._ended: float | None = None
        self._set(ConditionType.READY, "False", "Starting", "the server does not listen yet")
        self._set(ConditionType.QUORUM_MET, "Unknown", "Starting")
        self._set(ConditionType.SUCCEEDED, "Unknown", "Running")
        self._set(ConditionType.FAILED, "False", "Running")
        self._set(ConditionType.TRACKED, "Unknown", "Sending")
        for record in history:
            self._count(record)

    def snapshot(self) -> FederationStatus:
        """Return the status as it is now."""
        travels = self._travels()
        with self._lock:
            return self._snapshot(travels)

    def rounds(self) -> list[dict[str, Any]]:
        """Return every committed round as JSON values, ascending."""
        with self._lock:
            records = list(self._records)
        return [record_to_json(record) for record in records]

    def last_record(self) -> RoundRecord | None:
        """Return the last committed round."""
        with self._lock:
            return self._records[-1] if self._records else None

    def describe_stall(self) -> str:
        """Return why the engine counts as stuck, empty where it does not."""
        with self._lock:
            silent = self._clock.now() - self._last_event_time
            if self._ended is not None or silent <= self._longest_silence:
                return ""
            return f"no word from the engine for {silent:.0f} s, in step {self._step or 'none'}"

    def listening(self, travels: Callable[[], Mapping[str, Travel]] = dict) -> None:
        """Note that silos can connect; `travels` returns what is on its way to and from them."""
        with self._lock:
            self._travels = travels
            self._set(ConditionType.READY, "True", "Listening", self._notice)

    def note_models(self, model: StoredModel, best: StoredModel) -> None:
        """Note where the final and the best model lie."""
        with self._lock:
            self._model, self._best_model = model, best
            self._write()

    def note_tracking(self, result: Tracked) -> None:
        """Note what MLflow has of the results, and where."""
        with self._lock:
            before = self._tracking, self._conditions[ConditionType.TRACKED]
            self._track(result)
            if before != (self._tracking, self._conditions[ConditionType.TRACKED]):
                self._write()

    def note_success(self, result: Tracked) -> None:
        """Note that the results of a run that has ended are stored: `result` is what MLflow has of them in the end."""
        with self._lock:
            self._track(result)
            for kind, condition in list(self._conditions.items()):
                if condition.reason == STORING_RESULTS:
                    status: Truth = "True" if kind == ConditionType.SUCCEEDED else condition.status
                    self._set(kind, status, ALL_ROUNDS_COMMITTED, condition.message)
            self._write()

    def change_members(self, names: Sequence[str]) -> None:
        """Note who the members are; nobody else is told of any more."""
        with self._lock:
            self._members = frozenset(names)
            self._silos = {name: self._silos.get(name, _Silo(name)) for name in names}

    def __call__(self, event: RunEvent) -> None:
        """Note what the engine reports."""
        with self._lock:
            self._last_event_time = self._clock.now()
            match event:
                case SiloJoined(silo, profile):
                    known = self._hear(silo)
                    known.connected, known.samples, known.packages = True, profile.samples, profile.packages
                    known.clock = str(AnchorageError(CLOCK_OFF, profile.clock)) if profile.clock else ""
                    known.message = known.message if known.code else ""  # how it left is over
                case SiloLeft(silo, reason):
                    known = self._hear(silo)
                    known.connected, known.message = False, reason
                case SiloChanged(silo, state, done, total, code, message):
                    known = self._hear(silo)
                    known.state, known.done, known.total = state, done, total
                    known.code, known.message = code, message
                case Waiting(reason, message) if reason:
                    self._set(ConditionType.QUORUM_MET, "False", reason, message)
                case Waiting():
                    self._set(ConditionType.QUORUM_MET, "True", "EnoughSilos")
                case RoundStarted(_, silos):
                    self._start(silos)
                case StepBegan(name):
                    self._step = name
                case RoundCommitted(record):
                    self._count(record)
                    self._write()
                case RunEnded(code, message):
                    self._end(code, message)

    def _track(self, result: Tracked) -> None:
        self._tracking = result.place
        if result.missing is not None:
            self._set(ConditionType.TRACKED, "False", result.missing.failure.reason, result.missing.message)
        elif result.complete:
            self._set(ConditionType.TRACKED, "True", "Sent")
        else:
            self._set(ConditionType.TRACKED, "Unknown", "Sending")

    def _start(self, silos: Sequence[str]) -> None:
        self._set(ConditionType.QUORUM_MET, "True", "EnoughSilos")
        for name in silos:
            known = self._silo(name)
            if known.state != SiloState.ARRIVED:  # what an earlier server received counts for this round
                known.enter(SiloState.TRAINING)

    def _end(self, code: str, message: str) -> None:
        """Note the run's end; a `code` that is not in the catalogue stands for a mistake of ours. Without one, the results are yet to be stored."""
        self._ended, self._step = self._last_event_time, ""
        for silo in self._silos.values():
            if silo.state in AT_WORK:
                silo.enter(SiloState.WAITING)
        known = CATALOGUE.get(code)
        reason = known.reason if known else "InternalError" if code else STORING_RESULTS
        failed: Truth = "True" if code and code != STOPPED.code else "False"
        self._set(ConditionType.READY, "False", reason, message)
        self._set(ConditionType.SUCCEEDED, "False" if code else "Unknown", reason, message)
        self._set(ConditionType.FAILED, failed, reason, message)
        self._write()

    def _hear(self, silo: str) -> _Silo:
        known = self._silo(silo)
        known.last_seen = self._last_event_time
        return known

    def _silo(self, name: str) -> _Silo:
        """Return what is known of a silo; of one that is no member any more nothing is kept."""
        if self._members is not None and name not in self._members:
            return _Silo(name)
        return self._silos.setdefault(name, _Silo(name))

    def _count(self, record: RoundRecord) -> None:
        self._records.append(record)
        self._metrics |= record.metrics
        self._bytes = [self._bytes[0] + record.bytes_up, self._bytes[1] + record.bytes_down]
        for part in record.silos:
            known = self._silo(part.name)
            known.enter(part.state, part.code, part.message)
            known.compare(record, part.fingerprint)
            if unlabelled := part.samples.get("unlabelled"):
                known.acceptance = f"{part.samples.get('selected', 0) / unlabelled:.4g}"
            if EPSILON in part.metrics:
                known.epsilon = f"{part.metrics[EPSILON]:.4g}"
            if part.state == SiloState.COUNTED:
                known.weight, known.samples = part.weight, int(part.samples.get("train", known.samples))

    def _set(self, kind: ConditionType, status: Truth, reason: str, message: str = "") -> None:
        before = self._conditions.get(kind)
        changed = before is None or before.status != status
        since = timestamp(self._clock.now()) if changed or before is None else before.last_transition_time
        self._conditions[kind] = Condition(
            type=kind, status=status, reason=reason, message=message[:LINE], last_transition_time=since
        )

    def _snapshot(self, travels: Mapping[str, Travel]) -> FederationStatus:
        last = self._records[-1] if self._records else None
        number = last.round if last else 0
        connected = sum(silo.connected for silo in self._silos.values())
        return FederationStatus(
            conditions=tuple(self._conditions.values()),
            round=number,
            rounds=self._rounds,
            progress_percentage=min(100 * number // self._rounds, 100),
            step=self._step,
            silos_summary=f"{connected}/{len(self._silos)}",
            metric=self._headline(last),
            connected_silos=connected,
            silos=tuple(silo.document(travels.get(name, Travel())) for name, silo in self._silos.items()),
            metrics=metrics_of(self._metrics),
            last_checkpoint=self._last_checkpoint(),
            tracking=self._tracking,
            start_time=timestamp(self._started),
            completion_time=timestamp(last.time) if last and number >= self._rounds else None,
            last_updated_time=timestamp(self._clock.now()),
            bytes_up=self._bytes[0],
            bytes_down=self._bytes[1],
            model=self._model,
            best_model=self._best_model,
        )

    def _headline(self, last: RoundRecord | None) -> str:
        """Write the primary metric: on the validation images, where there are none on the test images."""
        tested = last.test.get("final", {}) if last is not None and score(self._metrics) is None else {}
        return f"test {headline(tested)}" if tested else headline(self._metrics)

    def _last_checkpoint(self) -> CheckpointStatus | None:
        if not self._records:
            return None
        last = self._records[-1]
        path = str(self._checkpoint(last.round))
        return CheckpointStatus(round=last.round, path=path, digest=last.digest, time=timestamp(last.time))

    def _write(self) -> None:
        """Write the status file; the run does not end because it cannot."""
        try:
            write_atomically(self._file, self._snapshot({}).model_dump_json(by_alias=True, indent=2).encode())
        except OSError as error:
            _log.warning("cannot write the status file", extra={"file": str(self._file), "error": error.strerror})
