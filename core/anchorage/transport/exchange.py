"""The server's end of a link, whatever the transport: open tasks, offered models, permitted uploads, orders and events."""

import threading
from collections.abc import Sequence

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport import messages
from anchorage.transport.bounds import check_profile
from anchorage.transport.events import EventQueue
from anchorage.transport.link import Clock
from anchorage.transport.pace import Travel
from anchorage.transport.session import Session
from anchorage.transport.silo_tasks import SiloTasks, Upload, close_all
from anchorage.transport.tensors.chunks import ChunkSink, ChunkSource


class Exchange:
    """Orders to and events from all silos; a transport adds the sessions: `anchorage.transport.grpc`, or `anchorage.simulation` in one process.

    Orders are sticky: a silo that comes back is given its open task again, and announces again what it had announced.

    Parameters
    ----------
    clock : Clock
        The clock of `next_event`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = (
            threading.Condition()
        )  # re-entrant: `request_stop` may interrupt `next_event` as a signal handler
        self._events = EventQueue()
        self._models: dict[str, ChunkSource] = {}
        self._silos: dict[str, SiloTasks] = {}
        self._finished: messages.Finished | None = None
        self._received = self._sent = 0
        self._committed_steps = 0

    def offer(self, model: ChunkSource) -> None:
        """Let silos with a task on this model fetch its chunks, until it is withdrawn."""
        with self._changed:
            self._models[model.manifest.digest] = model

    def withdraw(self, digest: str) -> None:
        """Stop offering a model."""
        with self._changed:
            self._models.pop(digest, None)

    def assign(self, silo: str, task: messages.Task) -> None:
        """Give a silo a task. Another train task replaces the silo's open train task; evaluate tasks queue."""
        with self._changed:
            known = self._tasks_of(silo)
            if task.id in known.tasks:
                return
            uploads = []
            if task.kind is messages.TaskKind.TRAIN:
                for old in [t.id for t in known.tasks.values() if t.kind is messages.TaskKind.TRAIN]:
                    uploads.append(self._forget(known, old))
            known.tasks[task.id] = task
            if known.session is not None:
                known.session.orders.put(messages.Assigned(task))
        close_all(uploads)

    def permit(self, silo: str, task: str, sink: ChunkSink) -> None:
        """Let a silo upload what it announced into `sink`; `Arrived` follows when it is whole. Idempotent."""
        with self._changed:
            known = self._tasks_of(silo)
            old = known.uploads.get(task)
            if old is None or old.sink.manifest.digest != sink.manifest.digest:
                known.uploads[task] = Upload(sink)
            else:
                old = None
            self._permit_or_arrive(silo, known, task)
        close_all([old])

    def dismiss(self, silo: str, task: str, why: str) -> None:
        """Tell a silo that a task has ended: its update was counted, or no longer counts."""
        with self._changed:
            known = self._tasks_of(silo)
            upload = self._forget(known, task)
            if known.session is not None:
                known.session.announced.discard(task)
                known.session.orders.put(messages.Dismissed(task, why))
        close_all([upload])

    def finish(self, why: str) -> None:
        """Tell every silo, connected now or later, that the run has ended."""
        with self._changed:
            self._finished = messages.Finished(why)
            uploads = [upload for known in self._silos.values() for upload in known.uploads.values()]
            for known in self._silos.values():
                known.tasks.clear()
                known.uploads.clear()
                if known.session is not None:
                    known.session.orders.put(self._finished)
        close_all(uploads)

    def expel(self, silo: str, why: str) -> None:
        """End a silo's session and all its transfers at once, for example when it was revoked."""
        with self._changed:
            session = self._tasks_of(silo).session
        if session is not None:
            session.end(AnchorageError(transfer.SILO_NOT_ADMITTED, f"silo {silo}: {why}"))

    def change_members(self, silos: Sequence[str], why: str) -> None:
        """Replace the list of members: the sessions and transfers of all other silos end at once.

        Parameters
        ----------
        silos : sequence of str
            The members, in the order of their sums.
        why : str
            Reason that the others are given.
        """
        with self._changed:
            gone = self._silos.keys() - set(silos)
            uploads = [upload for silo in gone for upload in self._silos[silo].uploads.values()]
            for silo in gone:
                self._silos[silo].tasks.clear()
                self._silos[silo].uploads.clear()
        for silo in gone:
            self.expel(silo, why)
        close_all(uploads)
        self._post(messages.MembersChanged(tuple(silos), frozenset(gone)))

    def break_down(self, error: Exception) -> None:
        """Make `next_event` return a `Broken`: the server itself cannot continue."""
        self._post(messages.Broken(error))

    def request_stop(self, reason: str) -> None:
        """Make `next_event` return a `StopRequested`; may be called from a signal handler."""
        self._post(messages.StopRequested(reason))

    def publish_steps(self, committed: int) -> None:
        """Report the number of committed steps to silos, in the answers to their progress."""
        with self._changed:
            self._committed_steps = committed

    def traffic(self) -> tuple[int, int]:
        """Return the model bytes received and sent since the link was opened."""
        with self._changed:
            return self._received, self._sent

    def travels(self) -> dict[str, Travel]:
        """Return what is on its way now, to and from every silo that has a session."""
        with self._changed:
            return {silo: known.session.travel() for silo, known in self._silos.items() if known.session is not None}

    def next_event(self, until: float | None) -> messages.Event | None:
        """Wait for the next event; None when the clock reaches `until` (seconds) first."""
        with self._changed:
            while (event := self._events.pop()) is None:
                remaining = None if until is None else until - self._clock.now()
                if remaining is not None and remaining <= 0:
                    return None
                self._changed.wait(remaining)
            return event

    def join(self, silo: str, profile: messages.Profile) -> Session:
        """Open a silo's session and end its previous one; its open tasks are the first orders.

        Raises
        ------
        AnchorageError
            What the silo says of itself is out of bounds.
        """
        check_profile(profile)
        session = Session(self, silo, profile.samples)
        with self._changed:
            known = self._tasks_of(silo)
            replaced, known.session = known.session, session
            for task in known.tasks.values():
                session.orders.put(messages.Assigned(task))
            if self._finished is not None:
                session.orders.put(self._finished)
            self._post(messages.Joined(silo, profile))
        if replaced is not None:
            message = f"another connection of silo {silo} took over; see that only one agent runs for it"
            replaced.end(AnchorageError(transfer.SESSION_REPLACED, message))
        return session

    def session(self, silo: str, identity: str) -> Session:
        """Return a silo's session.

        Raises
        ------
        AnchorageError
            The silo's session is another one, or it has none.
        """
        with self._changed:
            session = self._tasks_of(silo).session
            if session is None or session.id != identity:
                raise AnchorageError(transfer.STALE_SESSION, f"silo {silo} calls in a session that is over")
            return session

    def _tasks_of(self, silo: str) -> SiloTasks:
        return self._silos.setdefault(silo, SiloTasks())

    def _post(self, event: messages.Event) -> None:
        with self._changed:
            self._events.post(event)
            self._changed.notify_all()

    def _forget(self, known: SiloTasks, task: str) -> Upload | None:
        known.tasks.pop(task, None)
        return known.uploads.pop(task, None)

    def _permit_or_arrive(self, silo: str, known: SiloTasks, task: str) -> None:
        upload, session = known.uploads[task], known.session
        if not upload.sink.missing():
            if not upload.is_complete:
                upload.is_complete = True
                self._post(messages.Arrived(silo, task))
        elif session is not None and task in session.announced and upload.permitted_in is not session:
            upload.permitted_in = session
            session.orders.put(messages.Permit(task))
