"""The server as a process of its own, with silos that speak the real protocol and add a number to every weight."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from anchorage.errors import AnchorageError, transfer
from anchorage.messages import Announcement, Assigned, Finished, Permit, Profile, Task
from anchorage.pki import Authority, Credentials, SigningRequest, Tokens, new_key, silo_uri
from anchorage.tensors.layout import Layout
from anchorage.tensors.model import ModelBytes
from anchorage.tensors.spool import MemorySpool
from anchorage.wire import GrpcServerLink
from anchorage.wire.describe import describe
from anchorage.wire.enrolment import enrol

SILOS = ("a", "b")
WEIGHTS = {"encoder.weight": np.linspace(-1, 1, 300_000, dtype=np.float32), "classifier.bias": np.zeros(3, np.float32)}


class Site:
    """A coordinating site in a folder: documents, authority, and server processes one after another."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.state = folder / "state"
        self.authority = Authority.create(folder / "authority", "derm")
        save_file(WEIGHTS, folder / "initial.safetensors")
        described = {
            "rounds": 2,
            "model": {"name": "ResNet18", "numClasses": 3, "imageSize": 32, "initial": "initial.safetensors"},
            "method": {"name": "FedAvg"},
            "protocol": {"minSilos": 2, "roundDeadlineSeconds": 60},
            **spec,
        }
        documents = [document("Federation", "derm", described)]
        documents += [document("Silo", silo, {"federation": "derm", "labels": "All"}) for silo in SILOS]
        (folder / "federation.yaml").write_text(yaml.safe_dump_all(documents))
        config = {"federation": "federation.yaml", "state": "state", "dataRoot": ".", "authority": "authority"}
        (folder / "server.yaml").write_text(yaml.safe_dump(config))
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[dict[str, Any]] = []
        self.endpoints: dict[str, Any] = {}

    def command(self) -> list[str]:
        return [sys.executable, "-m", "anchorage_server", "--config", str(self.folder / "server.yaml")]

    def without_mlflow(self) -> dict[str, str]:
        """Return an environment in which mlflow cannot be imported: its start takes long, and only one test is about it."""
        fake = self.folder / "no-mlflow" / "mlflow"
        fake.mkdir(parents=True, exist_ok=True)
        (fake / "__init__.py").write_text("raise SystemExit(1)")
        return {**os.environ, "PYTHONPATH": str(fake.parent)}

    def start(self, *, mlflow: bool = False) -> None:
        """Start the server and wait until it listens."""
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
            found: dict[str, Any] = json.loads(line)
            self.lines.append(found)
            if found["message"] == message and all(found[name] == value for name, value in values.items()):
                return found
        raise AssertionError(f"the server ended before it logged {message!r}: {self.lines}")

    def end(self) -> tuple[int, str]:
        """Wait for the server's end and return its exit status and last line."""
        assert self.process is not None
        _, rest = self.process.communicate(timeout=180)
        return self.process.returncode, rest.strip().rpartition("\n")[2]

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


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
        self.layout = Layout.from_json(json.loads(describe(site.endpoints["silos"], self.credentials))["up"])

    def run(self) -> None:
        updates: dict[str, ModelBytes] = {}
        while (order := self.link.next_order(None)) is not None:
            match order:
                case Assigned(task):
                    if task.id not in updates and (model := self.fetched(task)) is not None:
                        updates[task.id] = ModelBytes.from_arrays(
                            self.layout, {name: array + self.step for name, array in model.arrays().items()}
                        )
                    if (update := updates.get(task.id)) is not None:
                        self.link.announce(Announcement(task.id, {"train": self.samples}, {}, {}, update.manifest))
                case Permit(task):
                    self.link.push(task, updates[task])
                case Finished():
                    break
        self.link.close()

    def fetched(self, task: Task) -> ModelBytes | None:
        """Fetch a task's model; None where the task was replaced meanwhile, as by a server that came back."""
        sink = MemorySpool(task.model)
        try:
            self.link.fetch(task.model, sink)
        except AnchorageError as error:
            if error.failure is not transfer.MODEL_NOT_OFFERED:
                raise
            return None
        return ModelBytes(self.layout, (sink.chunk(i) for i in range(len(task.model.digests))))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def check_result(site: Site, rounds: int) -> None:
    mean = (0.5 * 100 + 1.0 * 200) / 300
    for name, array in load_file(site.state / "model" / "final.safetensors").items():
        np.testing.assert_allclose(array, WEIGHTS[name] + rounds * mean, atol=1e-5)
    journal = [json.loads(line) for line in (site.state / "journal.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in journal] == list(range(rounds + 1))
    assert [s["weight"] for s in journal[-1]["silos"]] == pytest.approx([1 / 3, 2 / 3])


def test_two_rounds_from_start_to_final_model_and_mlflow(site: Site) -> None:
    site.start(mlflow=True)
    silos = [AddingSilo(site, name) for name in SILOS]
    for silo in silos:
        silo.start()
    assert site.end()[0] == 0
    for silo in silos:
        silo.join(10)
        assert not silo.is_alive()
    check_result(site, 2)
    status = json.loads((site.state / "status.json").read_text())
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Succeeded"] == ("True", "AllRoundsCommitted")
    assert status["model"]["path"].endswith("model/final.safetensors")
    described = json.loads((site.state / "model" / "model.json").read_text())
    assert described["final"]["round"] == 2
    assert status["model"]["digest"] == described["final"]["digest"]
    assert status["tracking"]["runId"]
    assert status["tracking"]["modelVersion"] == "1"


def test_a_stopped_server_ends_cleanly_and_resumes(site: Site) -> None:
    site.start()
    first = AddingSilo(site, "a")
    first.start()
    site.read_until("silo connected", silo="a")
    assert site.process is not None
    site.process.send_signal(signal.SIGTERM)
    assert site.end() == (5, "ANC-3008 Stopped: received SIGTERM; start again to resume at the last committed round")
    keep_ports(site)
    site.start()
    second = AddingSilo(site, "b")
    second.start()
    assert site.end()[0] == 0
    check_result(site, 2)


def test_a_killed_server_resumes_at_the_last_committed_round(site: Site) -> None:
    site.start()
    silos = [AddingSilo(site, name) for name in SILOS]
    for silo in silos:
        silo.start()
    site.read_until("round committed", round=1)
    assert site.process is not None
    site.process.kill()
    site.end()
    keep_ports(site)
    site.start()
    assert site.end()[0] == 0
    check_result(site, 2)


def keep_ports(site: Site) -> None:
    """Let the next server listen where silos look for it."""
    config = yaml.safe_load((site.folder / "server.yaml").read_text())
    config |= {"listen": site.endpoints["silos"]}
    (site.folder / "server.yaml").write_text(yaml.safe_dump(config))


def test_a_missing_quorum_ends_the_run_with_its_code(tmp_path: Path) -> None:
    site = Site(tmp_path, protocol={"minSilos": 2, "roundDeadlineSeconds": 1})
    site.start()
    code, line = site.end()
    assert code == 5
    assert line.startswith("ANC-3001 QuorumLost: 0 silos connected, 2 needed")
    conditions = {c["type"]: c for c in json.loads((site.state / "status.json").read_text())["conditions"]}
    assert conditions["Failed"]["reason"] == "QuorumLost"
    assert conditions["QuorumMet"]["status"] == "False"


def run_once(site: Site) -> tuple[int, str]:
    done = subprocess.run(site.command(), capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.strip().rpartition("\n")[2]


def test_a_second_server_on_the_folder_is_refused(site: Site) -> None:
    site.start()
    code, line = run_once(site)
    assert (code, line.split(":")[0]) == (6, "ANC-3104 StateInUse")


def test_a_port_in_use_is_refused(site: Site, tmp_path: Path) -> None:
    site.start()
    other = Site(tmp_path / "other")
    other.endpoints = site.endpoints
    keep_ports(other)
    code, line = run_once(other)
    assert (code, line.split(":")[0]) == (4, "ANC-2160 CannotListen")


def test_a_state_folder_that_is_a_file_is_refused(site: Site) -> None:
    site.state.write_text("")
    code, line = run_once(site)
    assert (code, line.split(":")[0]) == (6, "ANC-3102 StateNotWritable")


def test_a_wrong_configuration_is_refused(site: Site) -> None:
    (site.folder / "server.yaml").write_text("federation: 3\nlisten: nowhere\nfurther: 1\n")
    done = subprocess.run(site.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    for field in ("federation", "state", "authority", "listen", "further"):
        assert f": {field}: found" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_initial_weights_are_refused(site: Site) -> None:
    (site.folder / "initial.safetensors").unlink()
    code, line = run_once(site)
    assert code == 2
    assert "initial.safetensors" in line


def test_the_server_of_plain_averaging_loads_no_torch(site: Site) -> None:
    site.start()
    maps = Path(f"/proc/{site.endpoints['pid']}/maps").read_text()
    assert "torch" not in maps
