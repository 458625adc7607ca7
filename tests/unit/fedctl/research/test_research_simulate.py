"""Simulations in this process: seeds, what is kept of them, and how they go on."""

import io
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from anchorage.api.errors import AnchorageError, Failure, commands, data, documents, learning, storage
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import Study
from anchorage.api.model_card import CARD_TEXT
from anchorage.engine.events import RoundCommitted, RoundStarted, SiloChanged, SiloJoined, Step, StepBegan, Waiting
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.engine.tracking import Sent
from anchorage.methods import validate_study
from anchorage.transport.messages import Profile
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from fedctl.main import app
from fedctl.processes import InterruptError
from fedctl.research.results import SeedResult, SimulationFolder
from fedctl.research.simulation import Simulator, play_missing, write_result
from fedctl.research.simulation_view import SeedWatcher
from fedctl.view import LineView, LiveView
from fedctl.workdir import Workdir

pytest.importorskip("sklearn")
pytest.importorskip("torch")

PART = "{format: Digits, use: Part, testPercent: 10, partition: {recipe: Iid, parts: 14, part: 0}}"
DOCUMENTS = f"""
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: 1
  seed: 5
  task: {{classification: {{classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}}}
  model: {{network: SmallCnn, imageSize: 8, channels: 1, augmentation: Digits}}
  method: {{name: FedAvg, local: {{epochs: 1, batchSize: 16}}}}
  evaluation: {{validation: {{format: Digits, use: Test, testPercent: 10}}}}
---
kind: Silo
metadata: {{name: a}}
spec: {{federation: tiny, labels: All, managed: {{data: {PART}}}}}
"""
MODEL = ModelBytes.from_arrays(Layout.of([]), {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DOCUMENTS)
    return path


def simulate(file: Path, *arguments: object, catch: bool = True) -> Result:
    options = ["simulate", "-f", file, "--workdir", file.parent / "work", "--device", "cpu", *arguments]
    return CliRunner().invoke(app, [str(option) for option in options], catch_exceptions=catch)


def refused(result: Result) -> Failure:
    assert isinstance(result.exception, AnchorageError), result.output
    return result.exception.failure


def one_round(seed: int, accuracy: float = 0.5) -> SeedResult:
    return SeedResult(seed, (RoundRecord(1, f"digest-{seed}", 1.0, {"accuracy": accuracy}, (), {}, 7, 3),), 2.0, "cpu")


class Scripted:
    """Stands in for `Simulator.play`: notes the seeds, and fails at one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: BaseException | None = None, at: int = -1) -> None:
        self.seeds: list[int] = []

        def play(simulator: Simulator, study: Study, title: str) -> None:
            seed = study.federation.spec.seed
            self.seeds.append(seed)
            if seed == at and fails is not None:
                raise fails
            write_result(simulator.folder.result(seed), one_round(seed, seed / 10), study)

        monkeypatch.setattr(Simulator, "play", play)


def test_a_seed_reaches_what_the_simulation_alone_reaches_and_is_kept(file: Path) -> None:
    from anchorage.simulation.run import simulate as simulate_alone

    result = simulate(file, "--seeds", 2, "-o", "json")
    report = json.loads(result.stdout)
    assert [seed["seed"] for seed in report["seeds"]] == [5, 6]
    record, store = simulate_alone(validate_study(file, ["spec.seed=6"]), file.parent, file.parent / "alone")
    seed_result = SeedResult.read(SimulationFolder(file.parent / "work").result(6))
    assert seed_result.digest == record.digest == report["seeds"][1]["digest"] != report["seeds"][0]["digest"]
    assert [dict(entry.metrics) for entry in seed_result.rounds] == [dict(entry.metrics) for entry in store.history()]
    assert seed_result.nbytes == sum(entry.bytes_up + entry.bytes_down for entry in store.history()) > 0
    assert report["last"]["accuracy"]["values"][1] == record.metrics["accuracy"] and seed_result.seconds > 0
    assert "round 1/1 committed, balanced accuracy" in result.stderr and "waiting" not in result.stderr
    assert sorted(path.name for path in (file.parent / "work").iterdir()) == sorted([*FILES, "seed-6"])


def test_accepted_pseudo_labels_and_how_many_are_right(file: Path) -> None:
    method = "spec.method={name: FedAvgFixMatch, local: {epochs: 1}, pseudoLabels: {fixMatch: {threshold: 0.1}}}"
    half = ("--set", "silo.spec.labels=Partial", "--set", "silo.spec.managed.data.labelledPercent=50")
    options = ("--set", method, *half, "--seeds", 2)
    report = json.loads(simulate(file, *options, "-o", "json").stdout)
    known = report["silos"]["a"]
    shares = [seed["rounds"][1]["silos"][0]["metrics"]["pseudo_label_accuracy"] for seed in report["seeds"]]
    assert known["pseudo_label_accuracy"]["values"] == shares and 0 < min(shares) < 0.95
    assert known["acceptance"]["values"] == [1.0, 1.0]
    results_kept = [SeedResult.read(SimulationFolder(file.parent / "work").result(seed)) for seed in (5, 6)]
    assert [result.pseudo_labels["a"] for result in results_kept] == [((1, share),) for share in shares]
    shown = [" ".join(line.split()) for line in simulate(file, *options).stdout.splitlines()]
    row = shown[shown.index("PSEUDO-LABELS ACCEPTED OF THESE RIGHT") + 1]
    assert row.startswith(f"a 100.0 ± 0.0 % {100 * known['pseudo_label_accuracy']['mean']:.1f} ±")
    sentence = "every silo accepts all its pseudo-labels, of which"
    assert sum(line.startswith((f"seed 5: {sentence}", f"seed 6: {sentence}")) for line in shown) == 2


def test_finished_seeds_are_not_run_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Scripted(monkeypatch)
    first = simulate(file, "--seeds", 2).stdout
    assert played.seeds == [5, 6] and "2 seeds, 1 round, finished in" in first and "0.5500 ± 0.0707" in first
    second_output = simulate(file, "--seeds", 3, "-o", "wide").stdout
    assert played.seeds == [5, 6, 7] and second_output.count("was finished before on cpu, it is not run again") == 2
    assert "0.6000 ± 0.1000" in second_output and "digest-7" in second_output
    assert "1 seed, 1 round, finished before" in simulate(file).stdout and len(played.seeds) == 3
    assert len(json.loads(simulate(file, "--seeds", 2, "-o", "json").stdout)["seeds"]) == 2


def test_an_interrupted_simulation_goes_on_at_its_seed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch, InterruptError(signal.SIGINT), at=6)
    with pytest.raises(InterruptError) as caught:
        simulate(file, "--seeds", 3)
    assert str(caught.value) == (
        "ended by SIGINT; 1 finished seeds and the rounds of this one are kept; the same command goes on"
    )
    played = Scripted(monkeypatch)
    assert simulate(file, "--seeds", 3).exit_code == 0 and played.seeds == [6, 7]


FILES = ["lock", "models", "seed-5", "seeds", "simulation.yaml"]
PERSIST = ("--set", "spec.method.local.optimiser.sgd.state=Persist", "--set", "spec.rounds=3")


@pytest.mark.parametrize("end", [InterruptError(signal.SIGINT), AnchorageError(storage.DISK_FULL, "no room")])
def test_a_seed_goes_on_at_its_last_committed_round(
    file: Path, end: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models and what silos keep between rounds are those of a simulation that was never stopped."""
    uncut = json.loads(simulate(file, *PERSIST, "--workdir", file.parent / "whole", "-o", "json").stdout)
    committed = SeedWatcher.show_round

    def stop(watcher: SeedWatcher, record: RoundRecord) -> None:
        committed(watcher, record)
        if record.round == 1:
            raise end

    monkeypatch.setattr(SeedWatcher, "show_round", stop)
    with pytest.raises(type(end)):
        simulate(file, *PERSIST, catch=False)
    assert (file.parent / "work" / "seed-5" / "rounds" / "checkpoints" / "round-000001.safetensors").exists()
    monkeypatch.setattr(SeedWatcher, "show_round", committed)
    second = simulate(file, *PERSIST, "-o", "json")
    assert [line.split()[1] for line in second.stderr.splitlines() if "committed" in line] == ["1/3", "2/3", "3/3"]
    (seed,) = json.loads(second.stdout)["seeds"]
    assert seed["digest"] == uncut["seeds"][0]["digest"] and len(seed["rounds"]) == 4
    assert [entry["bytesUp"] for entry in seed["rounds"]] == [e["bytesUp"] for e in uncut["seeds"][0]["rounds"]]
    assert sorted(path.name for path in (file.parent / "work").iterdir()) == FILES


def test_many_silos_of_one_document(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners that are given up and built again change nothing; the folder knows how many silos there are."""
    many = ("--silos", 12, "--set", "spec.protocol.silosPerRound=3", "-o", "json")
    first_seeds = json.loads(simulate(file, *many).stdout)["seeds"]
    monkeypatch.setattr("anchorage.simulation.silos.KEPT_BYTES", 0)
    resumed = json.loads(simulate(file, *many, "--workdir", file.parent / "again").stdout)["seeds"]
    assert resumed[0]["digest"] == first_seeds[0]["digest"] and first_seeds[0]["rounds"][1]["bytesUp"] > 0
    study = SimulationFolder(file.parent / "work").study()
    assert [silo.metadata.name for silo in study.silos][::11] == ["a-00", "a-11"]
    assert json.loads(simulate(file, *many).stdout)["seeds"] == first_seeds
    fewer = simulate(file, "--silos", 11, *many[2:])
    assert refused(fewer) is commands.WORKDIR_TAKEN and "silo a-00, silo a-01" in str(fewer.exception)


def test_a_silo_without_a_part_is_not_multiplied(file: Path) -> None:
    file.write_text(DOCUMENTS.replace(PART, "{format: Digits}"))
    assert refused(simulate(file, "--silos", 3)) is documents.NOT_DIVISIBLE


def test_an_override_of_every_silo(file: Path) -> None:
    assert refused(simulate(file, "--set", "silo.spec.labels=Some")) is documents.UNKNOWN_CHOICE
    assert refused(simulate(file, "--set", "silo.spec")) is documents.OVERRIDE_REFUSED


class ScriptedSender:
    """Stands in for the process that sends to MLflow: takes everything, or nothing."""

    takes = True

    def __init__(self, outbox: Path, uri: str) -> None:
        self.outbox, self.uri = outbox, uri

    def finish(self, *, at_most_seconds: float) -> Sent:
        self.events = [json.loads(line) for line in (self.outbox / "events.jsonl").read_text().splitlines()]
        SENT.append(self)
        return Sent("run", "", "", "", None if ScriptedSender.takes else AnchorageError(TRACKING_UNREACHABLE, "down"))


SENT: list[ScriptedSender] = []


def test_seeds_go_to_mlflow_as_runs_do(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedctl.research.simulation_tracking.Sender", ScriptedSender)
    monkeypatch.setattr(ScriptedSender, "takes", False)
    SENT.clear()
    first = simulate(file, "--tracking")
    assert refused(first) is TRACKING_UNREACHABLE and "ANC-4001" in first.stdout and "tiny" in first.stdout
    (sender,) = SENT
    assert sender.uri == f"sqlite:///{file.parent / 'work' / 'mlflow.db'}"
    assert [event["kind"] for event in sender.events] == ["run", "round", "round", "end"]
    assert sender.events[0]["parameters"]["seed"] == "5" and sender.events[0]["experiment"] == "tiny"
    assert sender.events[2]["metrics"]["silo/a/weight"] == 1.0 and sender.events[3]["code"] == ""
    monkeypatch.setattr(ScriptedSender, "takes", True)
    assert "ANC-4001" not in simulate(file, "--tracking").stdout and len(SENT) == 2
    assert not (file.parent / "work" / "tracking" / "5").exists()
    assert simulate(file, "--tracking").exit_code == 0 and len(SENT) == 2


def test_a_folder_belongs_to_its_documents(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Scripted(monkeypatch)
    simulate(file)
    assert simulate(file, "--set", "spec.seed=9").exit_code == 0 and played.seeds == [5, 9]
    other = simulate(file, "--set", "spec.method.local.epochs=2")
    assert refused(other) is commands.WORKDIR_TAKEN and "differs in spec.method.local.epochs;" in str(other.exception)


def test_a_folder_in_which_nothing_came_to_round_1_takes_mended_documents(file: Path) -> None:
    part = "silo.spec.managed.data.partition={recipe: Iid, parts: 8, part: 0, labelledPerClass: 900}"
    assert refused(simulate(file, "--set", part)) is data.PARTITION_IMPOSSIBLE
    assert simulate(file).exit_code == 0
    assert refused(simulate(file, "--set", part)) is commands.WORKDIR_TAKEN


def test_a_folder_of_a_run_is_not_simulated_in(file: Path) -> None:
    (file.parent / "work").mkdir()
    Workdir(file.parent / "work").federation.touch()
    assert refused(simulate(file)) is commands.WORKDIR_TAKEN


def test_a_speed_that_is_no_silos_claims_no_folder(file: Path) -> None:
    assert refused(simulate(file, "--speed", "b-*=1")) is commands.SPEED_INVALID
    assert not (file.parent / "work").exists()


def test_two_simulations_do_not_share_a_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch)
    (file.parent / "work").mkdir()
    with Workdir(file.parent / "work").lock():
        assert refused(simulate(file)) is commands.WORKDIR_BUSY


@pytest.mark.parametrize(
    ("arguments", "failure"),
    [
        (["--device", "tpu"], learning.DEVICE_UNAVAILABLE),
        (["--workdir", "tiny.yaml/below"], commands.WORKDIR_UNUSABLE),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], failure: Failure, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    assert refused(simulate(file, *arguments)) is failure


def test_a_silo_without_images_here_cannot_be_simulated(file: Path) -> None:
    file.write_text(DOCUMENTS.replace(f", managed: {{data: {PART}}}", ""))
    assert refused(simulate(file)) is commands.SILO_NOT_LOCAL


def test_without_torch_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anchorage.learning.device", None)
    result = simulate(file)
    assert refused(result) is commands.PACKAGE_MISSING and "anchorage[learning]" in str(result.exception)


def test_a_damaged_result_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted(monkeypatch)
    simulate(file)
    path = SimulationFolder(file.parent / "work").result(5)
    for text in ("{", "[]", "{}", path.read_text().replace('"schemaVersion": 1', '"schemaVersion": 2')):
        path.write_text(text)
        result = simulate(file)
        assert refused(result) is commands.NO_RESULTS and "5.json" in str(result.exception)


def watched(view: LineView | LiveView, study: Study, silos: int) -> None:
    """Tell a view of two rounds, in the second of which silo b fails."""
    watcher = SeedWatcher(study.federation, "seed 5 (1 of 1) on cpu", view, silos)
    watcher(Waiting("QuorumLost", "0 of 2 silos connected"))
    watcher(SiloJoined("a", Profile("All", 9, "simulation")))
    watcher(RoundCommitted(RoundRecord(0, "d0", 1.0), MODEL, None))
    watcher(RoundStarted(1, ["a", "b"]))
    watcher(StepBegan(Step.TRAIN))
    watcher(SiloChanged("a", "Training", 3, 4))
    watcher(SiloChanged("b", "Failed", code=storage.DISK_FULL.code, message="no room"))
    parts = (SiloRecord("a", "Counted", 1.0, {"train": 463}), SiloRecord("b", "Failed"))
    watcher(RoundCommitted(RoundRecord(1, "d1", 2.0, {"accuracy": 0.91234}, parts), MODEL, None))


def test_lines_tell_of_rounds_and_failures_only(file: Path) -> None:
    stream = io.StringIO()
    watched(LineView(stream), validate_study(file), silos=0)
    lines = [line.partition(", 0.")[0] for line in stream.getvalue().splitlines()]
    assert lines == [
        "round 0/1 committed",
        f"silo b does not count: {storage.DISK_FULL.code} no room",
        "round 1/1 committed, accuracy 0.9123",
    ]


def test_rounds_in_which_no_silo_learns_are_told_once(file: Path) -> None:
    stream = io.StringIO()
    watcher = SeedWatcher(validate_study(file).federation, "seed 5 (1 of 1) on cpu", LineView(stream), 0)
    for number, state in enumerate(["Inactive", "Inactive", "Counted", "Inactive"], 1):
        watcher(RoundCommitted(RoundRecord(number, "d", 1.0, {}, (SiloRecord("a", state),)), MODEL, None))
    seeds = [line.split(",")[0] for line in stream.getvalue().splitlines() if line.startswith("from ")]
    assert seeds == [f"from round {number} on no silo had anything to learn from" for number in (1, 4)]
    quiet = io.StringIO()
    orchestra = validate_study(file, ["spec.method={name: Orchestra}", "spec.evaluation=null"]).federation
    watcher = SeedWatcher(orchestra, "seed 5 (1 of 1) on cpu", LineView(quiet), 0)
    watcher(RoundCommitted(RoundRecord(0, "d", 1.0), MODEL, None))
    watcher(
        RoundCommitted(RoundRecord(1, "d", 1.0, {}, (SiloRecord("a", "Inactive"),)), MODEL, None)
    )  # it sends centroids alone
    assert "from round" not in quiet.getvalue()


def test_the_picture_holds_the_first_silos_of_the_round(file: Path) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, color_system=None)
    with LiveView(console) as view:
        watched(view, validate_study(file), silos=1)
    for part in ("tiny, seed 5 (1 of 1) on cpu", "FedAvg on SmallCnn", "463", "accuracy 0.9123"):
        assert part in stream.getvalue(), part
    assert "0 of 2 silos" not in stream.getvalue() and "Failed" not in stream.getvalue()


def test_nothing_is_played_where_all_is_finished(file: Path, tmp_path: Path) -> None:
    folder, study = SimulationFolder(tmp_path / "done"), validate_study(file)
    folder.result(5).parent.mkdir(parents=True)
    write_result(folder.result(5), one_round(5), study)
    assert play_missing([study], Simulator(folder, tmp_path, "cpu", LineView(io.StringIO()), 0)) == 0


def test_the_summary_and_the_card_say_what_is_wrong(file: Path) -> None:
    """The only silo with labels has images of one class, another has no labels: the model knows nothing but that class."""
    data = "{format: Digits, use: Part, testPercent: 10, partition: {recipe: DistinctShards, classesPerPart: '1', parts: 10, part: PART}}"
    head, _, _ = DOCUMENTS.partition("---")
    silos = [
        f"---\nkind: Silo\nmetadata: {{name: {name}}}\nspec: {{federation: tiny, labels: {labels}, managed: {{data: {data}}}}}\n".replace(
            "PART", str(part)
        )
        for part, (name, labels) in enumerate([("a", "All"), ("b", "None")])
    ]
    file.write_text(
        head.replace("name: FedAvg, local: {epochs: 1,", "name: LowerBound, local: {epochs: 5,") + "".join(silos)
    )
    result = simulate(file)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    gain = next(
        place for place, line in enumerate(lines) if line.startswith("The federation reaches a balanced accuracy of ")
    )
    assert "(`fedctl run` measures it, unless --no-compare leaves it out)" in lines[gain]
    assert lines[gain - 1].startswith("tiny: LowerBound on SmallCnn, 1 seed, 1 round")
    assert re.match(r"- The last model predicts \d for 17\d of 179 validation images, ", lines[gain + 1]), lines
    assert lines[gain + 2].startswith("- The images of b have no labels, and nobody learns from them")
    card = (SimulationFolder(file.parent / "work").models(5) / CARD_TEXT).read_text()
    assert card.split("\n\n")[2].count("\n- ") == 1 and lines[gain + 1].split(",")[0] in card
