"""Pseudo-labels finding by finding: as many positives as labels say, few negatives, none for what hardly anybody labels, known entries stay."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from anchorage.algorithms.binary_losses import guess_loss
from anchorage.algorithms.finding_thresholds import by_shares, few_negatives, fit_thresholds
from anchorage.pieces.pseudo_labels.per_finding import Guesses, PerFinding


def drawn(seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((count, 2)).round(2), rng.random((count, 2)) < 0.7


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_thresholds_of_validation_images_are_the_widest_that_are_right(seed: int) -> None:
    probabilities, present = drawn(seed)
    labels = np.where(np.random.default_rng(seed + 1).random((60, 2)) < 0.2, -1, present).astype(np.int8)
    low, high = fit_thresholds(labels, probabilities, 0.75, 0.4)
    for place in range(2):
        known = labels[:, place] >= 0
        truth, known_probabilities = labels[known, place] == 1, probabilities[known, place]
        levels = np.unique(known_probabilities)
        above = [level for level in levels if truth[known_probabilities >= level].mean() >= 0.75]
        below = [level for level in levels if truth[known_probabilities <= level].mean() <= 0.4]
        assert high[place] == min(above, default=np.inf)
        assert low[place] == max(below, default=-np.inf)


def test_as_many_are_present_as_are_expected() -> None:
    probabilities, unknown = drawn(3)
    high = by_shares(probabilities, unknown, np.array([7.4, 0.0]))
    unknown_probabilities = np.sort(probabilities[unknown[:, 0], 0])[::-1]
    assert high[0] == unknown_probabilities[6] and high[1] == np.inf
    assert by_shares(probabilities, unknown, np.array([1000, 1]))[0] == unknown_probabilities[-1]


def test_negatives_are_few_for_each_positive_and_the_least_probable() -> None:
    probabilities = np.array([[0.01], [0.9], [0.02], [0.03], [0.04], [0.5]])
    unknown = np.ones((6, 1), bool)
    high, low = np.array([0.8]), np.array([0.05])
    assert few_negatives(probabilities, unknown, high, low, 2) == [0.02]
    assert few_negatives(probabilities, unknown, high, low, 10) == [0.04]
    assert few_negatives(probabilities, unknown, np.array([0.95]), low, 10) == [-np.inf]
    unknown[1] = False  # known entries are no guesses
    assert few_negatives(probabilities, unknown, high, low, 10) == [-np.inf]


def test_the_loss_of_guesses_is_divided_by_all_entries() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    present = torch.tensor([[True, False, False]] * 4)
    chosen = torch.zeros(4, 3, dtype=torch.bool)
    chosen[0, 0] = chosen[2, 1] = True
    loss = guess_loss(logits, present, chosen)
    due = (functional.softplus(-logits[0, 0]) + functional.softplus(logits[2, 1])) / 12
    assert loss.item() == pytest.approx(due.item(), abs=1e-7)
    loss.backward()
    assert bool((logits.grad[~chosen] == 0).all()) and bool((logits.grad[chosen] != 0).all())


PROBABILITIES = np.array([[0.9, 0.9, 0.9], [0.01, 0.6, 0.2], [0.3, 0.02, 0.01], [0.02, 0.01, 0.9]], np.float32)
LABELS = np.array([[-1, -1, -1], [-1, 1, 0], [0, -1, 2], [-1, -1, -1]], np.int8)


def guesses(positives: list[int], *, stated: list[int] | None = None, **options: Any) -> Guesses:
    """Return what a silo of four images guesses, of labels of all silos with so many positives, and three times as many negatives."""
    logits = torch.logit(torch.from_numpy(PROBABILITIES))
    views = SimpleNamespace(
        plain=lambda i: logits[i], map_batches=lambda i, f: f(torch.from_numpy(i)), device=torch.device("cpu")
    )
    totals = {
        "all_finding_counts": np.array([[3 * p for p in positives], positives]),
        "anchor_finding_counts": np.zeros((2, 3), np.int64),
    }
    images = SimpleNamespace(
        views=views,
        labels=LABELS,
        train=np.arange(4),
        labelled=np.array([1, 2]),
        stated_counts=None if stated is None else np.array(stated),
    )

    def auxiliary(*names: str) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(np.array(totals[name])) for name in names}

    return Guesses(PerFinding(**options), SimpleNamespace(network=lambda x: x, images=images, auxiliary=auxiliary))


def test_a_finding_that_hardly_anybody_labels_is_not_guessed() -> None:
    labels_found = guesses([5, 4, 9])
    assert labels_found._unknown.tolist() == [
        [True, False, True],
        [True, False, False],
        [False, False, False],
        [True, False, True],
    ]
    assert labels_found.indices.tolist() == [0, 1, 3]
    assert len(guesses([4, 4, 0]).indices) == 0


def test_positives_are_as_many_as_all_labels_say_and_known_entries_stay() -> None:
    labels_found = guesses([5, 5, 5])  # a quarter of the labels: one of three unknown entries of each
    assert labels_found.indices.tolist() == [0, 1, 2, 3]
    assert labels_found.high.tolist() == pytest.approx([0.9, 0.9, np.inf])
    assert labels_found.low.tolist() == pytest.approx([0.02, 0.02, -np.inf])


def test_the_sites_own_records_go_before() -> None:
    labels_found = guesses([5, 5, 5], stated=[2, 1, 2])  # one image is known to have the second finding
    assert labels_found.high.tolist() == pytest.approx([0.02, np.inf, 0.9])
    assert labels_found.low[0] == pytest.approx(0.01) and labels_found.low[1] == -np.inf


def test_fixed_thresholds_still_have_few_negatives() -> None:
    labels_found = guesses([5, 5, 5], calibration="None", negatives_per_positive=1)
    assert labels_found.high.tolist() == pytest.approx([0.8] * 3)
    assert labels_found.low.tolist() == pytest.approx([0.01, 0.01, -np.inf])
