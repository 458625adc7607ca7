"""Models that the server makes programs of while the sender draws."""

import json
import subprocess
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient
from tracked_run import start, write_models

from anchorage.api.inference import read_inference
from anchorage.engine.tracking import PROGRAMS, Outbox, program_file, what_is_sent
from anchorage.engine.tracking.mlflow_run import MlflowRun
from anchorage.engine.tracking.sender import Sending
from anchorage.learning.inference import ImageModel, read_weights
from anchorage_server import programs
from anchorage_server.programs import export_programs

SEND = """
import sys
from pathlib import Path
from anchorage.engine.tracking.sender import Sending
Sending(Path(sys.argv[1]), sys.argv[2]).send_all()
assert "torch" not in sys.modules, "importing it takes seconds"
"""


def described_models(models: Path) -> dict[str, dict[str, object]]:
    """What ``model.json`` says of the final and the best model."""
    described = json.loads((models / "model.json").read_text())
    return {role: described[role] for role in ("final", "best")}


@pytest.mark.integration
def test_programs_of_the_server_are_registered_without_torch(tmp_path: Path, uri: str) -> None:
    folder, models = tmp_path / "outbox", write_models(tmp_path / "model")
    described = json.loads((models / "model.json").read_text())
    described["final"] |= {"metrics": {"accuracy": 0.75, "auc": None}, "time": 1.7e9, "round": 2}
    (models / "model.json").write_text(json.dumps(described))
    run = start(folder)
    run.note_models(models)
    export_programs(models, folder)
    digests = {role: str(each["digest"]) for role, each in described_models(models).items()}
    assert all(program_file(folder, digest).is_file() for digest in digests.values())
    run.finish("", models)
    subprocess.run([sys.executable, "-c", SEND, str(folder), uri], check=True, cwd=tmp_path)
    assert what_is_sent(folder, "").missing is None and not (folder / PROGRAMS).exists()
    mlflow.set_tracking_uri(uri)
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)
    client = MlflowClient(uri)
    for role in ("final", "best"):
        answer = mlflow.pyfunc.load_model(f"models:/derm-model@{role}").predict(pd.DataFrame({"image": list(images)}))
        read = read_inference(models / "model.json")
        model = ImageModel(read, read_weights(models, read.choose(best=role == "best")[1]).arrays())
        scores = [list(row.values()) for row in answer["probabilities"]]
        np.testing.assert_allclose(scores, model.score(images[:, None]), atol=1e-4)
        version = client.get_model_version_by_alias("derm-model", role)
        logged = client.get_logged_model(str(version.source).removeprefix("models:/"))
        assert (str(logged.status), logged.tags["anchorage.digest"]) == ("READY", digests[role])
        if role == "final":
            assert [(each.key, each.value, each.step) for each in logged.metrics or ()] == [("accuracy", 0.75, 2)]


def test_the_card_s_figures_are_drawn_once(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, models = tmp_path / "outbox", write_models(tmp_path / "model")
    drawn: list[Path] = []
    monkeypatch.setattr(MlflowRun, "_log_figures", lambda _, models, card: drawn.append(models))
    monkeypatch.setattr(MlflowRun, "register", lambda *_: "1")
    run = start(folder)
    run.note_models(models)
    Sending(folder, uri).send_all()
    assert drawn == [models]
    run.finish("", models)
    Sending(folder, uri).send_all()
    assert drawn == [models]
    run.note_models(models)  # of more rounds
    Sending(folder, uri).send_all()
    assert drawn == [models] * 2


def test_an_end_without_word_of_the_models_draws_their_figures(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill in between."""
    folder, models = tmp_path / "outbox", write_models(tmp_path / "model")
    drawn: list[Path] = []
    monkeypatch.setattr(MlflowRun, "_log_figures", lambda _, models, card: drawn.append(models))
    monkeypatch.setattr(MlflowRun, "register", lambda *_: "1")
    start(folder).finish("", models)
    Sending(folder, uri).send_all()
    assert drawn == [models]


def test_a_card_that_is_completed_before_the_end_does_not_end_the_sender(tmp_path: Path, uri: str) -> None:
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    run, sending = start(folder), Sending(folder, uri)
    run.note_models(models)
    Outbox(folder).append("card", {"models": str(models)})
    sending.send_all()
    assert not sending.ended and not Sending(folder, uri).ended
    run.finish("stopped", None)
    Outbox(folder).append("card", {"models": str(models)})
    sending.send_all()
    assert sending.ended


@pytest.mark.parametrize("what", ["no description", "no weights", "large"])
def test_what_the_server_does_not_export_is_left_to_the_sender(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, folder = write_models(tmp_path / "model"), tmp_path / "outbox"
    earlier = program_file(folder, "of an earlier end")
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    match what:
        case "no description":
            (models / "model.json").unlink()
        case "no weights":
            (models / "final.safetensors").write_bytes(b"\0" * 16)
        case _:
            monkeypatch.setattr(programs, "LARGEST_MODEL", 10)
    export_programs(models, folder)
    assert not [file for file in (folder).rglob("*") if file.is_file()]
