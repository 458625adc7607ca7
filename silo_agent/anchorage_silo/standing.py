"""Where the agent stands, for probes, metrics and people."""

import threading
from collections import Counter
from pathlib import Path

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.contact import Contact
from anchorage.transport.liveness import LivenessRegistry
from anchorage.transport.pki.credentials import read_certificate


class Standing:
    """What the agent's parts note as they go.

    Parameters
    ----------
    certificate : Path
        The silo's certificate, which need not be there yet.
    """

    def __init__(self, certificate: Path) -> None:
        self.vitals = LivenessRegistry()
        self.contact = Contact(self.vitals)
        self._certificate = certificate
        self._lock = threading.Lock()
        self._waits = "Starting: the agent has just started"
        self._joined = False
        self._finished = ""
        self._samples = 0
        self._announced = ""
        self._tasks = Counter(trained=0, evaluated=0, failed=0)

    def waits(self, why: str) -> None:
        """Note what the agent waits for before it joins: ``Reason: message``, or a failure of the catalogue as one line."""
        with self._lock:
            self._waits = why

    def joined(self, samples: int) -> None:
        """Note that the agent joins with so many images."""
        with self._lock:
            self._samples, self._joined, self._finished = samples, True, ""

    def finished(self, why: str) -> None:
        """Note that the run is over."""
        with self._lock:
            self._finished = why

    def trained(self, task: str) -> None:
        """Note that a train task is done and announced; announced again, it counts once."""
        with self._lock:
            if task != self._announced:
                self._announced = task
                self._tasks["trained"] += 1

    def evaluated(self) -> None:
        """Note that an evaluate task is done."""
        with self._lock:
            self._tasks["evaluated"] += 1

    def failed(self) -> None:
        """Note that a task could not be done."""
        with self._lock:
            self._tasks["failed"] += 1

    def ready(self) -> tuple[bool, str]:
        """Return whether the agent is connected or has done its work, and one line that says why or why not."""
        with self._lock:
            if self._finished:
                return True, f"Finished: {self._finished}"
            if not self._joined:
                return False, self._waits
        if self.contact.connected:
            return True, "Connected: the server has orders for this silo, or will have"
        return False, f"ServerUnreachable: {self.contact.lost or 'the first connection is being made'}"

    @property
    def samples(self) -> int:
        """Images that can be trained on; 0 before they are read."""
        with self._lock:
            return self._samples

    @property
    def tasks(self) -> dict[str, int]:
        """How many tasks were trained, evaluated, and failed."""
        with self._lock:
            return dict(self._tasks)

    @property
    def expires(self) -> float | None:
        """When the certificate stops being valid, seconds since the epoch; None where there is none."""
        try:
            return read_certificate(self._certificate).not_valid_after_utc.timestamp()
        except AnchorageError:
            return None
