"""Virtual time: what silos do takes the time that their speed says, and the one that is due first works first (methods reference, 6.14)."""

import threading
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Job = Callable[[], None]
Lane = tuple[str, str]
"""A silo and what it does there: ``train``, ``evaluate`` or ``upload``."""


class ClosedError(BaseException):
    """Virtual time is over: what was suspended ends where it stands."""


class _Process:
    """One job, which works in a thread of its own while nobody else does, and is suspended until its time has come."""

    def __init__(self, lane: Lane, job: Job, time: float) -> None:
        self.lane, self.time = lane, time
        self.ended = False
        self.fault: BaseException | None = None
        self._job = job
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._closed = False

    def work(self) -> None:
        """Let the job work until it suspends itself or ends."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="-".join(self.lane), daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def suspend(self) -> None:
        """Called by the job: let others work until this process is let work again."""
        self._back.release()
        self._go.acquire()
        self.check()

    def check(self) -> None:
        """Called by the job: end it where its time is over."""
        if self._closed:
            raise ClosedError

    def close(self) -> None:
        """End a job that is suspended, or one at work at its next call."""
        self._closed = True
        if self._thread is not None:
            self._go.release()
            self._thread.join()

    def _run(self) -> None:
        try:
            self._job()
        except ClosedError:
            pass
        except BaseException as fault:  # noqa: BLE001  (raised again in the caller's thread)
            self.fault = fault
        self.ended = True
        self._back.release()


class VirtualTime:
    """A clock that jumps from one event to the next, and whose processes work one at a time (`anchorage.engine.interfaces.Clock`).

    Processes that are due at the same time work in the order of their silos' names, so a simulation can be repeated.

    Parameters
    ----------
    now : float
        The time at first, in seconds since the simulation's beginning.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._due: list[tuple[float, Lane, int, _Process]] = []
        self._waiting: dict[Lane, deque[Job]] = {}
        self._order = count()
        self._working: _Process | None = None

    def now(self) -> float:
        """Seconds since the simulation's beginning."""
        return self._now

    def submit(self, lane: Lane, job: Job) -> None:
        """Begin a job now, or when those before it in its lane have ended."""
        if lane in self._waiting:
            self._waiting[lane].append(job)
        else:
            self._waiting[lane] = deque()
            self._schedule(_Process(lane, job, self._now))

    def spend(self, seconds: float) -> None:
        """Called by a job: what it does took so long. Others notice at the next `settle`."""
        assert self._working is not None
        self._working.check()
        self._working.time += seconds

    def settle(self) -> None:
        """Called by a job: let everybody else work until the time that this job has spent is over."""
        process = self._working
        assert process is not None
        self._schedule(process)
        process.suspend()

    def go_on(self, until: float | None) -> bool:
        """Let the process that is due first work; without one before `until`, make it that time and return False."""
        if not self._due or (until is not None and self._due[0][0] > until):
            self._now = self._now if until is None else max(self._now, until)
            return False
        self._now, _, _, process = heappop(self._due)
        self._working = process
        process.work()
        self._working = None
        if process.fault is not None:
            raise process.fault
        if process.ended:
            self._begin_next(process.lane)
        return True

    def close(self) -> None:
        """End every suspended process, and the one at work where an interrupt came between."""
        self._waiting.clear()
        if self._working is not None:
            self._working.close()
        while self._due:
            heappop(self._due)[3].close()

    def _begin_next(self, lane: Lane) -> None:
        waiting = self._waiting.pop(lane, None)
        if waiting:
            job = waiting.popleft()
            self._waiting[lane] = waiting
            self._schedule(_Process(lane, job, self._now))

    def _schedule(self, process: _Process) -> None:
        heappush(self._due, (process.time, process.lane, next(self._order), process))
