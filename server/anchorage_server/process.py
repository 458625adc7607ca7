"""The parts of the server put together: identity, store, links, status, engine, results."""

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.rounds import STOPPED
from anchorage.api.files import Study
from anchorage.api.run import RunDescription
from anchorage.engine.engine import Engine
from anchorage.engine.events import Observer, RoundCommitted, RunEnded, RunEvent, tell_all
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store import DiskStore
from anchorage.engine.store.durable import storage_errors
from anchorage.engine.store.journal import read_journal
from anchorage.methods.composition import Composition, round_settings
from anchorage.methods.model_card import read_images
from anchorage.methods.pretrained import initial_source
from anchorage.methods.results import write_models
from anchorage.transport.main_thread import WAIT_SECONDS
from anchorage.transport.otlp import open_spans
from anchorage_server.access import AccessControl, open_access
from anchorage_server.clock import SystemClock
from anchorage_server.config import ServerConfig, read_study
from anchorage_server.finished import FinishedRun, read_finished, serve_finished
from anchorage_server.learner import choose_learners, data_key
from anchorage_server.listening import Listening, new_status_store
from anchorage_server.logs import log_event
from anchorage_server.signals import end_at_once, start_again, stopping
from anchorage_server.start import RunStart
from anchorage_server.tracking import Tracking

if TYPE_CHECKING:
    from anchorage.transport.spans import RoundSpans

INTERNAL = 70
"""Exit status of a failure that is not in the catalogue."""
INTERNAL_CODE = "internal"
"""What stands for its code."""
LEAVE_SECONDS = 10.0
"""How long a run that was stopped waits for MLflow; its next start sends the rest."""

_log = logging.getLogger(__name__)


class EngineThread(Thread):
    """Plays the rounds, so that the main thread is free for signals.

    Parameters
    ----------
    engine : Engine
        What to run.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="engine", daemon=True)
        self._engine = engine
        self.record: RoundRecord | None = None
        self.failure: AnchorageError | None = None

    def run(self) -> None:
        """Run the engine; a failure that is not in the catalogue is written to the log by the interpreter."""
        try:
            self.record = self._engine.run()
        except AnchorageError as error:
            self.failure = error


def serve(config: ServerConfig) -> int:
    """Run a federation's server and return the exit status: 0 when every round is committed and MLflow has the results.

    A server that stays goes on as a new process, so that nothing of the training remains in memory; that one has MLflow take what is left.

    Raises
    ------
    AnchorageError
        The run cannot start, cannot go on, or was stopped; MLflow does not have everything of one that is over.
    """
    study = read_study(config)
    finished = read_finished(config.state, study)
    if finished is not None:
        if config.stay:
            end_at_once(0)
        serve_finished(config, study, finished, SystemClock())
        return 0
    status = _train(config, study)
    if status == 0 and config.stay:
        start_again()
    return status


def _train(config: ServerConfig, study: Study) -> int:
    """Play the rounds that are left and write the results.

    Raises
    ------
    AnchorageError
        As `serve`.
    """
    clock = SystemClock()
    access = open_access(config, study, clock)
    key, begun = data_key(config.state), any(read_journal(config.state / "journal.jsonl"))
    learners, held_out = choose_learners(study.federation.spec, config.data_root, config.state, key, begun=begun)
    composition = Composition(study, learners)
    run = composition.describe(held_out, key)
    with ExitStack() as stack:
        store = DiskStore(config.state, composition.identity(composition.frozen()))
        stack.callback(store.close)
        server = _Server(config, composition, run, store, access, clock)
        stack.callback(server.stop)
        return server.play()


class _Server:
    """The listening parts and the engine of one process; the ports are open when it is made.

    Raises
    ------
    AnchorageError
        An address is taken, or the state folder is not writable.
    """

    def __init__(
        self,
        config: ServerConfig,
        composition: Composition,
        run: RunDescription,
        store: DiskStore,
        access: AccessControl,
        clock: SystemClock,
    ) -> None:
        study = composition.study
        self._config, self._composition, self._study, self._run = config, composition, study, run
        self._store, self._clock = store, clock
        history, silos = store.history(), access.admission.names
        initial = initial_source(study.federation.spec, config.data_root)
        begun = history[0].time if history else None
        self._start = RunStart(config.state / "started.json", clock.now(), begun, initial)
        # the kubelet would start it again at once, and silos would be thrown out for nothing
        operated = config.control_listen is not None
        self._settings = replace(
            round_settings(study),
            silos=silos,
            awaits_first_silos=operated,
            check_keys=partial(access.check_keys, clock),
        )
        self._thread: EngineThread | None = None
        self._statuses = new_status_store(
            config,
            study,
            clock,
            started=self._start.first,
            history=history,
            silos=silos,
            notice="; ".join(store.notices),
        )
        self._listening = Listening(
            config,
            access,
            run.to_json(),
            self._statuses,
            clock,
            study.federation.spec.protocol.idle_timeout_seconds,
            self._alive,
        )

    def play(self) -> int:
        """Run the engine to its end, write the results, and return the exit status.

        Raises
        ------
        AnchorageError
            The engine's failure, or the results cannot be written.
        """
        tracking = Tracking(self._config.state, self._study, self._store.history())
        spans = open_spans("anchorage-server", self._run.federation, self._run.data_key)
        engine = self._composition.engine(
            self._settings,
            link=self._listening.link,
            store=self._store,
            clock=self._clock,
            observer=tell_all(
                tracking.observer,
                self._note_tracking(tracking),
                self._statuses,
                log_event,
                *self._span_observers(spans),
            ),
            started=self._start.counted_from,
        )
        self._thread = EngineThread(engine)
        with stopping(self._listening.link), nullcontext() if spans is None else closing(spans):
            self._thread.start()
            while self._thread.is_alive():
                self._thread.join(WAIT_SECONDS)
        if not self._succeeded:
            return self._fail(self._thread.failure, tracking)
        try:
            tracking.hurry()
            finished = self._store_results(tracking)
        except AnchorageError as error:
            self._statuses(RunEnded(error.code, error.message))
            return self._fail(error, tracking)
        missing = finished.send(self._config.state, tracking, self._statuses)
        if missing is not None and not self._config.stay:
            raise missing
        return 0

    def _store_results(self, tracking: Tracking) -> FinishedRun:
        """Write models and card, and note that the run is over.

        Raises
        ------
        AnchorageError
            The disk is full or not writable, or a model's outputs are not finite.
        """
        state = self._config.state
        with storage_errors("read what the images were", state):
            images = read_images(state)
        what = (self._study, self._run, self._store, self._composition.learners[-1], images)
        model, best = write_models(state / "model", *what, initial=self._start.initial)
        self._statuses.note_models(model, best)
        finished = FinishedRun(
            run=self._run,
            study=dict(self._composition.frozen()),
            model=model,
            best_model=best,
            tracking=tracking.place,
            reported=False,
        )
        finished.keep(state)
        tracking.export(state / "model")
        return finished

    def stop(self) -> None:
        """Close every port."""
        self._listening.goodbye = self._succeeded
        self._listening.close()

    def _fail(self, failure: AnchorageError | None, tracking: Tracking) -> int:
        """Note how the run ended.

        Raises
        ------
        AnchorageError
            The failure, where it is in the catalogue.
        """
        if failure is None:
            self._statuses(RunEnded(INTERNAL_CODE, "the engine broke; its traceback is in the server's log"))
        elif failure.failure is STOPPED:
            self._start.note_stop(self._clock.now())
        tracking.observer.finish(failure.code if failure else INTERNAL_CODE, None)
        stopped = failure is not None and failure.failure is STOPPED
        self._statuses.note_tracking(tracking.send(LEAVE_SECONDS if stopped else math.inf))
        if failure is not None:
            raise failure
        return INTERNAL

    def _span_observers(self, spans: "RoundSpans | None") -> Sequence[Observer]:
        """Return what spans rounds, where there is a collector; asynchronous runs have none to span."""
        if spans is None or self._run.mode != "Synchronous":
            return ()
        from anchorage_server.spans import RoundObserver

        return (RoundObserver(spans),)

    def _note_tracking(self, tracking: Tracking) -> Observer:
        """Return an observer that notes at each commit whether MLflow takes what it is sent."""

        def note(event: RunEvent) -> None:
            if isinstance(event, RoundCommitted):
                self._statuses.note_tracking(tracking.under_way())

        return note

    @property
    def _succeeded(self) -> bool:
        return self._thread is not None and self._thread.record is not None

    def _alive(self) -> bool:
        if self._thread is None or self._thread.ident is None:  # it is made a moment before it starts
            return True
        return self._thread.is_alive() or self._succeeded
