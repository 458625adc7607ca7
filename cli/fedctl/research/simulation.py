"""``fedctl simulate``: a federation in this process, once per seed."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from time import monotonic
from traceback import format_exception
from typing import TYPE_CHECKING

from anchorage.api.changes import RESULTS, Verdict, find_changes
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.files import Study
from anchorage.engine.events import tell_all
from anchorage.methods import resolve, validate_study
from anchorage.transport.files import write_atomically
from fedctl.local_run import GO_ON, local_silos
from fedctl.output import Format, emit
from fedctl.processes import InterruptError
from fedctl.research.results import Results, SeedResult, SimulationFolder, latest_parts, pseudo_label_curves
from fedctl.research.simulation_tracking import SeedTracking, tracking_of
from fedctl.research.simulation_view import SHOWN_SILOS, SeedWatcher, print_simulation, summary
from fedctl.summary import opening
from fedctl.validation import warn_about
from fedctl.view import View, view_for
from fedctl.workdir import DEFAULT_PARENT, Workdir, choose_data_root
from fedctl.writing import ANOTHER_WORKDIR, writing

if TYPE_CHECKING:
    from anchorage.simulation.images import DecodedImages

DEFAULT_FOLDER = DEFAULT_PARENT / "simulations"
SHOWN_CHANGES = 5
TRACEBACK = "traceback.txt"
"""File of the last exception in a piece, in the folder of a simulation."""
EMBEDDINGS, VOLUMES = "embeddings", "volumes"
"""Folders of a frozen encoder's embeddings, and of volumes, below that of a simulation, a study or a search."""


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """The options of a simulation."""

    file: Path
    """The federation's documents."""
    overrides: Sequence[str] = ()
    """``path=value`` for the federation's document, ``silo.path=value`` for every silo's."""
    seeds: int = 1
    """How many seeds, from ``spec.seed`` on."""
    silos: int | None = None
    """How many silos are made of those in the file; None takes these as they are."""
    device: str = "auto"
    """``auto``, ``cpu`` or ``cuda``, for the server and every silo."""
    data_root: Path | None = None
    """Folder that claims name folders of; None takes the file's own, see `with_last_root`."""
    speeds: Sequence[str] = ()
    """``PATTERN=STEP+TRANSFER`` of silos in virtual time."""
    tracking: bool | None = None
    """Whether runs go to MLflow; None: where the federation names a tracking URI."""
    ray: str | None = None
    """Address of a Ray cluster that trains the silos, or ``local``."""
    at_once: int | None = None
    """How many silos train at the same time; None: one per processor, on a GPU one."""
    embeddings: Path | None = None
    """Where a frozen encoder's embeddings are kept for other simulations; None: below this one's folder."""
    decoded: "DecodedImages | None" = None
    """What other simulations of this process decoded."""
    keep: bool = True
    """Whether finished seeds leave their models, and the last checkpoints, from which more rounds go on: else these begin anew, to the same model."""

    @property
    def root(self) -> Path:
        """Folder that claims name folders of."""
        return (self.data_root or self.file.parent).resolve()

    def with_last_root(self, study: Study) -> "SimulationRequest":
        """Return the same with the data root that the federation's last run had, where none is named."""
        return replace(self, data_root=choose_data_root(study.federation.metadata.name, self.file, self.data_root))

    def studies(self) -> list[Study]:
        """Return the study, once per seed.

        Raises
        ------
        DocumentError
            With every mistake.
        AnchorageError
            A speed is no silo's.
        """
        study = validate_study(self.file, self.overrides, self.silos)
        if self.speeds:
            from anchorage.simulation.speeds import parse_speeds

            parse_speeds(self.speeds).check(silo.metadata.name for silo in study.silos)
        return [_with_seed(study, study.federation.spec.seed + number) for number in range(self.seeds)]


def _with_seed(study: Study, seed: int) -> Study:
    spec = study.federation.spec.model_copy(update={"seed": seed})
    return replace(study, federation=study.federation.model_copy(update={"spec": spec}))


@dataclass(frozen=True, slots=True)
class Simulator:
    """Simulates seeds and stores their results."""

    folder: SimulationFolder
    """Where the results are kept."""
    data_root: Path
    """Folder that claims name folders of."""
    device: str
    """Such as ``cpu`` or ``cuda``."""
    view: View
    """Where the progress is shown."""
    shown_silos: int
    """How many silos of a round are shown at most."""
    speeds: Sequence[str] = ()
    """As in `SimulationRequest`."""
    tracking: SeedTracking | None = None
    """Sends runs to MLflow."""
    ray: str | None = None
    """As in `SimulationRequest`."""
    at_once: int = 1
    """How many silos train at the same time."""
    keep: bool = True
    """As in `SimulationRequest`."""
    embeddings: Path | None = None
    """Where a frozen encoder's embeddings are kept."""
    decoded: "DecodedImages | None" = None
    """What seeds and simulations before decoded."""

    def play(self, study: Study, title: str) -> None:
        """Simulate one seed to its end, from the start or from its stored state, and store the result.

        Raises
        ------
        AnchorageError
            The images, the model or the run failed, or the result cannot be written; the rounds that were committed are gone on from.
        """
        from anchorage.simulation.run import Simulation
        from anchorage.simulation.speeds import parse_speeds

        seed, begun = study.federation.spec.seed, monotonic()
        state = self.folder.state(seed)
        self.view.say(title)
        watcher = SeedWatcher(study.federation, title, self.view, self.shown_silos)
        speeds = parse_speeds(self.speeds) if self.speeds else None
        simulation = Simulation(
            study,
            self.data_root,
            state,
            resume=True,
            speeds=speeds,
            ray=self.ray,
            at_once=self.at_once,
            device=self.device,
            embeddings=self.embeddings,
            decoded=self.decoded,
        )
        before, history = simulation.store.latest(), simulation.store.history()
        if before is not None:
            watcher.show_round(before.record)
        tracked = self.tracking.seed(study, simulation.run, history) if self.tracking else nullcontext(None)
        with tracked as observer, self._keeping_traceback():
            simulation.play(tell_all(watcher, *([observer] if observer else [])))
        if self.keep:
            simulation.write_models(self.folder.models(seed))
        records = simulation.store.history()
        rounds, curves = latest_parts(records), pseudo_label_curves(records)
        seconds = monotonic() - begun + sum(sum(record.seconds.values()) for record in history)
        write_result(self.folder.result(seed), SeedResult(seed, rounds, seconds, self.device, curves), study)
        if not self.keep or study.federation.spec.protocol.mode == "Asynchronous":
            rmtree(state, ignore_errors=True)

    @contextmanager
    def _keeping_traceback(self) -> Iterator[None]:
        """Write the traceback of an exception in a piece beside the results, and say where."""
        try:
            yield
        except AnchorageError as error:
            if error.failure is PIECE_WRONG and error.__cause__ is not None:
                file = self.folder.root / TRACEBACK
                with writing(file):
                    file.write_text("".join(format_exception(error)))
                self.view.say(f"the traceback of the exception: {file}")
            raise


def simulate_federation(wanted: SimulationRequest, workdir: Path | None, output: Format) -> None:
    """Simulate a federation with several seeds, or resume that, and print the results.

    Parameters
    ----------
    wanted : SimulationRequest
        What is simulated.
    workdir : Path or None
        Folder of the results; None takes ``.anchorage/simulations/<name>``.
    output : Format
        What stdout gets: the table of means, or everything.

    Raises
    ------
    AnchorageError
        The documents, the data or a run refuses; what is committed stays. After the results were printed: MLflow does not have everything.
    InterruptError
        A signal came; what is committed stays.
    """
    studies = wanted.studies()
    wanted = wanted.with_last_root(studies[0])
    warn_about(studies[0])
    folder = SimulationFolder((workdir or DEFAULT_FOLDER / studies[0].federation.metadata.name).resolve())
    begun = monotonic()
    people = sys.stdout if output.for_people else sys.stderr
    terminal = output.for_people and sys.stdout.isatty()
    with view_for(people, terminal=terminal) as view:
        unsent: list[AnchorageError] = []
        played = simulate_seeds(wanted, studies, folder, view, SHOWN_SILOS if terminal else 0, unsent)
    results = results_of(studies, folder)
    if output.for_people:
        print_simulation(results, monotonic() - begun if played else None, wide=output is Format.WIDE)
    else:
        emit(summary(results), output)
    if unsent:
        raise unsent[0]


def simulate_seeds(
    wanted: SimulationRequest,
    studies: Sequence[Study],
    folder: SimulationFolder,
    view: View,
    shown_silos: int,
    unsent: list[AnchorageError],
) -> int:
    """Simulate the unfinished seeds of a folder, and return their number; `unsent` gets what MLflow does not have of finished ones.

    Raises
    ------
    AnchorageError, InterruptError
        As `simulate_federation`.
    """
    study, workdir = studies[0], Workdir(folder.root)
    local_silos(study, wanted.root)
    device = choose_device(wanted.device)
    make(folder)
    with workdir.lock():
        claim(folder, study, wanted.silos)
        tracking = tracking_of(study, workdir, wanted.tracking, view)
        at_once = wanted.at_once or silos_at_once(device)
        simulator = Simulator(
            folder,
            wanted.root,
            device,
            view,
            shown_silos,
            speeds=wanted.speeds,
            tracking=tracking,
            ray=wanted.ray,
            at_once=at_once,
            keep=wanted.keep,
            embeddings=wanted.embeddings or folder.root / EMBEDDINGS,
            decoded=wanted.decoded or shared_images(folder.root),
        )
        played = play_missing(studies, simulator)
        if tracking is not None:
            unsent += tracking.unsent
            view.say(f"the runs in MLflow: {opening(tracking.uri)}")
        return played


def silos_at_once(device: str) -> int:
    """Return how many silos train at the same time on a device where nothing else is wanted."""
    return 1 if device.startswith("cuda") else os.cpu_count() or 1


def shared_images(root: Path) -> "DecodedImages":
    """Return what simulations one after another may share, with volumes below their common folder."""
    from anchorage.simulation.images import DecodedImages

    return DecodedImages(root / VOLUMES)


def results_of(studies: Sequence[Study], folder: SimulationFolder) -> Results:
    """Return the results of a folder's seeds.

    Raises
    ------
    AnchorageError
        A result cannot be read.
    """
    seeds = {study.federation.spec.seed for study in studies}
    results = tuple(result for result in folder.read_finished() if result.seed in seeds)
    return Results(folder.root, studies[0].federation, studies[0].silos, results)


def play_missing(studies: Sequence[Study], simulator: Simulator) -> int:
    """Simulate the seeds that are unfinished, or have fewer rounds than are wanted, and return their number.

    Raises
    ------
    AnchorageError, InterruptError
        As `simulate_federation`.
    """
    folder, view, played = simulator.folder, simulator.view, 0
    for number, study in enumerate(studies):
        seed = study.federation.spec.seed
        before = SeedResult.read(folder.result(seed)) if folder.result(seed).exists() else None
        if before is not None and before.rounds[-1].round == study.federation.spec.rounds:
            view.say(f"seed {seed} was finished before on {before.device}, it is not run again")
            if simulator.tracking is not None:
                simulator.tracking.send_rest(seed)
            continue
        try:
            simulator.play(study, f"seed {seed} ({number + 1} of {len(studies)}) on {simulator.device}")
        except InterruptError as error:
            finished = sum(each.rounds[-1].round == study.federation.spec.rounds for each in folder.read_finished())
            message = f"{finished} finished seeds and the rounds of this one are kept"
            raise InterruptError(error.number, f"{message}; {GO_ON}") from None
        played += 1
    return played


def choose_device(name: str) -> str:
    """Return the device for an option, such as ``cuda`` for ``auto``.

    Raises
    ------
    AnchorageError
        There is no such device, or torch is not installed.
    """
    try:
        from anchorage.learning.device import find_device
    except ImportError as error:
        message = f"{error.name} is not installed; pip install 'anchorage[learning]'"
        raise AnchorageError(commands.PACKAGE_MISSING, message) from error
    return str(find_device(name))


def make(folder: SimulationFolder) -> None:
    """Make the folders of a simulation.

    Raises
    ------
    AnchorageError
        They cannot be made.
    """
    with writing(folder.root, ANOTHER_WORKDIR):
        folder.result(0).parent.mkdir(parents=True, exist_ok=True)


def changed_fields(folder: SimulationFolder, study: Study) -> list[str]:
    """Return the fields, and silos, in which a folder's documents differ so that its rounds are not those of a study."""
    if not folder.documents.exists():
        return []
    before, longer = folder.study(), study.federation.spec.rounds >= folder.count_committed()
    changes = find_changes(before.federation, study.federation, resolve, before.silos, study.silos)
    deciding = (
        each
        for each in changes
        if each.verdict in RESULTS and each.field != "spec.seed" and not (each.verdict is Verdict.ROUNDS and longer)
    )
    return list(dict.fromkeys(f"silo {each.silo}" if each.silo else each.field for each in deciding))


def other_documents_error(folder: SimulationFolder, study: Study, changed: Sequence[str]) -> AnchorageError:
    """Return the error of a folder that holds rounds of other documents."""
    committed = folder.count_committed()
    shown = ", ".join(changed[:SHOWN_CHANGES]) + (" and more" if len(changed) > SHOWN_CHANGES else "")
    so_far = "" if study.federation.spec.rounds >= committed else f" ({committed} rounds are committed)"
    message = f"{folder.root} holds a simulation that differs in {shown}{so_far}; name another --workdir"
    return AnchorageError(commands.WORKDIR_TAKEN, message)


def claim(folder: SimulationFolder, study: Study, silos: int | None = None) -> None:
    """Write the simulated documents, and the number of silos created from them.

    Raises
    ------
    AnchorageError
        The folder holds rounds of other documents, or a run of `fedctl run`; or it cannot be written.
    """
    if Workdir(folder.root).federation.exists():
        message = f"{folder.root} holds a run of `fedctl run`; name another --workdir"
        raise AnchorageError(commands.WORKDIR_TAKEN, message)
    if (changed := changed_fields(folder, study)) and not folder.forget_beginnings():
        raise other_documents_error(folder, study, changed)
    with writing(folder.root):
        if silos is not None:
            folder.multiplied.write_text(json.dumps({"silos": silos}) + "\n")
        folder.documents.write_text(study.to_yaml())


def write_result(path: Path, result: SeedResult, study: Study) -> None:
    """Write the result of a seed atomically.

    Raises
    ------
    AnchorageError
        It cannot be written.
    """
    heads = {"federation": study.federation.metadata.name, "method": study.federation.spec.method.name}
    with writing(path):
        write_atomically(path, (json.dumps({**heads, **result.as_document()}, indent=1) + "\n").encode())
