"""Figures of every federation and silo for Prometheus, read from the cached objects' statuses when they are asked for."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anchorage.api.status import ConditionType, seconds_of
from anchorage.transport.kube.resources import Json
from anchorage_operator.conditions import find

OF_FEDERATION, OF_SILO = ("namespace", "federation"), ("namespace", "federation", "silo")

Objects = Callable[[str], Iterator[Json]]
"""Yields the known objects of a kind."""


class FederationCollector(Collector):
    """Turns the statuses of Federations and Silos into metric families."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def collect(self) -> Iterator[Metric]:
        """Yield rounds, conditions, bytes and certificates of federations; state, images, weight, ε and certificate of silos."""
        families = [*_of_federations(self._objects("Federation")), *_of_silos(self._objects("Silo"))]
        yield from (each.family for each in families)


class _Gauge:
    """A family that leaves out what a status does not say; ε and weights are undefined before the first update."""

    def __init__(self, name: str, about: str, *labels: str, counter: bool = False) -> None:
        kind = CounterMetricFamily if counter else GaugeMetricFamily
        self.family = kind(f"anchorage_federation_{name}", about, labels=labels)

    def add(self, labels: tuple[str, ...], value: Any, read: Callable[[Any], float] = float) -> None:
        """Add a sample."""
        if value in (None, ""):
            return
        with suppress(ValueError):  # somebody else wrote the status
            self.family.add_metric(labels, read(value))


def _of_federations(objects: Iterator[Json]) -> list[_Gauge]:
    rounds = _Gauge("round", "Last committed round.", *OF_FEDERATION)
    wanted = _Gauge("rounds", "Rounds asked for.", *OF_FEDERATION)
    deadline = _Gauge("round_deadline_seconds", "How long a round waits for its silos.", *OF_FEDERATION)
    connected = _Gauge("silos_connected", "Silos that are connected.", *OF_FEDERATION)
    commit = _Gauge(
        "last_commit_timestamp_seconds",
        "Time of the last commit, of the start before the first; seconds since the epoch.",
        *OF_FEDERATION,
    )
    since = _Gauge("ready_since_timestamp_seconds", "Time at which Ready last changed its status.", *OF_FEDERATION)
    moved = _Gauge(
        "model_bytes", "Model bytes that travelled in committed rounds.", *OF_FEDERATION, "direction", counter=True
    )
    state = _Gauge(
        "condition", "Conditions: 1 for True, 0 for False, -1 for Unknown.", *OF_FEDERATION, "type", "reason"
    )
    expiry = _Gauge(
        "certificate_expiry_timestamp_seconds",
        "Expiry of the server's and the authority's certificate.",
        *OF_FEDERATION,
        "certificate",
    )
    for each in objects:
        labels = (each["metadata"]["namespace"], each["metadata"]["name"])
        status: Json = each.get("status") or {}
        rounds.add(labels, status.get("round", 0))
        wanted.add(labels, each["spec"].get("rounds"))
        deadline.add(labels, each["spec"].get("protocol", {}).get("roundDeadlineSeconds"))
        connected.add(labels, status.get("connectedSilos", 0))
        commit.add(labels, (status.get("lastCheckpoint") or {}).get("time") or status.get("startTime"), seconds_of)
        for direction, field in (("up", "bytesUp"), ("down", "bytesDown")):
            moved.add((*labels, direction), status.get(field, 0))
        for condition in status.get("conditions", ()):
            value = {"True": 1, "False": 0}.get(condition["status"], -1)
            state.add((*labels, condition["type"], condition["reason"]), value)
            if condition["type"] == ConditionType.READY:
                since.add(labels, condition.get("lastTransitionTime"), seconds_of)
        for certificate in ("server", "authority"):
            end = status.get("certificates", {}).get(f"{certificate}NotAfter")
            expiry.add((*labels, certificate), end, seconds_of)
    return [rounds, wanted, deadline, connected, commit, since, moved, state, expiry]


def _of_silos(objects: Iterator[Json]) -> list[_Gauge]:
    connected = _Gauge("silo_connected", "1 while the silo is connected.", *OF_SILO)
    state = _Gauge("silo_state", "1 for the silo's state in the current round.", *OF_SILO, "state")
    last_seen = _Gauge("silo_last_seen_timestamp_seconds", "Time of the last contact.", *OF_SILO)
    samples = _Gauge("silo_samples", "Images of the last counted update.", *OF_SILO)
    weight = _Gauge("silo_weight", "Share of the last counted update.", *OF_SILO)
    epsilon = _Gauge("silo_epsilon", "Privacy loss of all updates so far.", *OF_SILO)
    expiry = _Gauge("silo_certificate_expiry_timestamp_seconds", "Expiry of the silo's certificate.", *OF_SILO)
    for each in objects:
        labels = (each["metadata"]["namespace"], each["spec"].get("federation", ""), each["metadata"]["name"])
        status: Json = each.get("status") or {}
        condition = find(status, ConditionType.CONNECTED)
        connected.add(labels, int(condition is not None and condition.holds))
        if status.get("state"):
            state.add((*labels, status["state"]), 1)
        last_seen.add(labels, status.get("lastSeenTime"), seconds_of)
        for gauge, field in ((samples, "samples"), (weight, "weight"), (epsilon, "epsilon")):
            gauge.add(labels, status.get(field))
        expiry.add(labels, status.get("certificate", {}).get("notAfter"), seconds_of)
    return [connected, state, last_seen, samples, weight, epsilon, expiry]
