"""``fedctl run``: a real federation on this machine."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import psutil
import typer

from anchorage.api.changes import RESULTS, Change, Verdict, find_changes, refusals
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.tracking import UNSENT
from anchorage.api.federation import Federation
from anchorage.api.files import Study, as_mapping, dump_yaml, load_federation
from anchorage.api.mistakes import DocumentError, without_password
from anchorage.api.model import require_package
from anchorage.api.silo_state import SiloState
from anchorage.api.status import ConditionType, FederationStatus, at_rest, is_true
from anchorage.methods import resolve, validate_study
from anchorage.methods.pretrained import initial_of
from fedctl.comparison import Comparison
from fedctl.configurations import LocalSilo, open_authority, write_server_config, write_silo_config
from fedctl.local_source import LocalSource
from fedctl.observation import ask_status, last_status, left_status, read_journal
from fedctl.output import Format, emit
from fedctl.processes import InterruptError
from fedctl.report import complete_card, draw_sections, send_card, write_report
from fedctl.shared_imports import shared_imports
from fedctl.sites_alone import AloneScores
from fedctl.summary import print_summary
from fedctl.supervision import Plan, Supervisor
from fedctl.validation import warn_about
from fedctl.view import Pace, Picture, View, view_for
from fedctl.workdir import DEFAULT_PARENT, Workdir, choose_data_root, read_json, remember_folder, remembered_folder
from fedctl.writing import writing

if TYPE_CHECKING:
    from fedctl.report import Sections

ORPHAN_SECONDS = 30.0
"""How long the server of a run whose runner died may take to end."""
GO_ON = "the same command goes on"


@dataclass
class RunWatcher:
    """Shows a run to people, and completes its model card as soon as that can be."""

    run: Workdir
    """Its folder."""
    federation: Federation
    """What is run."""
    view: View
    """Where it is shown."""
    comparison: Comparison
    """Started as soon as the last round is committed, while the server still stores the results."""
    status: FederationStatus = field(default_factory=FederationStatus)
    begun: float = field(default_factory=monotonic)
    pace: Pace = field(default_factory=Pace)
    completed: bool = False
    """Whether the model card was completed while the server still sent the results."""
    drawing: "Future[Sections] | None" = None
    """The report's pictures, which are drawn from then on."""

    def started(self, name: str, pid: int) -> None:
        """Report that a process was started."""
        self.view.say(f"started {'the server' if name == 'server' else f'silo {name}'}, process {pid}")

    def refresh(self, endpoints: Mapping[str, str] | None, processes: Mapping[str, str]) -> int:
        """Show the server's status; if the server does not respond, the last one stays, without the silos while no server runs."""
        if endpoints is not None:
            try:
                self.status = ask_status(endpoints["status"])
            except AnchorageError:
                if processes["server"] == "restarting":
                    self.status = at_rest(self.status)
            if self.status.completion_time is not None:
                self.comparison.start()
            if self.status.model is not None:
                self._complete_card()
        self._show(processes)
        return self.status.round if self.status.last_checkpoint else -1

    def _complete_card(self) -> None:
        """Complete the model card once the comparison is measured: the process that sends the results then sends it with them.

        Where that fails, the runner tries again after the server's end.
        """
        if not self.completed and self.comparison.ended:
            self.completed = True
            with suppress(AnchorageError):
                complete_card(self.run, self.comparison.scores())
                self.drawing = ThreadPoolExecutor(1, "report").submit(draw_sections, LocalSource(self.run))

    def over(self, status: FederationStatus) -> None:
        """Show the last status of the server."""
        self.status = status
        self._show({})

    def _show(self, processes: Mapping[str, str]) -> None:
        spec, now = self.federation.spec, monotonic()
        self.view.show(
            Picture(
                federation=self.federation.metadata.name,
                method=f"{spec.method.name} on {spec.model.network}",
                status=self.status,
                processes=processes,
                elapsed_seconds=now - self.begun,
                remaining_seconds=self.pace.update(self.status, now),
            )
        )

    def say(self, line: str) -> None:
        """Show a message."""
        self.view.say(line)


def run_federation(
    file: Path,
    workdir: Path | None,
    data_root: Path | None,
    overrides: Sequence[str],
    output: Format,
    *,
    compare: bool = True,
) -> None:
    """Run a federation to its end, or resume it, and print the results.

    Parameters
    ----------
    file : Path
        The federation's documents.
    workdir : Path or None
        Folder of the run; None takes ``.anchorage/<name>``, or the folder that the federation's last run was given.
    data_root : Path or None
        Folder that claims name folders of; None takes the one of the run's last start, else the file's own.
    overrides : sequence of str
        ``path=value`` for the federation's document.
    output : Format
        What stdout gets: the summary, or the document with its status.
    compare : bool
        Whether training without the federation is measured after the last round (`fedctl.comparison`).

    Raises
    ------
    AnchorageError
        The documents, the data, or a process refuses; what is committed stays.
        Every round is committed, but MLflow does not have everything: this is raised after the results were printed.
    InterruptError
        A signal came; what is committed stays.
    """
    study = validate_study(file, overrides)
    name = study.federation.metadata.name
    run = Workdir(workdir.resolve() if workdir is not None else remembered_folder(name))
    if workdir is None and (DEFAULT_PARENT / name).is_symlink():
        typer.echo(f"in {run.root}, as before; --workdir names another folder", err=True)
    root = choose_data_root(name, file, data_root, run)
    silos = local_silos(study, root)
    warn_about(study)
    run.make()
    with run.lock():
        wait_for_orphan(run)
        federation = claim(run, study)
        people = sys.stdout if output.for_people else sys.stderr
        begun = monotonic()
        finished = already_finished(run, federation)
        if not finished:
            initial_of(federation.spec, root)
            require_package(federation.spec.model.network)
        remember_folder(name, run)
        members = None if finished and is_tracked(run, federation) else () if finished else silos
        try:
            with (
                view_for(people, terminal=output.for_people and sys.stdout.isatty()) as view,
                shared_imports(run, wanted=bool(members)) as imports,
                Comparison(run, study, root, view.say, wanted=compare, fork_server=imports) as comparison,
            ):
                watcher = RunWatcher(run, federation, view, comparison, begun=begun)
                unsent = None if members is None else play_to_the_end(run, federation, members, root, watcher, imports)
                alone = comparison.scores()
                trouble = complete_card_everywhere(run, federation, alone, unsent, view.say)
        except (AnchorageError, InterruptError) as error:
            if not output.for_people:
                emit(document_with_status(run, federation), output)
            if isinstance(error, InterruptError):
                raise InterruptError(error.number, f"{last_status(run).round} rounds are kept; {GO_ON}") from None
            raise
        elapsed = None if finished else monotonic() - begun
        unsent = unsent or trouble
        page = report_at_end(run, watcher.drawing)
        if output.for_people:
            print_summary(run, federation, left_status(run), elapsed, unsent, read_journal(run), page)
        else:
            emit(document_with_status(run, federation), output)
        if unsent is not None:
            raise unsent


def complete_card_everywhere(
    run: Workdir,
    federation: Federation,
    alone: AloneScores,
    unsent: AnchorageError | None,
    say: Callable[[str], None],
) -> AnchorageError | None:
    """Complete the model card here and, unless it does not take results now (`unsent`), in MLflow; return what that does not have then."""
    try:
        complete_card(run, alone)
    except AnchorageError as error:
        say(str(error))
    uri = federation.spec.tracking.uri
    return send_card(run, uri, say) if uri is not None and unsent is None else None


def report_at_end(run: Workdir, drawing: "Future[Sections] | None" = None) -> str:
    """Write the report, with the pictures that are being drawn, and return its path, or why there is none: the run is over all the same."""
    try:
        return str(write_report(LocalSource(run), run.report, drawing.result() if drawing else None))
    except AnchorageError as error:
        return f"none, {error}"


def play_to_the_end(
    run: Workdir,
    federation: Federation,
    silos: Sequence[LocalSilo],
    root: Path,
    watcher: RunWatcher,
    fork_server: int | None,
) -> AnchorageError | None:
    """Play as `play` does, and return what MLflow does not have in the end; None where it has everything.

    Raises
    ------
    AnchorageError, InterruptError
        As of `play`, where rounds are missing.
    """
    try:
        play(run, federation, silos, root, watcher, fork_server)
    except AnchorageError as error:
        if error.failure not in UNSENT:
            raise
        return error
    return None


def play(
    run: Workdir,
    federation: Federation,
    silos: Sequence[LocalSilo],
    root: Path,
    watcher: RunWatcher,
    fork_server: int | None,
) -> None:
    """Start the server and the agents, and return when every round is committed and MLflow has the results; of a run that is over, the server
    alone, without silos.

    Raises
    ------
    AnchorageError, InterruptError
        As `run_federation`.
    """
    open_authority(run, federation.metadata.name)
    by_name = {silo.name: silo for silo in silos}

    def silo_config(name: str, endpoints: Mapping[str, str]) -> Path:
        return write_silo_config(run, by_name[name], federation.metadata.name, root, endpoints)

    plan = Plan(
        workdir=run,
        silos=tuple(by_name),
        min_silos=federation.spec.protocol.min_silos,
        server_config=partial(write_server_config, run, root),
        silo_config=silo_config,
        fork_server=fork_server,
    )
    Supervisor(plan, watcher).play()
    watcher.over(left_status(run))


def local_silos(study: Study, root: Path) -> list[LocalSilo]:
    """Return the configurations of a study's local silos.

    Raises
    ------
    AnchorageError
        A silo is not managed, so that its images are not on this machine.
    """
    silos = []
    for index, silo in enumerate(study.silos):
        if silo.spec.managed is None:
            where, line = study.locate(("spec",), index)
            raise AnchorageError(
                commands.SILO_NOT_LOCAL,
                f"{where}: silo {silo.metadata.name} (document in line {line}) has no spec.managed.data; add it",
            )
        settings: dict[str, Any] = {
            "labels": silo.spec.labels,
            "data": silo.spec.managed.data.model_dump(mode="json", by_alias=True, exclude_unset=True),
        }
        settings |= silo.spec.managed.changed_options()
        if silo.spec.managed.policy:
            settings["policy"] = str(root / silo.spec.managed.policy)
        silos.append(LocalSilo(silo.metadata.name, settings))
    return silos


def claim(run: Workdir, study: Study) -> Federation:
    """Write the documents of the run, and return the effective federation.

    Where nothing has been trained yet, and the documents changed in what decides the model, the run starts anew.

    Raises
    ------
    AnchorageError
        The folder holds the run of another federation, or something changed that may not once training has begun; or it cannot be written.
    """
    spec = study.federation.spec
    tracking = spec.tracking
    if tracking.uri is None:
        if re.search(r"[@?#\s]", run.tracking_uri):
            raise AnchorageError(
                commands.WORKDIR_UNUSABLE,
                f"{run.root} has a character (space, @, ? or #) that no MLflow store may have",
            )
        tracking = tracking.model_copy(update={"uri": run.tracking_uri})
    federation = study.federation.model_copy(
        update={"spec": spec.model_copy(update={"tracking": tracking}), "status": None}
    )
    if run.simulation.exists():
        message = f"{run.root} holds a simulation of `fedctl simulate`; name another --workdir"
        raise AnchorageError(commands.WORKDIR_TAKEN, message)
    with writing(run.federation):
        if run.federation.exists():
            _accept_changes(run, study, federation)
        run.federation.write_text(dump_yaml([federation, *study.silos]))
    return federation


def _accept_changes(run: Workdir, study: Study, federation: Federation) -> None:
    """Compare the documents with those that the folder was begun with, and remove what was made from those and is no longer of use.

    Raises
    ------
    AnchorageError
        Something changed that cannot.
    OSError
        Something cannot be removed.
    """
    try:
        before = load_federation(run.federation)
    except DocumentError:
        if _last_round(run):
            raise
        _begin_anew(run)  # such as documents of an earlier version
        return
    changes = find_changes(before.federation, federation, resolve, before.silos, study.silos)
    refused = _refusals(run, before.federation, federation, changes)
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        message = f"{run.root} holds a run: {refused[0]}{more}; restore it, or name another --workdir"
        raise AnchorageError(commands.WORKDIR_TAKEN, message)
    if any(change.verdict in RESULTS for change in changes):
        run.anchors_alone.unlink(missing_ok=True)
        run.sites_alone.unlink(missing_ok=True)
    if any(change.verdict is Verdict.FROZEN for change in changes) and not _last_round(run):
        _begin_anew(run)  # round 0, the model before any training, is of other documents


def _begin_anew(run: Workdir) -> None:
    rmtree(run.server, ignore_errors=True)
    run.server.mkdir(exist_ok=True)


def _refusals(run: Workdir, before: Federation, after: Federation, changes: Sequence[Change]) -> list[str]:
    """Say what changed and cannot."""
    if before.metadata.name != after.metadata.name:  # its authority vouches for this name alone
        return [f"its federation is {before.metadata.name}, not {after.metadata.name}"]
    # what arrived is kept for the open round
    arrived_silos = {silo.name for silo in last_status(run).silos if silo.state == SiloState.ARRIVED}
    counted = {
        silo["name"] for record in read_journal(run) for silo in record["silos"] if silo["state"] == SiloState.COUNTED
    }
    return refusals(changes, _last_round(run) or None, arrived_silos | counted)


def _last_round(run: Workdir) -> int:
    """Return the last committed round, 0 where nothing was trained; of what the files say the most, since more hangs on it than on a file."""
    journal = [int(record["round"]) for record in read_journal(run)]
    checkpoints = [int(path.stem.removeprefix("round-")) for path in run.server.glob("checkpoints/round-*.safetensors")]
    return max([last_status(run).round, *journal, *checkpoints])


def already_finished(run: Workdir, federation: Federation) -> bool:
    """Return whether all requested rounds were committed before, and the models that were stored are still there."""
    status = last_status(run)
    stored = [model is not None and Path(model.path).exists() for model in (status.model, status.best_model)]
    return status.round >= federation.spec.rounds and all(stored)


def is_tracked(run: Workdir, federation: Federation) -> bool:
    """Return whether MLflow has all results of a run that is over, at the place that its documents name now."""
    status = last_status(run)
    uri = federation.spec.tracking.uri
    sent = is_true(status.conditions, ConditionType.TRACKED)
    return sent and uri is not None and status.tracking.uri == without_password(uri)


def document_with_status(run: Workdir, federation: Federation) -> Mapping[str, Any]:
    """Return the federation's document with the status that its server left, as JSON values."""
    return as_mapping(federation.model_copy(update={"status": left_status(run)}))


def wait_for_orphan(run: Workdir) -> None:
    """Wait for the end of a server whose runner was killed; the system has sent it a signal.

    Raises
    ------
    AnchorageError
        It goes on.
    """
    pid = (read_json(run.endpoints) or {}).get("pid")
    deadline = monotonic() + ORPHAN_SECONDS
    while pid is not None and _is_server(pid):
        if monotonic() > deadline:
            raise AnchorageError(
                commands.WORKDIR_BUSY, f"the server of an earlier run still works in {run.root}; end process {pid}"
            )
        sleep(0.1)


def _is_server(pid: int) -> bool:
    try:
        return "anchorage_server" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
