"""A run that is over: what it left, kept in a file, so that a server can go on telling it without loading what trained it."""

import logging
from pathlib import Path
from threading import Thread
from time import sleep

from pydantic import Field, JsonValue, ValidationError

from anchorage.api.base import Document
from anchorage.api.changes import broken, frozen_fields
from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.api.status import StoredModel, TrackingStatus
from anchorage.engine.events import RunEnded, SiloJoined, SiloLeft
from anchorage.engine.store.durable import FolderLock, storage_errors
from anchorage.engine.store.journal import read_journal
from anchorage.methods import resolve
from anchorage.transport.files import write_atomically
from anchorage.transport.link import Clock
from anchorage.transport.messages import Joined, Left, StopRequested
from anchorage_server.config import ServerConfig
from anchorage_server.listening import Listening, new_status_store, open_access
from anchorage_server.signals import stopping
from anchorage_server.start import RunStart
from anchorage_server.status import StatusStore
from anchorage_server.tracking import send_rest

RESEND_SECONDS = 60.0
"""Pause before MLflow is asked again to take what it did not take."""

_log = logging.getLogger(__name__)


class FinishedRun(Document):
    """What is left of a run whose rounds are all committed and whose models are written."""

    run: RunDescription = Field(description="What silos are told.")
    study: dict[str, JsonValue] = Field(description="What cannot change once training has begun, by field.")
    model: StoredModel = Field(description="The final model.")
    best_model: StoredModel = Field(description="The best model.")
    tracking: TrackingStatus = Field(description="Where the results are in MLflow; no run where it did not take them.")

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


def read_finished(state: Path, study: Study) -> FinishedRun | None:
    """Return what is left of the run that the documents ask for; None where there is still something to do.

    Raises
    ------
    AnchorageError
        The file cannot be read.
    """
    file = _file(state)
    with storage_errors("read whether the run is over", file):
        content = file.read_bytes() if file.exists() else b""
    if not content:
        return None
    try:
        found = FinishedRun.model_validate_json(content)
    except ValidationError as error:
        _log.warning("finished.json is not as it was written", extra={"file": str(file), "error": str(error)})
        return None
    same = not broken(found.study, frozen_fields(study.federation, resolve))
    present = Path(found.model.path).exists() and Path(found.best_model.path).exists()
    return found if same and found.run.rounds == study.federation.spec.rounds and present else None


def serve_finished(config: ServerConfig, study: Study, finished: FinishedRun, clock: Clock) -> None:
    """Tell everybody that the run is over, until a signal comes.

    Raises
    ------
    AnchorageError
        Another server holds the state folder, a port is taken, or a file cannot be used.
    """
    lock = FolderLock(config.state)
    history = [entry.record for entry in read_journal(config.state / "journal.jsonl")]
    start = RunStart(config.state / "started.json", clock.now(), history[0].time if history else None)
    access = open_access(config, study, clock)
    statuses = new_status_store(
        config, study, clock, started=start.first, history=history, silos=access.admission.names
    )
    statuses(RunEnded("", f"{finished.run.rounds} rounds committed"))
    statuses.stored(finished.model, finished.best_model)
    statuses.tracked(finished.tracking)
    welcome = finished.run.model_dump_json(by_alias=True)
    idle_timeout = study.federation.spec.protocol.idle_timeout_seconds
    listening = Listening(config, access, welcome, statuses, clock, idle_timeout, lambda: True)
    try:
        listening.link.finish("every round is committed")
        if not finished.tracking.run_id:
            Thread(target=_send, args=(config.state, study, finished, statuses), name="sending", daemon=True).start()
        with stopping(listening.link):
            while not isinstance(event := listening.link.next_event(None), StopRequested):
                match event:
                    case Joined(silo, profile):
                        statuses(SiloJoined(silo, profile))
                    case Left(silo, reason):
                        statuses(SiloLeft(silo, reason))
                    case _:
                        pass
    finally:
        listening.close()
        lock.release()


def _send(state: Path, study: Study, finished: FinishedRun, statuses: StatusStore) -> None:
    """Have MLflow take what it did not take at the run's end, however long it is away."""
    while (sent := send_rest(state, study)) is None:
        _log.warning("MLflow still does not take the results", extra={"uri": finished.tracking.uri})
        sleep(RESEND_SECONDS)
    statuses.tracked(sent)
    try:
        finished.model_copy(update={"tracking": sent}).keep(state)
    except AnchorageError as error:
        _log.warning("cannot note where the results are", extra={"error": str(error)})


def _file(state: Path) -> Path:
    return state / "finished.json"
