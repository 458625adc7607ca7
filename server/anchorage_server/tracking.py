"""The run's results on their way to MLflow: noted in the outbox here, sent by a process of its own."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.tracking import TRACKING_INCOMPLETE, TRACKING_UNREACHABLE
from anchorage.api.files import Study, dump_yaml
from anchorage.api.mistakes import without_password
from anchorage.api.status import TrackingStatus
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.tracking import Outbox, Progress, Sender, TrackedRun
from anchorage.methods import resolve
from anchorage.methods.model_card import read_images
from anchorage_server.programs import export_programs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tracked:
    """What MLflow has of a run."""

    place: TrackingStatus
    """Where; with what MLflow gave the run, as far as that is known."""
    complete: bool = False
    """Whether it has everything, of a run that is over."""
    missing: AnchorageError | None = None
    """What it does not have: TrackingUnreachable, which a later attempt may send, or TrackingIncomplete."""


class Tracking:
    """One run's outbox and the process that sends it.

    Parameters
    ----------
    state : Path
        The state folder; the outbox is ``outbox/`` in it.
    study : Study
        What is logged as parameters and document, and where MLflow is.
    history : sequence of RoundRecord
        Rounds that were committed before.

    Raises
    ------
    AnchorageError
        The outbox cannot be written.
    """

    def __init__(self, state: Path, study: Study, history: Sequence[RoundRecord]) -> None:
        self.place = place_of(state, study)
        self._folder = state / "outbox"
        with storage_errors("make the outbox", state):
            self._outbox = Outbox(self._folder)
        document = dump_yaml((study.federation, *study.silos))
        with storage_errors("read the fingerprints of the images", state):
            images = read_images(state)
        method = resolve(study.federation.spec.method, study.federation.spec.task)
        self.observer = TrackedRun.of(self._outbox, study.federation, method, document, images)
        self.observer.catch_up(history)
        self._sender = Sender(self._folder, _uri(state, study))

    def under_way(self) -> Tracked:
        """Return what is known while rounds are played: whether MLflow took what it was sent last."""
        progress = Progress.read(self._folder)
        missing = AnchorageError(TRACKING_UNREACHABLE, progress.trouble) if progress.trouble else None
        return Tracked(self.place.model_copy(update={"run_id": progress.run_id}), missing=missing)

    def hurry(self) -> None:
        """Have the process that sends catch up, since the rounds are over."""
        self._sender.hurry()

    def export(self, models: Path) -> None:
        """Have the models and their card shown that are in a folder, and make programs of them meanwhile."""
        self.observer.note_models(models)
        export_programs(models, self._folder)

    def send(self, at_most_seconds: float = math.inf) -> Tracked:
        """Wait while MLflow takes what is noted, as long as that makes progress, and return what it has then.

        Parameters
        ----------
        at_most_seconds : float
            Longest time in all.
        """
        sent = self._sender.finish(at_most_seconds=at_most_seconds)
        missing = sent.missing
        if missing is None and self._outbox.dropped:
            message = f"{self._outbox.dropped} records could not be kept on disk until MLflow takes them"
            missing = AnchorageError(TRACKING_INCOMPLETE, message)
        if missing is not None:
            _log.warning("MLflow has not everything", extra={"code": missing.code, "reason": missing.message})
        version = sent.best_model_version or sent.model_version
        update = {"run_id": sent.run_id, "registered_model": sent.registered_model, "model_version": version}
        return Tracked(self.place.model_copy(update=update), missing is None, missing)


def place_of(state: Path, study: Study) -> TrackingStatus:
    """Return where MLflow is, without what it gave the run."""
    name, tracking = study.federation.metadata.name, study.federation.spec.tracking
    return TrackingStatus(uri=without_password(_uri(state, study)), experiment=tracking.experiment or name)


def _uri(state: Path, study: Study) -> str:
    return study.federation.spec.tracking.uri or f"sqlite:///{state / 'mlflow.db'}"
