"""Prometheus metrics of the operator."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from anchorage_operator.federation_metrics import FederationCollector, Objects


class Metrics:
    """The operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._reconciles = Counter(
            "anchorage_operator_reconcile", "Reconciles, by result", ["result"], registry=registry
        )
        self._seconds = Histogram(
            "anchorage_operator_reconcile_seconds",
            "Duration of a reconcile in seconds",
            registry=registry,
            buckets=(0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0),
        )
        self._requests = Counter(
            "anchorage_operator_api_requests",
            "Requests to the API server, by method and status (0: no answer)",
            ["method", "status"],
            registry=registry,
        )
        self._resync = Gauge(
            "anchorage_operator_last_resync_timestamp",
            "Time of the last resync, seconds since the epoch",
            registry=registry,
        )
        self._corrected = Counter(
            "anchorage_operator_resync_corrected",
            "Objects corrected by a resync because the watch had missed them",
            registry=registry,
        )
        self._namespaces = Gauge(
            "anchorage_operator_namespace_readable",
            "1 while the namespace can be read; 0 where it is gone, or permissions are missing",
            ["watched"],
            registry=registry,
        )
        self._contested = Counter(
            "anchorage_operator_contested_applies",
            "Writes of an object that somebody else keeps changing back",
            ["kind"],
            registry=registry,
        )
        self._defects = Counter(
            "anchorage_operator_defects",
            "Errors of the operator's own, by where (reconcile, poll, watch, resync or lease); its log has each",
            ["where"],
            registry=registry,
        )
        for where in ("reconcile", "poll", "watch", "resync", "lease"):
            self._defects.labels(where)  # from 0 on, so that the first one is an increase
        ProcessCollector(registry=registry)

    def observe_depth(self, reconciles: Callable[[], int], polls: Callable[[], int]) -> None:
        """Register the lengths of the reconcile and poll queues."""
        depth = Gauge("anchorage_operator_workqueue_depth", "Keys that are due", ["queue"], registry=self._registry)
        depth.labels("reconcile").set_function(reconciles)
        depth.labels("poll").set_function(polls)

    def observe_watch(self, alive: Callable[[], bool], lag: Callable[[], float]) -> None:
        """Register whether the watch is running and how far it is behind."""
        Gauge("anchorage_operator_watch_alive", "1 while the watch is running", registry=self._registry).set_function(
            alive
        )
        Gauge(
            "anchorage_operator_watch_lag_seconds", "Seconds by which the watch is behind", registry=self._registry
        ).set_function(lag)

    def observe_leadership(self, leads: Callable[[], bool]) -> None:
        """Register whether this replica reconciles."""
        name, about = "anchorage_operator_is_leader", "1 for the one replica that looks after federations"
        Gauge(name, about, registry=self._registry).set_function(leads)

    def observe_upgrades(self, waiting: Callable[[], int]) -> None:
        """Register how many federations have pods that wait to be replaced by those of the operator's version."""
        name, about = "anchorage_operator_upgrades_waiting", "Federations whose pods are older than the operator asks"
        Gauge(name, about, registry=self._registry).set_function(waiting)

    def observe_federations(self, objects: Objects) -> None:
        """Register the figures of every federation and silo."""
        self._registry.register(FederationCollector(objects))

    def count_reconcile(self, result: str, seconds: float) -> None:
        """Count one reconcile; `result` is ``success``, ``error`` (of the API server or a federation's server) or ``defect``."""
        self._reconciles.labels(result).inc()
        self._seconds.observe(seconds)

    def count_request(self, method: str, status: int) -> None:
        """Count one request to the API server."""
        self._requests.labels(method, str(status)).inc()

    def record_resync(self, now: float, corrected: int) -> None:
        """Record a resync."""
        self._resync.set(now)
        self._corrected.inc(corrected)

    def namespace(self, name: str, *, readable: bool) -> None:
        """Record whether a watched namespace can be read."""
        self._namespaces.labels(name).set(readable)

    def drop_namespace(self, name: str) -> None:
        """Say nothing more about a namespace."""
        self._namespaces.remove(name)

    def count_contested(self, kind: str) -> None:
        """Count one write of an object that somebody else keeps changing back."""
        self._contested.labels(kind).inc()

    def defect(self, where: str) -> None:
        """Count one error of the operator's own."""
        self._defects.labels(where).inc()

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self._registry)
