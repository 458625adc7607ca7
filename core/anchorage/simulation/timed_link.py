"""The link within one process in virtual time: training, scoring and transfers take as long as each silo's speed says."""

from collections.abc import Callable

from anchorage.simulation.link import InProcessLink, InProcessServerLink
from anchorage.simulation.speeds import Speed, Speeds
from anchorage.simulation.virtual_time import Job, VirtualTime
from anchorage.transport.messages import Announcement, Evaluation, Event, Profile
from anchorage.transport.session import Session
from anchorage.transport.tensors.chunks import ChunkSink, Manifest

SCORING = 1 / 3
"""What scoring a batch costs, in training steps: the forward pass of three."""


class TimedLink(InProcessLink):
    """The server's end; it never waits, but lets the silo work that is due first.

    Parameters
    ----------
    time : VirtualTime
        The clock, and the silos' processes.
    welcome : str
        The run's description (JSON).
    work : callable
        Hands one order to a silo; returns False where there is none.
    speeds : Speeds
        Of all silos.
    batch_size : int
        Images per step, also where they are scored.
    is_cyclic : bool
        Whether silos heed the answers to their progress, so that each has to come at its time. Else a training is calculated in one go.
    """

    def __init__(
        self,
        time: VirtualTime,
        welcome: str,
        work: Callable[[], bool],
        speeds: Speeds,
        *,
        batch_size: int,
        is_cyclic: bool,
    ) -> None:
        super().__init__(time, welcome)
        self._time, self._work, self._speeds = time, work, speeds
        self._batch_size, self._is_cyclic = batch_size, is_cyclic

    def connect(self, silo: str, profile: Profile) -> "TimedServerLink":
        """Open a silo's session, in the place of the one that it may have."""
        session, speed = self.join(silo, profile), self._speeds.of(silo)
        return TimedServerLink(
            session, self._welcome, self._time, speed, batch_size=self._batch_size, is_cyclic=self._is_cyclic
        )

    def lanes(self, silo: str) -> Callable[[str, Job], None]:
        """Return where a silo's worker has its jobs done: beside those of other silos, in virtual time."""
        transfer = self._speeds.of(silo).transfer_seconds

        def submit(lane: str, job: Job) -> None:
            def upload() -> None:
                self._time.spend(transfer)
                self._time.settle()
                job()

            self._time.submit((silo, lane), upload if lane == "upload" else job)

        return submit

    def next_event(self, until: float | None) -> Event | None:
        """Return the next event, letting silos work as long as there is none; None when `until` has come first."""
        while (event := super().next_event(self._time.now())) is None:
            if not self._work() and not self._time.go_on(until):
                return None
        return event


class TimedServerLink(InProcessServerLink):
    """A silo's end; `TimedLink.connect` makes it. Its calls come from the silo's processes.

    Parameters
    ----------
    session : Session
        The silo's session.
    welcome : str
        The run's description.
    time : VirtualTime
        The clock.
    speed : Speed
        The silo's.
    batch_size : int
        As in `TimedLink`.
    is_cyclic : bool
        As in `TimedLink`.
    """

    def __init__(
        self, session: Session, welcome: str, time: VirtualTime, speed: Speed, *, batch_size: int, is_cyclic: bool
    ) -> None:
        super().__init__(session, welcome)
        self._time, self._speed = time, speed
        self._batch_size, self._is_cyclic = batch_size, is_cyclic
        self._last_report = ("", 0)

    def fetch(self, manifest: Manifest, sink: ChunkSink) -> None:
        """Hand over the chunks that `sink` misses."""
        super().fetch(manifest, sink)
        self._time.spend(self._speed.transfer_seconds)

    def progress(self, task: str, done: int, total: int) -> int:
        """Say how far a task is, and return the committed steps."""
        before = self._last_report[1] if self._last_report[0] == task else 0
        self._last_report = (task, done)
        self._time.spend((done - before) * self._speed.step_seconds)
        if self._is_cyclic:
            self._time.settle()
        return super().progress(task, done, total)

    def announce(self, announcement: Announcement) -> None:
        """Say that a train task is done."""
        self._time.settle()
        super().announce(announcement)

    def report(self, evaluation: Evaluation) -> None:
        """Send the result of an evaluate task; one that is over already is not heard."""
        self._time.spend(SCORING * self._speed.step_seconds * evaluation.images / self._batch_size)
        self._time.settle()
        super().report(evaluation)

    def fail(self, task: str, code: str, message: str) -> None:
        """Say that a task cannot be done; one that is over already is not heard."""
        self._time.settle()
        super().fail(task, code, message)
