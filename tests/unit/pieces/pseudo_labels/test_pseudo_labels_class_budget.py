"""FedCoPL's class budget against the known answer CP1, and over the rounds of a silo."""

import math

import numpy as np
import pytest
import torch
from learning_party import CLASSES, Party, images_of, memory_of, method_of

from anchorage.pieces.pseudo_labels.class_budget import (
    COUNTS,
    STORED_COUNTS,
    TOTALS,
    budget,
    entropies,
    estimation_set,
    target_counts,
    within_budget,
)
from anchorage.transport.messages import Announcement

PRETRAINED = {"serverTraining": {"pretrainEpochs": 5}}


@pytest.mark.known_answers
def test_silos_share_an_even_number_of_images_per_class(known):
    name = "CP1_cooperative_budget"
    case = known.inputs(name)
    counts = np.array(case["counts"])
    totals = counts.sum(0)
    share = target_counts(totals, ())
    rounded = math.ceil(share[0])  # the public code's
    confidence, entropy = (torch.tensor(case[key], dtype=torch.float64) for key in ("confidence", "entropy"))
    known.check(
        name,
        {
            "M_paper": share[0],
            "M_code": rounded,
            "budget_paper": [budget(own_counts, totals, share) for own_counts in counts],
            "budget_code": [budget(own_counts, totals, rounded) for own_counts in counts],
            "estimation_set_by_medians": estimation_set(confidence, entropy).nonzero()[:, 0],
        },
    )


def test_entropy_is_largest_where_nothing_is_known():
    values = entropies(torch.tensor([[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]))
    assert values.tolist() == pytest.approx([math.log(4), 0])


def test_of_a_class_the_most_probable_images_are_taken_and_no_more_than_there_are():
    confidence, labels = torch.tensor([0.5, 0.9, 0.7, 0.7, 0.8]), torch.tensor([0, 0, 0, 0, 1])
    assert within_budget(confidence, labels, np.array([2, 5, 1])).tolist() == [False, True, True, False, True]


def test_a_budget_is_at_most_the_even_share_and_0_of_what_nobody_guesses():
    totals = np.array([3, 0, 6])
    assert budget(np.array([9, 0, 3]), totals, target_counts(totals, ())).tolist() == [3, 0, 2]


def test_a_budget_follows_the_class_shares_that_are_aimed_at():
    totals = np.array([40, 40, 20])
    aimed = target_counts(totals, (0.7, 0.2, 0.1))
    assert aimed.tolist() == pytest.approx([70, 20, 10])
    assert [
        budget(own_counts, totals, aimed).tolist() for own_counts in (np.array([30, 10, 20]), np.array([10, 30, 0]))
    ] == [
        [53, 5, 10],
        [18, 15, 0],
    ]  # of an even mix [25, 9, 34] and [9, 25, 0]
    assert target_counts(totals, (0.4, 0.4, 0.2)).tolist() == pytest.approx(totals.tolist())


def test_a_silo_trains_on_the_classes_that_are_aimed_at(tmp_path):
    counts = Party(method_of("FedCoPLBudget", **PRETRAINED), images_of(24, labelled=False), tmp_path).train(1)
    counts, budgets = counts.auxiliary_data[COUNTS], []
    aimed = np.eye(CLASSES)[counts.argmax()]
    method = method_of("FedCoPLBudget", pseudoLabels={"mix": [f"{share:g}" for share in aimed]}, **PRETRAINED)
    party = Party(method, images_of(24, labelled=False), tmp_path / "aimed")
    party.learner._examine = lambda indices, labels: budgets.append(set(labels.tolist())) or {}
    party.train(1)
    second = party.train(2, {**party.task(2).auxiliary_data, TOTALS: counts})
    assert budgets[0] == set(np.flatnonzero(counts)) and len(budgets[0]) > 1 and budgets[1] == {counts.argmax()}
    assert 0 < second.samples["selected"] <= counts.sum()


def announced(counts, images=24):
    return Announcement("1.train", {"train": images}, {COUNTS: counts}, {}, None)


def test_the_server_adds_up_every_silo_s_last_counts_and_leaves_out_what_cannot_be():
    memory = memory_of(method_of("FedCoPLBudget"))
    memory.conclude({"a": announced(np.array([1, 2, 3])), "b": announced(np.array([4, 0, 0]))})
    memory.conclude({"a": announced(np.array([5, 5, 5]))})
    restarted = memory_of(method_of("FedCoPLBudget"))
    restarted.restore(memory.state())
    assert restarted.auxiliary_data()[TOTALS].tolist() == [9, 5, 5]
    wrong = [
        np.array([-1, 0, 0]),
        np.array([20, 20, 0]),
        np.array([1.0, 0, 0]),
        np.array([1, 2]),
        np.array([2**62] * 3),
    ]
    for counts in wrong:
        restarted.conclude({"b": announced(counts)})
    assert restarted.auxiliary_data()[TOTALS].tolist() == [9, 5, 5]


def test_a_silo_counts_every_few_rounds_and_trains_within_its_budget(tmp_path):
    method = method_of("FedCoPLBudget", pseudoLabels={"every": 3}, **PRETRAINED)
    party = Party(method, images_of(24, labelled=False), tmp_path)
    first = party.train(1)
    counts = first.auxiliary_data[COUNTS]
    assert 0 < counts.sum() <= 12  # above the median of 24
    assert first.samples["selected"] == counts.sum()  # its own counts are its budget
    auxiliary = {**party.task(2).auxiliary_data, TOTALS: 2 * counts}
    second = party.train(2, auxiliary)
    assert COUNTS not in second.auxiliary_data
    assert second.samples["selected"] <= budget(counts, 2 * counts, target_counts(2 * counts, ())).sum()
    assert np.array_equal(party.learner._state.of(2)[STORED_COUNTS], counts)
    assert COUNTS in party.train(4, auxiliary).auxiliary_data
    nothing = party.train(5, {**auxiliary, TOTALS: np.zeros(CLASSES, np.int64)})
    assert not nothing.trained
