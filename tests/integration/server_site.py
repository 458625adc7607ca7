"""A server process with its folder, and silos that speak the real protocol and add a number to every weight."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.enrolment import enrol
from anchorage.transport.grpc.single_calls import describe
from anchorage.transport.messages import Announcement, Assigned, Finished, Permit, Profile, Task
from anchorage.transport.pki import Authority, Credentials, SigningRequest, Tokens, new_key, silo_uri
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import MemorySpool

SILOS = ("a", "b")
WEIGHTS = {"encoder.weight": np.linspace(-1, 1, 300_000, dtype=np.float32), "classifier.bias": np.zeros(3, np.float32)}


class Leaving(Protocol):
    """A silo that can be told to end."""

    def leave(self) -> None:
        """End, whatever it waits for."""


class Site:
    """A coordinating site in a folder: documents, authority, and server processes one after another."""

    def __init__(self, folder: Path, weights: Mapping[str, np.ndarray] = WEIGHTS, **spec: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.weights = folder, weights
        self.state = folder / "state"
        self.authority = Authority.create(folder / "authority", "derm")
        save_file(dict(weights), folder / "initial.safetensors")
        described = {
            "rounds": 2,
            "task": {"classification": {"classes": ["a", "b", "c"]}},
            "model": {"network": "ResNet18", "imageSize": 32, "initial": "initial.safetensors"},
            "method": {"name": "FedAvg"},
            "protocol": {"minSilos": 2, "roundDeadlineSeconds": 200},
            **spec,
        }
        documents = [document("Federation", "derm", described)]
        documents += [document("Silo", silo, {"federation": "derm", "labels": "All"}) for silo in SILOS]
        (folder / "federation.yaml").write_text(yaml.safe_dump_all(documents))
        config = {"federation": "federation.yaml", "state": "state", "dataRoot": ".", "authority": "authority"}
        (folder / "server.yaml").write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[str] | None = None
        self.mlflow = False
        self.lines: list[dict[str, Any]] = []
        self.endpoints: dict[str, Any] = {}
        self.silos: list[Leaving] = []

    def command(self) -> list[str]:
        return [sys.executable, "-m", "anchorage_server", "--config", str(self.folder / "server.yaml")]

    def without_mlflow(self) -> dict[str, str]:
        """Return an environment in which mlflow cannot be imported: its start takes long, and only one test is about it."""
        fake = self.folder / "no-mlflow" / "mlflow"
        fake.mkdir(parents=True, exist_ok=True)
        (fake / "__init__.py").write_text("raise SystemExit(1)")
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(fake.parent), *sys.path])}

    def start(self, *, mlflow: bool = False) -> None:
        """Start the server and wait until it listens."""
        self.mlflow = mlflow
        environment = None if mlflow else self.without_mlflow()
        self.process = subprocess.Popen(self.command(), stderr=subprocess.PIPE, text=True, env=environment)
        self.read_until("listening")
        self.endpoints = json.loads((self.state / "endpoints.json").read_text())

    def read_until(self, message: str, **values: Any) -> dict[str, Any]:
        """Read the server's log up to a line."""
        assert self.process is not None
        assert self.process.stderr is not None
        for line in self.process.stderr:
            assert line.startswith("{"), line
            event: dict[str, Any] = json.loads(line)
            self.lines.append(event)
            if event["message"] == message and all(event[name] == value for name, value in values.items()):
                return event
        raise AssertionError(f"the server ended before it logged {message!r}: {self.lines}")

    def end(self) -> tuple[int, str]:
        """Wait for the server's end and return its exit status and last line."""
        assert self.process is not None
        _, rest = self.process.communicate(timeout=600)
        return self.process.returncode, rest.strip().rpartition("\n")[2]

    def succeed(self) -> None:
        """Wait for the server's end, which must be a good one; a server without mlflow says at last that it could not send the results."""
        code, line = self.end()
        assert code == (0 if self.mlflow else 7), line
        assert self.mlflow or line.startswith("ANC-4001 "), line

    def stop(self) -> None:
        """End the server and the silos, which would else look for it for ever, and meet the server of a later test at its port."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            self.process.communicate()
        for silo in self.silos:
            silo.leave()


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "anchorage.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class AddingSilo(threading.Thread):
    """A silo that adds `step` to every weight and reports 100 samples times its place."""

    def __init__(self, site: Site, name: str) -> None:
        super().__init__(daemon=True)
        place = SILOS.index(name) + 1
        self.silo, self.step, self.samples = name, np.float32(0.5 * place), 100 * place
        folder = site.folder / "silos" / name
        folder.mkdir(parents=True)
        key = new_key(folder / "key.pem")
        self.credentials = Credentials(folder / "key.pem", folder / "cert.pem", site.authority.certificate_path)
        token = Tokens(site.folder / "authority" / "tokens").create(name)
        request = SigningRequest.make(key, silo_uri("derm", name))
        address = site.endpoints["enrolment"]
        self.credentials.save_certificate(enrol(address, self.credentials.authority, name, token, request))
        self.link = GrpcServerLink(
            server=site.endpoints["silos"],
            credentials=self.credentials,
            profile=Profile("All", self.samples, "test"),
            longest_pause_seconds=0.2,
        )
        site.silos.append(self)
        self.layout = Layout.from_json(json.loads(describe(site.endpoints["silos"], self.credentials))["up"])

    def leave(self) -> None:
        """End, whatever it waits for."""
        self.link.close()
        if self.is_alive():
            self.join(60)
            assert not self.is_alive()

    def run(self) -> None:
        updates: dict[str, ModelBytes] = {}
        while (order := self.link.next_order(None)) is not None:
            match order:
                case Assigned(task):
                    if task.id not in updates and (model := fetched(self.link, task, self.layout)) is not None:
                        updates[task.id] = ModelBytes.from_arrays(
                            self.layout, {name: array + self.step for name, array in model.arrays().items()}
                        )
                    if (update := updates.get(task.id)) is not None:
                        self.link.announce(Announcement(task.id, {"train": self.samples}, {}, {}, update.manifest))
                case Permit(task):
                    push(self.link, task, updates[task])
                case Finished():
                    break
        self.link.close()


def fetched(link: GrpcServerLink, task: Task, layout: Layout) -> ModelBytes | None:
    """Fetch a task's model; None where the task or the run was over meanwhile."""
    sink = MemorySpool(task.model)
    if not done_in_time(lambda: link.fetch(task.model, sink)):
        return None
    return ModelBytes(layout, (sink.chunk(i) for i in range(len(task.model.digests))))


def push(link: GrpcServerLink, task: str, update: ModelBytes) -> None:
    """Send an update; nothing where the task or the run was over meanwhile, as after a server that came back."""
    done_in_time(lambda: link.push(task, update))


def done_in_time(transfer_of: Callable[[], None]) -> bool:
    """Make a transfer; return whether what it is for was still there. A busy machine decides that, no test does."""
    try:
        transfer_of()
    except AnchorageError as error:
        if error.failure not in (transfer.UNKNOWN_TASK, transfer.MODEL_NOT_OFFERED, transfer.SERVER_UNREACHABLE):
            raise
        return False
    return True
