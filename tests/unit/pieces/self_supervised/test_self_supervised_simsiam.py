"""SimSiam's loss against the known answer SS1, and what FedSimSiam sends."""

import pytest
import torch
from learning_party import Party, images_of, method_of

from anchorage.pieces.self_supervised.byol import byol_loss
from anchorage.pieces.self_supervised.simsiam import simsiam_loss, spread


@pytest.mark.known_answers
def test_simsiam_is_byol_but_for_scale_and_offset(known):
    name = "SS1_byol_simsiam"
    case = known.inputs(name)
    p1, p2, z1, z2 = (torch.tensor(case[key], dtype=torch.float64) for key in ("p1", "p2", "z1", "z2"))
    loss, byol = simsiam_loss(p1, p2, z1, z2), 4 + 2 * (byol_loss(p1, z2) + byol_loss(p2, z1))  # as the paper has it
    known.check(name, {"byol": byol, "simsiam": loss, "identity_byol_minus_4_simsiam": byol - 4 * loss})


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
    update = party.train()
    names = party.server.up.by_name.keys()
    assert {"projector.project.0.weight", "projector.predict.3.weight"} <= names
    assert not any(name.startswith("classifier.") for name in names)
    assert 0 < update.metrics["projection_spread"] < 2 and -1 <= update.metrics["loss"] <= 1
