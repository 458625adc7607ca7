"""Plans of studies: what every cell takes, what is there already, and the sum."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_research_compare import DOCUMENTS, refused, rows
from test_research_study import PART, STUDY, played, study
from typer.testing import CliRunner, Result

from anchorage.api.errors import commands, documents
from anchorage.api.single import read_document
from anchorage.methods import validate_study
from anchorage.simulation import forecast as forecasts
from fedctl.main import app
from fedctl.research import study_plan
from fedctl.research.results import SeedResult
from fedctl.research.study import Selection, StudyFile, cells_of

pytest.importorskip("torch")

__all__ = ["played"]


def plan(folder: Path, *arguments: object, trial: bool = False, **changes: object) -> Result:
    (folder / "grid.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
    options = ["plan", "-f", folder / "grid.yaml", "--workdir", folder / "work", *arguments]
    return CliRunner().invoke(app, [*map(str, options), *([] if trial else ["--no-trial"])])


def planned(folder: Path, *arguments: object, **changes: Any) -> Any:
    result = plan(folder, *arguments, "-o", "json", **changes)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_study_costs_its_cells_times_their_seeds(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    plan = planned(tmp_path, "--set", "spec.method.encoding={int8: {}}", "--method", "ours")
    assert [(cell["setting"], cell["method"], cell["seeds"]) for cell in plan["cells"]] == [
        ("250, IID", "ours", 2),
        ("500, uneven", "ours", 2),
    ]
    file = tmp_path / "grid.yaml"
    first, _ = cells_of(read_document(file, StudyFile), file, tmp_path, None, "cpu", Selection(methods=("ours",)))
    of_one = forecasts.forecast(first.wanted.studies()[0], tmp_path, tmp_path / "plain", trial=False)
    for row in plan["cells"]:
        assert row["down"] == 2 * of_one.bytes_down and row["left"]["down"] == row["down"]
        assert row["up"] < 0.5 * 2 * of_one.bytes_up, "the override's encoding"
        assert (row["silos"], row["rounds"], row["seconds"], row["memory"]) == (4, 1, None, None)
    assert (plan["seeds"], plan["finishedSeeds"]) == (4, 0)
    assert plan["down"] == sum(row["down"] for row in plan["cells"]) == plan["left"]["down"]
    assert played == [] and not (tmp_path / "work").exists(), "a plan begins nothing"


def test_what_is_finished_is_marked_and_left_out_of_what_is_left(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    study(tmp_path, "--setting", "250, IID", "--method", "FedAvg")
    study(tmp_path, "--setting", "250, IID", "--method", "ours", "--seeds", 1)
    small_plan = planned(tmp_path, "--setting", "250, IID")
    full, half = small_plan["cells"]
    file = tmp_path / "work" / "250-IID-FedAvg" / "seeds" / "1.json"
    took = SeedResult.read(file)
    assert (full["finishedSeeds"], half["finishedSeeds"]) == (2, 1)
    assert full["seconds"] == 2 * took.seconds and full["left"] == {"seconds": 0.0, "up": 0, "down": 0}
    assert full["up"] + full["down"] == 2 * took.nbytes
    assert half["down"] - half["left"]["down"] == sum(entry.bytes_down for entry in took.rounds)
    assert small_plan["left"]["down"] == half["left"]["down"] > 0
    table = rows(plan(tmp_path, "--setting", "250, IID"))
    head = table.index("SETTING METHOD SEEDS DONE ROUNDS SILOS TIME UP DOWN MEMORY")
    assert table[head + 1].startswith("250, IID FedAvg 2 all 1 4 6.0 s ")
    assert table[head + 2].startswith("250, IID ours 2 1 1 4 ? ")
    assert table[head + 3].startswith("in all 4 3 ? ") and table[head + 4].startswith("still to do 1 ? ")
    everything = rows(plan(tmp_path, "--setting", "250, IID", "--method", "FedAvg", trial=True))
    assert "in all 2 2 6.0 s 2.0 kB 2.0 kB ?" in everything, "nothing is tried where nothing is left"


def test_results_of_other_documents_are_refused_as_the_study_refuses_them(
    tmp_path: Path, played: list[tuple[str, int]]
) -> None:
    study(tmp_path)
    other = "--set", "spec.method.local.epochs=3"
    assert refused(plan(tmp_path, *other)) is refused(study(tmp_path, *other)) is commands.WORKDIR_TAKEN


def test_a_trial_sums_time_and_takes_the_largest_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base.yaml").write_text(DOCUMENTS.replace("{format: Digits}", PART))
    tried: list[tuple[str, float, int]] = []

    def forecast(study: Any, *_: object, seconds: float, at_once: int, **__: object) -> forecasts.Forecast:
        method = study.federation.spec.method.name
        tried.append((method, seconds, at_once))
        rounds = forecasts.RoundsForecast(method, True, False, 3, 2.0, 10.0, 20.0, 4.0, 12.0, 1.0)
        size = 500 if method == "FedAvg" else 700
        trials = forecasts.Trials(0.0, 0.0)
        return forecasts.Forecast([rounds], 7.0, 2.0, 3, 0, 0, trials, (), process_memory=size)

    monkeypatch.setattr(study_plan, "forecast_simulation", forecast)
    monkeypatch.setattr(study_plan, "silos_at_once", lambda _: 2)
    trial_plan = planned(tmp_path, trial=True, settings={"": {}}, set=[])
    a_seed = 7.0 + 2.0 + 3 * (1.0 + max(4.0, 12.0 / 2))
    assert [(row["seconds"], row["memory"]) for row in trial_plan["cells"]] == [(2 * a_seed, 500), (2 * a_seed, 700)]
    assert (trial_plan["seconds"], trial_plan["memory"], trial_plan["left"]["up"]) == (4 * a_seed, 700, 4 * 3 * 10)
    assert tried == [("FedAvg", 20.0, 2), ("FedProx", 20.0, 2)]
    result = plan(tmp_path, trial=True, settings={"": {}}, set=[])
    assert "FedAvg 2 0 2 4 1 min 00 s 60 B 120 B 500 B" in rows(result)
    assert "No image is read here" not in result.stdout
    waits_for_none = planned(
        tmp_path,
        trial=True,
        settings={"": {}},
        set=["spec.protocol.mode=Asynchronous"],
        methods={"FedAvg": {}},
    )
    assert tried[-1][2] == 1 and waits_for_none["cells"][0]["seconds"] == 2 * (7.0 + 2.0 + 3 * (1.0 + 12.0))


def test_options_of_the_other_kind_of_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(DOCUMENTS)
    for option in (("--silos", 3), ("--link", 20)):
        result = plan(tmp_path, *option)
        assert result.exit_code == 2 and f"found {option[0]}, which is not for a study" in result.output
    for option in (("--method", "x"), ("--setting", "x"), ("--seeds", 2), ("--workdir", tmp_path)):
        result = CliRunner().invoke(app, ["plan", "-f", str(tmp_path / "base.yaml"), *map(str, option)])
        assert result.exit_code == 2 and f"found {option[0]}, which is not for a federation" in result.output


def test_a_federation_is_planned_with_the_silos_that_simulate_makes(tmp_path: Path) -> None:
    file = tmp_path / "base.yaml"
    part = "{format: Digits, use: Part, partition: {recipe: Iid, parts: 1, part: 0}}"
    file.write_text(
        DOCUMENTS.replace("{format: Digits}", part).replace("rounds: 2", "rounds: 2\n  protocol: {minSilos: 9}")
    )
    assert refused(CliRunner().invoke(app, ["plan", "-f", str(file), "--no-trial"])) is documents.QUORUM_UNREACHABLE
    result = CliRunner().invoke(app, ["plan", "-f", str(file), "--no-trial", "--silos", "9", "-o", "json"])
    plan = json.loads(result.stdout)
    assert plan["silos"] == 9 == len(validate_study(file, silos=9).silos) == len(plan["leaves"])
    shown = CliRunner().invoke(app, ["plan", "-f", str(file), "--no-trial", "--silos", "9"]).stdout
    names = [silo.metadata.name for silo in validate_study(file, silos=9).silos]
    assert f"What leaves {', '.join(names[:5])} and 4 more:" in shown
