"""Guesses that fit the class shares of a silo, what they count as, and the choice among classifiers, against calculations of their own."""

import math
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch

from anchorage.algorithms.guesses import compare, confusion, correct_logits, estimated_shares, measured_shares, members
from anchorage.algorithms.moments import ABSENT, Moments, discriminant


def softmax(rows):
    shifted = np.exp(rows - rows.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def scores_of(seed, count=200, classes=3):
    return np.random.default_rng(seed).normal(scale=2, size=(count, classes))


def test_shares_are_those_of_expectation_maximisation() -> None:
    scores = scores_of(1)
    shares = np.full(3, 1 / 3)
    for _ in range(20):  # Saerens et al. 2002, equations 2 and 3
        posterior = np.exp(scores) * shares
        posterior /= posterior.sum(1, keepdims=True)
        shares = 0.9 * posterior.mean(0) + 0.1 / 3
    np.testing.assert_allclose(estimated_shares(torch.from_numpy(scores), torch.ones(200)), shares, rtol=1e-12)


def test_shares_of_a_mixture_are_found() -> None:
    rng = np.random.default_rng(2)
    truth = rng.choice(3, 20_000, p=(0.8, 0.15, 0.05))
    points = rng.normal(np.array([0, 3, 6])[truth])
    densities = torch.from_numpy(-((points[:, None] - np.array([0, 3, 6])) ** 2) / 2)
    expected = 0.9 * np.array([0.8, 0.15, 0.05]) + 0.1 / 3  # smoothed, and nearly at the fixed point
    np.testing.assert_allclose(estimated_shares(densities, torch.ones(20_000)), expected, atol=0.02)


def test_a_confusion_counts_half_an_image_more_of_each_pair() -> None:
    counts = confusion(torch.tensor([0, 1, 1, 1]), torch.tensor([0, 0, 1, 1]), 3)
    np.testing.assert_allclose(
        counts, [[1.5 / 3.5, 1.5 / 3.5, 0.5 / 3.5], [0.5 / 3.5, 2.5 / 3.5, 0.5 / 3.5], [1 / 3] * 3]
    )


def test_shares_are_found_by_what_a_poor_classifier_confuses() -> None:
    """Half of class 1 is taken for class 0: predictions alone would say 75 % to 25 %."""
    confused = torch.tensor([[0.99, 0.01], [0.5, 0.5]], dtype=torch.float64)
    predicted = torch.tensor([0] * 745 + [1] * 255)  # of 50 % each
    shares = torch.full((2,), 0.5).double()
    for _ in range(20):
        joint = shares[:, None] * confused
        shares = 0.9 * (joint / joint.sum(0) * torch.tensor([0.745, 0.255], dtype=torch.float64)).sum(1) + 0.05
    shares_measured = measured_shares(predicted, confused)
    torch.testing.assert_close(shares_measured, shares, rtol=1e-12, atol=0)
    np.testing.assert_allclose(shares_measured, [0.5, 0.5], atol=0.02)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_guesses_have_the_shares_that_are_stated(temperature) -> None:
    shares = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    guesses = correct_logits(torch.from_numpy(scores_of(3)), temperature, shares)
    np.testing.assert_allclose(guesses.softmax(1).mean(0), shares, atol=1e-5)


def test_a_prior_does_not_matter_where_shares_are_known() -> None:
    scores, prior = torch.from_numpy(scores_of(4)), torch.tensor([0.0, 3.0, -2.0]).double()
    shares = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    probabilities = [correct_logits(each, 1.0, shares).softmax(1) for each in (scores, scores + prior)]
    torch.testing.assert_close(*probabilities, rtol=0, atol=1e-5)


def test_temperature_divides_before_shares_are_estimated() -> None:
    scores = scores_of(5)
    shares = estimated_shares(torch.from_numpy(scores / 2), torch.ones(200)).numpy()
    probabilities = correct_logits(torch.from_numpy(scores), 2.0, None).softmax(1)
    np.testing.assert_allclose(probabilities, softmax(scores / 2 + np.log(shares)), rtol=1e-9)


@pytest.mark.parametrize("counting", ["Hard", "Soft"])
def test_labels_count_as_they_are_and_guesses_as_they_count(counting) -> None:
    guesses = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    memberships = members(guesses, torch.tensor([1, -1, -1]), 0, counting)
    rest = [[1, 0], [0, 1]] if counting == "Hard" else softmax(guesses[1:].numpy())
    np.testing.assert_allclose(memberships, [[0, 1], *rest], rtol=1e-12)


@pytest.mark.parametrize("counting", ["Hard", "Soft"])
def test_no_class_counts_few_images(counting) -> None:
    """The smallest group goes first; its images, labelled ones among them, count as what they are guessed to be of the others."""
    guesses = torch.tensor([[5.0, 0.0, -9.0]] * 6 + [[0.0, 5.0, -9.0]] * 6 + [[1.0, 0.0, 9.0]] * 2).double()
    labels = torch.tensor([-1] * 12 + [2, -1])
    memberships = members(guesses, labels, 5, counting)
    totals = memberships.sum(0)
    assert all(total == 0 or total >= 5 for total in totals.tolist())
    assert totals[2] == 0 and memberships[12].argmax() == memberships[13].argmax() == 0
    torch.testing.assert_close(memberships.sum(1), torch.ones(14).double())


def test_too_few_images_in_all_do_not_count() -> None:
    assert not members(torch.zeros(4, 3).double(), torch.full((4,), -1), 5, "Soft").any()


def test_a_class_that_no_record_has_is_better_than_one_that_is_left_out() -> None:
    guesses = torch.tensor([[0.0, -math.inf]] * 3).double()
    memberships = members(guesses, torch.tensor([-1, -1, 1]), 2, "Soft")
    np.testing.assert_allclose(memberships, [[1, 0]] * 3)  # class 1 has one image: it counts among the others


def test_rounds_are_expectation_maximisation_of_gaussians_with_one_covariance() -> None:
    """Soft counts of all images in one place against a central calculation of its own; and copies of a silo against all of them together."""
    rng = np.random.default_rng(6)
    truth = rng.choice(3, 300, p=(0.6, 0.3, 0.1))
    x = rng.normal(size=(300, 4)) + np.array([[0, 0, 0, 0], [2, 1, 0, 0], [0, 2, 2, 0]])[truth]
    known, unknown = np.arange(30), np.arange(30, 300)

    def central(rounds):
        weight, means, covariance = np.eye(3)[truth[known]], None, None
        used = x[known]
        for _ in range(rounds):
            counts = weight.sum(0)
            means = weight.T @ used / counts[:, None]
            covariance = sum(
                w * np.outer(z - means[c], z - means[c])
                for z, row in zip(used, weight, strict=True)
                for c, w in enumerate(row)
            ) / (counts.sum() - 3)
            trace = np.trace(covariance) / 4
            precision = np.linalg.inv(0.9 * covariance + 0.1 * trace * np.eye(4) + 1e-6 * np.eye(4))
            apart = x[unknown][:, None] - means
            densities = -np.einsum("ncd,de,nce->nc", apart, precision, apart) / 2
            shares = np.full(3, 1 / 3)
            for _ in range(20):
                shares = 0.9 * softmax(densities / 2 + np.log(shares)).mean(0) + 0.1 / 3
            weight = np.concatenate([np.eye(3)[truth[known]], softmax(densities / 2 + np.log(shares))])
            used = x
        return means

    def federated(rounds, silos):
        silo_data = [
            (torch.from_numpy(x[rows]), torch.from_numpy(np.where(rows < 30, truth[rows], -1))) for rows in silos
        ]
        total = reduce(add, (Moments.of(z[y >= 0], y[y >= 0], 3, "Pooled") for z, y in silo_data))
        for _ in range(rounds - 1):
            weight, bias = discriminant(total.means(), total.within(), torch.zeros(3).double(), 0.1)
            counted = []
            for z, y in silo_data:
                guesses = torch.zeros(len(z), 3).double()
                guesses[y < 0] = correct_logits((z @ weight.T + bias)[y < 0], 2.0, None)
                rows = members(guesses, y, 5, "Soft")
                counted.append(Moments.weighted(z, torch.cat([rows, torch.zeros(len(z), 1)], 1), "Pooled"))
            total = reduce(add, counted)
        return total.means().numpy()

    everything = np.arange(300)
    np.testing.assert_allclose(federated(5, [everything]), central(5), rtol=1e-7)
    together = federated(5, [np.tile(everything, 3)])
    np.testing.assert_allclose(federated(5, [everything] * 3), together, rtol=1e-7)  # silos of equal shares


def certain(*predicted: torch.Tensor) -> torch.Tensor:
    """Logits of candidates of two classes that tell nothing beside what they predict."""
    return torch.nn.functional.one_hot(torch.stack(predicted), 2).double()


def test_the_best_candidate_is_chosen_where_it_is_better_by_more_than_the_error() -> None:
    labels = torch.tensor([0] * 10 + [1] * 10)
    first, better = torch.zeros(20, dtype=torch.int64), labels.clone()
    better[10:15] = 0
    slightly = first.clone()
    slightly[[0, 10, 11]] = 1
    comparison = compare(certain(first, slightly, better), labels)
    assert comparison.accuracies == pytest.approx((0.5, 0.55, 0.75)) and comparison.chosen == 2
    # 0.05 better, the standard error is sqrt((0.1 + 0.178) / 10) / 2 = 0.083
    assert compare(certain(first, slightly), labels).chosen == 0
    assert compare(certain(first, first), labels).chosen == 0


def test_a_candidate_that_ranks_images_worse_is_not_chosen() -> None:
    labels = torch.tensor([0] * 10 + [1] * 10)
    ordered = torch.linspace(-1, 1, 20)  # every image of class 1 above every other one
    never, often = ordered - 2, ordered + 0.6
    swapped = torch.where(labels == 1, 1.0, -1.0)
    swapped[8:12] = swapped[8:12].flip(0)
    scores = torch.stack([torch.stack([torch.zeros(20), each], 1) for each in (never, swapped, often)])
    comparison = compare(scores, labels)
    assert comparison.accuracies == pytest.approx((0.5, 0.8, 0.7)) and comparison.chosen == 2
    assert compare(scores[:2], labels).chosen == 0
    assert compare(scores[1:], labels).chosen == 0
    alike = torch.zeros(4, dtype=torch.int64)  # of one class alone there is no curve
    assert compare(certain(1 - alike, alike), alike).chosen == 1


def test_a_class_with_one_image_decides_nothing() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    assert compare(certain(torch.zeros(4, dtype=torch.int64), labels), labels).chosen == 0


def test_a_class_that_nothing_was_seen_of_has_the_images_that_fit_no_other_one() -> None:
    """Two classes are far from each other; the third, of which the classifier saw no image, is far from both."""
    rng = np.random.default_rng(1)
    means, labels = np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 5.0]]), np.repeat([0, 1, 2], (30, 20, 50))
    z = means[labels] + rng.normal(size=(100, 2))
    weight, bias = means.copy(), -(means**2).sum(1) / 2
    weight[2], bias[2] = 0, ABSENT
    scores = torch.from_numpy(z @ weight.T + bias)
    shares = torch.tensor([0.3, 0.2, 0.5], dtype=torch.float64)
    logits = correct_logits(scores, 1.0, shares)
    assert (logits.argmax(1).numpy() == labels).mean() > 0.95
    torch.testing.assert_close(logits.softmax(1).mean(0), shares, atol=1e-3, rtol=0)
    unseen_too = correct_logits(scores, 1.0, torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64))
    assert set(unseen_too.argmax(1).tolist()) == {0, 1}, "none where the silo has none"
    assert set(correct_logits(scores, 1.0, None).argmax(1).tolist()) == {0, 1}, "nor where nobody tells how many"
