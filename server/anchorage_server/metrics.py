"""The run's figures for Prometheus, read from the status when they are asked for."""

import shutil
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anchorage_server.status import StatusStore


class StatusCollector(Collector):
    """Turns the status, and the number of enrolment tokens that were refused, into metric families."""

    def __init__(self, statuses: StatusStore, refused_tokens: int) -> None:
        self._statuses, self._refused_tokens = statuses, refused_tokens

    def collect(self) -> Iterator[Metric]:
        """Yield round, silos, traffic, refused tokens, the volume, seconds per step of the last round, and the global model's metrics."""
        status, record = self._statuses.snapshot(), self._statuses.last_record()
        yield GaugeMetricFamily("anchorage_round", "Last committed round.", value=status.round)
        yield GaugeMetricFamily("anchorage_rounds", "Rounds asked for.", value=status.rounds)
        yield GaugeMetricFamily(
            "anchorage_silos_connected", "Silos that are connected now.", value=status.connected_silos
        )
        moved = CounterMetricFamily(
            "anchorage_model_bytes", "Model bytes that travelled in committed rounds.", labels=["direction"]
        )
        moved.add_metric(["up"], status.bytes_up)
        moved.add_metric(["down"], status.bytes_down)
        yield moved
        yield CounterMetricFamily(
            "anchorage_refused_tokens", "Enrolment tokens that were refused.", value=self._refused_tokens
        )
        size, _, free = shutil.disk_usage(self._statuses.folder)
        yield GaugeMetricFamily("anchorage_volume_size_bytes", "Size of the server's volume.", value=size)
        yield GaugeMetricFamily("anchorage_volume_free_bytes", "Free bytes of the server's volume.", value=free)
        seconds = GaugeMetricFamily(
            "anchorage_step_seconds", "Time per step of the last committed round.", labels=["step"]
        )
        for step, value in (record.seconds if record else {}).items():
            seconds.add_metric([step], value)
        yield seconds
        values = GaugeMetricFamily("anchorage_metric", "Metrics of the global model.", labels=["name"])
        for metric in status.metrics:
            values.add_metric([metric.name], float(metric.value))
        yield values
        weights = GaugeMetricFamily("anchorage_silo_weight", "Share of a silo's last counted update.", labels=["silo"])
        for silo in status.silos:
            weights.add_metric([silo.name], float(silo.weight))
        yield weights


def exposition(statuses: StatusStore, refused_tokens: int) -> bytes:
    """Return the metrics in Prometheus' text format; of enrolment tokens, how many were refused since the process started."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(statuses, refused_tokens))
    return generate_latest(registry)
