"""Thresholds by the server's validation images, and labels corrected by a silo's own class shares."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learning_party import CLASSES, Party, images_of, method_of

from anchorage.algorithms.calibration import Acceptance, class_shares, shift_to, validated_thresholds
from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study
from anchorage.pieces.pseudo_labels.calibrated import CONFUSION, SHARES, THRESHOLDS, unlabelled_shares

DIGITS = Path(__file__).parents[4] / "examples" / "digits.yaml"


def scores_of(*best):
    """Rows of two classes: the score of the first, and of the second whatever is left."""
    return torch.tensor([[value, 1 - value] for value in best])


def test_a_threshold_is_the_lowest_from_which_enough_guesses_are_right():
    scores, labels = scores_of(0.9, 0.8, 0.7, 0.6, 0.1, 0.2), torch.tensor([0, 0, 1, 0, 1, 0])
    strict = validated_thresholds(scores, labels, 1.0)
    assert strict.tolist() == pytest.approx([0.8, 0.9])
    loose = validated_thresholds(scores, labels, 0.75)
    assert loose.tolist() == pytest.approx([0.6, 0.9])


def test_equal_scores_are_accepted_together_or_not_at_all():
    thresholds = validated_thresholds(scores_of(0.9, 0.8, 0.8), torch.tensor([0, 0, 1]), 0.9)
    assert thresholds[0].item() == pytest.approx(0.9)


def test_a_class_that_is_never_right_accepts_nothing_and_one_that_is_never_guessed_goes_by_all():
    never_right = validated_thresholds(torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0]]), torch.tensor([1, 1]), 0.9)
    assert never_right.tolist() == [float("inf"), pytest.approx(0.7), float("inf")]
    never_guessed = validated_thresholds(torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0]]), torch.tensor([0, 1]), 0.9)
    assert never_guessed.tolist() == pytest.approx([0.9, 0.7, 0.7])


def observed(shares, count, seed=0):
    """Probabilities of a model that was trained on equal shares, of images of these shares: a class shows one of three signs."""
    rng = np.random.default_rng(seed)
    likelihood = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    classes = rng.choice(3, count, p=shares)
    signs = np.array([rng.choice(3, p=likelihood[c]) for c in classes])
    return torch.from_numpy((likelihood / likelihood.sum(0)).T[signs]), torch.from_numpy(classes)


def test_class_shares_of_a_silo_are_found_without_its_labels():
    shares = torch.tensor([0.8, 0.15, 0.05], dtype=torch.float64)
    uniform = torch.full((3,), 1 / 3, dtype=torch.float64)
    probabilities, classes = observed(shares.numpy(), 6000)
    shares_found = class_shares(probabilities, uniform)
    assert (shares_found - shares).abs().max() < 0.05 < (probabilities.mean(0) - shares).abs().max()
    corrected = Acceptance(0.0, (shares_found / uniform).log()).labels(probabilities.log())[0]
    plain = Acceptance(0.0).labels(probabilities.log())[0]
    assert (corrected == classes).sum() > (plain == classes).sum()


def test_no_class_share_is_0_however_few_the_images():
    shares = class_shares(torch.tensor([[1.0, 0.0, 0.0]]), torch.full((3,), 1 / 3, dtype=torch.float64))
    assert shares.sum().item() == pytest.approx(1)
    assert shares.tolist() == pytest.approx([0.5, 0.25, 0.25])


@pytest.mark.parametrize("name", ["FedAvgFixMatchAlternate", "SemiFLNoMixup", "FedAnchorNoMixup"])
def test_silos_accept_by_the_thresholds_of_the_server_s_validation_images(tmp_path, name):
    options = {"calibration": "Validation", "threshold": "0.9"}
    party = Party(method_of(name, pseudoLabels=options), images_of(24, labelled=False), tmp_path)
    sent = party.task().auxiliary_data
    assert sent[THRESHOLDS].shape == (CLASSES,) and sent[THRESHOLDS].dtype == np.float64
    everything = party.train(auxiliary_data={**sent, THRESHOLDS: np.full(CLASSES, -1.0)})
    nothing = party.train(auxiliary_data={**sent, THRESHOLDS: np.full(CLASSES, np.inf)})
    assert (everything.samples["selected"], nothing.samples["selected"]) == (24, 0)


@pytest.mark.parametrize("name", ["FedAvgFixMatchAlternate", "SemiFLNoMixup", "SAGE"])
def test_labels_follow_a_silo_s_own_class_shares(tmp_path, name):
    """All images of one class: what the model leaves open between two is taken for the frequent one, so more is accepted."""
    images = images_of(60, labelled=False)
    first = replace(images, images=np.repeat(images.images[:1], 60, axis=0))
    slots = {} if name != "SAGE" else {"serverTraining": {"anchors": {"pretrainEpochs": 10}}}
    local = {"optimiser": {"sgd": {"learningRate": "0.000000000001"}}}
    aligned, fixed = (
        Party(
            method_of(name, pseudoLabels={"calibration": c, "threshold": "0.95"}, local=local, **slots),
            first,
            tmp_path / c,
        )
        for c in ("Alignment", "None")
    )
    assert aligned.task().auxiliary_data[SHARES].tolist() == pytest.approx([1 / 3] * CLASSES)
    assert aligned.train().samples["selected"] > fixed.train().samples["selected"]


@pytest.mark.parametrize("name", ["FedAvgFixMatchAlternate", "SemiFLNoMixup", "SAGE"])
def test_silos_measure_their_class_shares_by_what_the_model_confuses(tmp_path, name):
    """All images alike, so all are taken for one class: of that one where the model never errs, and of any where it says it of everything."""
    images = images_of(60, labelled=False)
    alike = replace(images, images=np.repeat(images.images[:1], 60, axis=0))
    options = {"calibration": "Measured", "threshold": "0.5"}
    local = {"optimiser": {"sgd": {"learningRate": "0.000000000001"}}}
    party = Party(method_of(name, pseudoLabels=options, local=local), alike, tmp_path)
    sent = party.task().auxiliary_data
    assert sent[CONFUSION].shape == (CLASSES, CLASSES) and sent[CONFUSION].sum(1).tolist() == pytest.approx(
        [1] * CLASSES
    )
    sure = 0.98 * np.eye(CLASSES) + 0.02 / CLASSES
    right, blind = (
        party.train(auxiliary_data={**sent, CONFUSION: confused})
        for confused in (sure, np.full((CLASSES, CLASSES), 1 / CLASSES))
    )
    assert (
        right.samples["selected"] > 2 * blind.samples["selected"]
    )  # weak views differ, so a few are sure of another class


def test_measured_shares_need_validation_images(tmp_path):
    method = "spec.method={name: FedAvgUDA, pseudoLabels: {uda: {calibration: Measured}}}"
    with pytest.raises(DocumentError, match="found Measured, but the server has no validation images"):
        validate_study(DIGITS, [method, "spec.evaluation=null"])


def test_logits_are_shifted_until_their_mean_probabilities_are_the_given_shares():
    shares = torch.tensor([0.8, 0.2, 0.0], dtype=torch.float64)
    alike = shift_to(torch.zeros(4, 3), shares)
    assert (alike[0] - alike[1]).exp().item() == pytest.approx(4) and alike[2] == -torch.inf
    logits = torch.tensor([[2.0, 0.0, 5.0], [0.0, 1.0, 0.0], [-1.0, 0.5, 0.0], [3.0, 0.0, 1.0]])
    mean = (logits + shift_to(logits, shares)).softmax(1).mean(0)
    assert mean.tolist() == pytest.approx(shares.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["FedAvgUDA", "FedAvgFixMatch"])
def test_a_silo_labels_by_the_class_counts_that_it_states(tmp_path, name):
    """All images alike: each is of the class that is said to be the most frequent, and as sure as that is."""
    images = images_of(60, labelled=False)
    alike = replace(images, images=np.repeat(images.images[:1], 60, axis=0))
    method = method_of(name, pseudoLabels={"threshold": "0.9"}, local={"optimiser": {"sgd": {"learningRate": "0"}}})
    selected = [
        Party(method, replace(alike, stated_counts=counts), tmp_path / str(number)).train().samples["selected"]
        for number, counts in enumerate([None, (20, 20, 20), (1, 1, 58), (60, 0, 0)])
    ]
    assert selected == [0, 0, 60, 60]


def test_counts_that_a_silo_states_are_those_of_its_labelled_images_too(tmp_path):
    shares = {"balancedSoftmax": {"shares": "Federation"}}
    method = method_of("FedAvgUDA", localLoss=shares)
    messages = [
        Party(method, replace(images_of(12), stated_counts=counts), tmp_path / str(counts), labels="All")
        .train()
        .auxiliary_data["label_counts"]
        .tolist()
        for counts in (None, (30, 6, 0))
    ]
    assert messages == [[4, 4, 4], [30, 6, 0]]
    half = images_of(12)
    partial = replace(half, labels=np.where(np.arange(12) < 6, half.labels, -1), stated_counts=(6, 4, 3))
    images = Party(method, partial, tmp_path / "partial", labels="Partial").learner._images
    assert unlabelled_shares(images).tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])


def test_pseudo_labels_are_learnt_by_all_silos_class_shares(tmp_path):
    def update(name, shares, prior):
        method = method_of(
            "FedAvgUDA", pseudoLabels={"threshold": "0"}, localLoss={"balancedSoftmax": {"shares": shares}}
        )
        party = Party(method, images_of(24, labelled=False), tmp_path / name)
        party.train(auxiliary_data=prior)
        return party.update.view(np.float32)

    own_update = update("own", "Silo", None)
    alike, uneven = (update(str(p), "Federation", {"prior": np.array(p)}) for p in ([1 / 3] * 3, [0.7, 0.2, 0.1]))
    assert np.abs(alike - own_update).max() <= 1e-4
    assert np.abs(uneven - own_update).max() > 1e-3
