"""A federation as processes: the server and the agents by their production entry points, in one folder, without a runner."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from federation_in_process import null_step

from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import Study
from fedctl.configurations import LocalSilo, open_authority, write_server_config, write_silo_config
from fedctl.workdir import Workdir

WAIT_SECONDS = 120.0
WITHOUT_MLFLOW = TRACKING_UNREACHABLE.exit_code
"""Exit status of a server whose rounds are all committed."""
ACCIDENT = Path(__file__).with_name("federation_accident.py")


class Process:
    """One process and the lines of its log, which can be waited for."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], within: Sequence[str] = ()) -> None:
        self.lines: list[str] = []
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [*within, sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self.lines.append(line.rstrip())
                self._news.put(line)
        self._news.put(None)

    def wait_for(self, message: str, **values: Any) -> dict[str, Any]:
        """Return the next line of the log, from where the last wait ended, with this message and these values."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (line := self._news.get(timeout=max(0.001, deadline - time.monotonic()))) is not None:
            if not line.startswith("{"):
                continue
            document: dict[str, Any] = json.loads(line)
            if message in document["message"] and all(document.get(name) == value for name, value in values.items()):
                return document
        raise AssertionError(f"it ended before it said {message!r} {values}: {self.lines}")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> int:
        """Wait for the end and return the exit status."""
        status = self._process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        return status

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def last_line(self) -> str:
        return self.lines[-1]

    def kill(self) -> None:
        if self.running:
            self._process.kill()
        self.end()


class Site:
    """A folder with a federation's documents, and the processes that play it.

    The server starts without mlflow, whose import takes longer than most of these federations; others test that it gets everything.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.root = study.file.parent
        self.workdir = Workdir(self.root / "run")
        self.workdir.make()
        shutil.copy(study.file, self.workdir.federation)
        self.federation = study.federation.metadata.name
        self.authority = open_authority(self.workdir, self.federation)
        fake = self.root / "no-mlflow" / "mlflow"
        fake.mkdir(parents=True)
        (fake / "__init__.py").write_text("raise SystemExit(1)")
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(fake.parent), *sys.path]),
        }
        self.endpoints: dict[str, Any] = {}
        self.processes: list[Process] = []

    def server(self, *accident: str | int) -> Process:
        """Start the server, where the last one listened, and wait until it listens; `accident` is of `federation_accident`."""
        config = write_server_config(self.workdir, self.root, self.endpoints or None)
        process = self.start("anchorage_server", config, accident)
        process.wait_for("listening")
        self.endpoints = json.loads(self.workdir.endpoints.read_text())
        return process

    def agent(self, silo: str, *accident: str | int, **settings: Any) -> Process:
        """Start a silo's agent with the images of its document, or other settings of its configuration."""
        (silo_document,) = [s for s in self.study.silos if s.metadata.name == silo]
        agent_settings: dict[str, Any] = {"labels": silo_document.spec.labels, "device": "cpu", **settings}
        if silo_document.spec.managed is not None:
            agent_settings["data"] = silo_document.spec.managed.data.model_dump(
                mode="json", by_alias=True, exclude_unset=True
            )
        config = write_silo_config(
            self.workdir, LocalSilo(silo, agent_settings), self.federation, self.root, self.endpoints
        )
        return self.start("anchorage_silo", config, accident)

    def null_agent(self, silo: str, *accident: str | int) -> Process:
        """Start an agent with a null trainer."""
        step, samples = null_step(silo)
        trainer = {"type": "Null", "step": str(step), "samples": samples}
        return self.agent(silo, *accident, trainer=trainer)

    def start(self, module: str, config: Path, accident: tuple[str | int, ...]) -> Process:
        with_accident = [str(ACCIDENT), module, *map(str, accident)] if accident else ["-m", module]
        process = Process([*with_accident, "--config", str(config)], self.environment, self.within(module))
        self.processes.append(process)
        return process

    def within(self, module: str) -> Sequence[str]:
        """Return the command that starts a process of a module in a place of its own."""
        return ()

    def run(self) -> None:
        """Play the federation to its end, undisturbed."""
        server = self.server()
        agents = [self.agent(silo.metadata.name) for silo in self.study.silos]
        self.finish(server, *agents)

    @staticmethod
    def finish(server: Process, *agents: Process) -> None:
        """Wait until every process has ended well; the server without mlflow says at last that it could not send the results."""
        assert server.end() == WITHOUT_MLFLOW, server.lines
        assert [agent.end() for agent in agents] == [0] * len(agents), [agent.lines for agent in agents]

    def records(self) -> list[dict[str, Any]]:
        """Return the journal."""
        return [json.loads(line) for line in self.workdir.journal.read_text().splitlines()]

    def digest(self) -> str:
        """Return the digest of the last committed round."""
        return str(self.records()[-1]["digest"])

    def status(self) -> dict[str, Any]:
        """Ask the server for its status."""
        with urllib.request.urlopen(f"{self.endpoints['status']}/status", timeout=WAIT_SECONDS) as answer:
            prediction: dict[str, Any] = json.load(answer)
        return prediction

    def left_status(self) -> dict[str, Any]:
        """Return the status that the server left."""
        status: dict[str, Any] = json.loads(self.workdir.status.read_text())
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()


def condition(status: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    """Return status, reason and message of one condition."""
    (condition,) = [c for c in status["conditions"] if c["type"] == kind]
    return condition["status"], condition["reason"], condition.get("message", "")


SIGKILLED = -signal.SIGKILL
