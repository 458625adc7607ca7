"""What people see, and the benchmark's closed form."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_run import make_run
from rich.console import Console
from safetensors.numpy import save_file

from anchorage.api.errors import AnchorageError, cluster
from anchorage.api.federation import Evaluation, Tracking
from anchorage.api.files import load_federation
from anchorage.api.status import (
    CheckpointStatus,
    Condition,
    FederationStatus,
    Metric,
    SiloStatus,
    StoredModel,
    timestamp,
)
from anchorage.engine.tracking import Progress
from fedctl.output import Format, amount, duration, show
from fedctl.report import complete_card
from fedctl.research.bench_rounds import largest_difference
from fedctl.research.resnet18 import entries, random_model
from fedctl.sites_alone import AloneScores
from fedctl.summary import print_summary
from fedctl.view import LineView, Pace, Picture, draw, view_for
from fedctl.workdir import Workdir

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits.yaml"


def status(round_number: int, **changes: Any) -> FederationStatus:
    known = FederationStatus(
        round=round_number,
        rounds=10,
        step="train",
        connected_silos=1,
        silos=(SiloStatus(name="a", connected=True, state="Training", progress=40, samples=463), SiloStatus(name="b")),
        metrics=(Metric(name="accuracy", value="0.91234"), Metric(name="odd", value="nan")),
        last_checkpoint=CheckpointStatus(round=round_number),
    )
    return known.model_copy(update=changes)


def picture(status_shown: FederationStatus, **changes: Any) -> Picture:
    return Picture(
        "derm", "FedAvg on ResNet18", status_shown, {"server": "running", "a": "running", "b": "restarting"}, **changes
    )


def test_lines_say_what_changed_once() -> None:
    stream = io.StringIO()
    view = LineView(stream)
    quorum = Condition(
        type="QuorumMet", status="False", reason="QuorumLost", message="b", last_transition_time=timestamp(0)
    )
    view.show(picture(FederationStatus()))
    scored = {"metrics": metrics(accuracy=0.91239), "conditions": (quorum,)}
    for status_shown in (status(1), status(1), status(2, **scored), status(2, **scored), status(3, **scored)):
        view.show(picture(status_shown, elapsed_seconds=3.0, remaining_seconds=12.0))
    view.show(picture(status(10, silos=())))
    view.show(picture(status(10, silos=())))
    assert stream.getvalue().splitlines() == [
        "silo a connected",
        "round 1/10 committed, accuracy 0.9123, 3.0 s, about 12 s left",
        "waiting: b",
        "round 2/10 committed, accuracy 0.9124, 3.0 s, about 12 s left",
        "round 3/10 committed, 3.0 s, about 12 s left",
        "silo a disconnected",
        "round 10/10 committed, accuracy 0.9123, 0.0 s",
        "storing the model, and sending the results to MLflow",
    ]


def test_the_live_picture_holds_every_silo() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(draw(picture(status(3), elapsed_seconds=61, remaining_seconds=4000)))
    text = console.export_text()
    for part in ("derm", "round 3/10", "Training", "463", "restarting", "accuracy 0.9123", "1 min 01 s", "1 h 06 min"):
        assert part in text, part


def test_a_live_view_draws_on_its_stream_and_leaves_what_was_said() -> None:
    stream = io.StringIO()
    with view_for(stream, terminal=True) as view:
        view.show(picture(status(3)))
        view.say("[a] died")
    assert "[a] died" in stream.getvalue()


def metrics(**values: float) -> tuple[Metric, ...]:
    return tuple(Metric(name=name, value=repr(value)) for name, value in values.items())


@pytest.mark.parametrize("part", ["test", "validation"])
def test_the_summary_says_on_which_images_and_which_round_was_the_best(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = load_federation(EXAMPLE).federation
    stored = {"path": "/m/final.safetensors", "digest": "a" * 64, "round": 10}
    best = {**stored, "path": "/m/best.safetensors", "round": 7}
    scores = [metrics(accuracy=0.7, loss=0.4), metrics(accuracy=0.75)] if part == "test" else [(), ()]
    status_shown = status(
        10,
        metrics=metrics(accuracy=0.8),
        model=StoredModel(**stored, metrics=scores[0]),
        best_model=StoredModel(**best, metrics=scores[1]),
    )
    run = make_run(tmp_path, names=["naevus", "melanoma"])
    complete_card(run, AloneScores({"accuracy": 0.65}, {"silo-1": {"accuracy": 0.2}, "silo-2": {"accuracy": 0.6}}))
    print_summary(run, federation, status_shown, 3.0)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2].startswith("The federation reaches an accuracy of 0.712 on 90 test images: ")
    table = lines[next(place for place, line in enumerate(lines) if line.startswith("ON THE ")) :]
    if part == "test":
        assert table[:3] == [
            "ON THE TEST IMAGES LAST ROUND BEST, ROUND 7 LABELS ALONE SILO-2 ALONE",
            "accuracy 0.7000 0.7500 0.6500 0.6000",
            "loss 0.4000",
        ]
    else:
        assert table[:2] == [
            "ON THE VALIDATION IMAGES LAST ROUND LABELS ALONE SILO-2 ALONE",
            "accuracy 0.8000 0.6500 0.6000",
        ]
    assert "best model /m/best.safetensors, of round 7" in lines


def test_the_summary_names_the_scores_of_the_silos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    federation = load_federation(EXAMPLE).federation
    spec = federation.spec.model_copy(update={"evaluation": Evaluation(silo_percent=20)})
    stored = StoredModel(path="/m/final.safetensors", digest="a" * 64, round=10)
    status_shown = status(10, metrics=metrics(accuracy=0.8, worst_silo_accuracy=0.4), model=stored, best_model=stored)
    print_summary(Workdir(tmp_path), federation.model_copy(update={"spec": spec}), status_shown, 3.0)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:4] == ["ON THE SILOS' OWN IMAGES LAST ROUND", "accuracy 0.8000"]
    assert any(line.startswith("worst silo accuracy 0.4000") for line in lines)


@pytest.mark.parametrize(
    ("uri", "server"), [(None, "http://127.0.0.1:5000"), ("http://mlflow:80/", "http://mlflow:80")]
)
def test_the_summary_has_the_address_of_the_runs_page(
    uri: str | None, server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    federation = load_federation(EXAMPLE).federation
    spec = federation.spec.model_copy(update={"tracking": Tracking(uri=uri)})
    run = Workdir(tmp_path)
    run.outbox.mkdir(parents=True)
    Progress(run_id="abc", experiment_id="7").write(run.outbox)
    print_summary(run, federation.model_copy(update={"spec": spec}), status(10), None)
    page = f"{server}/#/experiments/7/runs/abc?workflowType=machine_learning"
    assert f"its page      {page}\n" in capsys.readouterr().out


def test_the_summary_says_why_the_best_model_is_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    federation = load_federation(EXAMPLE).federation
    spec = federation.spec.model_copy(update={"evaluation": None})
    stored = StoredModel(path="/m/final.safetensors", digest="a" * 64, round=10)
    status_shown = status(10, metrics=(), model=stored, best_model=stored)
    print_summary(Workdir(tmp_path), federation.model_copy(update={"spec": spec}), status_shown, None)
    out = capsys.readouterr().out
    assert "spec.evaluation.validation" in out and "IMAGES" not in out


def test_the_remaining_time_follows_the_rounds_of_this_start() -> None:
    pace = Pace()
    assert pace.update(FederationStatus(), 0.0) is None
    assert pace.update(status(4), 10.0) is None  # resumed at round 4
    assert pace.update(status(5), 12.0) == 10.0
    assert pace.update(status(5), 13.0) == 9.0
    assert pace.update(status(5), 99.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (7260, "2 h 01 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (44_758_972, "44.8 MB"), (5e15, "5000.0 TB")])
def test_amounts(nbytes: float, text: str) -> None:
    assert amount(nbytes) == text


def test_the_benchmarks_model_is_a_resnet_18() -> None:
    tensors = list(entries(7))
    assert len(tensors) == 122 and sum(name.split(".")[-1] in ("weight", "bias") for name, _, _ in tensors) == 62
    assert sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for _, shape, dtype in tensors) == 44_758_972
    model = random_model(2, 2, np.random.default_rng(0))
    assert len(model) == 244 and model["copy1.layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)


def test_the_closed_form(tmp_path: Path) -> None:
    initial = {"w": np.array([1.0, -2.0], np.float32), "n": np.array(3)}
    added = 5 * 0.001 * (1 * 1 + 2 * 2 + 3 * 3) / (1 + 2 + 3)
    final = {"w": initial["w"] + np.float32(added), "n": np.array(3)}

    def difference(before: dict[str, Any], after: dict[str, Any]) -> float:
        save_file(before, tmp_path / "before.safetensors")
        save_file(after, tmp_path / "after.safetensors")
        return largest_difference(tmp_path / "before.safetensors", tmp_path / "after.safetensors", silos=3, rounds=5)

    assert difference(initial, final) < 1e-6
    assert difference(initial, {**final, "n": np.array(4)}) == 1.0
    assert difference(initial, {"w": final["w"]}) == float("inf")
    assert difference(initial, {**final, "w": final["w"].astype(np.float64)}) == float("inf")
    assert difference({"e": np.empty((0, 2), np.float32)}, {"e": np.empty((0, 2), np.float32)}) == 0.0


def test_a_watch_outlasts_a_network_that_is_gone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedctl.output.sleep", lambda seconds: None)
    gone = AnchorageError(cluster.CLUSTER_UNREACHABLE, "no route")
    forbidden = AnchorageError(cluster.CLUSTER_FORBIDDEN, "not yours")
    answers: list[Any] = [1, 1, gone, gone, 2, gone, 2, forbidden]

    def observe() -> Any:
        if isinstance(answer := answers.pop(0), AnchorageError):
            raise answer
        return answer

    with pytest.raises(AnchorageError) as raised:
        show(observe, str, Format.JSON, watch=True)
    assert raised.value is forbidden
    printed, errors = capsys.readouterr()
    assert printed.split() == ["1", "2"]
    assert errors == f"{gone}; asking again\n" * 2, "once for each time that it goes"
    answers = [gone]
    with pytest.raises(AnchorageError, match="no route"):  # never reached: more likely a mistake than a passing trouble
        show(observe, str, Format.JSON, watch=True)
