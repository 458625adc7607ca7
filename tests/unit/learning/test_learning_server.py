"""Server learners, scoring at silos, and what both ends agree on."""

import threading

import numpy as np
import pytest
from learning_party import (
    ANCHOR,
    CLASSES,
    MODEL,
    Party,
    given,
    images_of,
    method_of,
)
from safetensors.numpy import save, save_file

from anchorage.api.errors import AnchorageError
from anchorage.learning.learners import build_server_learner, train_on_anchors_alone
from anchorage.learning.server_scoring import ServerScoring
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import Layout


def test_a_class_without_anchors_is_refused():
    anchors = images_of(12).select(np.flatnonzero(images_of(12).labels != 1))
    with pytest.raises(AnchorageError, match="no anchor of class 1"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=anchors)
    with pytest.raises(AnchorageError, match="AnchorsMissing"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1)


def test_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(AnchorageError, match="DeviceUnavailable"):
        build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(6), device="abacus")


def test_weights_to_start_from(tmp_path):
    method = method_of("FedAvg")
    start = build_server_learner(model=MODEL, method=method, seed=5).initialise()
    path = tmp_path / "start.safetensors"
    save_file(start.arrays(), path)
    server = build_server_learner(model=MODEL, method=method, seed=6, initial=path)
    assert server.initialise().digest == start.digest
    other = {name: array for name, array in start.arrays().items() if name != "classifier.bias"}
    for content in (b"not tensors", save(other), save({**other, "head.bias": other["classifier.weight"]})):
        path.write_bytes(content)
        with pytest.raises(AnchorageError, match="ModelMismatch: .*start.safetensors .* give spec.model another start"):
            server.initialise()


def test_a_model_of_another_method_is_a_start_without_the_heads_that_helped_it(tmp_path):
    with_head = build_server_learner(model=MODEL, method=ANCHOR[0], seed=5, anchors=images_of(12, 9)).initialise()
    save_file(with_head.arrays(), tmp_path / "start.safetensors")
    server = build_server_learner(
        model=MODEL, method=method_of("FedAvg"), seed=6, initial=tmp_path / "start.safetensors"
    )
    arrays = server.initialise().arrays()
    assert with_head.layout.by_name.keys() - arrays.keys() == {"anchor_head.weight", "anchor_head.bias"}
    assert all(np.array_equal(array, with_head.arrays()[name]) for name, array in arrays.items())


def test_a_start_without_a_projection_head_keeps_its_encoder_alone(tmp_path):
    """Its classifier saw the encoder, here it would see the projection, which is drawn as the classifier is."""
    plain = build_server_learner(model=MODEL, method=method_of("FedAvg"), seed=5).initialise().arrays()
    path = tmp_path / "start.safetensors"
    save_file(plain, path)
    projected = method_of("MOON")
    arrays = build_server_learner(model=MODEL, method=projected, seed=6, initial=path).initialise().arrays()
    drawn = build_server_learner(model=MODEL, method=projected, seed=6).initialise().arrays()
    encoder = {name for name in plain if name.startswith("encoder.")}
    assert any(name.startswith("projection.") for name in arrays)
    assert all(np.array_equal(array, (plain if name in encoder else drawn)[name]) for name, array in arrays.items())


def test_a_start_whose_covariances_are_of_another_kind_is_refused(tmp_path):
    """Left out, every class would have the covariance that nobody measured."""
    labelled = {"seed": 6, "anchors": images_of(12, 9)}
    of_each = method_of("MomentsHead", server_training={"head": "Qda"})
    path = tmp_path / "start.safetensors"
    save_file(build_server_learner(model=MODEL, method=of_each, **labelled).initialise().arrays(), path)
    variances = method_of("MomentsHead", server_training={"head": "NaiveBayes"})
    with pytest.raises(AnchorageError, match="ModelMismatch: .*classifier.scale"):
        build_server_learner(model=MODEL, method=variances, initial=path, **labelled).initialise()


def test_server_training_is_a_function_of_model_and_round():
    def server():
        return build_server_learner(
            model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(12, 9), validation=images_of(30, 8)
        )

    first, second = server(), server()
    start = first.initialise()
    assert second.initialise().digest == start.digest
    after, metrics = first.train(start, 1)
    first.train(after, 2)
    second_model, _ = second.train(start, 1)
    assert second_model.digest == after.digest != start.digest
    assert set(metrics) == {"server_loss", "contrastive_loss", "unreachable_classes"}
    changed = {n for n, a in after.arrays().items() if not np.array_equal(a, start.arrays()[n])}
    assert {"anchor_head.weight", "classifier.weight"} <= changed


def test_the_report(tmp_path):
    server = build_server_learner(
        model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(30, 9), validation=images_of(600, 8)
    )
    report = server.evaluate(server.initialise(), 0)
    assert set(report.metrics) == {"accuracy", "balanced_accuracy", "macro_precision", "macro_auc", "loss"}
    assert report.tally["confusion"].sum() == 600 and report.tally["confusion"].dtype == np.int64
    assert np.trace(report.tally["confusion"]) / 600 == report.metrics["accuracy"]
    assert report.embeddings.shape == (500, 2 + 128) and report.embeddings.dtype == np.float32


@pytest.mark.parametrize("part", ["test", "validation"])
def test_a_model_is_assessed_on_the_images_that_it_was_scored_on(part):
    images = {"anchors": images_of(30, 9), "validation": images_of(60, 8), part: images_of(200, 7)}
    server = build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, **images)
    model = server.initialise()
    assessment, reassessment = server.assess(model, 0), server.assess(model, 5)
    score = server.test if part == "test" else server.evaluate
    report = score(model, 0)
    assert (assessment.part, assessment.images, assessment.resamples) == (part, 200, 1000)
    assert assessment.metrics == report.metrics and assessment.macro_auroc.value == pytest.approx(
        report.metrics["macro_auc"]
    )
    assert np.array_equal(assessment.counts["confusion"], report.tally["confusion"])
    assert [scores.name for scores in assessment.classes] == list(MODEL.task.outputs)
    assert reassessment == assessment


def test_a_tested_model_is_not_scored_again(monkeypatch):
    server = build_server_learner(
        model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(30, 9), test=images_of(60, 7)
    )
    model = server.initialise()
    assessment = server.assess(model, 0)
    report = server.test(model, 0)
    monkeypatch.setattr(ServerScoring, "_forward", None)
    assert server.assess(model, 0) == assessment and assessment.metrics == report.metrics


def test_nothing_is_assessed_without_images_to_score_on():
    server = build_server_learner(model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(30, 9))
    assert server.assess(server.initialise(), 0) is None


def test_anchors_alone():
    report = train_on_anchors_alone(
        model=MODEL, method=ANCHOR[0], seed=1, anchors=images_of(30, 9), test=images_of(60, 8), rounds=2
    )
    assert report.metrics["accuracy"] > 0.5


def test_scoring_on_true_labels(tmp_path):
    party = Party(method_of("DVW", weighting={"validationPercent": 50}), given("All"), tmp_path / "a", "All")
    announcement = party.train()
    task = Task("e", TaskKind.EVALUATE, 1, announcement.update)
    evaluation = party.learner.evaluate(task, party.update)
    assert evaluation.task == "e"
    assert evaluation.tally["validation"].tolist() == announcement.auxiliary_data["validation"].tolist()
    assert evaluation.tally["validation"][1] == 26 - announcement.samples["train"] == 14
    full = Party(method_of("DVW", weighting={"metric": "MCC"}), given("All"), tmp_path / "b", "All")
    assert full.train().auxiliary_data["validation"].shape == (CLASSES, CLASSES)


def test_scoring_on_accepted_pseudo_labels_of_the_round(tmp_path):
    party = Party(ANCHOR[-1], given("None"), tmp_path)
    task = Task("e", TaskKind.EVALUATE, 1, party.model.manifest)
    assert party.learner.evaluate(task, party.model.buffer()).tally["validation"].tolist() == [0, 0]
    party.train(1)
    scored = party.learner.evaluate(task, party.model.buffer()).tally["validation"]
    assert scored[1] == 5
    party.restart()
    assert party.learner.evaluate(task, party.model.buffer()).tally["validation"].tolist() == scored.tolist()
    late = Task("e", TaskKind.EVALUATE, 2, party.model.manifest)
    assert party.learner.evaluate(late, party.model.buffer()).tally["validation"].tolist() == [0, 0]


def test_evaluation_beside_training_changes_neither(tmp_path):
    party = Party(method_of("DVW", local={"epochs": 4}), given("All"), tmp_path / "a", "All")
    task = Task("e", TaskKind.EVALUATE, 1, party.model.manifest)
    alone, expected = party.digest(), party.learner.evaluate(task, party.model.buffer()).tally["validation"].tolist()
    begun, scores = threading.Event(), []

    def score() -> None:
        begun.wait(120)
        scores.extend(
            [party.learner.evaluate(task, party.model.buffer()).tally["validation"].tolist() for _ in range(5)]
        )

    thread = threading.Thread(target=score)
    thread.start()
    announcement = party.learner.train(party.task(), party.model.buffer(), party._out, lambda done, total: begun.set())
    thread.join()
    assert announcement.update.digest == alone
    assert scores == [expected] * 5


def test_layouts_travel_as_json(tmp_path):
    party = Party(ANCHOR[0], given("None"), tmp_path)
    assert Layout.from_json(party.run.down).digest == party.model.manifest.layout
