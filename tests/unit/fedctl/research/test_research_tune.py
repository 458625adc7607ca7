"""Searches for settings: what they try, what they refuse, and how they go on."""

import io
import json
import signal
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, Failure, commands, data, documents, learning
from anchorage.api.files import Study
from anchorage.api.status import FederationStatus
from anchorage.engine.interfaces import RoundRecord
from anchorage.methods import validate_study
from fedctl.main import app
from fedctl.processes import InterruptError
from fedctl.research.results import SeedResult
from fedctl.research.simulation import Simulator, write_result
from fedctl.research.tuning_file import read_tuning
from fedctl.research.tuning_view import LiveSearch, SearchState, TrialResult, show_search_state
from fedctl.view import Picture

pytest.importorskip("torch")
pytest.importorskip("optuna")

DOCUMENTS = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 2
  task: {classification: {classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg, local: {optimiser: {sgd: {learningRate: "0.3"}}}}
  evaluation:
    validation: {format: Digits, use: Validation, testPercent: 10, validationPercent: 10}
    test: {format: Digits, use: Test, testPercent: 10, validationPercent: 10}
---
kind: Silo
metadata: {name: a}
spec:
  federation: tiny
  labels: All
  managed:
    data: {format: Digits, use: Part, testPercent: 10, validationPercent: 10, partition: {recipe: Iid, parts: 8, part: 0}}
"""
SEALED = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 1
  task: {classification: {classes: [a, b]}}
  model: {network: SmallCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg, local: {epochs: 1, optimiser: {sgd: {learningRate: "0.3"}}}}
  evaluation:
    validation: {format: ImageFolder, claimName: validation}
    test: {format: ImageFolder, claimName: sealed}
---
kind: Silo
metadata: {name: a}
spec: {federation: tiny, labels: All, managed: {data: {format: ImageFolder, claimName: silo}}}
"""
"""A federation without its test images."""
RATE = "spec.method.local.optimiser.sgd.learningRate"
RATES = {"path": RATE, "logUniform": {"low": "0.0001", "high": "1"}}
METHODS = {"path": "spec.method.name", "choice": ["FedAvg", "FedProx"]}
MU = {
    "path": "spec.method.regulariser.proximal.mu",
    "uniform": {"low": "0", "high": "1"},
    "when": {"spec.method.name": "FedProx"},
}
TUNING = {"kind": "Tuning", "federation": "base.yaml", "minutes": 60, "trials": 14, "parameters": [METHODS, RATES, MU]}
SECONDS = 30.0


class Played:
    """Stands in for `Simulator.play`: the nearer to FedProx at a learning rate of 0.01, the better."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.studies: list[Study] = []
        self.fails: Callable[[int, Study], BaseException | None] = lambda number, study: None

        def play(simulator: Simulator, study: Study, title: str) -> None:
            self.studies.append(study)
            if failure := self.fails(len(self.studies) - 1, study):
                raise failure
            seed = study.federation.spec.seed
            values = {"balanced_accuracy": score(study) + seed / 1000, "loss": 1 - score(study)}
            rounds = tuple(RoundRecord(n, f"d{n}", 100.0 + n, values, (), {}, 7, 3) for n in (0, 1, 2))
            write_result(simulator.folder.result(seed), SeedResult(seed, rounds, SECONDS, "cpu"), study)

        monkeypatch.setattr(Simulator, "play", play)


def rate(study: Study) -> Decimal:
    local = study.federation.spec.method.local
    assert local is not None
    return Decimal(local.model_dump(by_alias=True)["optimiser"]["sgd"]["learningRate"])


def score(study: Study) -> float:
    return 0.8 - abs(np.log10(float(rate(study))) + 2) / 10 + 0.1 * (study.federation.spec.method.name == "FedProx")


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    (tmp_path / "base.yaml").write_text(DOCUMENTS)
    return Played(monkeypatch)


def tune(folder: Path, *arguments: object, work: str = "work", **changes: object) -> Result:
    (folder / "search.yaml").write_text(yaml.safe_dump({**TUNING, **changes}, sort_keys=False))
    options = ["tune", "-f", folder / "search.yaml", "--workdir", folder / work, "--device", "cpu", *arguments]
    return CliRunner().invoke(app, [str(option) for option in options])


def found(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, (result.output, result.exception)
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def refused(result: Result) -> AnchorageError:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception


def settings(trial: Mapping[str, Any]) -> dict[str, Any]:
    return {path: json.loads(value) for path, _, value in (override.partition("=") for override in trial["set"])}


def test_a_search_finds_better_settings_and_writes_them_as_a_file_for_run(tmp_path: Path, played: Played) -> None:
    answer = found(tune(tmp_path, "-o", "json"))
    trials, best = answer["trials"], answer["best"]
    assert len(trials) == len(played.studies) == 14 and trials[0]["set"] == []
    assert best["value"] == max(trial["value"] for trial in trials) > trials[0]["value"] + 0.1
    assert all(("FedProx" in trial["set"][0]) == (len(trial["set"]) == 3) for trial in trials[1:])
    study = validate_study(Path(best["file"]))
    assert study.federation.spec.method.name == settings(best)["spec.method.name"] == "FedProx"
    assert rate(study) == Decimal(str(settings(best)[RATE])) and len(str(settings(best)[RATE]).lstrip("0.")) <= 4
    assert study.federation.spec.evaluation == validate_study(tmp_path / "base.yaml").federation.spec.evaluation
    assert f"# trial {best['trial']}: balanced_accuracy" in Path(best["file"]).read_text()
    assert answer["command"] == f"fedctl run -f {best['file']} --data-root {tmp_path}"


def test_no_trial_has_test_images(tmp_path: Path, played: Played) -> None:
    found(tune(tmp_path, "-o", "json", trials=3))
    assert [set(study.federation.spec.server_data) for study in played.studies] == [{"validation"}] * 3


def test_a_real_search_never_opens_the_test_images(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1)
    for folder, count in (("silo", 6), ("validation", 4)):
        for name in "ab":
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(count):
                image = Image.fromarray(pixels.integers(0, 256, (8, 8)).astype(np.uint8))
                image.save(tmp_path / folder / name / f"{number}.png")
    (tmp_path / "base.yaml").write_text(SEALED)
    options = ["-f", tmp_path / "base.yaml", "--workdir", tmp_path / "simulated", "--device", "cpu"]
    simulated = CliRunner().invoke(app, ["simulate", *map(str, options)])
    assert refused(simulated).failure is data.DATA_MISSING and "sealed" in str(simulated.exception)
    answer = found(tune(tmp_path, "-o", "json", parameters=[RATES], trials=3))
    assert [0 <= trial["value"] <= 1 for trial in answer["trials"]] == [True] * 3
    assert "claimName: sealed" in Path(answer["best"]["file"]).read_text()


def test_people_see_the_best_trials_first(tmp_path: Path, played: Played) -> None:
    shown = tune(tmp_path).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    head = next(
        place for place, line in enumerate(lines) if line.startswith("TRIAL BALANCED ACCURACY TOOK METHOD.NAME")
    )
    values = [float(line.split()[1]) for line in lines[head + 1 : head + 11]]
    assert values == sorted(values, reverse=True) and f"best balanced accuracy {values[0]:.4f} (trial" in shown
    assert "test images were not read" in shown and lines[-1].startswith("fedctl run -f")


def test_a_terminal_shows_the_search_above_the_present_trial() -> None:
    stream = io.StringIO()
    trials = (TrialResult(0, (), 0.5, None, "", 30.0), TrialResult(1, ("spec.rounds=1",), None, None, "no", 3.0))
    with LiveSearch(Console(file=stream, force_terminal=True, width=120, color_system=None)) as view:
        show_search_state(view, SearchState("loss", trials, 8, 600.0))
        view.show(Picture("tiny, seed 1", "FedAvg on SmallCnn", FederationStatus(rounds=2)))
    shown = stream.getvalue()
    assert "2 of 8 trials, 33 s of 10 min 00 s, best loss 0.5000 (trial 0, the file as it is)" in shown
    assert shown.index("search") < shown.index("tiny, seed 1") < shown.index("round 0/2")


def test_a_loss_is_searched_downwards(tmp_path: Path, played: Played) -> None:
    answer = found(tune(tmp_path, "-o", "json", metric="loss"))
    assert answer["best"]["value"] == min(trial["value"] for trial in answer["trials"])


def test_trials_are_means_over_seeds(tmp_path: Path, played: Played) -> None:
    first = found(tune(tmp_path, "-o", "json", seeds=2, trials=1))["trials"][0]
    assert first["value"] == pytest.approx(score(played.studies[0]) + 0.0015) and first["seconds"] == 2 * SECONDS
    assert first["std"] == pytest.approx(0.001 / 2**0.5)


@pytest.mark.parametrize("at", [0, 5, 12])
def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path: Path, played: Played, at: int) -> None:
    uncut = found(tune(tmp_path, "-o", "json", work="whole"))
    played.studies.clear()
    played.fails = lambda number, study: InterruptError(signal.SIGINT) if number == at else None
    with pytest.raises(InterruptError, match=f"^ended by SIGINT; {at} finished trials are kept; the same command"):
        tune(tmp_path, "-o", "json")
    played.fails = lambda number, study: None
    assert found(tune(tmp_path, "-o", "json"))["trials"] == uncut["trials"]
    assert len(played.studies) == 14 + 1 and played.studies[at] == played.studies[at + 1]


def test_the_budget_counts_over_starts_and_can_be_raised(tmp_path: Path, played: Played) -> None:
    assert len(found(tune(tmp_path, "-o", "json", minutes=1))["trials"]) == 2
    assert len(found(tune(tmp_path, "-o", "json", minutes=1))["trials"]) == len(played.studies) == 2
    assert len(found(tune(tmp_path, "-o", "json", minutes=2))["trials"]) == len(played.studies) == 4
    assert len(found(tune(tmp_path, "-o", "json", trials=5))["trials"]) == len(played.studies) == 5


def test_settings_that_are_proposed_again_are_not_simulated_again(tmp_path: Path, played: Played) -> None:
    answer = found(tune(tmp_path, "-o", "json", parameters=[METHODS]))
    assert len(answer["trials"]) == 14 and len(played.studies) == 3 and answer["seconds"] == 3 * SECONDS


def test_an_impossible_combination_is_refused_with_its_reason(tmp_path: Path, played: Played) -> None:
    choices = {"path": "spec.method", "choice": [{"name": "FedAvg"}, {"name": "FedAnchor"}]}
    answer = found(tune(tmp_path, "-o", "json", parameters=[choices, RATES]))
    without = [trial for trial in answer["trials"] if trial["value"] is None]
    assert without and all("FedAnchor" in trial["set"][0] for trial in without) and len(answer["trials"]) == 14
    assert all(trial["reason"].startswith(documents.NO_ANCHOR_DATA.code) for trial in without)
    assert "FedAnchor" not in Path(answer["best"]["file"]).read_text()
    shown = tune(tmp_path, parameters=[choices, RATES]).stdout
    assert f"trial {without[0]['trial']} refused: {documents.NO_ANCHOR_DATA.code}" in shown


def test_settings_that_diverge_are_refused_and_other_failures_end_the_search(tmp_path: Path, played: Played) -> None:
    diverged = AnchorageError(learning.LOSS_NOT_FINITE, "silo a: NaN")
    played.fails = lambda number, study: diverged if rate(study) > Decimal("0.31") else None
    answer = found(tune(tmp_path, "-o", "json", trials=12))
    reasons = {trial["reason"] for trial in answer["trials"] if trial["value"] is None}
    assert reasons == {str(diverged)} and answer["best"]["value"] > answer["trials"][0]["value"]
    unreadable = AnchorageError(data.BAD_IMAGES, "a.png")
    played.fails = lambda number, study: unreadable
    assert refused(tune(tmp_path, trials=13)) is unreadable
    played.fails = lambda number, study: None
    assert len(found(tune(tmp_path, "-o", "json", trials=13))["trials"]) == 13
    played.fails = lambda number, study: diverged
    assert refused(tune(tmp_path, work="other")) is diverged  # the file as it is


def test_a_whole_method_is_a_choice_and_what_is_inside_it_a_condition(tmp_path: Path, played: Played) -> None:
    choice = {"path": "spec.method", "choice": [{"name": "FedAvg"}, {"name": "FedProx", "local": {"epochs": 2}}]}
    answer = found(tune(tmp_path, "-o", "json", parameters=[choice, RATES, MU]))
    for trial in answer["trials"][1:]:
        assert (settings(trial)["spec.method"]["name"] == "FedProx") == (MU["path"] in settings(trial))
    shown = tune(tmp_path, parameters=[choice, RATES, MU]).stdout
    assert " FedProx … " in shown


@pytest.mark.parametrize(
    ("wrong", "failure", "message"),
    [
        ({"path": RATE.replace("Rate", "rate")}, documents.UNKNOWN_FIELD, "did you mean learningRate?"),
        ({"logUniform": {"low": "0.1", "high": "1234567890"}}, documents.WRONG_FORM, "Rate=1234567890: found"),
        ({"logUniform": {"low": 0.1, "high": "1"}}, documents.UNQUOTED_DECIMAL, 'write "0.1"'),
        ({"logUniform": {"low": "1", "high": "1"}}, documents.WRONG_FORM, "low must be below high"),
        ({"integer": {"low": 1, "high": 3}}, documents.WRONG_FORM, "found 2 of uniform"),
        ({"path": "spec.seed"}, documents.WRONG_FORM, "all trials train and score on the same images"),
        ({"path": "spec.rounds"}, documents.WRONG_TYPE, "spec.rounds=0.0001: found"),
        (
            {"when": {"spec.method.name": "FedAnchor"}},
            documents.UNKNOWN_CHOICE,
            'allowed is one of "FedAvg", "FedProx"',
        ),
        ({"when": {"spec.rounds": 1}}, documents.UNKNOWN_CHOICE, "allowed is the path of a choice above"),
        ({"step": 1}, documents.UNKNOWN_FIELD, "allowed are path, uniform"),
    ],
)
def test_mistakes_have_their_line(
    tmp_path: Path, played: Played, wrong: dict[str, Any], failure: Failure, message: str
) -> None:
    error = refused(tune(tmp_path, parameters=[METHODS, {**RATES, **wrong}]))
    assert error.failure is failure and message in str(error)
    line = int(str(error).split("search.yaml:")[1].split(":")[0])
    lines = (tmp_path / "search.yaml").read_text().splitlines()
    assert line > lines.index("- path: spec.method.name") + 4 and played.studies == []


def test_other_mistakes_are_told_before_anything_is_played(tmp_path: Path, played: Played) -> None:
    unknown = {"path": "spec.method.name", "choice": ["FedAvg", "FedAvgg"]}
    assert refused(tune(tmp_path, parameters=[unknown])).failure is documents.UNKNOWN_METHOD
    assert refused(tune(tmp_path, parameters=[RATES, RATES])).failure is documents.DUPLICATE_FIELD
    assert refused(tune(tmp_path, parameters=[])).failure is documents.OUT_OF_RANGE
    assert refused(tune(tmp_path, kind="Federation")).failure is documents.UNKNOWN_CHOICE
    assert refused(tune(tmp_path, metric="recall")).failure is documents.UNKNOWN_CHOICE
    assert refused(tune(tmp_path, federation="none.yaml")).failure is documents.FILE_UNREADABLE
    validation = "    validation: {format: Digits, use: Validation, testPercent: 10, validationPercent: 10}\n"
    (tmp_path / "base.yaml").write_text(DOCUMENTS.replace(validation, ""))
    error = refused(tune(tmp_path))
    assert error.failure is documents.MISSING_FIELD and "base.yaml:9" in str(error)
    assert played.studies == []


def test_a_metric_that_the_file_as_it_is_does_not_have_ends_the_search(tmp_path: Path, played: Played) -> None:
    assert refused(tune(tmp_path, metric="macro_auc")).failure is commands.NO_COMMON_METRIC
    assert len(played.studies) == 1


def test_a_folder_of_something_else_is_refused(tmp_path: Path, played: Played) -> None:
    found(tune(tmp_path, "-o", "json", trials=2))
    for change in ({"metric": "loss"}, {"parameters": [RATES]}, {"seeds": 2}):
        error = refused(tune(tmp_path, **change))
        assert error.failure is commands.WORKDIR_TAKEN and next(iter(change)) in str(error)
    (tmp_path / "base.yaml").write_text(DOCUMENTS.replace("rounds: 2", "rounds: 3"))
    assert "differs in federation" in str(refused(tune(tmp_path)))
    (tmp_path / "base.yaml").write_text(DOCUMENTS)
    (tmp_path / "work" / "simulation.yaml").touch()
    assert refused(tune(tmp_path)).failure is commands.WORKDIR_TAKEN
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "optuna.db").write_bytes(b"no database" * 100)
    error = refused(tune(tmp_path, work="damaged"))
    assert error.failure is commands.WORKDIR_UNUSABLE and "optuna.db cannot be used" in str(error)


def test_without_optuna_the_extra_is_named(tmp_path: Path, played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    error = refused(tune(tmp_path))
    assert error.failure is commands.PACKAGE_MISSING and "pip install 'anchorage[tune]'" in str(error)


def test_the_example_can_be_searched() -> None:
    example = Path(__file__).parents[4] / "examples" / "tuning" / "digits.yaml"
    assert next(parameter.path for parameter in read_tuning(example).parameters) == "spec.method"
