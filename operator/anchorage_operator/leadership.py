"""Leader election: of several replicas, the one that holds a Lease of the API server reconciles.

Nothing is concluded from another machine's clock: a Lease has ended when it did not change for its duration on one's own.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from anchorage.transport.kube.client import ApiError, KubeClient
from anchorage.transport.kube.resources import Json, kube_object
from anchorage_operator.resync import DENIED

LEASE_SECONDS = 15
"""How long the holder may be silent until another replica takes the Lease."""
RENEW_SECONDS = 10.0
"""How long the holder acts after its last renewal; the rest of the Lease is for requests that are under way."""
RETRY_SECONDS = 2.0
"""Between two attempts to take or renew the Lease."""
READ_SECONDS = 3.0
"""How long the API server may take over an answer about the Lease."""
LONGEST_LEASE_SECONDS = 3600
"""A duration that somebody else wrote counts up to this."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Leadership:
    """One replica's part in the election.

    `leads`, `require` and `release` may be called from any thread.
    """

    api: KubeClient
    """Reads and writes the Lease. Not the operator's own client, whose writes ask `require`."""
    namespace: str
    """Namespace of the Lease, the operator's own."""
    name: str
    """Name of the Lease."""
    identity: str
    """Name of this replica among all; one and the same process after another in one pod may share it."""
    clock: Callable[[], float]
    """Seconds on a scale that never goes back."""
    now: Callable[[], float]
    """Seconds since the epoch, for people who read the Lease."""

    def __post_init__(self) -> None:
        self._until = -math.inf
        self._ended = False
        self._version = ""
        self._last_spec: Json = {}
        self._since = 0.0
        self._logged_problem = ""
        self.problem = ""
        """Why the API server does not let this replica hold the Lease; empty if it does."""

    def leads(self) -> bool:
        """Return whether this replica may act now."""
        return self.clock() < self._until

    def require(self) -> None:
        """Refuse to act while another replica may.

        Raises
        ------
        ApiError
            This replica does not lead.
        """
        if not self.leads():
            raise ApiError(0, "NotLeading", "this replica of the operator does not hold the Lease, or no longer")

    def turn(self) -> bool:
        """Try once to take or renew the Lease; return whether this replica leads then."""
        begun = self.clock()
        try:
            if self._hold() and not self._ended:
                self._until = begun + RENEW_SECONDS
            self.problem = self._logged_problem = ""
        except ApiError as error:
            if error.status in DENIED:
                self.problem = error.message
            if error.status != 409 and self._logged_problem != str(error):
                self._logged_problem = str(error)
                _log.warning("cannot hold the Lease", extra={"error": self._logged_problem})
        return self.leads()

    def release(self) -> None:
        """Lead no longer, and let another replica take the Lease at once. Nothing is tried again."""
        held, self._ended, self._until = self.leads(), True, -math.inf
        if not held:
            return
        try:
            metadata = {"resourceVersion": self._version}
            self.api.patch("Lease", self.namespace, self.name, {"metadata": metadata, "spec": {"holderIdentity": None}})
        except ApiError as error:
            _log.warning("cannot release the Lease", extra={"error": str(error)})

    def _hold(self) -> bool:
        """Write the Lease, unless another replica holds it; return whether it was written."""
        lease = self.api.get("Lease", self.namespace, self.name)
        if lease is None:
            metadata = {"name": self.name, "namespace": self.namespace}
            written = self.api.create(kube_object("Lease", metadata, spec=self._spec({})))
        else:
            spec: Json = lease.get("spec") or {}
            if self._belongs_to_another(spec):
                return False
            metadata = {"resourceVersion": lease["metadata"]["resourceVersion"]}
            change = {"metadata": metadata, "spec": self._spec(spec)}
            written = self.api.patch("Lease", self.namespace, self.name, change)
        self._version = written["metadata"]["resourceVersion"]
        return True

    def _belongs_to_another(self, spec: Json) -> bool:
        if spec.get("holderIdentity") in (None, "", self.identity):
            return False
        if spec != self._last_spec:
            self._last_spec, self._since = spec, self.clock()
        duration = min(spec.get("leaseDurationSeconds") or LEASE_SECONDS, LONGEST_LEASE_SECONDS)
        return self.clock() < self._since + duration

    def _spec(self, before: Json) -> dict[str, Any]:
        """Return the Lease's content that this replica writes over another."""
        moment = datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.identity, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": moment}
        if before.get("holderIdentity") == self.identity:
            return spec
        return spec | {"acquireTime": moment, "leaseTransitions": (before.get("leaseTransitions") or 0) + bool(before)}
