"""Studies: grids of methods, settings and seeds, in one table."""

import json
from pathlib import Path

import pytest
import yaml
from test_research_compare import DOCUMENTS, refused, rows, seed
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, Failure, commands, documents, learning, storage
from anchorage.api.files import Study
from fedctl.main import app
from fedctl.research.simulation import Simulator, write_result

pytest.importorskip("torch")

PART = "{format: Digits, use: Part, partition: {recipe: Iid, parts: 8, part: 0}}"
STUDY = {
    "federation": "base.yaml",
    "seeds": 2,
    "silos": 4,
    "set": ["spec.rounds=1"],
    "published": {"source": "FedAnchor review Table 1", "dataset": "CIFAR-10"},
    "methods": {
        "FedAvg": {"set": ["spec.method.name=FedAvg"]},
        "ours": {"set": ["spec.method.name=FedProx"], "published": {"method": "FedAnchor"}},
    },
    "settings": {
        "250, IID": {"published": {"setting": "IID Dir(1000); 250 anchors; 100 clients"}},
        "500, uneven": {
            "set": ["silo.spec.managed.data.partition.recipe=PerClient"],
            "published": {"setting": "Non-IID Dir(0.1); 500 anchors; 100 clients"},
        },
    },
}


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Write the study; let a seed reach its number and its setting at once. Returns what was played."""
    (tmp_path / "base.yaml").write_text(DOCUMENTS.replace("{format: Digits}", PART))
    calls: list[tuple[str, int]] = []

    def play(simulator: Simulator, study: Study, title: str) -> None:
        number, method = study.federation.spec.seed, study.federation.spec.method.name
        partition = study.silos[3].spec.managed and study.silos[3].spec.managed.data.partition
        assert partition and (partition.part, partition.parts, len(study.silos)) == (3, 4, 4)
        assert study.federation.spec.rounds == 1
        calls.append((f"{method} {partition.recipe}", number))
        values = (0.1, 0.2 + (method == "FedProx") / 2 + number / 100)
        write_result(simulator.folder.result(number), seed(number, "accuracy", values), study)

    monkeypatch.setattr(Simulator, "play", play)
    return calls


def study(folder: Path, *arguments: object, **changes: object) -> Result:
    (folder / "grid.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
    options = ["study", "-f", folder / "grid.yaml", "--workdir", folder / "work", "--device", "cpu", *arguments]
    return CliRunner().invoke(app, [str(option) for option in options])


def test_one_table_beside_the_published_numbers(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    result = study(tmp_path)
    assert played == [
        (f"{method} {recipe}", n) for recipe in ("Iid", "PerClient") for method in ("FedAvg", "FedProx") for n in (1, 2)
    ]
    head = "SETTING METHOD SEEDS ROUNDS LAST ACCURACY BEST ACCURACY PUBLISHED MOVED PAPER'S SETTING"
    table = rows(result)[rows(result).index(head) :]
    assert table[1] == "250, IID FedAvg 2 1 0.2150 ± 0.0071 0.2150 ± 0.0071 2.0 kB"
    assert table[2].startswith("250, IID ours 2 1 0.7150 ± 0.0071 0.7150 ± 0.0071 0.8036 ± 0.0018")
    assert table[2].endswith(" differs: network, silos, images, anchors, partition; unknown: rounds")
    assert len(table) == 6 and table[4].startswith("500, uneven ours")
    report = json.loads(study(tmp_path, "-o", "json").stdout)
    assert [row["setting"] for row in report] == ["250, IID"] * 2 + ["500, uneven"] * 2 and len(played) == 8
    assert report[1]["published"]["value"] == 0.8036 and "published" not in report[0]
    assert report[1]["published"]["differs"] == ["network", "silos", "images", "anchors", "partition"]
    assert report[1]["published"]["unknown"] == ["rounds"]


def test_wide_output_has_every_metric_of_every_cell(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    table = rows(study(tmp_path, "-o", "wide"))
    table = table[table.index("SETTING METHOD METRIC IMAGES LAST BEST") + 1 :]
    assert table[0] == "250, IID FedAvg accuracy training 0.2150 ± 0.0071 0.2150 ± 0.0071"
    assert table[1] == "250, IID FedAvg loss training 0.7850 ± 0.0071 0.7850 ± 0.0071"
    assert len([line for line in table if " ± " in line]) == 4 * 2


def test_a_picture_per_setting(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    pytest.importorskip("matplotlib")
    assert study(tmp_path, "--plot", tmp_path / "curves.svg").exit_code == 0
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["curves-250-IID.svg", "curves-500-uneven.svg"]


def test_the_other_cells_are_played_where_one_fails(
    tmp_path: Path, played: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Simulator.play

    def fail_once(simulator: Simulator, study: Study, title: str) -> None:
        if len(played) == 2:
            played.append(("failed", 0))
            raise AnchorageError(learning.MOMENTS_UNUSABLE, "1 of 2 classes have labelled images")
        play(simulator, study, title)

    monkeypatch.setattr(Simulator, "play", fail_once)
    result = study(tmp_path)
    assert [method for method, _ in played] == ["FedAvg Iid"] * 2 + ["failed"] + ["FedAvg PerClient"] * 2 + [
        "FedProx PerClient"
    ] * 2
    assert refused(result) is learning.MOMENTS_UNUSABLE
    assert "1 of 4 cells failed" in str(result.exception) and "ours, 250, IID failed: ANC-1311" in result.output
    assert sum(row.startswith(("250, IID FedAvg", "500, uneven")) for row in rows(result)) == 3
    assert not [row for row in rows(result) if row.startswith("250, IID ours")]
    second_run = study(tmp_path)
    assert second_run.exit_code == 0 and played[-2:] == [("FedProx Iid", 1), ("FedProx Iid", 2)]


@pytest.mark.parametrize(
    ("failure", "cells"), [(learning.MOMENTS_UNUSABLE, 0), (storage.DISK_FULL, 1)], ids=["the first cell", "the disk"]
)
def test_a_failure_of_all_cells_ends_a_study(
    tmp_path: Path, played: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, failure: Failure, cells: int
) -> None:
    play = Simulator.play

    def fail(simulator: Simulator, study: Study, title: str) -> None:
        if len(played) >= 2 * cells:
            raise AnchorageError(failure, "no")
        play(simulator, study, title)

    monkeypatch.setattr(Simulator, "play", fail)
    assert refused(study(tmp_path)) is failure
    assert len(played) == 2 * cells


def test_a_study_that_cannot_be_is_refused_before_anything_is_played(
    tmp_path: Path, played: list[tuple[str, int]]
) -> None:
    assert refused(study(tmp_path, methods={})) is documents.OUT_OF_RANGE
    assert refused(study(tmp_path, sets=[])) is documents.UNKNOWN_FIELD
    assert refused(study(tmp_path, set=["spec.rounds=0"])) is documents.OUT_OF_RANGE
    assert study(tmp_path, settings={"a b": {}, "a-b": {}}).exit_code == 2
    assert study(tmp_path, metric="accuracy", published={"dataset": "CIFAR-11"}).exit_code == 2
    assert study(tmp_path, published={"dataset": "CIFAR-11"}).exit_code == 2
    assert played == []
    assert refused(study(tmp_path, metric="macro_auc", published={})) is commands.NO_COMMON_METRIC


def test_a_part_of_a_study_is_played_and_the_rest_later(tmp_path: Path, played: list[tuple[str, int]]) -> None:
    part = "--method", "ours", "--setting", "500, uneven", "--seeds", 1
    table = rows(study(tmp_path, *part))
    assert played == [("FedProx PerClient", 1)]
    assert table[-2].startswith("500, uneven ours 1 1 0.7100 ")
    study(tmp_path, "--method", "ours", "--seeds", 3)
    assert played[1:] == [(f"FedProx {recipe}", n) for recipe, n in (("Iid", 1), ("Iid", 2), ("Iid", 3))] + [
        ("FedProx PerClient", 2),
        ("FedProx PerClient", 3),
    ]
    before = len(played)
    assert study(tmp_path).exit_code == 0
    assert [method for method, _ in played[before:]] == ["FedAvg Iid"] * 2 + ["FedAvg PerClient"] * 2


def test_overrides_of_the_command_line_go_to_every_cell_and_are_the_last_word(
    tmp_path: Path, played: list[tuple[str, int]]
) -> None:
    result = study(tmp_path, "--set", "spec.method.name=FedMix", "--set", "spec.seed=5", set=["spec.rounds=1"])
    assert result.exit_code == 0, result.output
    assert set(played) == {(f"FedMix {recipe}", n) for recipe in ("Iid", "PerClient") for n in (5, 6)}
    differs = refused(study(tmp_path, "--set", "spec.method.name=FedAvg", "--method", "ours"))
    assert differs is commands.WORKDIR_TAKEN, "results of other documents are not taken for those of this study"


def test_a_name_that_is_in_no_cell_is_refused_with_those_that_are(
    tmp_path: Path, played: list[tuple[str, int]]
) -> None:
    def message(result: Result) -> str:
        assert result.exit_code == 2 and played == []
        return " ".join(result.output.replace("│", " ").split())

    assert "found --method FedAvgg, the study has: FedAvg; ours" in message(study(tmp_path, "--method", "FedAvgg"))
    assert "found --setting even, the study has: 250, IID; 500, uneven" in message(study(tmp_path, "--setting", "even"))
    none = study(tmp_path, "--setting", "even", settings={"": {}})
    assert "found --setting even, the study has no settings" in message(none)
    assert study(tmp_path, "--seeds", 0).exit_code == 2
