"""A search for settings whose process is killed goes on with the same trials, and its best file is one for a run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anchorage.methods import validate_study

pytest.importorskip("optuna")
pytest.importorskip("torch")

PARTS = "testPercent: 10, validationPercent: 10"
DOCUMENTS = f"""
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: 2
  task: {{classification: {{classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}}}
  model: {{network: SmallCnn, imageSize: 8, channels: 1}}
  method: {{name: FedAvg, local: {{epochs: 1}}}}
  evaluation:
    validation: {{format: Digits, use: Validation, {PARTS}}}
    test: {{format: Digits, use: Test, {PARTS}}}
---
kind: Silo
metadata: {{name: a}}
spec:
  federation: tiny
  labels: All
  managed: {{data: {{format: Digits, use: Part, {PARTS}, partition: {{recipe: Iid, parts: 14, part: 0}}}}}}
"""
TUNING = """
kind: Tuning
federation: tiny.yaml
minutes: 1000
trials: 4
parameters:
  - {path: spec.method.local.optimiser.sgd.learningRate, logUniform: {low: "0.001", high: "1"}}
"""


def command(folder: Path, work: str, *options: str) -> list[str]:
    arguments = ["tune", "-f", str(folder / "search.yaml"), "--workdir", str(folder / work), "--device", "cpu"]
    return [sys.executable, "-m", "fedctl.main", *arguments, *options]


def searched(folder: Path, work: str) -> list[dict[str, Any]]:
    done = subprocess.run(command(folder, work, "-o", "json"), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    trials: list[dict[str, Any]] = json.loads(done.stdout)["trials"]
    return [{**trial, "seconds": None} for trial in trials]


def test_a_killed_search_goes_on_with_the_same_trials(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(DOCUMENTS)
    (tmp_path / "search.yaml").write_text(TUNING)
    with subprocess.Popen(command(tmp_path, "killed"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = [
                next(line for line in process.stdout if line.startswith(f"trial {number}:")) for number in range(3)
            ]
        finally:
            process.kill()
    assert process.returncode == -9
    after = searched(tmp_path, "killed")
    assert after == searched(tmp_path, "whole") and len(after) == 4
    assert lines[2] == f"trial 2: {after[2]['set'][0]}\n"
    best = max(after, key=lambda trial: (trial["value"], -trial["trial"]))
    written = validate_study(tmp_path / "killed" / "best.yaml")
    assert written.federation == validate_study(tmp_path / "tiny.yaml", best["set"]).federation
