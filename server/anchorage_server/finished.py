"""A run that is over: what it left, kept in a file, so that a server can go on telling it without loading what trained it."""

import logging
from pathlib import Path
from threading import Thread
from time import sleep

from pydantic import Field, JsonValue, ValidationError

from anchorage.api.base import Document
from anchorage.api.changes import broken, frozen_fields
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import Study
from anchorage.api.regular_files import read_regular
from anchorage.api.run import RunDescription
from anchorage.api.status import StoredModel, TrackingStatus
from anchorage.engine.events import RunEnded, SiloJoined, SiloLeft
from anchorage.engine.store.durable import FolderLock, storage_errors
from anchorage.engine.store.journal import read_journal
from anchorage.methods import resolve
from anchorage.transport.files import write_atomically
from anchorage.transport.grpc import GrpcSiloLink
from anchorage.transport.link import Clock
from anchorage.transport.main_thread import WAIT_SECONDS
from anchorage.transport.messages import Joined, Left, StopRequested
from anchorage_server.access import open_access
from anchorage_server.config import ServerConfig
from anchorage_server.listening import Listening, new_status_store
from anchorage_server.readers import READERS_SECONDS, await_readers
from anchorage_server.signals import stopping
from anchorage_server.start import RunStart
from anchorage_server.status import StatusStore
from anchorage_server.tracking import Tracked, Tracking, place_of

RESEND_SECONDS = 60.0
"""Pause before MLflow is asked again to take what it did not take."""

_log = logging.getLogger(__name__)


class FinishedRun(Document):
    """What is left of a run whose rounds are all committed and whose models are written."""

    run: RunDescription = Field(description="What silos are told.")
    study: dict[str, JsonValue] = Field(description="What cannot change once training has begun, by field.")
    model: StoredModel = Field(description="The final model.")
    best_model: StoredModel = Field(description="The best model.")
    tracking: TrackingStatus = Field(description="Where the results are in MLflow.")
    tracked: bool = Field(False, description="Whether MLflow has all of them.")
    reported: bool = Field(
        True,
        description="Whether it was reported what MLflow has of them; it was where an earlier version wrote the file.",
    )

    def keep(self, state: Path) -> None:
        """Write ``finished.json``.

        Raises
        ------
        AnchorageError
            The disk is full or not writable.
        """
        file = _file(state)
        with storage_errors("note that the run is over", file):
            write_atomically(file, self.model_dump_json(by_alias=True).encode())

    def send(self, state: Path, tracking: Tracking, statuses: StatusStore) -> AnchorageError | None:
        """Note the run's end for MLflow, send what it does not have, keep and tell what came of it; return what is missing.

        Raises
        ------
        AnchorageError
            The disk is full or not writable.
        """
        tracking.observer.finish("", Path(self.model.path).parent)
        return self.send_again(state, tracking, statuses)

    def send_again(self, state: Path, tracking: Tracking, statuses: StatusStore) -> AnchorageError | None:
        """Do as `send`, after the end was noted."""
        statuses.note_tracking(tracking.under_way())
        result = tracking.send()
        update = {"tracking": result.place, "tracked": result.complete, "reported": True}
        self.model_copy(update=update).keep(state)
        statuses.note_success(result)
        return result.missing


def read_finished(state: Path, study: Study) -> FinishedRun | None:
    """Return what is left of the run that the documents ask for; None where there is still something to do.

    Raises
    ------
    AnchorageError
        The file cannot be read.
    """
    file = _file(state)
    with storage_errors("read whether the run is over", file):
        content = read_regular(file) if file.exists() else b""
    if not content:
        return None
    try:
        finished_run = FinishedRun.model_validate_json(content)
    except ValidationError as error:
        _log.warning("finished.json is not as it was written", extra={"file": str(file), "error": str(error)})
        return None
    same = not broken(finished_run.study, frozen_fields(study.federation, resolve))
    present = Path(finished_run.model.path).exists() and Path(finished_run.best_model.path).exists()
    return finished_run if same and finished_run.run.rounds == study.federation.spec.rounds and present else None


def serve_finished(config: ServerConfig, study: Study, finished: FinishedRun, clock: Clock) -> None:
    """Tell everybody that the run is over, and have MLflow take what it has not taken yet: a server that stays until a signal comes, another
    one until that is done.

    Raises
    ------
    AnchorageError
        Another server holds the state folder, a port is taken, or a file cannot be used. A server that does not stay: MLflow still does not
        have everything, or a signal came.
    """
    lock = FolderLock(config.state)
    history = [entry.record for entry in read_journal(config.state / "journal.jsonl")]
    start = RunStart(config.state / "started.json", clock.now(), history[0].time if history else None)
    access = open_access(config, study, clock)
    statuses = new_status_store(
        config, study, clock, started=start.first, history=history, silos=access.admission.names
    )
    statuses(RunEnded("", f"{finished.run.rounds} rounds committed"))
    statuses.note_models(finished.model, finished.best_model)
    complete = finished.tracked and finished.tracking.uri == place_of(config.state, study).uri
    report = statuses.note_success if finished.reported else statuses.note_tracking
    report(Tracked(finished.tracking, complete))
    welcome = finished.run.to_json()
    idle_timeout = study.federation.spec.protocol.idle_timeout_seconds
    listening = Listening(config, access, welcome, statuses, clock, idle_timeout, lambda: True)
    try:
        listening.link.finish("every round is committed")
        sending = None
        if not complete:
            tracking = Tracking(config.state, study, history)
            sending = SendingThread(config, finished, tracking, statuses, listening.link)
            sending.start()
        elif not config.stay:
            listening.link.request_stop("nothing is left to do")
        with stopping(listening.link):
            while not isinstance(event := listening.link.next_event(clock.now() + WAIT_SECONDS), StopRequested):
                match event:
                    case Joined(silo, profile):
                        statuses(SiloJoined(silo, profile))
                    case Left(silo, reason):
                        statuses(SiloLeft(silo, reason))
                    case _:
                        pass
            if config.stay and not await_readers(config.state, clock, READERS_SECONDS):
                _log.warning("ending while somebody still reads the results", extra={"waited_seconds": READERS_SECONDS})
        if not config.stay and sending is not None:
            sending.check(event.reason)
    finally:
        listening.close()
        lock.release()


class SendingThread(Thread):
    """Has MLflow take what it did not take at the run's end: where the server stays, however long MLflow is away, else once.

    Parameters
    ----------
    config : ServerConfig
        Whether the server stays, and where its state is.
    finished : FinishedRun
        The run.
    tracking : Tracking
        Its outbox.
    statuses : StatusStore
        Told what came of it.
    link : GrpcSiloLink
        Asked to stop when a server that does not stay is done.
    """

    def __init__(
        self, config: ServerConfig, finished: FinishedRun, tracking: Tracking, statuses: StatusStore, link: GrpcSiloLink
    ) -> None:
        super().__init__(name="sending", daemon=True)
        self._config, self._finished, self._tracking = config, finished, tracking
        self._statuses, self._link = statuses, link
        self._done = False
        self._failure: AnchorageError | None = None

    def run(self) -> None:
        """Send until MLflow has everything that it will ever take."""
        try:
            send = self._finished.send
            while (missing := send(self._config.state, self._tracking, self._statuses)) is not None:
                self._failure = missing
                if not self._config.stay or missing.failure is not TRACKING_UNREACHABLE:
                    break
                sleep(RESEND_SECONDS)
                send = self._finished.send_again
        except AnchorageError as error:
            self._failure = error
            _log.warning("cannot note where the results are", extra={"error": str(error)})
        self._done = True
        if not self._config.stay:
            self._link.request_stop("the results are sent")

    def check(self, reason: str) -> None:
        """See that everything was sent.

        Parameters
        ----------
        reason : str
            Why the server ends.

        Raises
        ------
        AnchorageError
            MLflow does not have everything, or the server was stopped before.
        """
        if not self._done:
            raise AnchorageError(STOPPED, f"{reason}; start again to send the rest of the results")
        if self._failure is not None:
            raise self._failure


def _file(state: Path) -> Path:
    return state / "finished.json"
