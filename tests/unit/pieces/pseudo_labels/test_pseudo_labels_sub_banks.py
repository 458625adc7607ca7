"""imFed-Semi against the known answers IM1 to IM4, and what a silo keeps of its banks."""

import numpy as np
import pytest
import torch
from learning_party import Party, images_of, method_of
from torch.nn import functional

from anchorage.pieces.pseudo_labels.sub_banks import (
    BANKS,
    SURE,
    bank_counts,
    bank_loss,
    bank_posterior,
    class_shares,
    confident,
    divide_shares,
)
from anchorage.pieces.server_objective.smoothed_views import smoothed_loss


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def places(mask):
    return np.flatnonzero(mask).tolist()


@pytest.mark.known_answers
def test_very_confident_images_count_ever_after(known):
    name = "IM1_dynamic_banks"
    case = known.inputs(name)
    sure, rounds = np.zeros(len(case["confidence_per_round"][0]), bool), []
    for confidence in case["confidence_per_round"]:
        now, sure = confident(np.array(confidence), sure, case["hi"], case["lo"])
        rounds.append(
            {"temporary": places(now), "permanent": places(sure), "union_for_prior_estimate": places(now | sure)}
        )
    known.check(name, {"rounds": rounds})


@pytest.mark.known_answers
def test_class_shares_of_every_bank(known):
    name = "IM2_bank_priors"
    case = known.inputs(name)
    counts = bank_counts(np.array(case["bank"]), np.array(case["pred"]), (case["n_banks"], case["C"]))
    sizes = np.array(case["bank_sizes"])
    known.check(name, {"counts": counts, "Pi": class_shares(counts), "rho_from_sizes": sizes / sizes.sum()})


@pytest.mark.known_answers
def test_the_loss_is_of_an_image_s_own_bank(known):
    name = "IM3_prior_transition_loss"
    case = known.inputs(name)
    shares, sizes, banks = np.array(case["Pi"]), np.array(case["rho"]), torch.tensor(case["bank"])
    plain, over_prior = (torch.from_numpy(sizes[:, None] * each) for each in (shares, divide_shares(shares, sizes)))
    logits = tensor(case["logits"]).requires_grad_()
    posterior = bank_posterior(logits.softmax(1), plain)
    loss = bank_loss(logits.softmax(1), plain, banks)
    coded = functional.cross_entropy(posterior, banks)  # the published code takes a second softmax
    slopes = [torch.autograd.grad(each, logits, retain_graph=True)[0].tolist() for each in (loss, coded)]
    exact = {
        "q": posterior.tolist(),
        "loss_negative_log_q": loss.detach(),
        "loss_as_coded_softmax_of_probabilities": coded.detach(),
        "loss_with_division_by_class_prior": bank_loss(logits.softmax(1), over_prior, banks).detach(),
    }
    numeric = {"grad_loss_negative_log_q": slopes[0], "grad_loss_as_coded": slopes[1]}
    expected = known.expected(name)
    known.check(name, {**exact, **{key: expected[key] for key in numeric}})
    known.check(name, {**exact, **numeric}, absolute=1e-6)  # the case's gradients are differences


@pytest.mark.known_answers
def test_the_server_smooths_labels_of_two_views(known):
    name = "IM4_label_smoothing_two_views"
    case = known.inputs(name)
    labels = torch.tensor(case["labels"])
    views = {f"view_{i}": smoothed_loss(tensor(case[f"logits_{i}"]), labels, case["eps"]) for i in (1, 2)}
    known.check(name, {**views, "loss": sum(views.values())})


def test_banks_of_equal_mix_teach_nothing():
    """With the same class shares in every bank the posterior is the banks' sizes, whatever the image (N4.3)."""
    sizes, shares = np.array([0.5, 0.3, 0.2]), np.tile([0.7, 0.2, 0.1], (3, 1))
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    bank_loss(logits.softmax(1), torch.from_numpy(sizes[:, None] * shares), torch.tensor([0, 0, 0, 1, 1, 2])).backward()
    assert logits.grad.abs().max() < 1e-12


def test_a_silo_keeps_its_first_banks_and_reads_no_label(tmp_path):
    method = method_of(
        "ImFedSemi", pseudoLabels={"lowest": "0.1"}, local={"optimiser": {"adamW": {"learningRate": "0.05"}}}
    )
    party = Party(method, images_of(24), tmp_path, "All")
    update = party.train(1)
    first = party.learner._state.of(1)
    party.model = type(party.model).from_arrays(party.server.up, party.arrays())
    party.train(2)
    second = party.learner._state.of(2)
    assert (update.samples["labelled"], update.samples["selected"]) == (0, 24)
    assert np.array_equal(first[BANKS], second[BANKS]) and first[BANKS].shape == (24,)
    assert (second[SURE] >= first[SURE]).all()


def test_a_silo_that_is_sure_of_nothing_sends_nothing_and_keeps_its_banks(tmp_path):
    party = Party(method_of("ImFedSemi", pseudoLabels={"lowest": "1", "threshold": "1"}), images_of(24), tmp_path)
    assert not party.train().trained
    assert len(party.learner._state.of(1)[BANKS]) == 24
