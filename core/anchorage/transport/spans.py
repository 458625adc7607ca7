"""Spans of rounds, one trace each across server and agents.

Trace and root span of a round are derived from the run and the round's number at both ends, so nothing about traces travels between them. Attributes
are the names of federation, silo and step, numbers of rounds, and codes of failures: no message, path, count or metric.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points

from blake3 import blake3
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, set_span_in_context

from anchorage.api.errors import AnchorageError

TRACE_BYTES, SPAN_BYTES = 16, 8


def exporter_named(name: str) -> SpanExporter:
    """Return an installed exporter, which reads its settings from the environment.

    Raises
    ------
    ImportError
        It is not installed.
    """
    for entry in entry_points(group="opentelemetry_traces_exporter", name=name):
        exporter: SpanExporter = entry.load()()
        return exporter
    raise ImportError(f"the exporter {name} is not installed")


class RoundSpans:
    """Begins the spans of one process; they are sent in the background, and dropped where the collector does not take them.

    Parameters
    ----------
    service, federation, key : str
        See `anchorage.transport.otlp.open_spans`.
    exporter : SpanExporter
        Sends them.
    silo : str
        The silo whose spans they are; empty at the server.
    """

    def __init__(self, service: str, federation: str, key: str, exporter: SpanExporter, silo: str = "") -> None:
        self._federation, self._key, self._silo, self._ids = federation, key, silo, _Ids()
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service}), id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("anchorage")

    def begin_round(self, number: int) -> Span:
        """Begin a round's root span, at the server."""
        self._ids.following = self._ids_of(number)
        return self._tracer.start_span("round", Context(), attributes=self._attributes(number))

    def begin_silo(self, number: int) -> Span:
        """Begin the silo's part of a round, under its root span."""
        trace, root = self._ids_of(number)
        parent = NonRecordingSpan(SpanContext(trace, root, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
        attributes = {**self._attributes(number), "anchorage.silo": self._silo}
        return self._tracer.start_span("silo", set_span_in_context(parent), attributes=attributes)

    def begin(self, name: str, parent: Span) -> Span:
        """Begin a step of a round or of a silo's part."""
        return self._tracer.start_span(name, set_span_in_context(parent))

    @contextmanager
    def step(self, name: str, parent: Span) -> Iterator[None]:
        """Span the block; of a failure of the catalogue its code is kept."""
        span = self.begin(name, parent)
        try:
            yield
        except AnchorageError as error:
            span.set_attribute("anchorage.code", error.code)
            raise
        finally:
            span.end()

    def close(self) -> None:
        """Send what is left; waits no longer than the exporter's time limit."""
        self._provider.shutdown()

    def _attributes(self, number: int) -> dict[str, str | int]:
        return {"anchorage.federation": self._federation, "anchorage.round": number}

    def _ids_of(self, number: int) -> tuple[int, int]:
        """Return a round's trace id and the id of its root span."""
        digest = blake3(f"trace\0{self._key}\0{number}".encode()).digest(TRACE_BYTES + SPAN_BYTES)
        return int.from_bytes(digest[:TRACE_BYTES], "big"), int.from_bytes(digest[TRACE_BYTES:], "big")


class _Ids(RandomIdGenerator):
    """Random ids, but for the next root span where they are given; root spans begin in one thread."""

    following: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        if self.following is None:
            return super().generate_trace_id()
        return self.following[0]

    def generate_span_id(self) -> int:
        if self.following is None:
            return super().generate_span_id()
        span, self.following = self.following[1], None
        return span
