"""SAGE's targets against the known answer SG1."""

import math

import pytest
import torch

from anchorage.pieces.pseudo_labels.consistency import consistency_loss
from anchorage.pieces.pseudo_labels.sage import corrected_targets, own_share


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.known_answers
def test_sage_mixes_labels_by_the_gap_of_confidence(known):
    name = "SG1_sage_targets"
    case = known.inputs(name)
    local, received = tensor(case["p_local"]), tensor(case["p_global"])
    targets, valid = corrected_targets(local, received, case["tau"], case["half_at"])
    logits = tensor(case["logits_strong"]).requires_grad_()
    loss = consistency_loss(logits, targets, valid)
    loss.backward()
    entropy = -torch.special.xlogy(targets, targets).sum(1)  # has no gradient, so training leaves it out
    each = -(targets * logits.detach().log_softmax(1)).sum(1) - entropy
    gap = (local.amax(1) - received.amax(1)).abs()
    kappa = math.log(2) / case["half_at"]
    known.check(
        name,
        {
            "kappa": kappa,
            "delta": gap.tolist(),
            "lambda": own_share(local, received, case["half_at"]).tolist(),
            "targets": targets.tolist(),
            "valid": valid.tolist(),
            "kl_per_sample": each.tolist(),
            "loss": loss.detach() - (entropy * valid).mean(),
            "grad_logits_strong": logits.grad.tolist(),
        },
    )


def test_sage_labels_by_the_received_model_where_its_own_is_unsure():
    local, received = tensor([[0.5, 0.5], [0.9, 0.1]]), tensor([[0.04, 0.96], [0.04, 0.96]])
    targets, valid = corrected_targets(local, received, 0.95, 0.05)
    assert targets.tolist() == [[0, 1], [0, 1]] and valid.all()
