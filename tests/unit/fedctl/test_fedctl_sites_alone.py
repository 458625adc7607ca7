"""What a federation is held against: which trainings, what each of them is, and that they are measured once."""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.files import Study
from anchorage.methods import check, resolve, validate_study
from fedctl import sites_alone
from fedctl.comparison import Comparison
from fedctl.sites_alone import MOST_SITES, AloneScores, measure, study_of, trainings
from fedctl.workdir import Workdir

pytest.importorskip("sklearn")

POOL = {"format": "Digits", "testPercent": 50}


def study(folder: Path, method: dict[str, Any], labels: str, **spec: Any) -> Study:
    """Write a federation of digits whose silos, called a, b and so on, have these labels."""
    kinds = labels.split()
    written: list[dict[str, Any]] = [
        {
            "kind": "Federation",
            "metadata": {"name": "tiny"},
            "spec": {
                "rounds": 2,
                "seed": 5,
                "task": {"classification": {"classes": list("0123456789")}},
                "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
                "method": method,
                "evaluation": {"validation": POOL | {"use": "Test"}},
                **spec,
            },
        }
    ]
    for part, kind in enumerate(kinds):
        data = POOL | {"use": "Part", "partition": {"recipe": "Iid", "parts": len(kinds) + 8, "part": part}}
        data |= {"labelledPercent": 40} if kind == "Partial" else {}
        silo_spec = {"federation": "tiny", "labels": kind, "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": "abcdefgh"[part]}, "spec": silo_spec})
    file = folder / "tiny.yaml"
    file.write_text("\n---\n".join(map(json.dumps, written)))
    return validate_study(file)


LOCAL = {"epochs": 1, "batchSize": 16}
FEDAVG = {"name": "FedAvg", "local": LOCAL}
SEMI = {"name": "FedAvgSemi", "local": LOCAL}
ANCHORS = {"anchorData": {"format": "Digits", "use": "Anchors", "testPercent": 50, "anchors": 20}}


@pytest.mark.parametrize(
    ("method", "labels", "spec", "advice"),
    [
        (FEDAVG, "All All", {}, ["a", "b"]),
        (FEDAVG, "All", {}, []),
        ({"name": "LowerBound"}, "All All None", {}, ["a", "b"]),
        (SEMI, "All None All", {}, ["a", "c", "the labels"]),
        (SEMI, "All None", {}, ["a"]),
        (SEMI, "Partial Partial", {}, ["a", "b", "the labels"]),
        ({"name": "FedBarlow"}, "None None", ANCHORS, []),
        ({"name": "MomentsHead"}, "All All", {}, []),
        ({"name": "FedAnchor"}, "None None", ANCHORS, []),
        (FEDAVG, "All All", {"evaluation": {"siloPercent": 20}}, []),
        (FEDAVG, "All All All All All All All", {}, ["a", "b", "c", "d", "e"]),
    ],
)
def test_labelled_silos_are_trained_alone_and_where_others_have_no_labels_together(
    method: dict[str, Any], labels: str, spec: dict[str, Any], advice: list[str], tmp_path: Path
) -> None:
    federation = study(tmp_path, method, labels, **spec)
    assert [str(each) for each in trainings(federation.federation, federation.silos)] == advice
    assert len(advice) <= MOST_SITES + 1


def test_a_site_alone_has_the_federations_network_seed_rounds_and_local_settings(tmp_path: Path) -> None:
    warm_up = [{"rounds": 2, "method": "LowerBound"}, {"rounds": 1, "method": "FedBarlow"}]
    documents = study(tmp_path, SEMI, "All None Partial", rounds=5, warmUp=warm_up, protocol={"minSilos": 3})
    alone = study_of(documents, ("c",))
    spec, before = alone.federation.spec, documents.federation.spec
    assert [silo.metadata.name for silo in alone.silos] == ["c"] and alone.locate((), 0) == documents.locate((), 2)
    assert (spec.seed, spec.model, spec.task, spec.rounds) == (before.seed, before.model, before.task, 4)
    assert spec.warm_up == before.warm_up[:1], "self-supervised rounds learn from images without labels"
    method, method_before = resolve(spec.method), resolve(before.method)
    assert (method.local_loss, method.batch_norm) == (method_before.local_loss, method_before.batch_norm)
    assert "pseudoLabels" in method_before.facts() and "pseudoLabels" not in method.facts()
    for name in ("epochs", "batch_size", "optimiser", "steps"):
        assert getattr(method.local, name) == getattr(method_before.local, name)
    assert check(alone.federation, alone.silos) == [] and spec.protocol.min_silos == 1


def test_a_round_of_an_asynchronous_federation_is_one_silos(tmp_path: Path) -> None:
    documents = study(
        tmp_path, {"name": "FedAsync", "local": LOCAL}, "All All", rounds=6, protocol={"mode": "Asynchronous"}
    )
    alone = study_of(documents, ("a",))
    assert (alone.federation.spec.rounds, alone.federation.spec.protocol.mode) == (3, "Synchronous")
    assert check(alone.federation, alone.silos) == []


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_site_alone_reaches_what_a_simulation_of_it_reaches(part: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from anchorage.simulation.run import simulate

    spec = {"evaluation": {part: POOL | {"use": "Test"}}}
    documents = study(tmp_path, FEDAVG, "All All", **spec)
    reached = measure(documents, ("b",), tmp_path, "cpu")
    (tmp_path / "one").mkdir()
    only = study(tmp_path / "one", FEDAVG, "All All", **spec)
    single = study_of(only, ("b",))
    document = single.federation.model_copy(
        update={"spec": single.federation.spec.model_copy(update={"method": only.federation.spec.method})}
    )
    record, _ = simulate(Study(document, single.silos, single.file, single.sources), tmp_path, tmp_path / "state")
    metrics = record.test["final"] if part == "test" else record.metrics
    assert reached == {name: metrics[name] for name in reached} and "balanced_accuracy" in reached
    assert 0 < reached["accuracy"] < 1


def run_main(
    monkeypatch: pytest.MonkeyPatch, file: Path, out: Path, fails: str = ""
) -> tuple[int, list[tuple[str, ...]]]:
    trained: list[tuple[str, ...]] = []

    def measured(study: Study, names: Collection[str], data_root: Path) -> dict[str, float]:
        trained.append(tuple(names))
        if fails in names:
            raise AnchorageError(LOSS_NOT_FINITE, "a loss")
        return {"accuracy": len(trained) / 10}

    monkeypatch.setattr(sites_alone, "measure", measured)
    monkeypatch.setattr("os.nice", lambda least: least)
    monkeypatch.setattr(sys, "argv", ["x", "--federation", str(file), "--data-root", ".", "--out", str(out)])
    return sites_alone.main(), trained


def test_what_was_measured_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = study(tmp_path, SEMI, "All None All").file, tmp_path / "sites.json"
    status, trained = run_main(monkeypatch, file, out, fails="c")
    assert (status, trained) == (LOSS_NOT_FINITE.exit_code, [("a",), ("c",), ("a", "c")])
    assert "c alone: a loss" in capsys.readouterr().err
    assert AloneScores.read(out) == AloneScores(None, {"a": {"accuracy": 0.1}})
    assert run_main(monkeypatch, file, out) == (0, [("c",), ("a", "c")])
    assert AloneScores.read(out) == AloneScores({"accuracy": 0.2}, {"a": {"accuracy": 0.1}, "c": {"accuracy": 0.1}})
    assert run_main(monkeypatch, file, out) == (0, [])


def comparison(run: Workdir, documents: Study, messages: list[str], *, wanted: bool) -> Comparison:
    return Comparison(run, documents, run.root, messages.append, wanted=wanted)


def test_nothing_is_trained_that_is_not_wanted_or_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, messages, started = Workdir(tmp_path), list[str](), list[str]()
    run.make()
    monkeypatch.setattr("fedctl.processes.Child.start", lambda child: started.append(child.name))
    documents = study(tmp_path, SEMI, "All None All")
    with comparison(run, documents, messages, wanted=False) as compared:
        assert compared.scores() == AloneScores() and (messages, started) == ([], [])
    with comparison(run, documents, messages, wanted=True) as compared:
        compared.start()
        assert compared.scores() == AloneScores()
    assert started == ["sites-alone"] and messages == [
        "training at each of a, c alone and on the labels alone, for comparison; --no-compare leaves it out"
    ]
    whole_scores = AloneScores({"accuracy": 0.5}, {"a": {"accuracy": 0.4}, "c": {"accuracy": 0.3}})
    whole_scores.write(run.sites_alone)
    for wanted in (True, False):
        with comparison(run, documents, messages, wanted=wanted) as compared:
            assert compared.scores() == whole_scores
    assert len(started) == len(messages) == 1


def test_a_failure_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, messages = Workdir(tmp_path), list[str]()
    run.make()
    monkeypatch.setattr("fedctl.processes.Child.start", lambda child: None)
    monkeypatch.setattr("fedctl.processes.Child.wait", lambda child: 1)
    monkeypatch.setattr("fedctl.processes.Child.failure", lambda child, status: AnchorageError(LOSS_NOT_FINITE, "x"))
    with comparison(run, study(tmp_path, SEMI, "All None All"), messages, wanted=True) as compared:
        assert not compared.ended
        for _ in range(2):
            assert compared.scores() == AloneScores() and compared.ended
    assert [
        line.startswith("training at each of a, c alone and on the labels alone failed: ANC-") for line in messages
    ] == [
        False,
        True,
    ]


def test_where_the_server_trains_its_anchors_alone_are_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, messages, started = Workdir(tmp_path), list[str](), list[str]()
    run.make()
    monkeypatch.setattr("fedctl.processes.Child.start", lambda child: started.append(child.name))
    documents = validate_study(Path(__file__).parents[3] / "examples" / "digits.yaml")
    with comparison(run, documents, messages, wanted=True) as compared:
        compared.start()
    assert started == ["anchors-alone"] and messages[0].startswith("training on the anchors alone, for comparison;")
    run.anchors_alone.write_text('{"accuracy": 0.5}')
    with comparison(run, documents, messages, wanted=True) as compared:
        assert compared.scores() == AloneScores({"accuracy": 0.5}) and len(started) == 1
