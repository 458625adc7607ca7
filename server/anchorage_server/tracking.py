"""The run's results on their way to MLflow: noted in the outbox here, sent by a process of its own."""

import logging
from collections.abc import Sequence
from pathlib import Path

from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import Study, dump_yaml
from anchorage.api.mistakes import without_password
from anchorage.api.run import RunDescription
from anchorage.api.status import TrackingStatus
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.tracking import Outbox, Sender, Sent, TrackedRun

SEND_SECONDS = 120.0
"""How long a finished run waits for MLflow to take its results and models."""
LEAVE_SECONDS = 10.0
"""How long a run that failed or was stopped waits."""

_log = logging.getLogger(__name__)


class Tracking:
    """One run's outbox and the process that sends it.

    Parameters
    ----------
    state : Path
        The state folder; the outbox is ``outbox/`` in it.
    study : Study
        What is logged as parameters and document, and where MLflow is.
    run : RunDescription
        Has the method with every slot filled.
    history : sequence of RoundRecord
        Rounds that were committed before.

    Raises
    ------
    AnchorageError
        The outbox cannot be written.
    """

    def __init__(self, state: Path, study: Study, run: RunDescription, history: Sequence[RoundRecord]) -> None:
        self._uri = _uri(state, study)
        self._place = place_of(state, study)
        with storage_errors("make the outbox", state):
            self._outbox = Outbox(state / "outbox")
        document = dump_yaml((study.federation, *study.silos))
        self.observer = TrackedRun.of(self._outbox, study.federation, run.method, document)
        self.observer.catch_up(history)
        self._sender = Sender(state / "outbox", self._uri)

    def finish(self, code: str, models: Path | None) -> TrackingStatus:
        """Note the end, wait a bounded time until everything is sent, and return where it is; what remains is sent by the next start.

        Parameters
        ----------
        code : str
            Of the catalogue, empty where every round is committed.
        models : Path or None
            Folder with the final and the best model.
        """
        self.observer.finish(code, models)
        sent = self._sender.finish(LEAVE_SECONDS if code else SEND_SECONDS)
        self._outbox.close()
        if sent is None:
            what = "MLflow did not take everything; the next start on this folder sends the rest"
            _log.warning(what, extra={"code": TRACKING_UNREACHABLE.code, "uri": self._place.uri})
            return self._place
        return _found(self._place, sent)


def send_rest(state: Path, study: Study) -> TrackingStatus | None:
    """Send what a run that is over could not send, and return where it is; None where MLflow still does not take it.

    Parameters
    ----------
    state : Path
        The state folder.
    study : Study
        Where MLflow is.
    """
    sent = Sender(state / "outbox", _uri(state, study)).finish(SEND_SECONDS)
    return None if sent is None else _found(place_of(state, study), sent)


def place_of(state: Path, study: Study) -> TrackingStatus:
    """Return where MLflow is, without what it gave the run."""
    name, tracking = study.federation.metadata.name, study.federation.spec.tracking
    return TrackingStatus(uri=without_password(_uri(state, study)), experiment=tracking.experiment or name)


def _uri(state: Path, study: Study) -> str:
    return study.federation.spec.tracking.uri or f"sqlite:///{state / 'mlflow.db'}"


def _found(place: TrackingStatus, sent: Sent) -> TrackingStatus:
    found = {"run_id": sent.run_id, "registered_model": sent.registered_model, "model_version": sent.model_version}
    return place.model_copy(update=found)
