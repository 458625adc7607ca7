"""The status endpoint over a real socket."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.transfer import CANNOT_LISTEN
from anchorage.engine.events import RoundCommitted, RunEnded
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.transport import probes as endpoint
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_server.clock import SystemClock
from anchorage_server.http import StatusServer
from anchorage_server.status import StatusStore


class Served:
    """A statuses behind a running endpoint."""

    def __init__(self, folder: Path) -> None:
        self.dead = Event()
        self.statuses = StatusStore(
            file=folder / "status.json",
            clock=SystemClock(),
            rounds=2,
            started=0.0,
            silos=["a"],
            round_deadline_seconds=60.0,
            history=(),
            checkpoint=lambda number: folder / str(number),
        )
        self.server = StatusServer("127.0.0.1:0", self.statuses, lambda: not self.dead.is_set(), lambda: 7)
        self.server.start()

    def get(self, path: str, method: str = "GET") -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection(self.server.address, timeout=120)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type", ""), response.read()
        finally:
            connection.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.server.stop()


def commit(statuses: StatusStore) -> None:
    part = SiloRecord("a", "Counted", 1.0, {"train": 3})
    record = RoundRecord(1, "ab", 1.0, {"accuracy": 0.5}, (part,), {"silos": 0.25}, 5, 6)
    statuses(RoundCommitted(record, ModelBytes(Layout.of([]), ()), None))


def test_status_and_rounds(served: Served) -> None:
    commit(served.statuses)
    status, kind, body = served.get("/status?x=1")
    assert (status, kind) == (200, "application/json")
    assert json.loads(body)["progressPercentage"] == 50
    (record,) = json.loads(served.get("/rounds")[2])
    assert (record["round"], record["bytesUp"], record["silos"][0]["name"]) == (1, 5, "a")


def test_ready_only_while_silos_can_connect(served: Served) -> None:
    assert served.get("/readyz")[0] == 503
    served.statuses.listening()
    assert served.get("/readyz")[0] == 200
    served.statuses(RunEnded("ANC-3001", "gone"))
    status, _, body = served.get("/readyz")
    assert (status, body) == (503, b"QuorumLost gone\n")


def test_healthy_only_while_the_engine_runs(served: Served) -> None:
    assert served.get("/healthz") == (200, "text/plain; charset=utf-8", b"ok\n")
    served.dead.set()
    assert served.get("/healthz")[0] == 503


def test_metrics_are_in_prometheus_format(served: Served) -> None:
    commit(served.statuses)
    status, kind, body = served.get("/metrics")
    lines = body.decode().splitlines()
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "anchorage_round 1.0" in lines
    assert "anchorage_refused_tokens_total 7.0" in lines
    assert 'anchorage_model_bytes_total{direction="up"} 5.0' in lines
    assert 'anchorage_step_seconds{step="silos"} 0.25' in lines
    assert 'anchorage_metric{name="accuracy"} 0.5' in lines
    assert 'anchorage_silo_weight{silo="a"} 1.0' in lines


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "TRACE"])
def test_no_other_verb_is_answered(served: Served, method: str) -> None:
    assert served.get("/status", method)[0] == 501


def test_another_path_is_not_found(served: Served) -> None:
    assert served.get("/../etc/passwd")[0] == 404


def test_a_long_request_is_refused(served: Served) -> None:
    assert served.get("/" + "x" * 70_000)[0] == 414


def test_too_many_clients_are_turned_away_and_slow_ones_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint._Handler, "timeout", 0.5)
    host, port = served.server.server_address[:2]
    silent = [socket.create_connection((str(host), int(port)), timeout=120) for _ in range(endpoint.CONNECTIONS)]
    with socket.create_connection((str(host), int(port)), timeout=120) as refused:
        assert refused.recv(1) == b""
    for client in silent:
        assert client.recv(1) == b""
        client.close()
    assert served.get("/healthz")[0] == 200


def test_a_port_in_use_has_a_code(served: Served) -> None:
    with pytest.raises(AnchorageError) as raised:
        StatusServer(served.server.address, served.statuses, lambda: True, lambda: 0)
    assert raised.value.failure is CANNOT_LISTEN
