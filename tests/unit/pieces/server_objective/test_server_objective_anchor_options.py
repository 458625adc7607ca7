"""FedAnchor's options: contrastive epochs before round 1, how they are cut into steps, and when mixed images are augmented."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learning_party import MODEL, Party, given, images_of, method_of

from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.views import Views
from anchorage.pieces.server_objective import label_contrastive
from anchorage.pieces.server_objective.label_contrastive import LabelContrastive, balanced_batches

HEAD = "anchor_head."


def fed_anchor(**options: Any):
    return method_of("FedAnchor", serverTraining={"pretrainEpochs": 1, "objective": {"labelContrastive": options}})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The anchors of every contrastive step."""
    sizes: list[int] = []
    plain = label_contrastive.label_contrastive

    def counted(embeddings: Any, *arguments: Any, **options: Any) -> Any:
        sizes.append(len(embeddings))
        return plain(embeddings, *arguments, **options)

    monkeypatch.setattr(label_contrastive, "label_contrastive", counted)
    return sizes


def server_of(method: Any):
    return build_server_learner(model=MODEL, method=method, seed=1, anchors=images_of(12, seed=9))


@pytest.mark.parametrize(
    ("options", "before", "round_one"),
    [
        ({}, [12] * 5, [12]),
        ({"pretrainEpochs": 0}, [], [12]),
        ({"pretrainEpochs": 2}, [12] * 2, [12]),
        ({"pretrainEpochs": 1, "batchSize": 6}, [6] * 2, [6] * 2),
        ({"pretrainEpochs": 1, "batchSize": 4}, [4] * 3, [4] * 3),
    ],
)
def test_contrastive_epochs_before_round_one_and_in_it(
    steps: list[int], options: dict[str, int], before: list[int], round_one: list[int]
) -> None:
    server = server_of(fed_anchor(**options))
    model = server.initialise()
    assert steps == before
    steps.clear()
    server.train(model, 1)
    assert steps == round_one


def test_without_them_the_anchor_head_stays_random() -> None:
    random = {
        name: tensor.numpy()
        for name, tensor in build_model(MODEL, TrainingMethod.of(fed_anchor()), 1).state_dict().items()
        if name.startswith(HEAD)
    }
    assert random
    trained, plain = (server_of(fed_anchor(**o)).initialise().arrays() for o in ({}, {"pretrainEpochs": 0}))
    for name, array in random.items():
        np.testing.assert_array_equal(plain[name], array)
        assert not np.array_equal(trained[name], array)


def test_they_bring_the_anchors_of_a_class_together() -> None:
    def apart(epochs: int) -> float:
        server = server_of(fed_anchor(pretrainEpochs=epochs))
        rows = server.auxiliary_data(server.initialise(), 1)["prototypes"]
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return float((units @ units.T)[~np.eye(len(rows), dtype=bool)].mean())

    assert apart(20) < apart(5) < apart(0)


@pytest.mark.parametrize(("size", "lengths"), [(4, [4, 4, 4]), (6, [6, 6]), (9, [9, 9]), (12, [12]), (13, [12])])
def test_a_batch_has_classes_evenly(size: int, lengths: list[int]) -> None:
    labels = np.arange(12) % 3
    batches = list(balanced_batches(labels, np.random.default_rng(0), size))
    assert [len(batch) for batch in batches] == lengths
    for batch in batches:
        assert len(set(np.bincount(labels[batch])) - {0}) == 1


def test_the_defaults_are_those_that_were_measured() -> None:
    """See benchmarks/quality/small/README.md; whoever changes them measures again."""
    assert (LabelContrastive().pretrain_epochs, LabelContrastive().batch_size) == (5, 50)


@pytest.mark.parametrize(("augment", "singly", "mixtures"), [("BeforeMixing", True, 0), ("AfterMixing", False, 4)])
def test_images_are_augmented_before_they_are_mixed_or_their_mixture_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, augment: str, singly: bool, mixtures: int
) -> None:
    calls = {"weak": 0, "weak_mixture": 0}

    def counting(name: str) -> Callable[..., Any]:
        plain = getattr(Views, name)

        def counted(self: Views, *arguments: Any) -> Any:
            calls[name] += 1
            return plain(self, *arguments)

        return counted

    method = method_of("FedAnchor", pseudoLabels={"threshold": "0"}, mixup={"augment": augment})
    party = Party(method, given("None"), tmp_path)
    for name in calls:
        monkeypatch.setattr(Views, name, counting(name))
    announcement = party.train()
    assert announcement.samples["selected"] == 26 and len(party.steps) == 4
    assert bool(calls["weak"]) is singly and calls["weak_mixture"] == mixtures
