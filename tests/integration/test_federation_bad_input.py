"""What a user can get wrong, through `fedctl`: one line with its code and its exit status, no traceback, nothing left running."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from federation_documents import NAME, WEIGHTS, document
from federation_images import cut_short, draw_images
from safetensors.numpy import save_file
from telltale_sites import CLAIM, CLASSES, Words, folders

from anchorage_silo.kept_output import OUTPUT_FILE
from anchorage_silo.known_images import TABLE_FILE

WAIT_SECONDS = 200.0
FOLDER = {"format": "ImageFolder", "claimName": "images"}
TASK = {"classification": {"classes": ["cat", "dog"]}}
MODEL = {"network": "SmallCnn", "imageSize": 16}


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    status: int
    stdout: str
    lines: tuple[str, ...]


def fedctl(*arguments: object, folder: Path) -> Answer:
    """Run a command, without mlflow's slow start, and see that it leaves no traceback and no process."""
    fake = folder / "no-mlflow" / "mlflow"
    fake.mkdir(parents=True, exist_ok=True)
    (fake / "__init__.py").write_text("raise SystemExit(1)")
    done = subprocess.run(
        [sys.executable, "-m", "fedctl.main", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(fake.parent), *sys.path])},
        check=False,
    )
    outputs = [done.stderr, done.stdout, *(path.read_text() for path in folder.rglob("logs/*.log"))]
    assert not any("Traceback" in text or "traceback" in text for text in outputs), outputs
    assert not any(str(folder) in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return Answer(done.returncode, done.stdout, tuple(done.stderr.splitlines()))


def write(folder: Path, spec: Mapping[str, Any], *silos: Mapping[str, Any]) -> Path:
    documents = [
        document("Federation", NAME, {"rounds": 1, "task": TASK, "model": MODEL, "method": {"name": "FedAvg"}, **spec})
    ]
    documents += [document("Silo", f"silo-{i}", {"federation": NAME, **silo}) for i, silo in enumerate(silos)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "federation.yaml").write_text(yaml.safe_dump_all(documents))
    return folder / "federation.yaml"


def codes(answer: Answer) -> list[str]:
    return [line.split()[0] for line in answer.lines if line.startswith("ANC-")]


WRONG = """
kind: Federation
metadata: {name: derm}
spec:
  rounds: 0
  raunds: 5
  seed: many
  task: {classification: {classes: [a, b]}}
  model: {network: SmallCnn, imageSize: 16}
  method: {name: FedAnchor, pseudoLabels: {anchorSimilarity: {threshold: 0.6}}}
---
kind: Silo
metadata: {name: a}
spec: {federation: derm}
---
kind: Silo
metadata: {name: a}
spec: {federation: skin}
---
kind: Hospital
"""


def test_every_mistake_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    answer = fedctl("validate", "-f", file, "-o", "json", folder=tmp_path)
    expected = ["1005", "1007", "1009", "1010", "1011", "1103", "1104"]
    assert answer.status == 2 and sorted(set(codes(answer))) == [f"ANC-{code}" for code in expected]
    forecast = json.loads(answer.stdout)
    assert not forecast["valid"] and sorted({m["code"] for m in forecast["mistakes"]}) == sorted(set(codes(answer)))
    for line in answer.lines:
        assert line.startswith(("see fedctl explain ", "ANC-")) and (line.startswith("see") or f"{file}:" in line)


@pytest.mark.parametrize(
    ("text", "code"),
    [(None, "ANC-1001"), ("spec: [1\n", "ANC-1002"), ("kind: Federation\napiVersion: v9\n", "ANC-1006")],
)
def test_files_that_are_no_federation_start_nothing(text: str | None, code: str, tmp_path: Path) -> None:
    file = tmp_path / "federation.yaml"
    if text is not None:
        file.write_text(text)
    answer = fedctl("run", "-f", file, "--workdir", tmp_path / "run", folder=tmp_path)
    assert answer.status == 2 and code in codes(answer)
    assert not (tmp_path / "run").exists()


UNLABELLED: Mapping[str, Any] = {"labels": "None"}
ANCHORS = {"format": "Digits", "use": "Anchors", "anchors": 1}
MEANINGLESS: list[tuple[dict[str, Any], list[Mapping[str, Any]], str]] = [
    ({}, [], "ANC-1105"),
    ({"protocol": {"minSilos": 2}}, [{"labels": "All"}], "ANC-1106"),
    ({"method": {"name": "FedAnchor"}}, [UNLABELLED], "ANC-1112"),
    ({"method": {"name": "FedAnchor"}, "anchorData": ANCHORS}, [UNLABELLED], "ANC-1113"),
    ({"method": {"name": "SemiAnAgg"}, "protocol": {"mode": "Asynchronous"}}, [{"labels": "All"}], "ANC-1114"),
]


@pytest.mark.parametrize(
    ("spec", "silos", "code"), MEANINGLESS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_documents_without_meaning_are_refused(
    spec: dict[str, Any], silos: list[Mapping[str, Any]], code: str, tmp_path: Path
) -> None:
    answer = fedctl("validate", "-f", write(tmp_path, spec, *silos), folder=tmp_path)
    assert answer.status == 2 and codes(answer) == [code] and answer.stdout == ""


def outside_the_classes(folder: Path) -> dict[str, Any]:
    draw_images(folder / "images", "cat", "wolf")
    return {}


def no_image(folder: Path) -> dict[str, Any]:
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
    return {}


def a_corrupt_jpeg(folder: Path) -> dict[str, Any]:
    draw_images(folder / "images", "cat", "dog")
    cut_short(folder / "images" / "dog" / "rgb.jpg")
    return {}


def a_model_of_a_terabyte(folder: Path) -> dict[str, Any]:
    header = {"encoder.weight": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}
    text = json.dumps(header).encode().ljust(128)
    with (folder / "initial.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + (1 << 40))
    return {}


def a_class_without_anchors(folder: Path) -> dict[str, Any]:
    draw_images(folder / "anchors", "cat")
    model = {**MODEL, "initial": None}
    return {"model": model, "method": {"name": "FedAnchor"}, "anchorData": {**FOLDER, "claimName": "anchors"}}


@pytest.mark.parametrize(
    ("prepare", "status", "expected_text"),
    [
        (
            outside_the_classes,
            3,
            "ANC-1204 ClassesDiffer: silo silo-0: ",
        ),
        (no_image, 3, "ANC-1205 NoImages: silo silo-0: "),
        (a_corrupt_jpeg, 3, "ANC-1203 BadImages: silo silo-0: 1 of 16 images cannot be used: image 16 of 16 ("),
        (a_model_of_a_terabyte, 6, "ANC-3109 ModelTooLarge: "),
        (a_class_without_anchors, 8, "ANC-1306 AnchorsMissing: no anchor of class 1"),
    ],
)
def test_data_that_cannot_be_used_ends_the_run_before_round_1(
    prepare: Callable[[Path], dict[str, Any]], status: int, expected_text: str, tmp_path: Path
) -> None:
    save_file(WEIGHTS, tmp_path / "initial.safetensors")
    spec = {"model": {**MODEL, "initial": "initial.safetensors"}, **prepare(tmp_path)}
    labels = "None" if "anchorData" in spec else "All"
    file = write(tmp_path, spec, {"labels": labels, "managed": {"data": FOLDER}})
    answer = fedctl("run", "-f", file, "--workdir", tmp_path / "run", folder=tmp_path)
    assert answer.status == status, answer
    assert [line for line in answer.lines if line.startswith("ANC-")] == [answer.lines[-2]]
    assert answer.lines[-2].startswith(expected_text) and answer.lines[-1].startswith("see fedctl explain ANC-")


def test_images_of_every_size_and_mode_are_trained_on_and_a_corrupt_one_is_skipped(tmp_path: Path) -> None:
    a_corrupt_jpeg(tmp_path)
    silo = {"labels": "All", "managed": {"data": {**FOLDER, "onBadImage": "Skip"}}}
    file = write(tmp_path, {"method": {"name": "FedAvg", "local": {"epochs": 1}}}, silo)
    answer = fedctl("run", "-f", file, "--workdir", tmp_path / "run", "-o", "json", folder=tmp_path)
    assert answer.status == 7 and codes(answer) == ["ANC-4001"], answer  # without mlflow
    status = json.loads(answer.stdout)["status"]
    assert status["round"] == 1 and [part["samples"] for part in status["silos"]] == [15]


def test_a_workdir_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, {}, {"labels": "All", "managed": {"data": FOLDER}})
    (tmp_path / "file").touch()
    answer = fedctl("run", "-f", file, "--workdir", tmp_path / "file" / "run", folder=tmp_path)
    assert answer.status == 6 and codes(answer) == ["ANC-5003"], answer


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_workdir_of_somebody_else_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, {}, {"labels": "All", "managed": {"data": FOLDER}})
    (tmp_path / "closed").mkdir(mode=0o500)
    answer = fedctl("run", "-f", file, "--workdir", tmp_path / "closed" / "run", folder=tmp_path)
    assert answer.status == 6 and codes(answer) == ["ANC-5003"], answer


@pytest.mark.parametrize("on_bad", ["Refuse", "Skip"])
def test_no_word_of_a_silo_s_images_is_in_what_others_read(on_bad: str, tmp_path: Path) -> None:
    words = Words(on_bad)
    section = folders(tmp_path / "drawn", words)
    (tmp_path / "drawn" / CLAIM / section.path).rename(tmp_path / "images")
    silo = {"labels": "Partial", "managed": {"data": {**FOLDER, "onBadImage": on_bad}}}
    spec = {
        "task": {"classification": {"classes": list(CLASSES)}},
        "method": {"name": "FedAvg", "local": {"epochs": 1}},
    }
    answer = fedctl("run", "-f", write(tmp_path, spec, silo), "--workdir", tmp_path / "run", folder=tmp_path)
    assert codes(answer) == (["ANC-4001"] if on_bad == "Skip" else ["ANC-1203"]), answer  # without mlflow
    assert words.found_in("\n".join((answer.stdout, *answer.lines))) == []
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    telling = {file for file in files if words.found_in(file.read_bytes())}
    (table,) = (file for file in files if file.name == TABLE_FILE)
    stored = {file for file in files if file.suffix == ".headers"}  # the silo's own, beside its decoded images
    assert telling <= {table, table.parents[1] / OUTPUT_FILE, *stored} and table in telling
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in stored)
    assert any(file.suffix == ".log" and file.parent.name == "logs" for file in set(files) - telling)
    if on_bad == "Refuse":
        (line,) = (line for line in answer.lines if line.startswith("ANC-1203"))
        (fingerprint, *_) = re.findall(r"image \d+ of \d+ \(([0-9a-f]{8})\)", line)
        config = next((tmp_path / "run").rglob("silo.yaml"))
        command = [sys.executable, "-m", "anchorage_silo", "images", fingerprint, "--config", str(config)]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True, cwd=tmp_path)
        assert shown.stdout.startswith(f"{fingerprint}  image ") and words.found_in(shown.stdout)
