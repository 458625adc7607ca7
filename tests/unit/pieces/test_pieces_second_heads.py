"""Two heads, mean teacher and two views against the known answers N2, N3, C2 and T2."""

import pytest
import torch

from anchorage.algorithms.losses import balanced_softmax, log_prior
from anchorage.pieces.pseudo_labels.mean_teacher import sharpened, squared_error, teacher_decay
from anchorage.pieces.second_head.balanced import adaptive_strength, moved_estimate, symmetric_divergences
from anchorage.pieces.second_head.personal import personal_cross_entropy
from anchorage.pieces.self_supervised.byol import byol_loss
from anchorage.pieces.server_objective.two_views import divergence, ramp

pytestmark = pytest.mark.known_answers


def _double(values):
    return torch.tensor(values, dtype=torch.float64)


def test_n2_adaptive_adjustment(known):
    case = known.inputs("N2_acr")
    prior, estimate, logits = (_double(case[k]) for k in ("labelled_prior", "unlabelled_estimate", "logits"))
    tau = adaptive_strength(prior, estimate, case["tau_max"])
    known.check(
        "N2_acr",
        {
            "symmetric_kl_con_uni_rev": symmetric_divergences(prior, estimate),
            "tau": tau,
            "adjusted_probabilities": (logits - tau * prior.log()).softmax(0),
            "unadjusted": logits.softmax(0),
        },
    )


def test_n2_the_reversed_prior_is_of_classes_by_frequency():
    prior, estimate = _double([0.7, 0.2, 0.1]), _double([0.2, 0.3, 0.5])
    order = torch.tensor([1, 2, 0])  # other class ids, the same federation
    reordered = symmetric_divergences(prior[order], estimate[order])
    torch.testing.assert_close(reordered, symmetric_divergences(prior, estimate))


def test_n3_personal_head(known):
    case = known.inputs("N3_fedrod")
    generic, personal = (_double([case[k]]).requires_grad_() for k in ("logits_generic", "logits_personal"))
    label = torch.tensor([case["y"]])
    balanced = balanced_softmax(generic, label, log_prior(_double(case["counts"])))
    both = personal_cross_entropy(generic, personal, label)[0]
    losses = {"balanced_generic": balanced, "empirical_personal": both, "local_objective": balanced + both}
    known.check(
        "N3_fedrod",
        {k: v.detach() for k, v in losses.items()},
    )
    both.backward()
    assert generic.grad is None and personal.grad.abs().sum() > 0, "only the personal head learns from both"


def test_c2_teacher_and_sharpening(known):
    name = "C2_rscfed_ema_and_sharpen"
    case = known.inputs(name)
    known.check(
        name,
        {
            known.key(name, "decay_steps_.*"): [teacher_decay(step, case["alpha"]) for step in case["steps"]],
            "sharpened": sharpened(_double([case["p"]]), case["T"])[0],
        },
    )


def test_t2_ramp_and_views(known):
    case = known.inputs("T2_fedcon_rampup")
    one, other = _double([[1, 0], [0, 2]]), _double([[0, 3], [4, 0]])
    known.check(
        "T2_fedcon_rampup",
        {
            **{f"t{t}": ramp(t, case["T"]) for t in case["t"]},
            "byol_loss_orthogonal": byol_loss(one, other),
            "byol_loss_identical": byol_loss(one, 3 * one),
        },
    )
    assert ramp(10 * case["T"], case["T"]) == 1


def test_means_and_divisors():
    """Methods reference, section 12, number 10: what is summed, what is averaged, and over what."""
    logits, targets = torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    p = logits.softmax(1)
    expected = ((p[0, 0] - 1) ** 2 + p[0, 1] ** 2 + (p[1, 0] - 1) ** 2 + p[1, 1] ** 2) / 8
    torch.testing.assert_close(squared_error(logits, targets, 8), expected)
    flipped = logits.flip(1)
    both, twice = (logits, flipped), [torch.cat([view, view]) for view in (logits, flipped)]
    torch.testing.assert_close(divergence(twice, twice), divergence(both, both))
    q = flipped.softmax(1)
    plain = ((p - q) * (p.log() - q.log())).sum(1).mean() / 2
    torch.testing.assert_close(divergence(both, both), plain)


def test_the_estimate_moves_by_confident_labels_only():
    start = _double([0.5, 0.5, 0.0])
    labels = torch.tensor([2, 2, 1, 0])
    moved = moved_estimate(start, labels, torch.tensor([True, True, False, True]), 0.9)
    torch.testing.assert_close(moved, _double([0.45 + 0.1 / 3, 0.45, 0.2 / 3]))
    unmoved = moved_estimate(start, labels, torch.zeros(4, dtype=torch.bool), 0.9)
    torch.testing.assert_close(unmoved, start)
