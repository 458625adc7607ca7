"""SAGE's targets, SimSiam's loss and the cosine schedule against the known answers SG1, SS1 and SS4."""

import math

import pytest
import torch
from learning_party import Party, images_of, method_of, network_of

from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.consistency import consistency_loss
from anchorage.pieces.pseudo_labels.sage import corrected_targets, own_share
from anchorage.pieces.self_supervised.simsiam import simsiam_loss, spread


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


@pytest.mark.known_answers
def test_simsiam_is_byol_but_for_scale_and_offset(known):
    name = "SS1_byol_simsiam"
    case = known.inputs(name)
    p1, p2, z1, z2 = (tensor(case[key]) for key in ("p1", "p2", "z1", "z2"))
    loss = simsiam_loss(p1, p2, z1, z2)
    byol = 4 + 4 * loss
    known.check(name, {"byol": byol, "simsiam": loss, "identity_byol_minus_4_simsiam": byol - 4 * loss})


@pytest.mark.known_answers
def test_the_cosine_schedule_steps_once_per_round(known):
    name = "SS4_cosine_per_round"
    case = known.inputs(name)
    sgd, network = Sgd(learning_rate=known.decimal(case["lr"]), schedule="Cosine"), network_of("FedAvg")
    rates = [sgd.build(network, done=r / case["rounds"]).param_groups[0]["lr"] for r in case["at_rounds"]]
    known.check(name, {"lr": rates})


def test_the_targets_of_simsiam_have_no_gradient():
    views = [torch.randn(4, 8, generator=torch.Generator().manual_seed(n), requires_grad=True) for n in range(4)]
    simsiam_loss(*views).backward()
    assert [view.grad is not None for view in views] == [True, True, False, False]


def test_the_spread_of_projections_tells_a_collapse():
    draw = torch.Generator().manual_seed(1)
    wide = torch.randn(512, 64, generator=draw)
    assert spread(wide) == pytest.approx(1, abs=0.05)
    assert spread(torch.ones(512, 64) + 1e-4 * wide) < 0.01


def test_fedsimsiam_sends_projector_and_predictor_but_no_classifier(tmp_path):
    party = Party(method_of("FedSimSiam"), images_of(24, labelled=False), tmp_path)
    told = party.train()
    names = party.server.up.by_name.keys()
    assert {"projector.project.0.weight", "projector.predict.3.weight"} <= names
    assert not any(name.startswith("classifier.") for name in names)
    assert 0 < told.metrics["projection_spread"] < 2 and -1 <= told.metrics["loss"] <= 1


def test_sage_labels_by_the_received_model_where_its_own_is_unsure():
    local, received = tensor([[0.5, 0.5], [0.9, 0.1]]), tensor([[0.04, 0.96], [0.04, 0.96]])
    targets, valid = corrected_targets(local, received, 0.95, 0.05)
    assert targets.tolist() == [[0, 1], [0, 1]] and valid.all()
