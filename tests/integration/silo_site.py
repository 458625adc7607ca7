"""A coordinating site for agent processes: authority, enrolment and the server's end of the link, in the test's process."""

import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from eventually import eventually

from anchorage.api.errors import AnchorageError
from anchorage.api.federation import TRUSTING_POLICY
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.buffers import ModelBuffer
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.grpc.enrolment import serve_enrolment
from anchorage.transport.grpc.server import GrpcSiloLink
from anchorage.transport.messages import Announced, Announcement, Arrived, Event, Joined, Task, TaskKind
from anchorage.transport.pki import (
    Authority,
    Credentials,
    SigningRequest,
    SiloKeys,
    Tokens,
    key_fingerprint,
    new_key,
    server_uri,
)
from anchorage.transport.pki.keys import public_bytes
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage_server.held_heads import HeldHeads

FEDERATION = "derm"
LAYOUT = Layout.of([("count", "I64", (2,)), ("weight", "F32", (700_000,))])
WAIT_SECONDS = 120
HURRIED = (
    "from anchorage_silo import agent, main, renewal; agent.RUN_CHECK_SECONDS = renewal.CHECK_SECONDS = 0.1; "
    "renewal.LEAST_PAUSE_SECONDS = 0.1; main.main()"
)
"""An agent that does not wait a minute for news."""
_PROBES = re.compile(r"serving probes and metrics on http://([0-9.:]+)")


class WallClock:
    def now(self) -> float:
        return time.monotonic()


class Site:
    """Everything that the coordinating site runs; `stop_link` and `start_link` are a server's restart."""

    def __init__(self, folder: Path, layout: Layout = LAYOUT, method: str = "FedAvg") -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "authority", FEDERATION)
        self.tokens = Tokens(folder / "tokens")
        self._server = Credentials(folder / "server.key", folder / "server.crt", self.authority.certificate_path)
        self.new_identity()
        self.asked: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.issue = self.authority.issue_silo
        self.undecided: AnchorageError | None = None
        self.undecided_renewal: AnchorageError | None = None
        self._stop_enrolment, port = serve_enrolment("127.0.0.1:0", self._server, self.enrol)
        self.enrolment = f"127.0.0.1:{port}"
        task = Classification(classes=tuple("0123456789"))
        model = ModelDescription(network="SmallCnn", task=task, image_size=8, channels=1)
        run = RunDescription(
            federation=FEDERATION, seed=1, model=model,
            method=resolve(MethodSpec(name=method)), down=layout.to_json(), up=layout.to_json(), rounds=3,
            mode="Synchronous",
        )  # fmt: skip
        self.describe(run)
        self.members = {"a", "b"}
        self.keys = SiloKeys(self.authority.folder)
        self.listen = "127.0.0.1:0"
        self.start_link()

    def describe(self, run: RunDescription) -> None:
        """Say what the run is, from the next start of the link."""
        self.run = run
        self._welcome = run.to_json()

    def enrol(self, csr_pem: bytes, token: str, silo: str) -> bytes:
        """Sign, or answer as a site does where people decide first."""
        self.asked.put((silo, csr_pem))
        if self.undecided is not None:
            raise self.undecided
        self.tokens.check(token, silo)
        certificate = self.issue(csr_pem, silo)
        self.tokens.consume(token, silo, public_bytes(SigningRequest.parse(csr_pem).public_key))
        self.keys.set_key(silo, key_fingerprint(csr_pem))
        return certificate

    def renew(self, csr_pem: bytes, silo: str) -> bytes:
        if self.undecided_renewal is not None:
            raise self.undecided_renewal
        certificate = self.issue(csr_pem, silo)
        self.keys.offer(silo, key_fingerprint(csr_pem))
        return certificate

    def admits(self, silo: str, key: str) -> bool:
        return silo in self.members and self.keys.admits(silo, key)

    def new_identity(self) -> None:
        """Give the server another key and certificate."""
        request = SigningRequest.make(new_key(self._server.key), server_uri(FEDERATION))
        self._server.save_certificate(self.authority.issue_server(request, ["127.0.0.1"]))

    def start_link(self) -> None:
        self.link = GrpcSiloLink(
            listen=self.listen, credentials=self._server, welcome=self._welcome,
            admit=self.admits, renew=self.renew,
            heads=HeldHeads(self.folder / "audit-heads"), clock=WallClock(), idle_timeout_seconds=10.0,
        )  # fmt: skip
        self.listen = f"127.0.0.1:{self.link.start()}"

    def stop_link(self) -> None:
        self.link.stop(0.0)

    def close(self) -> None:
        self.stop_link()
        self._stop_enrolment()

    def configuration(self, silo: str, /, **values: Any) -> Path:
        folder = self.folder / silo
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(self.tokens.create(silo))
        (folder / "policy.yaml").write_text(yaml.safe_dump(TRUSTING_POLICY))
        config = {
            "silo": silo, "federation": FEDERATION, "server": self.listen, "enrolment": self.enrolment, "labels": "None",
            "authority": str(self.authority.certificate_path), "token": str(folder / "token"),
            "state": str(folder / "state"), "trainer": {"type": "Null", "step": "0.5", "samples": 7},
            "policy": str(folder / "policy.yaml"), **values,
        }  # fmt: skip
        (folder / "silo.yaml").write_text(yaml.safe_dump(config))
        return folder / "silo.yaml"

    def task(self, model: ModelBytes, round_number: int, kind: TaskKind = TaskKind.TRAIN) -> Task:
        return Task(f"{round_number}.{kind}.{model.digest[:8]}", kind, round_number, model.manifest)

    def event(self, kind: type[Any]) -> Any:
        """Wait for an event of a kind; others are left out."""
        end = time.monotonic() + WAIT_SECONDS
        while (event := self.link.next_event(end)) is not None:
            if isinstance(event, kind):
                return event
        raise AssertionError(f"no {kind.__name__} in {WAIT_SECONDS} s")

    def assign(self, silo: str, model: ModelBytes, round_number: int) -> Task:
        task = self.task(model, round_number)
        self.link.offer(model)
        self.link.assign(silo, task)
        return task

    def collect(self, silo: str, task: Task | None = None) -> tuple[Announcement, np.ndarray]:
        """Wait for an announcement (of a task), permit it, and return it with the update, uint8."""
        announcement = self.event(Announced).announcement
        while task is not None and announcement.task != task.id:  # said again: its dismissal was lost with a connection
            self.link.dismiss(silo, announcement.task, "counted")
            announcement = self.event(Announced).announcement
        sink = ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))
        sink.receive(announcement.update)
        self.link.permit(silo, announcement.task, sink)
        self.event(Arrived)
        return announcement, sink.array

    def joined(self) -> Event:
        event: Event = self.event(Joined)
        return event


class Agent:
    """An agent's process and the lines of its log; `before` is a command that becomes the agent, `options` are Popen's."""

    def __init__(
        self, config: Path, *before: str, python: str = sys.executable, code: str = "", **options: Any
    ) -> None:
        program = ["-c", code] if code else ["-m", "anchorage_silo"]
        command = [*before, python, *program, "--config", str(config)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)
        self.lines: list[str] = []
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip())
                self._news.put(line)

    def await_line(self, part: str) -> None:
        while part not in self._news.get(timeout=WAIT_SECONDS):
            pass

    def ask(self, path: str) -> tuple[int, str]:
        """Ask the probes' endpoint, whose address is in the log."""
        address = next(match[1] for line in self.lines if (match := _PROBES.search(line)))
        host, port = address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS)
        with closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def await_ready(self, part: str) -> int:
        """Ask until the readiness line has a part, and return the status."""

        def asked() -> tuple[int, str] | None:
            readiness = self.ask("/readyz")
            return readiness if part in readiness[1] else None

        return eventually(asked, f"the readiness line never has {part!r}")[0]

    def wait(self) -> int:
        status = self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return status

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


def audit_of(config: Path) -> list[dict[str, Any]]:
    text = (config.parent / "state" / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
