"""What people see of a run in MLflow: its note, headline, datasets and card."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pytest
from classification_of import classes
from mlflow.tracking import MlflowClient
from tracked_run import NOTHING, card, only_run, record_of, start

from anchorage.api.errors.tracking import TRACKING_INCOMPLETE
from anchorage.engine.events import RoundCommitted
from anchorage.engine.tracking import Outbox
from anchorage.engine.tracking.figures import embeddings, figure_of, principal_plane
from anchorage.engine.tracking.headline import headline
from anchorage.engine.tracking.mlflow_run import RESULTS, MlflowRun
from anchorage.engine.tracking.outbox import read_events
from anchorage.engine.tracking.process import what_is_sent
from anchorage.engine.tracking.sender import Sending
from anchorage.methods.model_card import write_card
from anchorage.pieces.task.classification_charts import confusion_chart


def note(run: mlflow.entities.Run) -> str:
    return str(run.data.tags["mlflow.note.content"])


def test_a_run_says_what_it_is_and_then_its_scores(tmp_path, uri):
    folder = tmp_path / "outbox"
    run = start(folder)
    Sending(folder, uri).send_all()
    mlflow_run = only_run(uri)
    assert (mlflow_run.info.run_name, mlflow_run.data.tags["anchorage.method"]) == ("derm FedAvg seed 1", "FedAvg")
    assert note(mlflow_run) == "FedAvg on SmallCnn: 3 rounds, 3 classes, seed 1."
    experiment = MlflowClient(uri).get_experiment_by_name("study")
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "figures/final" in experiment.tags["mlflow.note.content"]
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    mlflow_run = only_run(uri)
    assert "| federation | 0.3000 |" in note(mlflow_run) and "| a, own images | 0.2500 |" in note(mlflow_run)
    assert "anchorage.code" not in mlflow_run.data.tags
    place = mlflow.artifacts.download_artifacts(f"runs:/{mlflow_run.info.run_id}/{RESULTS}", tracking_uri=uri)
    assert note(mlflow_run) in Path(place).read_text()


def test_what_people_wrote_stays(tmp_path, uri):
    client, folder = MlflowClient(uri), tmp_path / "outbox"
    theirs = {"mlflow.note.content": "ours", "mlflow.experimentKind": "classification"}
    experiment = client.create_experiment("study", (tmp_path / "artifacts").as_uri(), theirs)
    run = start(folder)
    Sending(folder, uri).send_all()
    client.set_tag(only_run(uri).info.run_id, "mlflow.note.content", "mine")
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    assert note(only_run(uri)) == "mine"
    tags = client.get_experiment(experiment).tags
    assert (tags["mlflow.note.content"], tags["mlflow.experimentKind"]) == ("ours", "classification")


def test_datasets_have_digests_and_counts_once(tmp_path, uri):
    folder = tmp_path / "outbox"
    for number in (1, 2):
        start(folder)(RoundCommitted(record_of(number), NOTHING, None))
        Sending(folder, uri).send_all()
    (folder / "sender.json").unlink()
    Sending(folder, uri).send_all()
    inputs = only_run(uri).inputs.dataset_inputs
    inputs_by_name = {
        i.dataset.name: (i.dataset.digest, json.loads(i.dataset.profile), i.tags[0].value) for i in inputs
    }
    assert len(inputs) == 2
    assert inputs_by_name["anchors"] == ("a" * 16, {"images": {"a": 2, "b": 1, "without label": 4}}, "anchors")
    assert inputs_by_name["a"] == ("f" * 16, {"images": {"train": 30}}, "silo")
    assert {i.dataset.source for i in inputs} == {'{"federation": "derm"}'}


def test_a_card_completed_after_the_end_is_sent_with_its_scores(tmp_path, uri):
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    write_card(models, card())
    run = start(folder)
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    Sending(folder, uri).send_all()
    alone = {"labels_alone": {"accuracy": 0.125}, "sites_alone": {"west": {"balanced_accuracy": 0.8, "accuracy": 0.5}}}
    write_card(models, card().model_copy(update=alone))
    for _ in range(2):  # sent again, it says the same
        Outbox(folder).append("card", {"models": str(models)})
        sending = Sending(folder, uri)
        sending.send_all()
        assert sending.ended
    mlflow_run = only_run(uri)
    assert mlflow_run.info.status == "FINISHED" and "| labels alone |  | 0.1250 |" in note(mlflow_run)
    first, problems, _ = note(mlflow_run).split("\n\n", 2)
    assert first.startswith(
        "**The federation reaches a balanced accuracy of 0.750 on 4 validation images: 5.0 points below west"
    )
    assert (
        "- The federation is below what west reaches alone." in problems
        and "| west alone | 0.8000 | 0.5000 |" in note(mlflow_run)
    )
    assert (
        MlflowClient(uri).get_metric_history(mlflow_run.info.run_id, "validation/site_alone/west/accuracy")[-1].value
        == 0.5
    )
    history = MlflowClient(uri).get_metric_history(mlflow_run.info.run_id, "validation/labels_alone/accuracy")
    assert {(m.step, m.value) for m in history} == {(3, 0.125)}


def test_what_is_noted_while_the_last_results_are_sent_is_sent_too(tmp_path, uri, monkeypatch):
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    write_card(models, card())
    run = start(folder)
    run(RoundCommitted(record_of(3), NOTHING, None))
    run.finish("", None)
    end = MlflowRun.end

    def end_beside_the_runner(self: MlflowRun, code: str) -> None:
        write_card(models, card().model_copy(update={"labels_alone": {"accuracy": 0.125}}))
        Outbox(folder).append("card", {"models": str(models)})
        end(self, code)

    monkeypatch.setattr(MlflowRun, "end", end_beside_the_runner)
    sending = Sending(folder, uri)
    sending.send_all()
    assert list(read_events(folder, sending.offset)) == []
    assert "| labels alone | 0.1250 |" in note(only_run(uri))


def test_a_card_of_another_format_is_left_out_and_told(tmp_path, uri):
    folder, models = tmp_path / "outbox", tmp_path / "model"
    models.mkdir()
    (models / "model-card.json").write_text('{"format": "other"}')
    start(folder)
    Outbox(folder).append("card", {"models": str(models)})
    Sending(folder, uri).send_all()
    missing = what_is_sent(folder, "").missing
    assert missing is not None and missing.failure is TRACKING_INCOMPLETE
    assert missing.message.startswith("MLflow does not have the model card's figures: it is no model card: ")


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [
        ({}, []),
        ({"seconds/train": 1.0}, []),
        (
            {
                "accuracy": 0.1,
                "test/final/accuracy": 0.5,
                "test/best/accuracy": 0.5,
                "test/labels_alone/accuracy": 0.4,
                "test/site_alone/b/accuracy": 0.2,
                "test/site_alone/a/accuracy": 0.3,
                "test/supervised_bound/accuracy": 0.6,
            },
            [
                "federation | 0.5000",
                "labels alone | 0.4000",
                "b alone | 0.2000",
                "a alone | 0.3000",
                "supervised bound | 0.6000",
            ],
        ),
        (
            {
                "accuracy": 0.5,
                "test/best/accuracy": 0.75,
                "silo/x/held_out_accuracy": 0.75,
                "silo/y/held_out_accuracy": 0.25,
            },
            ["federation | 0.5000", "best round | 0.7500", "y, own images | 0.2500", "x, own images | 0.7500"],
        ),
    ],
)
def test_the_headline_has_what_was_scored(metrics, rows):
    lines = headline(metrics).splitlines()
    assert [line.strip("| ") for line in lines[2:]] == rows


def test_the_headline_of_many_silos_has_the_worst():
    text = headline({f"silo/s{n}/held_out_accuracy": n / 100 for n in range(50)})
    assert "| s0, own images | 0.0000 |" in text and "s20," not in text
    assert text.endswith("and 30 silos with better scores")


def test_figures_of_nothing_and_of_many_classes():
    figure_of(confusion_chart(np.zeros((40, 40), np.int64), [f"class {c}" for c in range(40)]), "none")
    embeddings(np.zeros((1, 3), np.float32), "one image, one dimension", classes(2))
    points = np.outer(np.arange(5.0), [3.0, 4.0]).astype(np.float32)
    plane, share = principal_plane(points)
    np.testing.assert_allclose(np.abs(plane[:, 0]), np.abs(np.arange(5.0) - 2) * 5, atol=1e-9)
    np.testing.assert_allclose(share, [1, 0], atol=1e-12)
