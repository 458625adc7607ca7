"""What the agent is doing now, for its probes and metrics."""

import threading
from collections import Counter
from pathlib import Path
from typing import Literal

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki.credentials import read_certificate

_STARTING = "Starting: the agent has just started"


class AgentState:
    """The agent's present state, written by its threads and read by the probes.

    `certificate` is the silo's certificate file, which may not exist yet.
    """

    def __init__(self, certificate: Path) -> None:
        self.liveness = LivenessRegistry()
        self.contact = Contact(self.liveness)
        self._certificate, self.folder = certificate, certificate.parent
        self._lock = threading.Lock()
        self._joined = False
        self._announced = ""
        self._tasks = Counter(trained=0, evaluated=0, failed=0)
        self.waiting = _STARTING
        """What the agent waits for before it joins: ``Reason: message``, or one line with a catalogued failure."""
        self.finished = ""
        """Why the run is over; empty while it is not."""
        self.samples = 0
        """Number of images available for training; 0 until they are read."""
        self.epsilon: float | None = None
        """Privacy loss of all updates so far; None without a privacy budget."""

    def set_joined(self, samples: int) -> None:
        """Record that the agent joins the run with `samples` images."""
        self.samples, self._joined, self.finished = samples, True, ""

    def set_apart(self) -> None:
        """Record that the agent takes part in no run until it joins again."""
        self._joined, self.finished = False, ""

    def count_trained(self, task: str) -> None:
        """Count a train task whose update was announced; a repeated announcement counts once."""
        with self._lock:
            if task != self._announced:
                self._announced = task
                self._tasks["trained"] += 1

    def count(self, outcome: Literal["evaluated", "failed"]) -> None:
        """Count a task that was evaluated, or that failed."""
        with self._lock:
            self._tasks[outcome] += 1

    def ready(self) -> tuple[bool, str]:
        """Return whether the agent is connected or has finished, and one line with the reason."""
        if self.finished:
            return True, f"Finished: {self.finished}"
        if not self._joined:
            return False, self.waiting
        if self.contact.connected:
            return True, "Connected: the server sends this silo its tasks"
        return False, f"ServerUnreachable: {self.contact.lost or 'the first connection is being made'}"

    @property
    def begun(self) -> bool:
        """Whether the agent does, or waits for, something: approval, a server, or its images may take days, and need nobody's care."""
        return bool(self.finished) or self._joined or self.waiting != _STARTING

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
