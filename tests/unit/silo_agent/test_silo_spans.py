"""Spans of a round: one trace across server and silos, and nothing of a hospital in it."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from silo_fakes import FakeLearner, FakeLink, model_of, train_task

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import OUT_OF_MEMORY
from anchorage.engine.buffers import MemoryBuffers
from anchorage.engine.events import RoundCommitted, RoundStarted, RunEnded, Step, StepBegan
from anchorage.engine.silo import SiloWorker
from anchorage.transport import otlp
from anchorage.transport.messages import Assigned, Dismissed, Finished, Permit
from anchorage.transport.spans import RoundSpans
from anchorage_server.spans import RoundObserver
from anchorage_silo.spans import with_spans

KEY = "5" * 64
COMMITTED = RoundCommitted(cast(Any, None), cast(Any, None), None)


class Collector:
    """What a process's spans come to."""

    def __init__(self, silo: str = "", key: str = KEY) -> None:
        self._exporter = InMemorySpanExporter()
        self.spans = RoundSpans("anchorage", "derm", key, self._exporter, silo)

    def sent(self) -> list[ReadableSpan]:
        self.spans.close()
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def play_at_server(collector: Collector, *rounds: int) -> list[ReadableSpan]:
    observer = RoundObserver(collector.spans)
    observer(StepBegan(Step.SELECT))
    for number in rounds:
        observer(RoundStarted(number, ["a"]))
        for name in (Step.TRAIN, Step.AGGREGATE, Step.COMMIT):
            observer(StepBegan(name))
        observer(COMMITTED)
    observer(RunEnded("", ""))
    return collector.sent()


def play_at_silo(collector: Collector, *orders: Any, learner: FakeLearner | None = None) -> FakeLink:
    model = model_of(1.0)
    link = FakeLink(model)
    spanned_link, spanned_learner = with_spans(link, learner or FakeLearner(), collector.spans)
    for order in orders:
        link.orders.put(order)
    SiloWorker(spanned_link, spanned_learner, MemoryBuffers()).run()
    return link


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def whole_task(number: int) -> list[Any]:
    task = train_task(model_of(1.0), number)
    return [Assigned(task), Assigned(task), Permit(task.id), Dismissed(task.id, "Counted")]


def test_a_round_is_one_trace_across_server_and_silos() -> None:
    at_silo = Collector("a")
    play_at_silo(at_silo, *whole_task(1), *whole_task(2), Finished(""))
    server, silo = play_at_server(Collector(), 1, 2), at_silo.sent()
    assert [span.name for span in server] == ["round", "train", "aggregate", "commit"] * 2
    assert [span.name for span in silo] == ["silo", "fetch", "train", "upload", "silo", "train", "upload"]
    for number, (root, silo_spans) in enumerate([(server[:4], silo[:4]), (server[4:], silo[4:])], 1):
        assert root[0].parent is None and root[0].attributes == {
            "anchorage.federation": "derm",
            "anchorage.round": number,
        }
        assert {ids(span)[0] for span in (*root, *silo_spans)} == {ids(root[0])[0]}
        for span, parent in [
            *((step, root[0]) for step in root[1:]),
            (silo_spans[0], root[0]),
            *((s, silo_spans[0]) for s in silo_spans[1:]),
        ]:
            assert span.parent is not None and (span.parent.trace_id, span.parent.span_id) == ids(parent)
        assert silo_spans[0].attributes == {**root[0].attributes, "anchorage.silo": "a"}
    assert ids(server[0])[0] != ids(server[4])[0]
    assert ids(play_at_server(Collector(), 1)[0]) == ids(server[0]), (
        "a server that comes back goes on in the same trace"
    )
    assert ids(play_at_server(Collector(key="6" * 64), 1)[0])[0] != ids(server[0])[0], "another run has other traces"


def test_of_a_failure_only_its_code_is_told() -> None:
    class Failing(FakeLearner):
        def train(self, *_: object) -> Any:
            raise AnchorageError(OUT_OF_MEMORY, "the images in /data/Anna Example do not fit")

    at_silo, task = Collector("a"), train_task(model_of(1.0))
    play_at_silo(at_silo, Assigned(task), Finished(""), learner=Failing())
    sent = {span.name: span for span in at_silo.sent()}
    codes = {name: (span.attributes or {}).get("anchorage.code") for name, span in sent.items()}
    assert codes == {"silo": OUT_OF_MEMORY.code, "fetch": None, "train": OUT_OF_MEMORY.code}
    assert not any(span.events or span.status.description for span in sent.values())
    assert "Anna" not in "".join(span.to_json() for span in sent.values())


@pytest.mark.parametrize(
    "environment", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "x"}]
)
def test_without_a_collector_there_are_no_spans(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]
) -> None:
    for name in (*otlp.ENDPOINTS, "OTEL_EXPORTER_OTLP_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert otlp.open_spans("anchorage-silo", "derm", KEY) is None


@pytest.mark.parametrize("installed", [True, False])
def test_a_collector_that_is_named_gets_spans_where_the_exporter_is_installed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, installed: bool
) -> None:
    exporter = InMemorySpanExporter()

    class Entry:
        def load(self) -> Callable[[], SpanExporter]:
            return lambda: exporter

    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")  # is put back
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL", raising=False)
    monkeypatch.setattr("anchorage.transport.spans.entry_points", lambda **_: [Entry()] if installed else [])
    spans = otlp.open_spans("anchorage-silo", "derm", KEY, silo="a")
    assert (spans is not None) == installed
    if spans is None:
        assert "pip install 'anchorage[otel]'" in caplog.text
    else:
        spans.begin_silo(1).end()
        spans.close()
        assert [span.name for span in exporter.get_finished_spans()] == ["silo"]


def test_a_collector_in_the_cluster_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "example.org")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.monitoring.svc:4318")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL", raising=False)
    monkeypatch.setattr("anchorage.transport.spans.entry_points", lambda **_: [])
    otlp.open_spans("anchorage-silo", "derm", KEY)
    assert os.environ["no_proxy"] == "example.org,collector.monitoring.svc"


def test_without_spans_an_agent_imports_no_opentelemetry() -> None:
    code = "import sys, anchorage_silo.agent; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
