"""The ports of a server: silos, enrolment, status, and in a cluster the operator's."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.checkpoints import checkpoint_name
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.files import write_atomically
from anchorage.transport.grpc import GrpcSiloLink
from anchorage.transport.grpc.enrolment import serve_enrolment
from anchorage.transport.link import Clock
from anchorage.transport.pki.refused_tokens import RefusedTokens
from anchorage_server.access import (
    AccessControl,
    ClusterAdmission,
    DocumentAdmission,
    authority_files,
    obtain_credentials,
    own_authority,
)
from anchorage_server.config import ServerConfig
from anchorage_server.control import ControlServer, json_answer
from anchorage_server.held_heads import HeldHeads
from anchorage_server.http import JSON, StatusServer, reports
from anchorage_server.members import Change, MemberList
from anchorage_server.models import describe_models
from anchorage_server.request_queue import RequestAnswers
from anchorage_server.status import StatusStore
from anchorage_server.watch import Watch

GOODBYE_SECONDS = 5.0
"""How long silos have to hear that the run is over."""

_log = logging.getLogger(__name__)


def new_status_store(
    config: ServerConfig,
    study: Study,
    clock: Clock,
    *,
    started: float,
    history: Sequence[RoundRecord],
    silos: Sequence[str],
    notice: str = "",
) -> StatusStore:
    """Return the status store of a run that started first at `started`, with the rounds of `history` behind it; `notice` as `StatusStore` has it."""
    spec = study.federation.spec
    return StatusStore(
        file=config.state / "status.json",
        clock=clock,
        rounds=spec.rounds,
        started=started,
        silos=silos,
        round_deadline_seconds=spec.protocol.round_deadline_seconds,
        history=history,
        checkpoint=lambda number: config.state / "checkpoints" / checkpoint_name(number),
        notice=notice,
    )


class Listening:
    """The open ports.

    Parameters
    ----------
    config : ServerConfig
        Where to listen.
    access : AccessControl
        Who we are and who may come.
    welcome : str
        The run's description, JSON, for silos.
    statuses : StatusStore
        What is told.
    clock : Clock
        Time.
    idle_timeout_seconds : float
        A transfer in which nothing moves for so long is given up.
    alive : callable
        Whether the part that works is alive.

    Raises
    ------
    AnchorageError
        An address is taken, or the state folder is not writable.
    """

    def __init__(
        self,
        config: ServerConfig,
        access: AccessControl,
        welcome: str,
        statuses: StatusStore,
        clock: Clock,
        idle_timeout_seconds: float,
        alive: Callable[[], bool],
    ) -> None:
        self._state = config.state
        self._access = access
        self._statuses = statuses
        self.goodbye = False
        admission = access.admission
        self.link = GrpcSiloLink(
            listen=config.listen,
            credentials=access.credentials,
            welcome=welcome,
            admit=admission.admits,
            renew=admission.renew,
            heads=HeldHeads(config.state / "audit-heads"),
            clock=clock,
            idle_timeout_seconds=idle_timeout_seconds,
        )
        with ExitStack() as stack:
            port = self.link.start()
            stack.callback(lambda: self.link.stop(GOODBYE_SECONDS if self.goodbye else 0.0))
            refused = RefusedTokens()
            stop_enrolment, enrolment_port = serve_enrolment(
                config.enrol_listen, access.credentials, admission.enrol, refused
            )
            stack.callback(stop_enrolment)
            clustered = config.control_listen is not None
            status = StatusServer(config.status_listen, statuses, alive, lambda: refused.count, probes_only=clustered)
            status.start()
            stack.callback(status.stop)
            places = {
                "silos": _with_port(config.listen, port),
                "enrolment": _with_port(config.enrol_listen, enrolment_port),
                "status": f"http://{status.address}",
                "pid": os.getpid(),
            }
            if config.control_listen is not None and isinstance(admission, ClusterAdmission):
                control = self._control(config.control_listen, admission)
                control.start()
                stack.callback(control.stop)
                places["control"] = f"https://{control.address}"
            if isinstance(admission, DocumentAdmission):
                stack.callback(Watch(lambda: admission.names, self._change_members).close)
            if config.authority is not None:
                stack.callback(
                    Watch(authority_files(config.authority), lambda files: self._renew_identity(config)).close
                )
            with storage_errors("write endpoints.json", config.state):
                write_atomically(config.state / "endpoints.json", json.dumps(places).encode())
            self._close = stack.pop_all().close
        statuses.listening(self.link.travels)
        _log.info("listening", extra=places)

    def close(self) -> None:
        """Close every port; with `goodbye`, silos have a moment to hear the last orders."""
        self._close()

    def _renew_identity(self, config: ServerConfig) -> None:
        """Have the server's certificate signed by the authority that every silo trusts now."""
        assert config.authority is not None
        try:
            authority = own_authority(config.authority, self._access.federation).former()
            obtain_credentials(config.state / "identity", authority, config.names)
            _log.info("the authority changed; the server has a new certificate")
        except AnchorageError as error:
            _log.warning("the authority cannot be used; the certificate before is kept", extra={"error": str(error)})

    def _change_members(self, names: Sequence[str]) -> None:
        _log.info("members changed", extra={"members": list(names)})
        self._statuses.change_members(names)
        self.link.change_members(names, "it is no member of the federation any more")

    def _control(self, listen: str, admission: ClusterAdmission) -> ControlServer:
        members, requests, statuses, state = admission.members, admission.requests, self._statuses, self._state
        statuses.change_members(members.names)

        def apply_change(change: Change) -> None:
            for silo in change.rekeyed:
                self.link.expel(silo, "it enrolled again with another key")
            if not change.same:
                self._change_members(change.names)

        def put_members(body: bytes) -> tuple[int, str, bytes]:
            members.replace(MemberList.model_validate_json(body), apply_change)
            return show_members()

        def show_members() -> tuple[int, str, bytes]:
            return 200, JSON, members.list.model_dump_json(by_alias=True).encode()

        def put_answers(body: bytes) -> tuple[int, str, bytes]:
            return json_answer({"unknown": requests.answer(RequestAnswers.model_validate_json(body).answers)})

        asks = {
            **reports(statuses),
            "/members": show_members,
            "/requests": lambda: json_answer({"requests": [r.model_dump(by_alias=True) for r in requests.pending()]}),
            "/model": lambda: json_answer(describe_models(state, statuses.last_record())),
        }
        puts = {"/members": put_members, "/answers": put_answers}
        with storage_errors("read the TLS files", self._access.credentials.key):
            return ControlServer(listen, self._access.credentials, self._access.federation, asks, puts)


def _with_port(listen: str, port: int) -> str:
    return f"{listen.rpartition(':')[0]}:{port}"
