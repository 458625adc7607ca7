"""Where the time of a round goes: ``make bench-round ARGS=--trace``.

The rounds of `fedctl bench rounds` with the spans that the server and the agents make for an OpenTelemetry collector (docs/operations.md), which
are taken here; the processor time of every process over the counted rounds; and plain grpcio streaming of the same bytes (benchmarks/floor.py)
before and after.
"""

import gzip
import os
import statistics
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import psutil
from floor import Floor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from round import SKIPPED, events
from traces import ENDPOINT, Collector, Export

WIDTH = 60
"""Characters of a round in the drawing."""


@dataclass(frozen=True)
class Step:
    """A span of a round.

    Parameters
    ----------
    service, name : str
        Whose step it is, and what it is called.
    begin, end : float
        Seconds since the start of the round.
    """

    service: str
    name: str
    begin: float
    end: float


class SpanCollector(Collector):
    """Keeps the spans that come, by round's trace."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _SpanExport
        self.requests: list[ExportTraceServiceRequest] = []

    def rounds(self) -> list[list[Step]]:
        """Return the steps of every round whose root span came, in order of time."""
        traces = defaultdict(list)
        for request in self.requests:
            for resource in request.resource_spans:
                (service,) = (a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        traces[span.trace_id].append((service, span))
        begun_rounds = []
        for spans in traces.values():
            for root in (span for _, span in spans if span.name == "round"):
                begun = root.start_time_unix_nano
                steps = [
                    Step(s, x.name, (x.start_time_unix_nano - begun) / 1e9, (x.end_time_unix_nano - begun) / 1e9)
                    for s, x in spans
                ]
                begun_rounds.append((begun, steps))
        return [steps for _, steps in sorted(begun_rounds, key=lambda pair: pair[0])]


class _SpanExport(Export):
    """Takes one request and keeps its spans."""

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        assert isinstance(self.server, SpanCollector)
        self.server.requests.append(ExportTraceServiceRequest.FromString(content))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def play(silos: int, copies: int, rounds: int, endpoint: str) -> tuple[list[float], dict[str, float]]:
    """Play rounds; return the seconds of the counted ones, and the processor seconds of a round of the server and of all silos."""
    times: list[float] = []
    processes: dict[str, list[psutil.Process]] = {"server": [], "silo": []}
    used: list[dict[str, float]] = []
    for event in events(silos, copies, rounds, {**os.environ, ENDPOINT: endpoint}):
        if event["event"] == "process":
            processes[event["role"]].append(psutil.Process(event["pid"]))
        elif event["event"] == "round":
            times.append(event["t"])
            used.append({role: sum(map(_processor_seconds, each)) for role, each in processes.items()})
    last = len(used) - 2  # after the last round processes end
    per_round = {role: (used[last][role] - used[SKIPPED][role]) / (last - SKIPPED) for role in processes}
    return [after - before for before, after in pairwise(times)][SKIPPED:], per_round


def _processor_seconds(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of its children so far."""
    try:
        family = [process, *process.children(recursive=True)]
        return sum(sum(member.cpu_times()[:2]) for member in family)
    except psutil.NoSuchProcess:
        return 0.0


def typical(rounds: list[list[Step]]) -> Iterator[tuple[str, str, float, float, float]]:
    """Yield service, step, and the medians of begin, end and duration in seconds, of all silos together, in order of their beginning."""
    spans = defaultdict(list)
    for steps in rounds:
        for step in steps:
            spans[step.service, step.name].append((step.begin, step.end, step.end - step.begin))
    rows = [(*key, *map(statistics.median, zip(*values, strict=True))) for key, values in spans.items()]
    yield from sorted(rows, key=lambda row: (row[2], -row[4]))


def trace(silos: int, copies: int, rounds: int, nbytes: int) -> dict[str, object]:
    """Play rounds, print where their time goes, and return the figures."""
    with Floor(silos, nbytes) as floor:
        floor.round()
        floors = [floor.round() for _ in range(rounds)]
    with SpanCollector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        seconds, processor = play(silos, copies, rounds, collector.endpoint)
        collector.shutdown()
    with Floor(silos, nbytes) as floor:
        floor.round()
        floors += [floor.round() for _ in range(rounds)]
    median, least = statistics.median(seconds), statistics.median(floors)
    print(
        f"{silos} silos, {rounds} rounds: {1000 * median:.0f} ms, floor {1000 * least:.0f} ms, {median / least:.2f} ×"
    )
    print(
        "  processor time of a round: " + ", ".join(f"{role} {1000 * each:.0f} ms" for role, each in processor.items())
    )
    rows = list(typical(collector.rounds()[SKIPPED:]))
    if not rows:
        raise SystemExit("no spans came: pip install 'anchorage[otel]'")
    for service, name, begin, end, duration in rows:
        left, right = round(WIDTH * begin / median), max(round(WIDTH * end / median), round(WIDTH * begin / median) + 1)
        bar = " " * max(0, left) + "█" * (min(right, WIDTH) - max(0, left))
        print(f"  {service.removeprefix('anchorage-'):8}{name:12}{1000 * duration:7.0f} ms  |{bar:{WIDTH}}|")
    steps = [dict(zip(("service", "step", "begin_s", "end_s", "seconds"), row, strict=True)) for row in rows]
    return {"silos": silos, "median_s": median, "floor_s": least, "processor_s": processor, "steps": steps}
