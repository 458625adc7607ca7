"""The parts of the server put together: identity, store, links, status, engine, results."""

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from types import FrameType

from anchorage.aggregation import build_weigher
from anchorage.errors import AnchorageError
from anchorage.errors.identity import AUTHORITY_UNUSABLE
from anchorage.errors.rounds import STOPPED
from anchorage.methods import resolve, validate_study
from anchorage.pki import Authority, Credentials, Registrar, Tokens
from anchorage.rounds.asynchronous import AsynchronousEngine
from anchorage.rounds.engine import Engine
from anchorage.rounds.interfaces import RoundRecord, ServerLearner
from anchorage.rounds.observer import Observers
from anchorage.rounds.study import describe_run, round_settings
from anchorage.rounds.synchronous import SynchronousEngine
from anchorage.spec.files import Study
from anchorage.spec.run import RunDescription
from anchorage.wire import GrpcSiloLink
from anchorage.wire.enrolment import serve_enrolment
from anchorage_server.checkpoints import Identity
from anchorage_server.clock import SystemClock
from anchorage_server.config import ServerConfig
from anchorage_server.durable import replace_file, storage_errors
from anchorage_server.http import StatusServer
from anchorage_server.identity import obtain_credentials
from anchorage_server.learner import choose_learner
from anchorage_server.logs import LogObserver
from anchorage_server.results import write_results
from anchorage_server.status import StatusBoard
from anchorage_server.store import DiskRoundStore
from anchorage_server.tracking import Tracking

BEST_BY = ("balanced_accuracy", "accuracy")
"""Metrics that decide which round was the best, in this order."""
GOODBYE_SECONDS = 5.0
"""How long silos have to hear that the run is over."""
INTERNAL = 70
"""Exit status of a failure that is not in the catalogue."""
INTERNAL_CODE = "internal"
"""What stands for its code."""

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
    """Run a federation's server and return the exit status: 0 when every round is committed.

    Raises
    ------
    AnchorageError
        The run cannot start, cannot go on, or was stopped.
    """
    study = validate_study(config.federation)
    name = study.federation.metadata.name
    authority = Authority.load(config.authority)
    if authority.federation != name:
        found = f"{config.authority} is the authority of federation {authority.federation!r}, the file's is {name!r}"
        raise AnchorageError(AUTHORITY_UNUSABLE, found)
    credentials = obtain_credentials(config.state / "identity", authority, config.names)
    learner = choose_learner(study.federation.spec, resolve(study.federation.spec.method), config.data_root)
    run = describe_run(study, learner)
    with ExitStack() as stack:
        store = DiskRoundStore(config.state, Identity(name, run.method.name, learner.down), best_by=BEST_BY)
        stack.callback(store.close)
        server = _Server(config, study, run, store, learner)
        stack.callback(server.stop)
        server.listen(credentials, Registrar(authority, Tokens(config.authority / "tokens")))
        return server.play()


class _Server:
    """The listening parts and the engine of one process."""

    def __init__(
        self, config: ServerConfig, study: Study, run: RunDescription, store: DiskRoundStore, learner: ServerLearner
    ) -> None:
        self._config, self._study, self._run = config, study, run
        self._store, self._learner = store, learner
        self._settings = round_settings(study)
        self._idle_timeout = study.federation.spec.protocol.idle_timeout_seconds
        self._clock = SystemClock()
        self._listening = ExitStack()
        self._thread: EngineThread | None = None
        self._board = StatusBoard(
            file=config.state / "status.json",
            clock=self._clock,
            rounds=run.rounds,
            silos=self._settings.silos,
            round_deadline_seconds=self._settings.round_deadline_seconds,
            history=store.history(),
            checkpoint=store.checkpoint_path,
        )

    def listen(self, credentials: Credentials, registrar: Registrar) -> None:
        """Open the three ports and write where they are.

        Raises
        ------
        AnchorageError
            An address is taken, or the state folder is not writable.
        """
        config = self._config
        self._link = GrpcSiloLink(
            listen=config.listen,
            credentials=credentials,
            welcome=self._run.model_dump_json(by_alias=True),
            admit=frozenset(self._settings.silos).__contains__,
            clock=self._clock,
            idle_timeout_seconds=self._idle_timeout,
        )
        port = self._link.start()
        self._listening.callback(lambda: self._link.stop(GOODBYE_SECONDS if self._succeeded else 0.0))
        enrolment, enrolment_port = serve_enrolment(config.enrol_listen, credentials, registrar.enrol)
        self._listening.callback(lambda: enrolment.stop(0.0).wait())
        status = StatusServer(config.status_listen, self._board, self._alive)
        status.start()
        self._listening.callback(status.stop)
        places = {
            "silos": _with_port(config.listen, port),
            "enrolment": _with_port(config.enrol_listen, enrolment_port),
            "status": f"http://{status.address}",
            "pid": os.getpid(),
        }
        with storage_errors("write endpoints.json", config.state):
            replace_file(config.state / "endpoints.json", json.dumps(places).encode())
        self._board.listening()
        _log.info("listening", extra=places)

    def play(self) -> int:
        """Run the engine to its end, write the results, and return the exit status.

        Raises
        ------
        AnchorageError
            The engine's failure, or the results cannot be written.
        """
        tracking = Tracking(self._config.state, self._study, self._run, self._store.history())
        engine = (AsynchronousEngine if self._run.mode == "Asynchronous" else SynchronousEngine)(
            link=self._link,
            store=self._store,
            clock=self._clock,
            learner=self._learner,
            weigher=build_weigher(self._run.method.weighting, self._run.model.num_classes),
            settings=self._settings,
            observer=Observers((self._board, LogObserver(), tracking.observer)),
        )
        self._thread = EngineThread(engine)
        with _stops(self._link):
            self._thread.start()
            self._thread.join()
        if not self._succeeded:
            failure = self._thread.failure
            if failure is None:
                self._board.ended(INTERNAL_CODE, "the engine broke; its traceback is in the server's log")
            self._board.tracked(tracking.finish(failure.code if failure else INTERNAL_CODE, None))
            if failure is not None:
                raise failure
            return INTERNAL
        models = self._config.state / "model"
        self._board.stored(*write_results(models, self._run, self._store))
        self._board.tracked(tracking.finish("", models))
        return 0

    def stop(self) -> None:
        """Close every port."""
        self._listening.close()

    @property
    def _succeeded(self) -> bool:
        return self._thread is not None and self._thread.record is not None

    def _alive(self) -> bool:
        return self._thread is None or self._thread.is_alive() or self._succeeded


@contextmanager
def _stops(link: GrpcSiloLink) -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into a clean stop, and a second one into an immediate end."""
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(STOPPED.exit_code)
        asked = True
        link.request_stop(f"received {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _with_port(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"
