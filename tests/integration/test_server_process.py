"""The server as a process of its own, with silos that speak the real protocol and add a number to every weight."""

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from other_thread import signal_other_thread
from safetensors.numpy import load_file
from server_site import SILOS, WEIGHTS, AddingSilo, Site

from anchorage.api.model import ModelDescription
from anchorage.api.model_card import ModelCard
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods import PRESETS
from anchorage.pieces.task.classification import Classification


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def check_result(site: Site, rounds: int, weights: Mapping[str, np.ndarray] = WEIGHTS) -> None:
    mean = (0.5 * 100 + 1.0 * 200) / 300
    for name, array in load_file(site.state / "model" / "final.safetensors").items():
        np.testing.assert_allclose(array, weights[name] + rounds * mean, atol=1e-5)
    journal = [json.loads(line) for line in (site.state / "journal.jsonl").read_text().splitlines()]
    assert [entry["round"] for entry in journal] == list(range(rounds + 1))
    (documents,) = {entry["documents"] for entry in journal}
    assert len(documents) == 64
    assert [s["weight"] for s in journal[-1]["silos"]] == pytest.approx([1 / 3, 2 / 3])


@pytest.fixture
def real_site(tmp_path: Path) -> Iterator[Site]:
    """A site whose weights are a network's, so that its models can be used."""
    task = Classification(classes=("a", "b", "c"))
    model = ModelDescription(network="MoonCnn", task=task, image_size=16, channels=1)
    network = build_model(model, TrainingMethod.of(PRESETS["FedAvg"].slots), 1)
    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    described = {"network": "MoonCnn", "imageSize": 16, "channels": 1, "initial": "initial.safetensors"}
    site = Site(tmp_path, weights, model=described)
    yield site
    site.stop()


def test_two_rounds_from_start_to_final_model_and_mlflow(real_site: Site) -> None:
    site = real_site
    site.start(mlflow=True)
    silos = [AddingSilo(site, name) for name in SILOS]
    for silo in silos:
        silo.start()
    site.succeed()
    for silo in silos:
        silo.join(120)
        assert not silo.is_alive()
    check_result(site, 2, site.weights)
    status = json.loads((site.state / "status.json").read_text())
    conditions = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert conditions["Succeeded"] == ("True", "AllRoundsCommitted")
    assert status["model"]["path"].endswith("model/final.safetensors")
    described = json.loads((site.state / "model" / "model.json").read_text())
    assert described["final"]["round"] == 2
    assert status["model"]["digest"] == described["final"]["digest"]
    assert status["tracking"]["runId"]
    assert status["tracking"]["modelVersion"] == "1"
    card = ModelCard.model_validate_json((site.state / "model" / "model-card.json").read_bytes())
    assert (card.final.digest, card.final.round, card.final.assessment) == (status["model"]["digest"], 2, None)
    assert [(silo.name, silo.rounds) for silo in card.silos] == [("a", 2), ("b", 2)]
    assert (card.traffic.bytes_up, card.traffic.bytes_down) == (status["bytesUp"], status["bytesDown"])
    assert "not scored at the server" in (site.state / "model" / "model-card.md").read_text()


def test_a_run_whose_models_cannot_be_written_has_not_succeeded(site: Site) -> None:
    site.start()
    (site.state / "model").write_text("no folder")
    for name in SILOS:
        AddingSilo(site, name).start()
    status, line = site.end()
    assert status == 6 and "model" in line
    last_status = json.loads((site.state / "status.json").read_text())
    conditions = {c["type"]: (c["status"], c["reason"]) for c in last_status["conditions"]}
    assert last_status["round"] == last_status["rounds"] and "model" not in {
        key for key, value in last_status.items() if value is not None
    }
    assert conditions["Succeeded"] == ("False", conditions["Failed"][1])
    assert conditions["Failed"][0] == "True" and f" {conditions['Failed'][1]}: " in line


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
    site.succeed()
    check_result(site, 2)


def test_a_server_stops_whichever_thread_hears_the_signal(site: Site) -> None:
    site.start()
    AddingSilo(site, "a").start()
    site.read_until("silo connected", silo="a")
    assert site.process is not None
    signal_other_thread(site.process.pid, signal.SIGTERM)
    assert site.end() == (5, "ANC-3008 Stopped: received SIGTERM; start again to resume at the last committed round")


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
    site.succeed()
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
    done = subprocess.run(site.command(), capture_output=True, text=True, timeout=120, check=False)
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
    done = subprocess.run(site.command(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    for field in ("federation", "state", "listen", "further"):
        assert f": {field}: found" in done.stderr
    assert "Traceback" not in done.stderr


def test_missing_initial_weights_are_refused(site: Site) -> None:
    (site.folder / "initial.safetensors").unlink()
    code, line = run_once(site)
    assert code == 3
    assert line.startswith("ANC-1201") and "initial.safetensors" in line


def test_the_server_of_plain_averaging_loads_no_torch(site: Site) -> None:
    site.start()
    maps = Path(f"/proc/{site.endpoints['pid']}/maps").read_text()
    assert "torch" not in maps
