"""The agent's metrics for Prometheus, collected on each request."""

import shutil
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anchorage_silo.state import AgentState


class AgentCollector(Collector):
    """Converts the agent's state to metric families."""

    def __init__(self, state: AgentState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of connection, certificate, volume, images, tasks and traffic."""
        state, contact = self._state, self._state.contact
        ready, _ = state.ready()
        yield GaugeMetricFamily("anchorage_silo_ready", "1 while connected, and after the run is over.", value=ready)
        yield GaugeMetricFamily(
            "anchorage_silo_connected", "1 while a session with the server is open.", value=contact.connected
        )
        yield GaugeMetricFamily(
            "anchorage_silo_last_contact_timestamp_seconds",
            "Time of the last message from the server, seconds since the epoch; 0 for never.",
            value=contact.heard,
        )
        if (expires := state.expires) is not None:
            yield GaugeMetricFamily(
                "anchorage_silo_certificate_expiry_timestamp_seconds",
                "Expiry of the silo's certificate, seconds since the epoch.",
                value=expires,
            )
        if state.folder.is_dir():
            size, _, free = shutil.disk_usage(state.folder)
            yield GaugeMetricFamily("anchorage_silo_volume_size_bytes", "Size of the agent's volume.", value=size)
            yield GaugeMetricFamily("anchorage_silo_volume_free_bytes", "Free bytes of the agent's volume.", value=free)
        yield GaugeMetricFamily("anchorage_silo_samples", "Images available for training.", value=state.samples)
        if state.epsilon is not None:
            what = "Privacy loss of all updates so far, at the delta of the policy's privacyBudget."
            yield GaugeMetricFamily("anchorage_silo_epsilon", what, value=state.epsilon)
        tasks = CounterMetricFamily("anchorage_silo_tasks", "Tasks by outcome.", labels=["outcome"])
        for outcome, count in state.tasks.items():
            tasks.add_metric([outcome], count)
        yield tasks
        received, sent = contact.moved
        moved = CounterMetricFamily("anchorage_silo_model_bytes", "Model bytes transferred.", labels=["direction"])
        moved.add_metric(["down"], received)
        moved.add_metric(["up"], sent)
        yield moved


def prometheus_text(state: AgentState) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(AgentCollector(state))
    return generate_latest(registry)
