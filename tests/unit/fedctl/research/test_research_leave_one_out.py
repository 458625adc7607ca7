"""What each silo is worth: a simulation without it, and the growth of the error."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, commands
from anchorage.api.files import Study
from anchorage.engine.interfaces import RoundRecord
from anchorage.methods import validate_study
from fedctl.main import app
from fedctl.research.leave_one_out import without_silo
from fedctl.research.results import SeedResult
from fedctl.research.simulation import Simulator, write_result

FEDERATION = {
    "kind": "Federation",
    "metadata": {"name": "tiny"},
    "spec": {
        "rounds": 1,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {"name": "FedAvg"},
        "protocol": {"minSilos": 3},
        "evaluation": {"validation": {"format": "Digits", "use": "Test", "testPercent": 20}},
    },
}
PART = {"format": "Digits", "use": "Part", "testPercent": 20, "partition": {"recipe": "Iid", "parts": 8}}
WORTH = {"a": 0.25, "b": 0.0, "c": -0.125}
"""By how much the accuracy is higher with a silo; all three together reach 0.5."""


def write(folder: Path, labels: str = "All All All", **spec: object) -> Path:
    silos = [
        {
            "kind": "Silo",
            "metadata": {"name": name},
            "spec": {
                "federation": "tiny",
                "labels": kind,
                "managed": {"data": {**PART, "partition": {**PART["partition"], "part": part}}},
            },
        }
        for part, (name, kind) in enumerate(zip("abc", labels.split(), strict=False))
    ]
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump_all([{**FEDERATION, "spec": {**FEDERATION["spec"], **spec}}, *silos]))
    return path


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Stand in for the simulator, and note who takes part."""
    runs: list[tuple[str, ...]] = []

    def play(simulator: Simulator, study: Study, title: str) -> None:
        names = tuple(silo.metadata.name for silo in study.silos)
        runs.append(names)
        seed = study.federation.spec.seed
        accuracy = 0.5 - sum(WORTH[name] for name in WORTH if name not in names) + seed / 100
        rounds = (RoundRecord(1, f"{seed}", 1.0, {"accuracy": accuracy}, (), {}, 7, 3),)
        write_result(simulator.folder.result(seed), SeedResult(seed, rounds, 2.0, "cpu"), study)

    monkeypatch.setattr(Simulator, "play", play)
    return runs


def leave_one_out(file: Path, *arguments: object) -> Result:
    options = ["simulate", "-f", file, "--leave-one-out", "--workdir", file.parent / "w", "--device", "cpu", *arguments]
    return CliRunner().invoke(app, [str(option) for option in options])


def test_every_silo_is_left_out_the_first_one_too(tmp_path: Path, played: list[tuple[str, ...]]) -> None:
    file = write(tmp_path)
    report = json.loads(leave_one_out(file, "--seeds", 2, "-o", "json").stdout)
    assert played == [("a", "b", "c")] * 2 + [("b", "c")] * 2 + [("a", "c")] * 2 + [("a", "b")] * 2
    assert {silo["name"]: silo["errorIncrease"]["mean"] for silo in report["silos"]} == pytest.approx(WORTH)
    assert report["accuracy"]["values"] == pytest.approx([0.51, 0.52])
    table = leave_one_out(file, "--seeds", 2).stdout
    assert "nobody" in table and "0.2500 ± 0.0000" in table and len(played) == 8, "finished runs are not played again"


def test_the_quorum_is_what_the_others_can_reach(tmp_path: Path) -> None:
    study = without_silo(validate_study(write(tmp_path)), 0)
    assert [silo.metadata.name for silo in study.silos] == ["b", "c"]
    assert study.federation.spec.protocol.min_silos == 2
    assert "name: a\n" not in study.to_yaml()


def test_a_silo_that_the_others_need_is_said_to_be_so(tmp_path: Path, played: list[tuple[str, ...]]) -> None:
    report = json.loads(
        leave_one_out(write(tmp_path, "All None None", method={"name": "FedAvgSemi"}), "-o", "json").stdout
    )
    assert ("b", "c") not in played and len(played) == 3
    first = report["silos"][0]
    assert first["errorIncrease"] is None and "every silo has labels: None" in first["reason"]


@pytest.mark.parametrize(
    ("labels", "spec", "options", "message"),
    [
        ("All", {"protocol": {}}, [], "there is 1 silo"),
        ("All All", {"protocol": {}, "evaluation": None}, [], "add spec.evaluation"),
        ("All All", {"protocol": {}}, ["--silos", 2], "leave --silos out"),
    ],
)
def test_what_cannot_be_compared(
    labels: str, spec: dict[str, object], options: list[object], message: str, tmp_path: Path
) -> None:
    result = leave_one_out(write(tmp_path, labels, **spec), *options)
    assert isinstance(result.exception, AnchorageError), result.output
    assert result.exception.failure is commands.NO_RESULTS and message in str(result.exception)
