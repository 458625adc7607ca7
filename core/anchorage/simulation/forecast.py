"""What a federation will cost, forecast by rehearsing its rounds (`anchorage.simulation.rehearsal`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.federation import FederationSpec
from anchorage.api.files import Study
from anchorage.api.silo_state import SiloState
from anchorage.engine.events import RoundCommitted, RoundStarted, RunEvent, SiloChanged, Step
from anchorage.engine.interfaces import RoundRecord
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.weights import down_layout
from anchorage.methods.composition import Part, parts_of
from anchorage.simulation.footprint import Footprint, forget_peak, peak_memory, server_footprint, silo_footprint
from anchorage.simulation.images import DecodedImages
from anchorage.simulation.rehearsal import RehearsedLearners, RehearsedServer, Trials, warm_up
from anchorage.simulation.run import Simulation
from anchorage.simulation.stand_ins import PlannedImages, imagined_sections, managed_by_stand_ins
from anchorage.transport.tensors.layout import Layout

TRIAL_SECONDS = 20.0
"""Time for all trials together, about."""
TRAINING_SECONDS = 2.0
"""Time after which one training is cut."""
STAGE_TASKS, STAGE_BYTES = 4000, 4 * 10**9
"""Tasks and model bytes after which a stage's other rounds are taken to be like those before."""
STAGE_ROUNDS = (4, 200)
"""Fewest and most rounds of a stage that are rehearsed, where it has them."""
SMALL_SIZES = (32, 64)
"""Sizes in pixels that stand-ins may have."""
ENDLESS = 31_536_000
"""Deadline of a rehearsal's rounds in seconds, which none reaches."""


@dataclass(frozen=True)
class RoundsForecast:
    """Rounds of one kind; figures are means of one round."""

    method: str
    """Method of their stage."""
    first: bool
    """Whether it is their stage's first round."""
    scored: bool
    """Whether the model is evaluated."""
    count: int
    """How many there are."""
    silos: float
    """Silos that take part."""
    bytes_up: float
    """Bytes from all silos to the server, as `RoundRecord.bytes_up` counts them."""
    bytes_down: float
    """Bytes from the server to all silos."""
    slowest_seconds: float
    """Time of the silo that needs most."""
    silos_seconds: float
    """Time of all silos, one after another."""
    server_seconds: float
    """Time of the server's training, evaluation and aggregation."""


@dataclass(frozen=True)
class Forecast:
    """What was found."""

    rounds: Sequence[RoundsForecast]
    """Every round of the run, by kinds, in their order."""
    initial_seconds: float
    """Time of the server before round 1."""
    testing_seconds: float
    """Time of scoring the test images at the end."""
    rehearsed: int
    """How many rounds were played; the others are taken to be like them."""
    down: int
    """Bytes of the main method's global model."""
    up: int
    """Bytes of an update of the main method."""
    trials: Trials
    """What was tried."""
    unknown: Sequence[str]
    """Silos whose images are not here; noise stands in for them."""
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a silo keeps from round to round, of those that were tried."""
    server_memory: Footprint | None = None
    """The server's process; None without a trial."""
    silo_memory: Footprint | None = None
    """The processes of the silo with the most images; None without a trial of one."""
    process_memory: int | None = None
    """Peak of the process that rehearsed it, bytes; only of `forecast_simulation` with a trial."""

    @property
    def bytes_up(self) -> int:
        """Bytes from silos to the server in all rounds."""
        return round(sum(part.count * part.bytes_up for part in self.rounds))

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to silos in all rounds."""
        return round(sum(part.count * part.bytes_down for part in self.rounds))

    def seconds(self, at_once: int, *, waiting: bool) -> float:
        """Return the time from round 1 to the last commit, without what processes load.

        Parameters
        ----------
        at_once : int
            How many silos work at the same time.
        waiting : bool
            Whether a round waits for its slowest silo (synchronous).
        """
        total = self.testing_seconds
        for part in self.rounds:
            shared = part.silos_seconds / at_once
            total += part.count * (part.server_seconds + (max(part.slowest_seconds, shared) if waiting else shared))
        return total


def forecast(study: Study, data_root: Path, state: Path, *, trial: bool) -> Forecast:
    """Rehearse a federation.

    Parameters
    ----------
    study : Study
        The documents.
    data_root : Path
        Folder that holds the claims.
    state : Path
        Folder of the rehearsal's own, for what silos keep.
    trial : bool
        Whether images are read and trainings are timed; else noise stands in for all images, and no time means anything.

    Raises
    ------
    AnchorageError
        The images or the initial weights cannot be used, or a silo's training fails.
    """
    rehearsal = Rehearsal(study, data_root, state / "rehearsal", trial=trial)
    result = rehearsal.rehearse()
    if not trial:
        return result
    trials = rehearsal.trials
    largest = next((silo for silo in study.silos if trials.largest and silo.metadata.name == trials.largest[0]), None)
    known = largest is not None and largest.metadata.name not in result.unknown
    of_silo = silo_footprint(rehearsal.run, largest, data_root, trials, state) if known and largest else None
    return replace(result, server_memory=server_footprint(study, data_root, state), silo_memory=of_silo)


def forecast_simulation(
    study: Study,
    data_root: Path,
    state: Path,
    *,
    trial: bool,
    seconds: float = TRIAL_SECONDS,
    at_once: int = 1,
    embeddings: Path | None = None,
    decoded: DecodedImages | None = None,
) -> Forecast:
    """Rehearse a federation that is simulated: one process has the server and every silo.

    Parameters
    ----------
    study, data_root, state, trial
        As in `forecast`.
    seconds : float
        Time for all trials together, about.
    at_once : int
        How many silos will train at the same time, each with a model; they are rehearsed one after another.
    embeddings, decoded
        As in `anchorage.simulation.run.Simulation`, of rehearsals before.

    Raises
    ------
    AnchorageError
        As `forecast`.
    """
    forget_peak()
    rehearsal = Rehearsal(
        study,
        data_root,
        state,
        trial=trial,
        seconds=seconds,
        at_once=at_once,
        embeddings=embeddings,
        decoded=decoded,
    )
    result = rehearsal.rehearse()
    return replace(result, process_memory=peak_memory()) if trial else result


class Rehearsal(Simulation):
    """A federation that is played shortened.

    Parameters
    ----------
    study, data_root, state, trial
        As in `forecast`.
    seconds, at_once, embeddings, decoded
        As in `forecast_simulation`.
    """

    def __init__(
        self,
        study: Study,
        data_root: Path,
        state: Path,
        *,
        trial: bool,
        seconds: float = TRIAL_SECONDS,
        at_once: int = 1,
        embeddings: Path | None = None,
        decoded: DecodedImages | None = None,
    ) -> None:
        state.mkdir(parents=True, exist_ok=True)
        spec = study.federation.spec
        self._full_study, self._state = study, state
        self._unknown = [s.metadata.name for s in study.silos if not trial or s.spec.managed is None]
        short = _shorten(study, trial=trial)
        model = short.federation.spec.model_description
        images = PlannedImages(data_root, model, spec.seed, state, embeddings, decoded)
        super().__init__(short, data_root, state, device="auto", images=images, at_once=at_once)
        warm_up()
        self.trials = Trials(seconds if trial else 0.0, TRAINING_SECONDS if trial else 0.0)
        rehearsed = [RehearsedServer(learner, self.trials) for learner in self._composition.learners]
        self._composition = replace(self._composition, learners=rehearsed)
        labels = {silo.metadata.name: silo.spec.labels for silo in short.silos}
        samples = {name: profile.samples for name, profile in self._profiles.items()}
        self._learners = RehearsedLearners(self._learners, self.run, labels, samples, self.trials)
        self._cohorts: dict[int, set[str]] = {}
        self._records: list[RoundRecord] = []
        self._uploads = 0
        self.failure: AnchorageError | None = None
        """The first one of a silo."""

    def rehearse(self) -> Forecast:
        """Play it, and return what was found.

        Raises
        ------
        AnchorageError
            As `forecast`; of several failures the first silo's.
        """
        try:
            self.play(self.observe)
        except AnchorageError as error:
            raise self.failure or error from None
        if self.failure is not None:
            raise self.failure
        return self.result()

    def observe(self, event: RunEvent) -> None:
        """Note rounds, and silos that fail."""
        if isinstance(event, RoundStarted):
            self._cohorts.setdefault(event.round, set()).update(event.silos)
        elif isinstance(event, RoundCommitted) and event.record.round:
            self._records.append(event.record)
        elif isinstance(event, SiloChanged) and event.state == SiloState.FAILED:
            named = f"silo {event.silo}: {event.message.removeprefix(f'silo {event.silo}: ')}"
            self.failure = self.failure or AnchorageError(CATALOGUE[event.code], named)
        elif isinstance(event, SiloChanged) and event.state == SiloState.UPLOADING:
            self._uploads += 1

    def result(self) -> Forecast:
        """Return what was found, after `play`."""
        silo_disk_bytes = {
            silo.name: sum(file.stat().st_size for file in silo.rglob("*") if file.is_file())
            for silo in sorted((self._state / "silos").glob("*"))
        }
        return Forecast(
            tuple(self._kinds()),
            self.trials.server.get(0, 0.0),
            self.trials.testing,
            len(self._records),
            self._composition.learners[-1].down.nbytes,
            self._composition.learners[-1].up.nbytes,
            self.trials,
            self._unknown,
            silo_disk_bytes,
        )

    def _kinds(self) -> Iterator[RoundsForecast]:
        """Yield the rounds of the whole run by kinds: a stage's first one, those that are evaluated, and the others."""
        spec, start, played = self._full_study.federation.spec, 0, 0
        for part, end in zip(parts_of(spec), self.run.ends, strict=True):
            records = self._records[played:end]
            records_by_kind: dict[tuple[bool, bool], list[RoundRecord]] = {}
            for record in records:
                records_by_kind.setdefault((record is records[0], self._due(record.round, self.run.rounds)), []).append(
                    record
                )
            counts: dict[tuple[bool, bool], int] = {}
            for number in range(start + 1, part.last + 1):
                kind = number == start + 1, self._due(number, spec.rounds)
                counts[kind] = counts.get(kind, 0) + 1
            for (first, due), count in counts.items():
                like = records_by_kind.get((first, due)) or records_by_kind.get((first, not due)) or records
                yield self._mean(part.method.name, first, due, count, like)
            start, played = part.last, end

    @property
    def _committed(self) -> float:
        """Share of what was uploaded that was committed: silos of equal speed upload together, more than real ones do before the last commit."""
        asynchronous = self._full_study.federation.spec.protocol.mode == "Asynchronous"
        return len(self._records) / max(1, self._uploads) if asynchronous else 1.0

    def _due(self, number: int, rounds: int) -> bool:
        evaluation = self._full_study.federation.spec.evaluation
        return evaluation is not None and (number % evaluation.every_rounds == 0 or number == rounds)

    def _mean(self, method: str, first: bool, due: bool, count: int, like: Sequence[RoundRecord]) -> RoundsForecast:
        silos = [
            {
                silo: seconds
                for silo, seconds in self.trials.silos.get(record.round, {}).items()
                if silo not in self._unknown
            }
            for record in like
        ]
        class_records = [
            self.trials.server.get(record.round, 0.0)
            + record.seconds.get(Step.AGGREGATE, 0.0)
            + record.seconds.get(Step.DISPATCH, 0.0)
            for record in like
        ]
        figures = (
            [len(self._cohorts.get(record.round, ())) for record in like],
            [record.bytes_up * self._committed for record in like],
            [record.bytes_down for record in like],
            [max(seconds.values(), default=0.0) for seconds in silos],
            [sum(seconds.values()) for seconds in silos],
            class_records,
        )
        return RoundsForecast(method, first, due, count, *(float(np.mean(figure)) for figure in figures))


def _shorten(study: Study, *, trial: bool) -> Study:
    """Return a study of the rounds that are rehearsed, with stand-ins for images that are not here."""
    federation, spec = study.federation, study.federation.spec
    lengths = _lengths(study)
    warm_up = tuple(
        stage.model_copy(update={"rounds": rounds}) for stage, rounds in zip(spec.warm_up, lengths, strict=False)
    )
    protocol = spec.protocol.model_copy(update={"round_deadline_seconds": ENDLESS})
    changes = {"rounds": sum(lengths), "warm_up": warm_up, "protocol": protocol, "active_deadline_seconds": None}
    if not trial:
        small = {"initial": None, "image_size": _smallest_size(spec)}
        changes |= {"model": spec.model.model_copy(update=small), **imagined_sections(spec)}
    silos = [managed_by_stand_ins(silo) if not trial or silo.spec.managed is None else silo for silo in study.silos]
    short = federation.model_copy(update={"spec": spec.model_copy(update=changes)})
    return replace(study, federation=short, silos=tuple(silos))


def _lengths(study: Study) -> list[int]:
    """Return how many rounds of each stage are rehearsed."""
    spec = study.federation.spec
    cohort = min(spec.protocol.silos_per_round or len(study.silos), len(study.silos)) or 1
    lengths = []
    for part in parts_of(spec):
        nbytes = _layout(part, part.model.image_size, spec.seed).nbytes
        most = min(STAGE_TASKS // cohort, STAGE_BYTES // (2 * cohort * nbytes), STAGE_ROUNDS[1])
        lengths.append(min(part.last - part.after, max(most, STAGE_ROUNDS[0])))
    return lengths


def _layout(part: Part, image_size: int, seed: int) -> Layout:
    method = TrainingMethod.of(part.method)
    return down_layout(build_model(part.model.model_copy(update={"image_size": image_size}), method, seed), method)


def _smallest_size(spec: FederationSpec) -> int:
    """Return the smallest size of stand-ins for which the model's layouts are those of the document: small ones take less time."""
    model, parts = spec.model_description, parts_of(spec)
    if model.volume is not None:
        return model.image_size
    pooled = any(array.large for part in parts for piece in part.method.pieces() for array in piece.auxiliary())
    wanted = [_layout(part, model.image_size, spec.seed) for part in parts]
    for size in SMALL_SIZES if not pooled else ():
        if size < model.image_size and [_layout(part, size, spec.seed) for part in parts] == wanted:
            return size
    return model.image_size
