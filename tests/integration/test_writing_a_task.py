"""The worked example of docs/writing-a-task.md, a package of another author: its files are taken from the guide as they stand."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from drawn_images import shade
from outside_package import documents_of_regression, lay_out
from package_environment import environment_with
from PIL import Image

pytest.importorskip("sklearn")
pytestmark = pytest.mark.outside_package


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Lay the packages out as `pip` would."""
    folder = tmp_path_factory.mktemp("site")
    lay_out(folder)
    return environment_with(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the study."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(yaml.safe_dump_all(documents_of_regression()))
    return folder


def fedctl(environment: Mapping[str, str], folder: Path, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "fedctl.main", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def finished(environment: Mapping[str, str], folder: Path) -> Path:
    """Run the study with a server, agents and trainers, and return its folder."""
    fedctl(environment, folder, "run", "-f", "study.yaml", "--workdir", "run")
    return folder


def test_its_labels_are_checked(environment: Mapping[str, str], folder: Path) -> None:
    assert "valid" in fedctl(environment, folder, "validate", "-f", "study.yaml")
    report = json.loads(fedctl(environment, folder, "data", "check", "-f", "study.yaml", "-o", "json"))
    (counts,) = (part["classes"] for name, part in report.items() if name == "test")
    assert [entry["name"] for entry in counts] == [f"quarter {number}" for number in range(1, 5)]
    assert sum(entry["images"] for entry in counts) == 359


def test_a_first_file_is_written_for_it_and_runs(environment: Mapping[str, str], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for place, count in {"north": 24, "south": 12, "check": 12}.items():
        (tmp_path / "data" / place).mkdir(parents=True)
        rows = ["file,age"]
        for row in range(count):
            age = int(rng.integers(0, 250))
            noise = rng.integers(0, 6, (16, 16), np.uint8)
            Image.fromarray(noise + np.uint8(age)).save(tmp_path / "data" / place / f"{row}.png")
            rows.append(f"{row}.png,{age}")
        (tmp_path / "data" / place / "ages.csv").write_text("\n".join(rows))
    task = "{plugin: {name: acme.Regression, options: {quantity: age, mean: '125', deviation: '70'}}}"
    arguments = ["init", "--silo", "north=data/north:labels", "--silo", "south=data/south", "--test", "data/check"]
    columns = ["--label-column", "north:age", "--label-column", "test:age"]
    assert "valid" in fedctl(environment, tmp_path, *arguments, *columns, "--task", task)
    federation = next(yaml.safe_load_all((tmp_path / "federation.yaml").read_text()))
    assert federation["spec"]["task"] == yaml.safe_load(task)
    assert federation["spec"]["method"]["name"] == "LowerBound"
    shorter = ["--data-root", "data", "--set", "spec.rounds=2", "--device", "cpu", "-o", "json"]
    (seed,) = json.loads(fedctl(environment, tmp_path, "simulate", "-f", "federation.yaml", *shorter))["seeds"]
    assert seed["rounds"][-1]["round"] == 2
    output = fedctl(
        environment, tmp_path, *arguments, "--out", "x.yaml", *columns, "--task", "acme.Regression", status=2
    )
    assert "write it as spec.task has it" in " ".join(output.split())


def test_it_is_planned(environment: Mapping[str, str], folder: Path) -> None:
    planned = json.loads(fedctl(environment, folder, "plan", "-f", "study.yaml", "-o", "json"))
    assert planned["rounds"]


def test_simulation_and_processes_end_with_the_same_bytes(environment: Mapping[str, str], finished: Path) -> None:
    simulated = fedctl(environment, finished, "simulate", "-f", "study.yaml", "--workdir", "one", "-o", "json")
    rounds = json.loads(fedctl(environment, finished, "rounds", "--workdir", "run", "-o", "json"))
    assert rounds[-1]["digest"] == json.loads(simulated)["seeds"][0]["rounds"][-1]["digest"]
    assert rounds[-1]["metrics"]["mean_absolute_error"] < rounds[0]["metrics"]["mean_absolute_error"]


def test_the_best_round_is_the_one_with_the_smallest_error(environment: Mapping[str, str], finished: Path) -> None:
    rounds = json.loads(fedctl(environment, finished, "rounds", "--workdir", "run", "-o", "json"))
    card = json.loads((finished / "run" / "server" / "model" / "model-card.json").read_text())
    best = min(rounds, key=lambda record: (record["metrics"]["mean_absolute_error"], record["round"]))
    assert card["best"]["round"] == best["round"]
    interval = card["final"]["assessment"]["intervals"]["mean_absolute_error"]
    assert interval["low"] < interval["value"] < interval["high"]
    assert set(card["sitesAlone"]) == {"clinic-a", "clinic-b", "clinic-c"}


def test_status_card_and_report_speak_of_it(environment: Mapping[str, str], finished: Path) -> None:
    assert "mean absolute error" in fedctl(environment, finished, "status", "--workdir", "run")
    fedctl(environment, finished, "report", "run", "--out", "report.html")
    page = (finished / "report.html").read_text()
    assert "mean absolute error" in page and "% better than" in page
    text = (finished / "run" / "server" / "model" / "model-card.md").read_text()
    assert "acme.Regression" in text and "Calibration" not in text


def test_it_predicts_numbers(environment: Mapping[str, str], finished: Path) -> None:
    shade(128).save(finished / "x.png")
    output = fedctl(environment, finished, "predict", "-m", "run", "x.png", "-o", "json")
    (prediction,) = json.loads(output)["predictions"]
    assert set(prediction) == {"image", "values"} and -20 < prediction["values"]["digit"] < 30
    described = json.loads((finished / "run" / "server" / "model" / "model.json").read_text())
    assert described["outputs"] == {"kind": "values", "names": ["digit"]}


def test_the_registered_model_gives_the_number_that_fedctl_predicts(
    environment: Mapping[str, str], finished: Path
) -> None:
    """In a process that knows neither Anchorage nor the package."""
    shade(200).save(finished / "registered.png")
    output = fedctl(environment, finished, "predict", "-m", "run", "registered.png", "-o", "json")
    (prediction,) = json.loads(output)["predictions"]
    code = (
        "import json, sys; from pathlib import Path; import mlflow, pandas as pd\n"
        "mlflow.set_tracking_uri('sqlite:///run/mlflow.db')\n"
        "model = mlflow.pyfunc.load_model('models:/fedavg-digits@best')\n"
        "answer = model.predict(pd.DataFrame({'image': [Path('registered.png')]}))\n"
        "assert not {'anchorage', 'acme'} & {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(answer['values'].tolist()))\n"
    )
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, timeout=600, cwd=finished)
    assert done.returncode == 0, done.stderr
    (values,) = json.loads(done.stdout.splitlines()[-1])
    assert values == {"digit": pytest.approx(prediction["values"]["digit"], abs=1e-3)}


def test_documents_are_checked_without_torch(environment: Mapping[str, str], folder: Path) -> None:
    """As the operator checks them: what is right passes, and a mistake in the task's options is refused with its field."""
    code = (
        "import sys, yaml; from anchorage.methods import validate_documents as check; from anchorage.api.mistakes import DocumentError\n"
        "federation, *silos = yaml.safe_load_all(open(sys.argv[1]))\n"
        "check(federation, silos)\n"
        "federation['spec']['task']['plugin']['options']['deviation'] = '0'\n"
        "try: check(federation, silos)\n"
        "except DocumentError as error: print(error)\n"
        "assert not {'torch', 'PIL', 'acme.numbers'} & sys.modules.keys()\n"
    )
    command = [sys.executable, "-c", code, "study.yaml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert 'spec.task.plugin.options.deviation: found "0"' in done.stdout


def test_a_word_that_is_no_number_is_named(environment: Mapping[str, str], folder: Path) -> None:
    site = folder / "site"
    site.mkdir()
    for row in range(3):
        shade(row).save(site / f"i{row}.png")
    (site / "ages.csv").write_text("image,age\ni0,40.5\ni1,old\ni2,\n")
    federation, silo, *_ = documents_of_regression()
    data = {"format": "CsvManifest", "claimName": "site", "manifest": "ages.csv", "labelColumn": "age"}
    silo["spec"] |= {"managed": {"data": data}, "labels": "Partial"}
    federation["spec"]["protocol"]["minSilos"] = 1
    (folder / "table.yaml").write_text(yaml.safe_dump_all([federation, silo]))
    arguments = ("data", "check", "-f", "table.yaml", "--data-root", str(folder), "--silo", "clinic-a", "-o", "json")
    command = [sys.executable, "-m", "fedctl.main", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=folder)
    (bad,) = json.loads(done.stdout)["clinic-a"]["bad"]
    assert (bad["reason"], bad["detail"]) == ("LabelUnreadable", 'the label "old" is no number')
    assert json.loads(done.stdout)["clinic-a"]["unlabelled"] == 1


def test_without_the_package_its_name_is_unknown(folder: Path) -> None:
    output = fedctl(dict(os.environ), folder, "validate", "-f", "study.yaml", status=2)
    assert "acme.Regression" in output
