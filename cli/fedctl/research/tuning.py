"""``fedctl tune``: searches settings and methods of a federation with Optuna, each trial a simulation scored on the validation images."""

import json
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from blake3 import blake3

from anchorage.api.changes import digest_of_study
from anchorage.api.errors import AnchorageError, commands, data, learning, rounds
from anchorage.api.errors.documents import MISSING_FIELD
from anchorage.api.files import Study, dump_yaml
from anchorage.api.metrics import lower_is_better
from anchorage.api.mistakes import DocumentError, Mistake
from anchorage.methods import resolve, validate_study
from anchorage.transport.files import write_atomically
from fedctl.output import Format, emit
from fedctl.processes import InterruptError
from fedctl.research.results import SimulationFolder, Spread, finite
from fedctl.research.simulation import EMBEDDINGS, SimulationRequest, results_of, shared_images, simulate_seeds
from fedctl.research.simulation_view import SHOWN_SILOS
from fedctl.research.tuning_file import TuningFile, read_tuning
from fedctl.research.tuning_view import SearchState, TrialResult, print_search, search_view, show_search_state
from fedctl.validation import warn_about
from fedctl.view import View
from fedctl.workdir import DEFAULT_PARENT, Workdir
from fedctl.writing import ANOTHER_WORKDIR, writing

if TYPE_CHECKING:  # Optuna is needed by this command alone
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial

DEFAULT_FOLDER = DEFAULT_PARENT / "tunings"
NAME = "tuning"
"""Name of the study in Optuna's store."""
OF_THE_SETTINGS = (
    learning.LOSS_NOT_FINITE,
    learning.OUT_OF_MEMORY,
    learning.ANCHORS_MISSING,
    learning.MEANS_TOO_LARGE,
    learning.NETWORK_UNUSABLE,
    learning.MOMENTS_UNUSABLE,
    rounds.QUORUM_LOST,
    rounds.NON_FINITE_UPDATE,
    rounds.BAD_WEIGHT,
    rounds.DEADLINE_EXCEEDED,
    data.IMAGES_EXCEED_MEMORY,
    commands.NO_COMMON_METRIC,
)
"""Failures of a simulation for which its settings are to blame, so that the search goes on without them."""


def tune_federation(file: Path, workdir: Path | None, data_root: Path | None, device: str, output: Format) -> None:
    """Search settings until the budget is used up, or resume that, print the best trials and write the best one's file.

    Parameters
    ----------
    file : Path
        The search.
    workdir : Path or None
        Folder of the search; None takes ``.anchorage/tunings/<name of the file>``.
    data_root : Path or None
        Folder that claims name folders of; None takes that of the documents.
    device : str
        ``auto``, ``cpu`` or ``cuda``.
    output : Format
        How to print.

    Raises
    ------
    AnchorageError
        The search, its documents, the data or Optuna's store refuses, or the federation as it is cannot be simulated; finished trials stay.
    InterruptError
        A signal came; finished trials, and the committed rounds of the present one, stay.
    """
    tuning = read_tuning(file)
    wanted = SimulationRequest(
        file.parent / tuning.federation,
        seeds=tuning.seeds,
        silos=tuning.silos,
        device=device,
        data_root=data_root,
        keep=False,
    )
    base = wanted.studies()[0]
    _require_validation(base)
    warn_about(base)
    root = (workdir or DEFAULT_FOLDER / file.stem).resolve()
    wanted = wanted.with_last_root(base)
    wanted = replace(wanted, tracking=False, embeddings=root / EMBEDDINGS, decoded=shared_images(root))
    terminal = output.for_people and sys.stdout.isatty()
    with (
        _folder(root),
        _store(root, tuning, base) as store,
        search_view(sys.stdout if output.for_people else sys.stderr, terminal=terminal) as view,
    ):
        search = Search(tuning, wanted, root, store, base.federation.spec.seed, view, SHOWN_SILOS if terminal else 0)
        state = search.run()
    _tell(search, state, base, output)


def _tell(search: "Search", state: SearchState, base: Study, output: Format) -> None:
    name, file = base.federation.metadata.name, search.best_file
    command = f"fedctl run -f {shlex.quote(str(file))} --data-root {shlex.quote(str(search.wanted.root))}"
    if output.for_people:
        print_search(name, state, file, command, wide=output is Format.WIDE)
        return
    emit(
        {
            "federation": name,
            "metric": state.metric,
            "images": "validation",
            "workdir": str(search.root),
            "seconds": state.seconds,
            "trials": [trial.as_document() for trial in state.trials],
            "best": state.best and {**state.best.as_document(), "file": str(file)},
            "command": command,
        },
        output,
    )


@dataclass(frozen=True, slots=True)
class Search:
    """Plays trials one after another.

    A trial that was interrupted is marked as failed, and the next one is the same again: proposals follow from the seed and the finished
    trials alone. A trial's folder is named by its settings, so that it goes on after its last committed round, and settings that are proposed
    a second time are not simulated again.
    """

    tuning: TuningFile
    """What is searched."""
    wanted: SimulationRequest
    """What is simulated, without the settings of a trial."""
    root: Path
    """Folder of the search."""
    store: "OptunaStudy"
    """Every trial so far."""
    seed: int
    """Seed of the proposals."""
    view: View
    """Where the progress is shown."""
    shown_silos: int
    """How many silos of a round are shown at most."""

    @property
    def best_file(self) -> Path:
        """The documents of the best trial so far."""
        return self.root / "best.yaml"

    def run(self) -> SearchState:
        """Play trials until the budget is used up.

        Raises
        ------
        AnchorageError
            A trial failed for a reason that is not in its settings, or none has a value.
        """
        from optuna.trial import TrialState

        for interrupted in self.store.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self.store.tell(interrupted.number, state=TrialState.FAIL)
        state = self.state()
        while not state.over:
            show_search_state(self.view, state)
            self._play(len(state.trials))
            state = self.state()
            if state.best == state.trials[-1]:
                self._write_best(state)
        if state.best is None:
            raise AnchorageError(
                commands.NO_RESULTS, f"{self.root}: no trial was finished; give the search more trials"
            )
        self._write_best(state)
        return state

    def state(self) -> SearchState:
        """Return how far the search is."""
        finished = tuple(_result(number, trial) for number, trial in enumerate(_finished_trials(self.store)))
        return SearchState(self.tuning.metric, finished, self.tuning.trials, 60.0 * self.tuning.minutes)

    def _play(self, number: int) -> None:
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        self.store.sampler = TPESampler(seed=(self.seed + number) % 2**32)
        trial = self.store.ask()
        overrides = self.tuning.draw(trial) if number else []
        trial.set_user_attr("set", overrides)
        self.view.say(f"trial {number}: {', '.join(overrides) or 'the file as it is'}")
        begun = monotonic()
        try:
            spread, seconds = self._score(overrides)
            reason = "" if math.isfinite(spread.mean) else f"{self.tuning.metric} is not a finite number"
        except InterruptError as error:
            raise InterruptError(error.number, f"{number} finished trials are kept; the same command goes on") from None
        except AnchorageError as error:
            if number == 0 or not (isinstance(error, DocumentError) or error.failure in OF_THE_SETTINGS):
                raise
            reason, seconds = str(error).splitlines()[0], monotonic() - begun
        trial.set_user_attr("seconds", seconds)
        if reason:
            self.view.say(f"refused: {reason}")
            trial.set_user_attr("reason", reason)
            self.store.tell(trial, state=TrialState.PRUNED)
        else:
            trial.set_user_attr("std", finite(spread.std))
            self.store.tell(trial, spread.mean)

    def _score(self, overrides: Sequence[str]) -> tuple[Spread, float]:
        """Simulate the federation with some settings and return the metric at the best round, and the seconds that it took."""
        wanted = replace(self.wanted, overrides=tuple(overrides))
        studies = [without_test(study) for study in wanted.studies()]
        key = blake3("\n".join(overrides).encode()).hexdigest(8)
        folder = SimulationFolder(self.root / "trials" / key)
        simulate_seeds(wanted, studies, folder, self.view, self.shown_silos, [])
        results = results_of(studies, folder)
        reached = results.at_best()
        if self.tuning.metric not in reached:
            message = (
                f"the rounds have no {self.tuning.metric}, only {', '.join(reached) or 'nothing'}; name another metric"
            )
            raise AnchorageError(commands.NO_COMMON_METRIC, message)
        return reached[self.tuning.metric], sum(seed.seconds for seed in results.seeds)

    def _write_best(self, state: SearchState) -> None:
        best = state.best
        assert best is not None, "there is a trial with a value"
        study = validate_study(self.wanted.file, best.overrides, self.wanted.silos)
        heads = [
            f"{best.title}: {state.metric} {best} on the validation images.",
            f"{self.wanted.file.name} with:" if best.overrides else f"The same as {self.wanted.file.name}.",
            *(f"  {override}" for override in best.overrides),
        ]
        text = "".join(f"# {line}\n" for line in heads) + dump_yaml([study.federation, *study.silos])
        with writing(self.best_file, ANOTHER_WORKDIR):
            write_atomically(self.best_file, text.encode())


def without_test(study: Study) -> Study:
    """Return a study without test images, so that nothing reads them."""
    spec = study.federation.spec
    assert spec.evaluation is not None, "there are validation images"
    evaluation = spec.evaluation.model_copy(update={"test": None})
    spec = spec.model_copy(update={"evaluation": evaluation})
    return replace(study, federation=study.federation.model_copy(update={"spec": spec}))


def _require_validation(study: Study) -> None:
    evaluation = study.federation.spec.evaluation
    if evaluation is None or evaluation.validation is None:
        message = "found nothing, needed are the images on which trials are scored; add spec.evaluation.validation"
        mistake = Mistake(MISSING_FIELD, ("spec", "evaluation", "validation"), message)
        raise DocumentError([study.add_place(mistake)])


def _finished_trials(store: "OptunaStudy") -> list["FrozenTrial"]:
    from optuna.trial import TrialState

    trials: list[FrozenTrial] = store.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return trials


def _result(number: int, trial: "FrozenTrial") -> TrialResult:
    known = trial.user_attrs
    value = None if known.get("reason") else trial.value
    return TrialResult(
        number, tuple(known["set"]), value, known.get("std"), known.get("reason", ""), known.get("seconds", 0.0)
    )


@contextmanager
def _folder(root: Path) -> Iterator[None]:
    """Make the folder of a search, and lock it."""
    run = Workdir(root)
    if run.federation.exists() or run.simulation.exists():
        raise AnchorageError(commands.WORKDIR_TAKEN, f"{root} holds a run or a simulation; name another --workdir")
    with writing(root, ANOTHER_WORKDIR):
        root.mkdir(parents=True, exist_ok=True)
    with run.lock():
        yield


@contextmanager
def _store(root: Path, tuning: TuningFile, base: Study) -> Iterator["OptunaStudy"]:
    """Open Optuna's study in a search's folder (SQLite), and close it.

    Raises
    ------
    AnchorageError
        Optuna is not installed, the file cannot be used, or it is of another search.
    """
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        message = f"{error.name} is not installed; pip install 'anchorage[tune]'"
        raise AnchorageError(commands.PACKAGE_MISSING, message) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = root / "optuna.db"
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        try:
            best = (
                optuna.study.StudyDirection.MINIMIZE
                if lower_is_better(tuning.metric)
                else optuna.study.StudyDirection.MAXIMIZE
            )
            store = optuna.create_study(storage=storage, study_name=NAME, direction=best, load_if_exists=True)
            _claim(store, root, tuning, base)
            yield store
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        message = f"{file} cannot be used: {' '.join(str(error).split())}; mend it, or name another --workdir"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message) from error


def _claim(store: "OptunaStudy", root: Path, tuning: TuningFile, base: Study) -> None:
    """Note what is searched; refuse a folder in which something else is. The budget may change."""
    documents = without_test(base)
    claim = {
        **tuning.model_dump(mode="json", by_alias=True, include={"metric", "parameters", "seeds", "silos"}),
        "federation": digest_of_study(documents.federation, documents.silos, resolve),
    }
    text = {name: json.dumps(value, sort_keys=True) for name, value in claim.items()}
    before = store.user_attrs or text
    changed = [name for name in text if before.get(name) != text[name]]
    if changed and _finished_trials(store):
        message = f"{root} holds a search that differs in {', '.join(changed)}; name another --workdir"
        raise AnchorageError(commands.WORKDIR_TAKEN, message)
    for name, value in text.items():
        store.set_user_attr(name, value)
