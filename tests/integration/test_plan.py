"""What is forecast before a run, against what the run then does: bytes round by round, and what is said of images that are not here."""

import json
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from drawn_masks import write_study
from federation_documents import DIGITS, LOCAL, digits_study
from rich.console import Console
from typer.testing import CliRunner

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import BAD_IMAGES
from anchorage.api.files import Study

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from anchorage.simulation import forecast as forecasts
from anchorage.simulation.forecast import Forecast, Rehearsal, RoundsForecast
from anchorage.simulation.rehearsal import Trials
from anchorage.simulation.run import simulate
from fedctl import plan
from fedctl.main import app

SCORED = {"evaluation": {"siloPercent": 20, "everyRounds": 3, "validation": {**DIGITS, "use": "Test"}}}
MIXED = {"name": "FedMix", "inputMixing": {"fedMix": {"groupSize": 3}}}
CASES: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedAnchor": {},
    "SyncDVW": {"rounds": 3},
    "AsyncFedAvg": {"rounds": 7},
    "sampled silos, scored at the silos": {"method": "FedAvg", "rounds": 7, **SCORED, "perRound": 2},
    "control variates": {"method": "FedAvg", "slots": {"name": "SCAFFOLD"}},
    "4 bits": {"method": "FedAvg", "rounds": 3, "slots": {"encoding": {"int4": {}}}},
    "the largest changes": {"method": "FedAvg", "rounds": 3, "slots": {"encoding": {"topK": {}}}},
    "models in 8 bits": {
        "method": "FedAvg",
        "rounds": 3,
        "protocol": {"minSilos": 3, "roundDeadlineSeconds": 600, "modelEncoding": "Int8"},
    },
    "a warm-up": {"method": "FedAvg", "rounds": 4, "warmUp": [{"method": "FedProx", "rounds": 2}]},
}
"""Federations whose bytes do not depend on what is in the images."""


def study_of(folder: Path, name: str, case: dict[str, Any]) -> Study:
    spec = dict(case)
    method = spec.pop("method", name)
    if "perRound" in spec:
        spec["protocol"] = {"minSilos": 2, "silosPerRound": spec.pop("perRound"), "roundDeadlineSeconds": 120}
    return digits_study(folder, method, **spec)


def rehearsed(study: Study, folder: Path, *, trial: bool = False) -> Forecast:
    rehearsal = Rehearsal(study, study.file.parent, folder, trial=trial)
    rehearsal.play(rehearsal.observe)
    return rehearsal.result()


def assert_planned(forecast: Forecast, study: Study, folder: Path) -> None:
    """See that the bytes of a forecast are those of a simulation, within 1 %, in every kind of round."""
    _, store = simulate(study, study.file.parent, folder)
    records = store.history()[1:]
    assert sum(part.count for part in forecast.rounds) == len(records) == study.federation.spec.rounds
    assert forecast.bytes_up == pytest.approx(sum(record.bytes_up for record in records), rel=0.01)
    assert forecast.bytes_down == pytest.approx(sum(record.bytes_down for record in records), rel=0.01)
    first = next(part for part in forecast.rounds if part.first)
    assert (first.bytes_up, first.bytes_down) == pytest.approx((records[0].bytes_up, records[0].bytes_down), rel=0.01)
    assert forecast.bytes_up > 0 and forecast.bytes_down > 0


@pytest.mark.parametrize("name", CASES)
def test_bytes_without_images_are_those_of_a_run(name: str, tmp_path: Path) -> None:
    study = study_of(tmp_path, name, CASES[name])
    assert_planned(rehearsed(study, tmp_path / "plan"), study, tmp_path / "run")


def test_an_asynchronous_run_uploads_what_it_commits(tmp_path: Path) -> None:
    study = study_of(tmp_path, "AsyncDVW", {"rounds": 7})
    forecast = rehearsed(study, tmp_path / "plan")
    assert forecast.bytes_up == 7 * forecast.up


@pytest.mark.parametrize("slots", [MIXED, {"name": "GlobalMixup"}], ids=["means", "raw images"])
def test_bytes_with_images_have_the_pool_that_silos_fill(slots: dict[str, Any], tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAvg", rounds=3, slots={**slots, "local": LOCAL})
    forecast = rehearsed(study, tmp_path / "plan", trial=True)
    assert forecast.trials.behind > 10 * 8 * 8 * 4
    assert_planned(forecast, study, tmp_path / "run")


def test_rounds_that_are_not_rehearsed_are_like_those_that_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(forecasts, "STAGE_ROUNDS", (4, 4))
    study = study_of(tmp_path, "long", {**CASES["sampled silos, scored at the silos"], "rounds": 17})
    forecast = rehearsed(study, tmp_path / "plan")
    assert forecast.rehearsed == 4
    assert_planned(forecast, study, tmp_path / "run")


def planned(*arguments: object) -> Any:
    result = CliRunner().invoke(app, ["plan", "-f", *map(str, arguments), "-o", "json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_trial_gives_time_and_memory_of_this_machine(tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAnchor", rounds=3)
    output = planned(study.file)
    times, memory, disk = output["time"], output["memory"], output["disk"]
    assert 0 < times["slowestSiloSecondsPerRound"] <= times["machineForEverySilo"] and times["secondsBeforeRound1"] > 0
    assert times["oneAfterAnother"] > 2 * times["slowestSiloSecondsPerRound"]
    assert min(memory.values()) > 10 * output["bytes"]["model"], "a process has more than the model"
    assert (
        disk["server"]["checkpoints"] >= 3 * output["bytes"]["model"]
        and disk["silo"]["update"] == output["bytes"]["update"]
    )
    assert output["imagesUnknown"] == []


def test_a_study_is_tried_as_it_will_be_simulated(tmp_path: Path) -> None:
    digits_study(tmp_path, "FedAvg", rounds=2)
    grid = {"federation": "federation.yaml", "seeds": 3, "methods": {"one": {}, "more": {"set": ["spec.rounds=4"]}}}
    file = tmp_path / "grid.yaml"
    file.write_text(yaml.safe_dump(grid))
    output = planned(file, "--workdir", tmp_path / "work")
    cells = {cell["method"]: cell for cell in output["cells"]}
    one, more = cells["one"], cells["more"]
    assert min(one["seconds"], more["seconds"]) > 0
    assert output["seconds"] == pytest.approx(one["seconds"] + more["seconds"])
    assert more["down"] == 2 * one["down"], "twice the rounds"
    assert output["memory"] == max(one["memory"], more["memory"]) > 100e6, "a process has torch and the images"
    assert not (tmp_path / "work").exists()


def test_images_that_are_not_here_are_said_to_be_unknown(tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAvg", rounds=2, slots={**MIXED, "local": LOCAL})
    documents = list(yaml.safe_load_all(study.file.read_text()))
    documents[1]["spec"]["managed"]["data"] = {"format": "ImageFolder", "claimName": "elsewhere"}
    documents[2]["spec"].pop("managed")
    study.file.write_text(yaml.safe_dump_all(documents))
    output = planned(study.file, "--no-trial")
    assert output["time"] is None and output["memory"] is None
    assert output["imagesUnknown"] == ["a", "b", "c"]
    assert any("pool of images" in note for note in output["notes"])
    failure = CliRunner().invoke(app, ["plan", "-f", str(study.file)]).exception
    assert isinstance(failure, AnchorageError) and "elsewhere" in failure.message


def test_a_silo_whose_images_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "b" / "0"
    folder.mkdir(parents=True)
    for name in ("x.png", "y.png"):
        (folder / name).write_bytes(b"no image")
    study = digits_study(tmp_path, "FedAvg", rounds=2)
    documents = list(yaml.safe_load_all(study.file.read_text()))
    documents[2]["spec"]["managed"]["data"] = {"format": "ImageFolder", "claimName": "b"}
    study.file.write_text(yaml.safe_dump_all(documents))
    failure = CliRunner().invoke(app, ["plan", "-f", str(study.file)]).exception
    assert isinstance(failure, AnchorageError) and failure.failure is BAD_IMAGES
    assert "silo b" in failure.message and "0/x.png" in failure.message


def test_words_say_what_leaves_each_hospital(tmp_path: Path) -> None:
    study = digits_study(tmp_path, "FedAvg", rounds=2, slots={**MIXED, "local": LOCAL}, **SCORED)
    documents = list(yaml.safe_load_all(study.file.read_text()))
    documents[3]["spec"]["labels"] = "None"
    study.file.write_text(yaml.safe_dump_all(documents))
    leaves = planned(study.file, "--no-trial")["leaves"]
    assert any(line.startswith("mean_images [g, channels, H, W]") for line in leaves["a"])
    assert any("siloPercent" in line for line in leaves["a"]) and leaves["a"] == leaves["b"]
    assert len(leaves["c"]) == 2 and "nothing else: it has no labels" in leaves["c"][1]


def test_people_read_it_in_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = digits_study(tmp_path, "FedAvg", rounds=3, **SCORED)
    console = Console(width=80, record=True, file=StringIO())
    monkeypatch.setattr(plan, "people", lambda: console)
    result = CliRunner().invoke(app, ["plan", "-f", str(study.file), "--no-trial"])
    assert result.exit_code == 0, result.stderr
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    total = planned(study.file, "--no-trial")["bytes"]
    assert f"{total['down'] / 1e6:.1f} MB" in text and "What leaves a, b, c:" in text


def test_a_line_has_a_time_by_its_encoding_and_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = digits_study(tmp_path, "FedAvg", rounds=3, slots={"encoding": {"int8": {}}})
    output = planned(study.file, "--no-trial", "--link", "0.008")  # a kilobyte a second
    link, sizes = output["link"], output["bytes"]
    assert (link["encoding"], link["inTime"], link["withTraining"]) == ({"FedAvg": "int8"}, None, False)
    assert link["modelEncoding"] is None
    for row, part in zip(link["rounds"], sizes["rounds"], strict=True):
        assert (row["downSeconds"], row["upSeconds"]) == (part["downPerSilo"] / 1000, part["upPerSilo"] / 1000)
        assert row["upSeconds"] < 0.4 * row["downSeconds"], "eight bits of 32, and what is not encoded"
    assert link["longestSeconds"] == max(row["downSeconds"] + row["upSeconds"] for row in link["rounds"])
    kilobytes = (sizes["up"] + sizes["down"]) / 3 / 1000
    assert link["seconds"] == pytest.approx(kilobytes, rel=1e-3)
    slower = planned(study.file, "--no-trial", "--link", "0.001", "--set", "spec.protocol.roundDeadlineSeconds=60")
    assert slower["link"]["inTime"] is False and slower["link"]["seconds"] == pytest.approx(8 * kilobytes, rel=1e-3)
    assert planned(study.file, "--no-trial")["link"] is None
    console = Console(width=80, record=True, file=StringIO())
    monkeypatch.setattr(plan, "people", lambda: console)
    rounded = ("--set", "spec.protocol.modelEncoding=BFloat16")
    assert (
        CliRunner().invoke(app, ["plan", "-f", str(study.file), "--no-trial", "--link", "0.008", *rounded]).exit_code
        == 0
    )
    text = " ".join(console.export_text().split())
    assert (
        "ON A LINE OF 0.008 MBIT/S, INT8, MODELS BFLOAT16" in text
        and "how long training takes is not known here" in text
    )


def test_training_counts_against_the_deadline_and_uploads_behind_a_barrier_have_their_own(tmp_path: Path) -> None:
    kind = partial(RoundsForecast, "FedAvg", True, False, 2, 3.0, silos_seconds=0.0, server_seconds=500.0)
    rounds = [kind(bytes_up=3e6, bytes_down=6e6, slowest_seconds=50.0)]
    forecast = Forecast(rounds, 0.0, 0.0, 2, 0, 0, Trials(0.0, 0.0), ())
    plain = digits_study(tmp_path / "plain", "FedAvg", protocol={"roundDeadlineSeconds": 74, "minSilos": 1})
    link = plan._link(plain, forecast, 1.0, timed=True)
    assert (link["longestSeconds"], link["inTime"]) == (16 + 50 + 8, True)
    assert plan._link(plain, forecast, 0.99, timed=True)["inTime"] is False
    assert plan._link(plain, forecast, 1.0, timed=False)["longestSeconds"] == 16 + 8
    waits = digits_study(tmp_path / "barrier", "SemiAnAgg")
    forecast = replace(forecast, rounds=[replace(rounds[0], method="SemiAnAgg")])
    assert plan._link(waits, forecast, 1.0, timed=True)["longestSeconds"] == 16 + 50


def test_what_does_not_go_with_batch_dice_is_said_before(tmp_path: Path) -> None:
    """DP-SGD of a hospital's policy, and several devices."""
    file = write_study(tmp_path, {"name": "FedAvg"})
    federation, *silos = yaml.safe_load_all(file.read_text())
    silos[1]["spec"]["managed"]["devices"] = 2
    file.write_text(yaml.safe_dump_all([federation, *silos]))
    notes = planned(file, "--data-root", str(tmp_path / "data"), "--no-trial")["notes"]
    assert any("privacyBudget.dpSgd refuses this task" in note for note in notes)
    assert any(note.startswith("site-1 will train on the first of several devices") for note in notes)
