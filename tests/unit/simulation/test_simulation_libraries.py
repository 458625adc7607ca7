"""A federation that trains a network of torchvision, from its document to the best model."""

from pathlib import Path

import pytest

from anchorage.methods import validate_study

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from anchorage.simulation.run import Simulation

DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 3
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: torchvision/resnet18, imageSize: 8, channels: 1, augmentation: Digits}
  method: {name: FedAvg, local: {epochs: 1, batchSize: 8, optimiser: {sgd: {learningRate: "0.003"}}}}
  evaluation: {validation: {format: Digits, use: Test, testPercent: 10}}
"""
SILO = """
---
kind: Silo
metadata: {name: NAME}
spec:
  federation: tiny
  labels: All
  managed: {data: {format: Digits, use: Part, testPercent: 10, partition: {recipe: Iid, parts: 12, part: PART}}}
"""


@pytest.mark.integration
def test_a_network_by_its_librarys_name_learns_and_repeats(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(DOCUMENTS + "".join(SILO.replace("NAME", "ab"[n]).replace("PART", str(n)) for n in range(2)))
    simulation = Simulation(validate_study(file), tmp_path, tmp_path / "state")
    last = simulation.play()
    assert last.metrics["accuracy"] > 0.2  # chance is 0.1; other arithmetic trains to another value
    second = Simulation(validate_study(file, ["spec.rounds=1"]), tmp_path, tmp_path / "again").play()
    assert second.digest == simulation.store.history()[1].digest != last.digest
