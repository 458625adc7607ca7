"""A command that is told to read a pipe, a socket or a device ends at once, with one line that names it."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from irregular_files import DESCRIPTIONS, KINDS, SECONDS, put

from anchorage.transport.kube.access import read_kubeconfig
from fedctl.failures import ending
from fedctl.main import app

pytestmark = [pytest.mark.timeout(SECONDS), pytest.mark.parametrize("kind", KINDS)]

MODEL = Path(__file__).parents[2] / "golden" / "model"
DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 1
  task: {classification: {classes: [a, b]}}
  model: {network: LeafCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg}
---
kind: Silo
metadata: {name: first}
spec: {federation: tiny, labels: All, managed: {data: {format: ImageFolder, claimName: first}}}
"""

COMMANDS: dict[str, Callable[[Path], Sequence[object]]] = {
    "predict": lambda path: ("predict", "-m", MODEL, path),
    "predict with a model": lambda path: ("predict", "-m", path.parent, MODEL / "images"),
    "validate": lambda path: ("validate", "-f", path),
    "plan": lambda path: ("plan", "-f", path),
    "run": lambda path: ("run", "-f", path),
    "simulate": lambda path: ("simulate", "-f", path),
    "data check": lambda path: ("data", "check", "-f", path),
    "weights import": lambda path: ("weights", "import", path, "LeafCnn", "own", "--data-root", path.parent),
    "weights list": lambda path: ("weights", "list", "--data-root", path.parent),
    "status": lambda path: ("status", "--workdir", path.parent),
    "rounds": lambda path: ("rounds", "--workdir", path.parent),
    "logs": lambda path: ("logs", "--workdir", path.parent),
    "report": lambda path: ("report", path.parent),
    "compare": lambda path: ("compare", path.parent),
}
PLACES = {
    "predict with a model": "model.json",
    "weights list": "weights/index.json",
    "status": "server/status.json",
    "rounds": "server/journal.jsonl",
    "logs": "logs/server.log",
    "report": "server/status.json",
    "compare": "server/journal.jsonl",
}
"""Where each command finds the file below the folder that it is told; else it is told the file."""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_at_once(
    tmp_path: Path, kind: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, name = tmp_path / "given", PLACES.get(command, "x.png")
    (folder / name).parent.mkdir(parents=True)
    if "/" in name:
        (folder / "federation.yaml").write_text(DOCUMENTS)
    told_folder = folder / ("x" if "/" in name else name)
    put(kind, folder / name)
    arguments = [str(argument) for argument in COMMANDS[command](told_folder)]
    assert ending(lambda: app(arguments)) != 0
    printed = capsys.readouterr().err
    assert DESCRIPTIONS[kind] in printed
    assert "see fedctl explain ANC-" in printed
    assert "Traceback" not in printed


def test_a_folder_of_images_names_it_and_predicts_the_others(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(next((MODEL / "images").iterdir()), tmp_path / "good.png")
    path = put(kind, tmp_path / "x.png")
    assert ending(lambda: app(["predict", "-m", str(MODEL), str(tmp_path), "-o", "json"])) != 0
    output = capsys.readouterr()
    assert [Path(prediction["image"]).name for prediction in json.loads(output.out)["predictions"]] == ["good.png"]
    assert f"{path}: Unsupported: {DESCRIPTIONS[kind]}, not a regular file" in output.err


def test_a_kubeconfig(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("kubernetes")
    path = put(kind, tmp_path / "config")

    def read() -> None:
        read_kubeconfig(str(path))

    assert ending(read) != 0


def test_the_weights_of_a_model(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(MODEL, tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.unlink()
    put(kind, weights)
    assert ending(lambda: app(["predict", "-m", str(tmp_path / "model"), str(MODEL / "images")])) != 0
    assert f"{weights}: {DESCRIPTIONS[kind]}, not a regular file" in capsys.readouterr().err
