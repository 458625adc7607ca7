"""(FL)^2 against the known answers FL1 to FL6: thresholds, masked losses, perturbation, a silo's step, weights and the server's step."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from anchorage.engine.aggregation import weighted_mean
from anchorage.methods import PRESETS
from anchorage.pieces.pseudo_labels.client_adaptive import (
    adaptive_labels,
    asam_perturbation,
    class_thresholds,
    kept_mean,
    sacr_losses,
)
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.weighting.fedavg_semi import normalised
from anchorage.pieces.weighting.learning_status import DOUBT, LearningStatus, MeanDoubt
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

pytestmark = pytest.mark.known_answers


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def places(mask):
    return torch.as_tensor(mask).nonzero().flatten().tolist()


def weights_of(taus):
    """Weigh silos of these mean confidences as a round does: alike where every weight is 0."""
    said = {
        str(i): Announcement("1.train", {}, {DOUBT: np.array([1 - tau])}, {}, update_of([0.0]).manifest)
        for i, tau in enumerate(taus)
    }
    found = LearningStatus().weigher(2).weigh(said, {})
    return normalised(np.array(list(found.values())))


def update_of(values):
    return ModelBytes.from_arrays(Layout.of([("w", "F64", (len(values),))]), {"w": np.array(values)})


def mean_of(models, taus):
    updates = [update_of(values) for values in models]
    return weighted_mean(updates, list(weights_of(taus)), updates[0].layout)


def test_thresholds_of_silo_and_class(known_newer):
    name = "FL1_cat_thresholds"
    case = known_newer.inputs(name)
    q, same = tensor(case["Q"]), tensor(case["Q_identical_rows"])
    labels, accepted = adaptive_labels(q)
    confidence, thresholds = q.amax(1), class_thresholds(q)
    part = MeanDoubt()
    part.predicted(q)
    (doubt,) = part.auxiliary()[DOUBT].tolist()
    alike = class_thresholds(same)
    known_newer.check(
        name,
        {
            "tau": thresholds.max(),  # the largest class's threshold is the silo's own
            "p_tilde": q.mean(0),
            "tau_class": thresholds.tolist(),
            "labels": labels.tolist(),
            "confidence": confidence.tolist(),
            "threshold_per_sample": thresholds[labels].tolist(),
            "selected_ge": places(accepted),
            "selected_gt": places(confidence > thresholds[labels]),
            "fixed_ge": places(confidence >= case["tau_f"]),
            "weight_before_normalising": doubt,
            "identical_rows": {
                "tau": alike.max(),
                "selected_ge": places(adaptive_labels(same)[1]),
                "selected_gt": places(same.amax(1) > alike[same.argmax(1)]),
            },
        },
    )


def test_losses_are_means_over_the_images_that_count(known_newer):
    name = "FL2_masked_losses"
    case = known_newer.inputs(name)
    logits, labels = tensor(case["logits_strong"]), torch.tensor(case["labels"])
    each = functional.cross_entropy(logits, labels, reduction="none")
    kept = {kind: torch.tensor(case[f"mask_{kind}"]) for kind in "ap"}
    found = {f"L_{kind}_mean_over_kept": kept_mean(each, mask) for kind, mask in kept.items()}
    over_batch = {f"L_{kind}_mean_over_batch": (each * mask).mean() for kind, mask in kept.items()}
    nothing = kept_mean(each, torch.zeros(len(each), dtype=torch.bool))
    known_newer.check(name, {"per_sample_ce": each.tolist(), **found, **over_batch, "empty_mask": nothing})


def test_a_perturbation_is_in_proportion_to_the_weights(known_newer):
    name = "FL3_asam_perturbation"
    case, expected = known_newer.inputs(name), known_newer.expected(name)
    values, slopes = ({n: tensor(v) for n, v in case[kind].items()} for kind in ("params", "grads"))
    found = asam_perturbation(values, slopes, case["rho"], case["eta"])
    length = math.sqrt(sum(float(t.square().sum()) for t in found.values()))
    none = asam_perturbation(values, {n: torch.zeros_like(v) for n, v in slopes.items()}, case["rho"], case["eta"])
    units = {n: v / ((values[n].abs() + case["eta"]) if "weight" in n else 1) for n, v in found.items()}
    asam = {
        "norm": expected["asam"]["norm"],  # the gradient's own length is no output
        "epsilon": {n: t.tolist() for n, t in found.items()},
        "l2_of_epsilon": length,
    }
    zero = all(not t.any() for t in none.values())
    assert math.sqrt(sum(float(t.square().sum()) for t in units.values())) == pytest.approx(case["rho"])
    known_newer.check(name, {**expected, "asam": asam, "zero_gradient_epsilon_is_zero": zero})


def test_one_step_of_a_silo(known_newer):
    name = "FL4_sacr_step"
    case, expected = known_newer.inputs(name), known_newer.expected(name)
    images, labels = tensor(case["X_strong"]), torch.tensor(case["labels"])
    chosen = torch.tensor(case["mask_cat"])
    classes, width = np.shape(case["W"])
    network = nn.Linear(width, classes).double()
    network.load_state_dict({"weight": tensor(case["W"]), "bias": tensor(case["b"])})
    supervised, consistency = sacr_losses(
        network, images[chosen], labels[chosen], torch.tensor(case["mask_fix"])[chosen], case["rho"], case["eta"]
    )
    parts = [
        torch.autograd.grad(loss, list(network.parameters()), retain_graph=True) for loss in (supervised, consistency)
    ]
    slopes = [{"weight": w.tolist(), "bias": b.tolist()} for w, b in parts]
    optimiser = torch.optim.SGD(network.parameters(), lr=case["lr"])
    (case["w_a"] * supervised + case["w_cs"] * consistency).backward()
    total = {n: p.grad.tolist() for n, p in network.named_parameters()}
    length = nn.utils.clip_grad_norm_(network.parameters(), case["clip"])
    optimiser.step()
    computed = {
        "L_a": supervised.detach(),
        "grad_L_a": slopes[0],
        "L_cs_mean_over_batch": consistency.detach(),
        "grad_L_cs_at_W_star": slopes[1],
        "total_grad": total,
        "total_norm": float(length),
        "new_W_plain_sgd_clipped": network.weight.tolist(),
        "new_b_plain_sgd_clipped": network.bias.tolist(),
    }
    own = {key: value for key, value in computed.items() if key in expected}
    nested = {key: value for key, value in computed.items() if key in expected["asam"]}
    assert own.keys() | nested.keys() == computed.keys()
    known_newer.check(name, {**expected, **own, "asam": {**expected["asam"], **nested}})


def test_silos_that_the_model_is_unsure_of_count_more(known_newer):
    name = "FL5_lsaa_weights"
    case = known_newer.inputs(name)
    found = mean_of(case["theta"], case["tau"])
    known_newer.check(
        name,
        {
            "weights": weights_of(case["tau"]),
            "all_confident_is_uniform": weights_of(case["tau_all_one"]),
            "one_saturated": weights_of(case["tau_one_saturated"]),
            "aggregate": found.arrays()["w"],
        },
    )


def test_the_server_steps_with_momentum(known_newer):
    name = "FL6_server_momentum"
    case = known_newer.inputs(name)
    step = Momentum(learning_rate="1", momentum=known_newer.decimal(case["beta_g"])).step()
    model, rounds = update_of(case["theta0"]), []
    for number, told in enumerate(case["rounds"], 1):
        mean, before = mean_of(told["theta"], told["tau"]), model.arrays()["w"]
        model = step.apply(model, mean, number)
        now = model.arrays()["w"]
        rounds.append({"mean": mean.arrays()["w"].tolist(), "v": (before - now).tolist(), "theta": now.tolist()})
    known_newer.check(name, {"rounds": rounds})
    assert PRESETS["FL2"].slots.server_step == Momentum(learning_rate="1", momentum="0.5")
