"""The agent's figures for Prometheus, read when they are asked for."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anchorage_silo.standing import Standing


class StandingCollector(Collector):
    """Turns the agent's standing into metric families."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        """Yield connection, certificate, images, tasks and traffic."""
        standing, contact = self._standing, self._standing.contact
        ready, _ = standing.ready()
        yield GaugeMetricFamily("anchorage_silo_ready", "1 while connected, and when the run is over.", value=ready)
        yield GaugeMetricFamily(
            "anchorage_silo_connected", "1 while a session with the server is open.", value=contact.connected
        )
        yield GaugeMetricFamily(
            "anchorage_silo_last_contact_timestamp_seconds",
            "When the server was last heard, seconds since the epoch; 0 for never.",
            value=contact.heard,
        )
        if (expires := standing.expires) is not None:
            yield GaugeMetricFamily(
                "anchorage_silo_certificate_expiry_timestamp_seconds",
                "When the silo's certificate stops being valid, seconds since the epoch.",
                value=expires,
            )
        yield GaugeMetricFamily("anchorage_silo_samples", "Images that can be trained on.", value=standing.samples)
        tasks = CounterMetricFamily("anchorage_silo_tasks", "Tasks by outcome.", labels=["outcome"])
        for outcome, count in standing.tasks.items():
            tasks.add_metric([outcome], count)
        yield tasks
        received, sent = contact.moved
        moved = CounterMetricFamily("anchorage_silo_model_bytes", "Model bytes that travelled.", labels=["direction"])
        moved.add_metric(["down"], received)
        moved.add_metric(["up"], sent)
        yield moved


def exposition(standing: Standing) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StandingCollector(standing))
    return generate_latest(registry)
