"""``fedctl simulate``: a federation in this process, once per seed."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from anchorage.errors import AnchorageError, commands
from anchorage.methods import validate_study
from anchorage.spec.files import Study, as_mapping, dump_yaml, load_federation
from fedctl.local_run import GO_ON, local_silos
from fedctl.output import Format, emit
from fedctl.processes import InterruptError
from fedctl.results import Results, RoundResult, SeedResult, SimulationFolder
from fedctl.simulation_view import SHOWN_SILOS, SeedWatcher, print_simulation, summary
from fedctl.view import View, view_for
from fedctl.workdir import DEFAULT_PARENT, Workdir

DEFAULT_FOLDER = DEFAULT_PARENT / "simulations"
MAY_CHANGE = ("seed", "tracking", "server", "admission", "suspend", "deletionPolicy", "activeDeadlineSeconds")
"""Parts of a federation's spec that may differ when a simulation goes on: none of them changes what a seed reaches."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """Plays seeds and keeps what they reach.

    Parameters
    ----------
    folder : SimulationFolder
        Where the results are kept.
    data_root : Path
        Folder that claims name folders of.
    device : str
        Such as ``cpu`` or ``cuda``.
    view : View
        Where the progress is shown.
    shown_silos : int
        How many silos of a round are shown at most.
    """

    folder: SimulationFolder
    data_root: Path
    device: str
    view: View
    shown_silos: int

    def play(self, study: Study, title: str) -> None:
        """Play one seed from its beginning to its end, and keep the result.

        Raises
        ------
        AnchorageError
            The images, the model or the run failed, or the result cannot be written; nothing of this seed is kept then.
        """
        from anchorage.simulation.run import simulate

        seed, begun = study.federation.spec.seed, monotonic()
        self.view.say(title)
        watcher = SeedWatcher(study.federation, title, self.view, self.shown_silos)
        for left in self.folder.root.glob("silos-*"):  # of a simulation that was killed
            rmtree(left, ignore_errors=True)
        with TemporaryDirectory(prefix="silos-", dir=self.folder.root) as state:
            _, store = simulate(study, self.data_root, Path(state), device=self.device, observer=watcher)
        rounds = tuple(map(RoundResult.of, store.history()))
        write_result(self.folder.result(seed), SeedResult(seed, rounds, monotonic() - begun, self.device), study)


def simulate_federation(
    file: Path,
    seeds: int,
    device: str,
    workdir: Path | None,
    data_root: Path | None,
    overrides: Sequence[str],
    output: Format,
) -> None:
    """Simulate a federation with several seeds, or go on with that, and say what came out.

    Parameters
    ----------
    file : Path
        The federation's documents.
    seeds : int
        How many seeds, from ``spec.seed`` on.
    device : str
        ``auto``, ``cpu`` or ``cuda``, for the server and every silo.
    workdir : Path or None
        Folder of the results; None takes ``.anchorage/simulations/<name>``.
    data_root : Path or None
        Folder that claims name folders of; None takes the file's own.
    overrides : sequence of str
        ``path=value`` for the federation's document.
    output : Format
        What stdout gets: the table of means, or everything.

    Raises
    ------
    AnchorageError
        The documents, the data or a run refuses; finished seeds stay.
    InterruptError
        A signal came; finished seeds stay.
    """
    study, root = validate_study(file, overrides), (data_root or file.parent).resolve()
    name, first = study.federation.metadata.name, study.federation.spec.seed
    studies = [study, *(validate_study(file, [*overrides, f"spec.seed={first + n}"]) for n in range(1, seeds))]
    local_silos(study, root)
    device = found_device(device)
    folder = SimulationFolder((workdir or DEFAULT_FOLDER / name).resolve())
    make(folder)
    begun = monotonic()
    with Workdir(folder.root).lock():
        claim(folder, study)
        people = sys.stdout if output.for_people else sys.stderr
        terminal = output.for_people and sys.stdout.isatty()
        with view_for(people, terminal=terminal) as view:
            simulator = Simulator(folder, root, device, view, SHOWN_SILOS if terminal else 0)
            played = play_missing(studies, simulator)
        wanted = {study.federation.spec.seed for study in studies}
        found = tuple(result for result in folder.finished() if result.seed in wanted)
    results = Results(folder.root, study.federation, found)
    if output.for_people:
        print_simulation(results, monotonic() - begun if played else None, wide=output is Format.WIDE)
    else:
        emit(summary(results), output)


def play_missing(studies: Sequence[Study], simulator: Simulator) -> int:
    """Play the seeds that are not finished, and return how many.

    Raises
    ------
    AnchorageError, InterruptError
        As `simulate_federation`.
    """
    folder, view, played = simulator.folder, simulator.view, 0
    for number, study in enumerate(studies):
        seed = study.federation.spec.seed
        if folder.result(seed).exists():
            where = SeedResult.read(folder.result(seed)).device
            view.say(f"seed {seed} was finished before on {where}, it is not run again")
            continue
        try:
            simulator.play(study, f"seed {seed} ({number + 1} of {len(studies)}) on {simulator.device}")
        except InterruptError as error:
            raise InterruptError(error.number, f"{len(folder.finished())} finished seeds are kept; {GO_ON}") from None
        played += 1
    return played


def found_device(name: str) -> str:
    """Return the device that is meant, such as ``cuda`` for ``auto``.

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
    try:
        folder.result(0).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{error.filename} cannot be made: {error.strerror}; name another --workdir"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message) from error


def claim(folder: SimulationFolder, study: Study) -> None:
    """Write the documents that are simulated.

    Raises
    ------
    AnchorageError
        The folder holds a simulation of other documents, or cannot be written.
    """
    if folder.documents.exists():
        before, now = _essence(load_federation(folder.documents)), _essence(study)
        changed = [part for part in {**before, **now} if before.get(part) != now.get(part)]
        if changed:
            message = f"{folder.root} holds a simulation that differs in {', '.join(changed)}; name another --workdir"
            raise AnchorageError(commands.WORKDIR_TAKEN, message)
    try:
        folder.documents.write_text(dump_yaml([study.federation.model_copy(update={"status": None}), *study.silos]))
    except OSError as error:
        message = f"{folder.documents} cannot be written: {error.strerror}"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message) from error


def _essence(study: Study) -> Mapping[str, Any]:
    spec = as_mapping(study.federation)["spec"]
    parts = {f"spec.{field}": value for field, value in spec.items() if field not in MAY_CHANGE}
    silos = {f"silo {silo.metadata.name}": as_mapping(silo) for silo in study.silos}
    return {"metadata.name": study.federation.metadata.name, **parts, **silos}


def write_result(path: Path, result: SeedResult, study: Study) -> None:
    """Keep the result of a seed, whole or not at all.

    Raises
    ------
    AnchorageError
        It cannot be written.
    """
    heads = {"federation": study.federation.metadata.name, "method": study.federation.spec.method.name}
    temporary = path.with_suffix(".part")
    try:
        temporary.write_text(json.dumps({**heads, **result.as_document()}, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise AnchorageError(commands.WORKDIR_UNUSABLE, message) from error
