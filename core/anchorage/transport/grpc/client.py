"""The silo's end of the link over gRPC."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport import messages
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc import convert
from anchorage.transport.grpc.allocator import keep_chunk_memory
from anchorage.transport.grpc.calls import MAX_UP_BYTES, STILL_SECONDS
from anchorage.transport.grpc.connection import Connection, noting
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.grpc.narrow_path import route_to
from anchorage.transport.grpc.refusals import refusal_of
from anchorage.transport.grpc.transfers import receive_chunks, send_chunks
from anchorage.transport.grpc.watchdog import Watchdog
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.main_thread import WAIT_SECONDS
from anchorage.transport.pki import Credentials
from anchorage.transport.retry import Backoff, RetryPolicy
from anchorage.transport.silo_tasks import unknown_task
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource, Manifest

FIRST_PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 60.0
"""How long the server has for an answer to one message, and for the welcome of a session."""
BUFFERED_CHUNKS = 6
"""More chunks of an update than the buffers between here and the network hold."""
PROGRESS_SECONDS = 0.1
"""Shortest interval between two progress messages."""

log = logging.getLogger(__name__)


class GrpcServerLink:
    """Holds one outbound connection to the server (`ServerLink`).

    A thread of its own opens the session, receives orders, and reconnects after an interruption: with back-off, and with the
    TLS files as they are then. An announcement is repeated in every session until it is dismissed; a report or a failure until
    the server has received it. `fetch` and `push` continue where they were interrupted.

    Parameters
    ----------
    server : str
        Address ``host:port``, as the server's certificate names it.
    credentials : Credentials
        The silo's TLS files.
    profile : Profile
        What the silo reports about itself.
    longest_pause_seconds : float
        Limit of the back-off.
    proxy : str or None
        The HTTP proxy, ``http://host:port``.
    contact : Contact or None
        Records the state of the connection.
    """

    def __init__(
        self,
        *,
        server: str,
        credentials: Credentials,
        profile: messages.Profile,
        longest_pause_seconds: float = 30.0,
        proxy: str | None = None,
        contact: Contact | None = None,
    ) -> None:
        keep_chunk_memory()
        self._server = server
        self._credentials = credentials
        self._proxy = proxy
        self._route = route_to(server)
        self._contact = contact or Contact(LivenessRegistry())
        self._hello = convert.profile_to_proto(profile)
        self._retry = RetryPolicy(FIRST_PAUSE_SECONDS, longest_pause_seconds, jitter=-0.5)
        self._changed = threading.Condition()
        self._attempt: Connection | None = None
        self._connection: Connection | None = None
        self._run: str | None = None
        self._orders: deque[messages.Order] = deque()
        self._assigned: dict[str, tuple[messages.Task, Connection]] = {}
        self._permitted: dict[str, Connection] = {}
        self._announced: dict[str, bytes] = {}
        self._unreceived: dict[tuple[str, str], bytes] = {}
        self._refusal: AnchorageError | None = None
        self._over = False
        self._progress: Any = None
        self._progress_at = -PROGRESS_SECONDS
        self._committed_steps = 0
        self._opening, self._transfers = Watchdog(ANSWER_SECONDS), Watchdog(STILL_SECONDS)
        self._thread = threading.Thread(target=self._keep_session, name="session", daemon=True)
        self._thread.start()

    def welcome(self) -> str:
        """Return the run's description as the server sent it (JSON of `anchorage.api.run.RunDescription`).

        Raises
        ------
        AnchorageError
            The server refuses the silo, or the link was closed before it answered.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: self._run is not None or self._over, WAIT_SECONDS):
                pass
            if self._run is None:
                raise self._refusal or self._unreachable()
            return self._run

    def next_order(self, timeout: float | None) -> messages.Order | None:
        """Wait for the next order; None after `timeout` seconds, after `close`, and when the run is over.

        Raises
        ------
        AnchorageError
            The connection cannot come back: the silo is not authorised, or its certificate was refused.
        """
        with self._changed:
            at_once = WAIT_SECONDS if timeout is None else timeout
            while not self._changed.wait_for(lambda: self._orders or self._over, at_once) and timeout is None:
                pass
            if self._orders:
                return self._orders.popleft()
            if self._refusal is not None:
                raise self._refusal
            return None

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Receive the chunks that `sink` lacks; continues after an interruption.

        Raises
        ------
        AnchorageError
            The model's task was replaced or dismissed, the bytes are damaged, or the connection cannot come back.
        """

        def is_granted(connection: Connection) -> bool:
            assigned_on = [at for task, at in self._assigned.values() if task.model.digest == manifest.digest]
            if not assigned_on:
                gone = f"no open task is on the model {manifest.digest[:12]}"
                raise AnchorageError(transfer.MODEL_NOT_OFFERED, gone)
            return connection in assigned_on

        def fetch(connection: Connection, progressed: Callable[[], None]) -> None:
            def count_received(nbytes: int) -> None:
                self._contact.count_received(nbytes)
                progressed()

            receive_chunks(connection, sink, self._transfers, count_received)

        if sink.manifest != manifest:
            raise AnchorageError(transfer.UNEXPECTED_UPDATE, f"the sink is not for the model {manifest.digest[:12]}")
        while sink.missing():
            self._transfer_with_retries("Fetch", 1, is_granted, fetch)

    def announce(self, announcement: messages.Announcement) -> None:
        """Announce the update of a train task; repeated automatically after a reconnect until dismissed.

        Raises
        ------
        AnchorageError
            It is larger than the server accepts.
        """
        message = convert.encode_announcement(announcement)
        if len(message) > MAX_UP_BYTES:
            detail = f"the announcement for task {announcement.task} has {len(message)} bytes, more than {MAX_UP_BYTES}"
            raise AnchorageError(transfer.MESSAGE_TOO_LARGE, detail)
        with self._changed:
            self._announced[announcement.task] = message
        self._send("Announce", message)

    def push(self, task: str, update: ChunkSource) -> None:
        """Send the chunks that the server lacks, after its `Permit`; continues after an interruption.

        Raises
        ------
        AnchorageError
            The task was replaced or dismissed, the update is not the announced one, or the connection cannot come back.
        """

        def is_granted(connection: Connection) -> bool:
            if task not in self._permitted:
                raise unknown_task(task)
            return self._permitted[task] is connection

        def push(connection: Connection, progressed: Callable[[], None]) -> None:
            def count_sent(nbytes: int) -> None:
                self._contact.count_sent(nbytes)
                progressed()

            send_chunks(connection, task, update, self._transfers, ANSWER_SECONDS, count_sent)

        self._transfer_with_retries("Push", BUFFERED_CHUNKS, is_granted, push)

    def report(self, evaluation: messages.Evaluation) -> None:
        """Send the result of an evaluate task."""
        self._send_until_received("Report", evaluation.task, convert.encode_evaluation(evaluation))

    def fail(self, task: str, code: str, message: str) -> None:
        """Report that a task failed."""
        self._send_until_received("Fail", task, pb.Failure(task=task, code=code, message=message).SerializeToString())

    def progress(self, task: str, done: int, total: int) -> int:
        """Report the progress of a task, which may be dropped. Return the latest number of committed steps, 0 if none was received."""
        with self._changed:
            busy = self._progress is not None and not self._progress.done()
            if self._connection is None or busy or time.monotonic() - self._progress_at < PROGRESS_SECONDS:
                return self._committed_steps
            self._progress_at = time.monotonic()
            message = pb.Progress(task=task, done=done, total=total).SerializeToString()
            self._progress = self._connection.start_call("Progress", message, ANSWER_SECONDS)
            self._progress.add_done_callback(self._note_committed_steps)
            return self._committed_steps

    def _note_committed_steps(self, answer: Any) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._committed_steps = convert.parse(pb.Ack, answer.result()).committed_steps

    def close(self) -> None:
        """End the connection; a waiting `next_order` returns None."""
        with self._changed:
            self._over = True
            self._orders.clear()
            self._changed.notify_all()
            connection = self._attempt
        if connection is not None:
            connection.close()
        self._thread.join()
        self._opening.close()
        self._transfers.close()

    def _keep_session(self) -> None:
        backoff = Backoff(self._retry)
        try:
            while not self._over:
                self._contact.trying(self._retry.longest_seconds + 3 * ANSWER_SECONDS)
                try:
                    self._hold_session(backoff)
                except AnchorageError as error:
                    self._give_up(error)
                except grpc.RpcError as error:
                    self._note_loss(error)
                with self._changed:
                    self._changed.wait_for(lambda: self._over, 0 if self._over else backoff.next())
        finally:
            self._contact.record_ended(planned=self._over)

    def _note_loss(self, error: grpc.RpcError) -> None:
        """Record why there is no session; logs a repeated reason only once."""
        refusal = refusal_of(error, self._server)
        why = refusal.message if refusal else f"no connection to {self._server}: {error.details()}"
        is_repeated = why == self._contact.lost
        self._contact.record_closed(why)
        if refusal is not None:
            self._give_up(refusal)
        elif not self._over:
            log.log(logging.DEBUG if is_repeated else logging.WARNING, why)

    def _hold_session(self, backoff: Backoff) -> None:
        """Open a session and receive its orders until it ends."""
        clock = self._contact.clock
        connection = self._contact.dial(lambda: Connection(self._server, self._credentials, self._proxy, clock))
        try:
            with self._changed:
                if self._over:
                    return
                self._attempt = connection
            orders = connection.open(self._hello)
            with self._opening.watch(orders.cancel), noting(clock), self._route.watch("Orders") as moved:
                welcome = convert.require_served(convert.parse(pb.Order, next(orders, b"")).welcome)
                clock.note(orders.initial_metadata())
                moved()
            with self._changed:
                connection.session, self._run = welcome.session, welcome.run
                self._connection = connection
                self._changed.notify_all()
            self._contact.record_opened()
            log.info("connected to %s", self._server)
            backoff.reset()
            self._resend()
            for message in orders:
                self._handle_order(convert.order_from_proto(convert.parse(pb.Order, message)), connection)
        finally:
            with self._changed:
                self._connection = None
            if self._contact.connected:
                self._contact.record_closed(f"the session with {self._server} ended")
            connection.close()

    def _handle_order(self, order: messages.Order, connection: Connection) -> None:
        with self._changed:
            match order:
                case messages.Assigned(task):
                    if task.kind is messages.TaskKind.TRAIN:
                        others = [old.id for old, _ in self._assigned.values() if old.kind is messages.TaskKind.TRAIN]
                        self._forget({*others, *self._announced} - {task.id})
                    self._assigned[task.id] = task, connection
                case messages.Permit(task_id):
                    self._permitted[task_id] = connection
                case messages.Dismissed(task_id):
                    self._forget({task_id})
                case messages.Finished():
                    self._over = True
            self._orders.append(order)
            self._changed.notify_all()

    def _forget(self, tasks: set[str]) -> None:
        for task in tasks:
            self._assigned.pop(task, None)
            self._permitted.pop(task, None)
            self._announced.pop(task, None)

    def _send_until_received(self, call: str, task: str, message: bytes) -> None:
        """Send a message that ends a task, now or in the next session."""
        with self._changed:
            self._forget({task})
            self._unreceived[call, task] = message
        if self._send(call, message):
            self._note_received(call, task)

    def _resend(self) -> None:
        with self._changed:
            announced, unheard = list(self._announced.values()), list(self._unreceived.items())
        for message in announced:
            self._send("Announce", message)
        for (call, task), message in unheard:
            if self._send(call, message):
                self._note_received(call, task)

    def _note_received(self, call: str, task: str) -> None:
        with self._changed:
            self._unreceived.pop((call, task), None)

    def _send(self, call: str, message: bytes) -> bool:
        """Send a message now; False if it must be sent again in another session."""
        connection = self._connection
        if connection is None:
            return False
        try:
            connection.call(call, message, ANSWER_SECONDS)
        except grpc.RpcError as error:
            refusal = refusal_of(error, self._server)
            if refusal is None:
                connection.close()
                return False
            if refusal.failure in (transfer.UNKNOWN_TASK, transfer.OUT_OF_BOUNDS):  # the session goes on
                stale = refusal.failure is transfer.UNKNOWN_TASK
                log.log(logging.INFO if stale else logging.WARNING, "%s: %s", call, refusal.message)
                return True
            if refusal.failure is not transfer.STALE_SESSION:
                self._give_up(refusal)
            return False
        return True

    def _transfer_with_retries(
        self,
        call: str,
        pieces: int,
        is_granted: Callable[[Connection], bool],
        transfer_on: Callable[[Connection, Callable[[], None]], None],
    ) -> None:
        """Make a transfer in a session in which the server granted it; continue it after every interruption; `call`, `pieces` as of `Route`."""
        backoff = Backoff(self._retry)
        while True:
            connection = self._await_grant(is_granted)
            try:
                with self._route.watch(call, pieces) as moved:

                    def note_progress(moved: Callable[[], None] = moved) -> None:
                        backoff.reset()
                        moved()

                    return transfer_on(connection, note_progress)
            except grpc.RpcError as error:
                refusal = refusal_of(error, self._server)
                if refusal is not None and refusal.failure is not transfer.STALE_SESSION:
                    raise refusal from None
                log.info("a transfer with %s was cut: %s", self._server, error.details())
            with self._changed:
                self._changed.wait_for(lambda: self._over, backoff.next())

    def _await_grant(self, is_granted: Callable[[Connection], bool]) -> Connection:
        """Wait for a session in which a transfer is granted; after a reconnect the server assigns open tasks again."""
        with self._changed:
            until = None
            while not self._over:
                if self._connection is None:
                    until = None
                elif is_granted(self._connection):
                    return self._connection
                else:
                    until = until or time.monotonic() + ANSWER_SECONDS
                    if time.monotonic() >= until:
                        forgotten = "the server came back without the task"
                        raise AnchorageError(transfer.UNKNOWN_TASK, forgotten)
                self._changed.wait(None if until is None else until - time.monotonic())
            raise self._refusal or self._unreachable()

    def _give_up(self, refusal: AnchorageError) -> None:
        with self._changed:
            self._refusal = self._refusal or refusal
            self._over = True
            self._changed.notify_all()

    def _unreachable(self) -> AnchorageError:
        return AnchorageError(transfer.SERVER_UNREACHABLE, f"the link to {self._server} was closed")
