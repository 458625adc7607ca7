"""Runs and simulations side by side: means and standard deviations over seeds, tables, curves."""

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, Failure, commands
from anchorage.engine.embedding_plane import EmbeddingPlane
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.store.records import record_to_json
from anchorage.methods import validate_study
from fedctl.local_run import claim
from fedctl.main import app
from fedctl.research.compare import published_beside
from fedctl.research.curves import curve
from fedctl.research.results import SeedResult, SimulationFolder, Spread, pseudo_label_curves, read_results
from fedctl.research.simulation import claim as claim_simulation
from fedctl.research.simulation import make, write_result
from fedctl.research.simulation_view import summary
from fedctl.workdir import Workdir

DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 2
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg}
---
kind: Silo
metadata: {name: a}
spec: {federation: tiny, labels: All, managed: {data: {format: Digits}}}
"""
ACCURACIES = {1: (0.1, 0.8, 0.7), 2: (0.1, 0.6, 0.9)}


def seed(number: int, metric: str, values: Sequence[float]) -> SeedResult:
    rounds = (
        RoundRecord(place, f"d{place}", 100.0 + place, {metric: value, "loss": 1 - value}, (), {}, 1000 * place, 500)
        for place, value in enumerate(values)
    )
    return SeedResult(number, tuple(rounds), 3.0, "cpu")


def simulation(folder: Path, overrides: Sequence[str] = (), metric: str = "accuracy") -> Path:
    """Leave a simulation of two seeds and two rounds."""
    file = folder.with_suffix(".yaml")
    file.write_text(DOCUMENTS)
    study, place = validate_study(file, overrides), SimulationFolder(folder)
    make(place)
    claim_simulation(place, study)
    for number, values in ACCURACIES.items():
        write_result(place.result(number), seed(number, metric, values), study)
    return folder


def run(folder: Path, rounds: int = 2) -> Path:
    """Leave what a run writes: documents and a journal with fields of the server's own."""
    file = folder.with_suffix(".yaml")
    file.write_text(DOCUMENTS)
    place = Workdir(folder)
    place.make()
    claim(place, validate_study(file, ["spec.method.name=FedProx", "spec.seed=7"]))
    entries = [record_to_json(entry) for entry in seed(7, "accuracy", (0.2, 0.3, 0.4)).rounds[: rounds + 1]]
    lines = [json.dumps({**entry, "schemaVersion": 1, "silos": [], "checksum": "0"}) for entry in entries]
    place.journal.write_text("\n".join([*lines, '{"round": 3, "dig']))
    return folder


def compare(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def refused(result: Result) -> Failure:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception.failure


def rows(result: Result) -> list[str]:
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_starting_imports_neither_torch_nor_grpc_nor_matplotlib() -> None:
    code = "import sys, fedctl.research.compare, fedctl.research.simulation; print(sorted({'torch', 'grpc', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_mean_and_a_standard_deviation_of_the_sample() -> None:
    values = (0.7, 0.9, 0.8)
    spread = Spread(values)
    assert spread.mean == pytest.approx(np.mean(values)) and spread.std == pytest.approx(np.std(values, ddof=1))
    assert str(spread) == "0.8000 ± 0.1000" and str(Spread((0.5,))) == "0.5000" and math.isnan(Spread((0.5,)).std)
    assert Spread((0.5, math.nan)).as_document() == {"mean": None, "std": None, "values": [0.5, None]}


def test_a_seed_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = seed(1, "accuracy", (0.1, math.inf))
    path = tmp_path / "1.json"
    path.write_text(json.dumps(written.as_document(), allow_nan=False))
    read = SeedResult.read(path)
    assert math.isnan(read.rounds[1].metrics["accuracy"]) and read.rounds[0] == written.rounds[0]
    assert (read.seed, read.seconds, read.device, read.nbytes) == (1, 3.0, "cpu", 2000)


def test_the_best_round_is_the_servers() -> None:
    assert seed(1, "accuracy", (0.1, 0.8, 0.8)).best_round().round == 1
    assert seed(1, "balanced_accuracy", (0.9, math.nan, 0.8)).best_round().round == 0
    assert seed(1, "macro_auc", (0.9, 0.8)).best_round().round == 0


def test_last_and_best_are_over_the_seeds(tmp_path: Path) -> None:
    results = read_results(simulation(tmp_path / "sim"))
    assert results.last("accuracy").values == (0.7, 0.9) and results.best("accuracy").values == (0.8, 0.9)
    assert results.best("loss").values == pytest.approx((0.2, 0.1))


def test_a_warm_up_s_rounds_are_not_the_best_ones(tmp_path: Path) -> None:
    results = read_results(simulation(tmp_path / "sim", ["spec.warmUp=[{method: FedProx, rounds: 1}]"]))
    assert results.best("accuracy").values == (0.7, 0.9)
    assert summary(results)["best"]["accuracy"]["values"] == [0.7, 0.9]
    assert [entry["bestRound"] for entry in summary(results)["seeds"]] == [2, 2]
    assert [(point.round, point.nbytes) for point in curve(results, "accuracy")] == [(0, 500), (1, 2000), (2, 4500)]


def with_test_scores(folder: Path) -> Path:
    """Leave a simulation whose final and best models were scored on test images."""
    simulation(folder, ["spec.evaluation={validation: {format: Digits}, test: {format: Digits}}"])
    place = SimulationFolder(folder)
    for number in ACCURACIES:
        result = SeedResult.read(place.result(number))
        scores = {"final": {"accuracy": number / 10}, "best": {"accuracy": number / 5}}
        rounds = (*result.rounds[:-1], dataclasses.replace(result.rounds[-1], test=scores))
        write_result(place.result(number), dataclasses.replace(result, rounds=rounds), place.study())
    return folder


def test_where_there_are_test_images_their_scores_are_compared(tmp_path: Path) -> None:
    results = read_results(with_test_scores(tmp_path / "sim"))
    assert (results.part, results.metrics()) == ("test", ["accuracy"])
    assert results.last("accuracy").values == (0.1, 0.2) and results.best("accuracy").values == (0.2, 0.4)
    assert summary(results)["best"]["accuracy"]["values"] == [0.2, 0.4]
    assert [point.value.values for point in curve(results, "accuracy")][1] == (0.8, 0.6), (
        "curves are of the validation images"
    )
    output = compare(tmp_path / "sim").output
    assert "0.1500 ± 0.0707" in output and output.splitlines()[-1] == "accuracy on the test images"


def test_scores_on_test_and_on_validation_images_are_not_compared(tmp_path: Path) -> None:
    validated = simulation(tmp_path / "two", ["spec.evaluation={validation: {format: Digits}}"])
    result = compare(with_test_scores(tmp_path / "one"), validated)
    assert isinstance(result.exception, AnchorageError)
    assert "on its test images" in result.exception.message and "on its validation images" in result.exception.message


def images_line(folder: Path, *arguments: object) -> str:
    return compare(folder, *arguments).stdout.splitlines()[-1]


def test_the_images_of_a_metric_are_named(tmp_path: Path) -> None:
    validated = "spec.evaluation={validation: {format: Digits}, siloPercent: 20}"
    sim = simulation(tmp_path / "sim", [validated], "worst_silo_accuracy")
    assert images_line(sim) == "loss on the validation images"
    assert images_line(sim, "--metric", "worst_silo_accuracy") == "worst silo accuracy on the silos' own images"
    silos = simulation(tmp_path / "silos", ["spec.evaluation={siloPercent: 20}"])
    assert images_line(silos) == "accuracy on the silos' own images"
    assert json.loads(compare(silos, "-o", "json").stdout)[0]["images"] == "silos' own"
    assert images_line(simulation(tmp_path / "none"), "--metric", "loss") == "loss on the training images"
    more = simulation(tmp_path / "more", ["spec.evaluation={siloPercent: 30}"])
    assert refused(compare(silos, more)) is refused(compare(silos, sim)) is commands.NO_COMMON_METRIC


def test_wide_output_has_every_metric(tmp_path: Path) -> None:
    sim, other = simulation(tmp_path / "sim", ["spec.evaluation={siloPercent: 20}"]), tmp_path / "other"
    simulation(other, ["spec.evaluation={siloPercent: 20}"], "worst_silo_accuracy")
    table = rows(compare(sim, other, "--metric", "loss", "-o", "wide"))
    assert table[4] == "METHOD METRIC IMAGES LAST BEST"
    assert table[5] == f"FedAvg ({sim}) accuracy silos' own 0.8000 ± 0.1414 0.8500 ± 0.0707"
    assert [line.split(") ")[1].split(" silos' own")[0] for line in table[5:9]] == [
        "accuracy",
        "loss",
        "loss",
        "worst silo accuracy",
    ]
    assert "METRIC" not in compare(sim, other).stdout
    (row,) = json.loads(compare(sim, "--metric", "loss", "-o", "json").stdout)
    assert list(row["metrics"]) == ["accuracy", "loss"]
    assert row["metrics"]["loss"]["best"] == row["best"]


def test_a_simulation_and_a_run_in_one_table(tmp_path: Path) -> None:
    lines = rows(compare(simulation(tmp_path / "sim"), run(tmp_path / "run")))
    assert lines[0] == "METHOD SEEDS ROUNDS LAST ACCURACY BEST ACCURACY MOVED"
    assert lines[1] == "FedAvg 2 2 0.8000 ± 0.1414 0.8500 ± 0.0707 4.5 kB"
    assert lines[2] == "FedProx 1 2 0.4000 0.4000 4.5 kB"


def test_a_run_on_its_way_shows_its_rounds(tmp_path: Path) -> None:
    assert rows(compare(run(tmp_path / "run", rounds=1)))[1].startswith("FedProx 1 1/2 ")


def test_the_same_method_is_told_apart_by_its_folder(tmp_path: Path) -> None:
    one, other = simulation(tmp_path / "one"), simulation(tmp_path / "other")
    output = compare(one, other, one).stdout
    assert f"FedAvg ({one})" in output and f"FedAvg ({other})" in output and len(output.splitlines()) == 4
    assert str(one) in compare(one, "-o", "wide").stdout and str(one) not in compare(one).stdout


def test_the_legend_says_what_differs(tmp_path: Path) -> None:
    one = simulation(tmp_path / "one", ["spec.method.local.epochs=1"])
    two = simulation(tmp_path / "two", ["spec.method.local.epochs=2", "spec.protocol.silosPerRound=1"])
    shown = [line.split(")")[0] for line in compare(one, two, "--metric", "accuracy").stdout.splitlines()[1:3]]
    assert shown == [
        f"FedAvg (local.epochs {epochs}, protocol.silosPerRound {sampled}"
        for epochs, sampled in ((1, "None"), (2, "1"))
    ]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ('spec.task={classification: {classes: ["a", "b"]}}', "spec.task"),
        ("spec.evaluation={validation: {format: Digits, testPercent: 10}}", "spec.evaluation.validation"),
    ],
)
def test_other_tasks_and_other_images_are_not_compared(tmp_path: Path, override: str, words: str) -> None:
    evaluated = "spec.evaluation={validation: {format: Digits}}"
    one = simulation(tmp_path / "one", [evaluated])
    other = simulation(tmp_path / "two", [evaluated, override])
    result = compare(one, other)
    assert isinstance(result.exception, AnchorageError)
    assert f"differ in {words}" in result.exception.message


def test_everything_for_programs(tmp_path: Path) -> None:
    sim = simulation(tmp_path / "sim")
    (row,) = json.loads(compare(sim, "--metric", "loss", "-o", "json").stdout)
    assert (row["folder"], row["method"], row["metric"], row["seeds"]) == (str(sim), "FedAvg", "loss", [1, 2])
    assert row["bytes"] == 4500 and row["best"]["mean"] == pytest.approx(0.15)
    assert [point["round"] for point in row["curve"]] == [0, 1, 2]


@pytest.mark.parametrize(("name", "head"), [("curves.png", b"\x89PNG"), ("curves.svg", b"<?xml")])
def test_curves_are_drawn(name: str, head: bytes, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = compare(simulation(tmp_path / "sim"), run(tmp_path / "run"), "--plot", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert (tmp_path / name).read_bytes().startswith(head)


def test_a_plot_has_a_mean_and_a_band_in_both_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, path: drawn.append(figure))
    compare(simulation(tmp_path / "sim"), run(tmp_path / "run"), "--plot", tmp_path / "x.svg")
    by_round, by_bytes = drawn[0].axes
    assert [list(line.get_xdata()) for line in by_round.lines] == [[0, 1, 2], [0, 1, 2]]
    assert list(by_bytes.lines[0].get_xdata()) == [0.5, 2.0, 4.5] and by_bytes.get_xlabel().endswith("(kB)")
    assert by_round.get_ylabel() == "accuracy (training images)"
    assert list(by_bytes.lines[0].get_ydata()) == pytest.approx([0.1, 0.7, 0.8])
    assert [len(axes.collections) for axes in (by_round, by_bytes)] == [1, 1]  # only the two seeds have a band
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["FedAvg", "FedProx"]


def paper_seed(number: int, silos: int, planes: bool = True) -> SeedResult:
    """Leave pseudo-labels of some silos over five rounds, and embeddings of every other round."""
    plane = EmbeddingPlane("encoder", "PCA", tuple((row % 3, row % 2, float(row), -float(row)) for row in range(12)))
    result = seed(number, "accuracy", (0.1, 0.2, 0.3))
    rounds = [replace(entry, embeddings=plane if planes and entry.round % 2 == 0 else None) for entry in result.rounds]
    shares = {f"silo-{silo}": ((1, 0.5), (2, 0.5 + number / 10)) for silo in range(silos)}
    return replace(result, rounds=tuple(rounds), pseudo_labels=shares)


def paper_simulation(folder: Path, silos: int, planes: bool = True) -> Path:
    file = simulation(folder).with_suffix(".yaml")
    for number in ACCURACIES:
        result = paper_seed(number, silos, planes)
        write_result(SimulationFolder(folder).result(number), result, validate_study(file))
        assert SeedResult.read(SimulationFolder(folder).result(number)) == result
    return folder


def test_pseudo_labels_and_embeddings_stand_beside_the_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    drawn: dict[str, Any] = {}
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, path: drawn.update({path.name: figure}))
    folders = (paper_simulation(tmp_path / "few", 3), paper_simulation(tmp_path / "many", 12, planes=False))
    assert compare(*folders, simulation(tmp_path / "none"), "--plot", tmp_path / "x.svg").exit_code == 0
    assert list(drawn) == ["x.svg", "x-pseudo-labels.svg", "x-embeddings.svg"]
    few, many = drawn["x-pseudo-labels.svg"].axes
    assert [line.get_label() for line in few.lines] == ["silo-0", "silo-1", "silo-2"]
    assert [list(line.get_ydata()) for line in few.lines] == [[0.5, pytest.approx(0.65)]] * 3  # mean of the two seeds
    assert [line.get_label() for line in many.lines] == ["median"] and len(many.collections) == 2
    panels = drawn["x-embeddings.svg"].axes
    assert [axes.get_title().rpartition(", ")[2] for axes in panels] == ["round 0", "round 2"]
    assert [sum(len(dots.get_offsets()) for dots in axes.collections) for axes in panels] == [12, 12]


def test_nothing_stands_beside_the_plot_of_results_without_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib.figure")
    (tmp_path / "plots").mkdir()
    assert compare(simulation(tmp_path / "sim"), "--plot", tmp_path / "plots" / "x.svg").exit_code == 0
    assert [file.name for file in (tmp_path / "plots").iterdir()] == ["x.svg"]
    assert "pseudoLabelAccuracy" not in seed(1, "accuracy", (0.1, 0.2)).as_document()


def test_curves_of_many_silos_and_rounds_are_bounded() -> None:
    def entry(number: int, silos: range) -> RoundRecord:
        parts = (SiloRecord(f"s{silo:03d}", "Counted", metrics={"pseudo_label_accuracy": 0.5}) for silo in silos)
        return RoundRecord(number, "d", 1.0, silos=(*parts, SiloRecord("labelled", "Counted")))

    wide = pseudo_label_curves([entry(1, range(150))])
    assert sorted(wide) == [f"s{silo:03d}" for silo in range(100)]
    long = pseudo_label_curves([entry(number, range(1)) for number in range(1, 1301)])
    assert long == {"s000": tuple((number, 0.5) for number in range(1, 1301, 3))}


def test_methods_stand_beside_what_their_papers_report(tmp_path: Path) -> None:
    wanted = ["source=SemiAnAgg Table 1", "dataset=ISIC-18", "method=SemiAnAgg"]
    options = [part for text in wanted for part in ("--published", text)]
    sim, other = simulation(tmp_path / "sim"), run(tmp_path / "run")
    table = rows(compare(sim, *options, "-o", "wide"))
    assert "BEST ACCURACY PUBLISHED MOVED PAPER'S SETTING SOURCE" in table[0]
    assert " 0.7224 4.5 kB differs: network, silos, images; unknown: rounds SemiAnAgg Table 1 " in table[1]
    (row,) = json.loads(compare(sim, *options, "-o", "json").stdout)
    comparison = {"differs": ["network", "silos", "images"], "unknown": ["rounds"]}
    assert row["published"] == {"value": 0.7224, "source": "SemiAnAgg Table 1", **comparison}
    setting = "source=MOON Table 1", "dataset=CIFAR-10"
    table = rows(compare(sim, other, "--published", setting[0], "--published", setting[1]))
    assert "±" in table[1].split("0.8500 ± 0.0707")[1] and table[2].startswith("FedProx")
    assert compare(sim, "--published", "dataset=CIFAR-10").exit_code == 2
    printed_text = published_beside(
        {"source": "SemiAnAgg Table 3"}, "FedAvgSemi", "accuracy"
    )  # which the paper calls FedAvg-Semi
    assert printed_text is not None and printed_text.value == "0.6779"
    assert compare(sim, "--published", "dataset=CIFAR-11").exit_code == 2
    assert compare(sim, "--published", "paper=1").exit_code == 2 == compare(sim, "--published", "x").exit_code


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    sim = simulation(tmp_path / "sim")
    assert refused(compare(sim, tmp_path / "nothing")) is commands.NO_RESULTS
    for path in (sim / "seeds").iterdir():
        path.unlink()
    assert refused(compare(sim)) is commands.NO_RESULTS
    begun = run(tmp_path / "run")
    Workdir(begun).journal.write_text('{"round": 0, "metrics": []}\n')
    assert refused(compare(begun)) is commands.NO_RESULTS
    Workdir(begun).journal.unlink()
    assert refused(compare(begun)) is commands.NO_RESULTS


def test_what_has_no_metric_in_common_is_refused(tmp_path: Path) -> None:
    sim, other = simulation(tmp_path / "sim"), simulation(tmp_path / "other", metric="macro_auc")
    result = compare(sim, other, "--metric", "accuracy")
    assert refused(result) is commands.NO_COMMON_METRIC and f"{other} has macro_auc, loss" in str(result.exception)
    assert "LAST LOSS" in rows(compare(sim, other))[0]
    for number, values in ACCURACIES.items():
        silent = [RoundRecord(place, "d", 1.0, {}, (), {}, 0, 0) for place, _ in enumerate(values)]
        result_of_seed = SeedResult(number, tuple(silent), 1.0)
        write_result(SimulationFolder(other).result(number), result_of_seed, validate_study(tmp_path / "other.yaml"))
    assert refused(compare(sim, other)) is commands.NO_COMMON_METRIC


def test_a_plot_that_cannot_be_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = simulation(tmp_path / "sim")
    assert compare(sim, "--plot", tmp_path / "x.pdf").exit_code == 2
    pytest.importorskip("matplotlib")
    assert refused(compare(sim, "--plot", tmp_path / "no" / "x.png")) is commands.WORKDIR_UNUSABLE
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = compare(sim, "--plot", tmp_path / "x.png")
    assert refused(result) is commands.PACKAGE_MISSING and "anchorage[server]" in str(result.exception)
