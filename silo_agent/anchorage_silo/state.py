"""What the agent is doing now, for its probes and metrics."""

import threading
from collections import Counter
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki.credentials import read_certificate


class AgentState:
    """The agent's present state, written by its threads and read by the probes.

    `certificate` is the silo's certificate file, which may not exist yet.
    """

    def __init__(self, certificate: Path) -> None:
        self.vitals = LivenessRegistry()
        self.contact = Contact(self.vitals)
        self._certificate = certificate
        self._lock = threading.Lock()
        self._waiting = "Starting: the agent has just started"
        self._joined = False
        self._finished = ""
        self._samples = 0
        self._announced = ""
        self._tasks = Counter(trained=0, evaluated=0, failed=0)

    def set_waiting(self, why: str) -> None:
        """Record what the agent waits for before it joins: ``Reason: message``, or one line with a catalogued failure."""
        with self._lock:
            self._waiting = why

    def set_joined(self, samples: int) -> None:
        """Record that the agent joins the run with `samples` images."""
        with self._lock:
            self._samples, self._joined, self._finished = samples, True, ""

    def set_finished(self, why: str) -> None:
        """Record that the run is over, and why."""
        with self._lock:
            self._finished = why

    def count_trained(self, task: str) -> None:
        """Count a train task whose update was announced; a repeated announcement counts once."""
        with self._lock:
            if task != self._announced:
                self._announced = task
                self._tasks["trained"] += 1

    def count_evaluated(self) -> None:
        """Count a finished evaluate task."""
        with self._lock:
            self._tasks["evaluated"] += 1

    def count_failed(self) -> None:
        """Count a task that failed."""
        with self._lock:
            self._tasks["failed"] += 1

    def ready(self) -> tuple[bool, str]:
        """Return whether the agent is connected or has finished, and one line with the reason."""
        with self._lock:
            if self._finished:
                return True, f"Finished: {self._finished}"
            if not self._joined:
                return False, self._waiting
        if self.contact.connected:
            return True, "Connected: the server sends this silo its tasks"
        return False, f"ServerUnreachable: {self.contact.lost or 'the first connection is being made'}"

    @property
    def samples(self) -> int:
        """Number of images available for training; 0 until they are read."""
        with self._lock:
            return self._samples

    @property
    def tasks(self) -> dict[str, int]:
        """Number of tasks that were trained, were evaluated and failed."""
        with self._lock:
            return dict(self._tasks)

    @property
    def expires(self) -> float | None:
        """Expiry of the certificate in seconds since the epoch; None without a certificate."""
        try:
            return read_certificate(self._certificate).not_valid_after_utc.timestamp()
        except AnchorageError:
            return None
