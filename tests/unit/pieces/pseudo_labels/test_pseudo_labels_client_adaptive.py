"""(FL)^2 against the known answers FL1 to FL8: a silo's labels and step, weights, the server's step, running statistics and pre-training."""

import math

import numpy as np
import pytest
import torch
from classification_of import classes as of_classes
from torch import nn
from torch.nn import functional

from anchorage.engine.aggregation import weighted_mean
from anchorage.learning.batch_norm import recalibrate
from anchorage.methods import PRESETS
from anchorage.pieces.batch_norm.pooled import pool_variances
from anchorage.pieces.pseudo_labels.client_adaptive import (
    adaptive_labels,
    asam_perturbation,
    class_thresholds,
    kept_mean,
    sacr_losses,
)
from anchorage.pieces.server_step.momentum import Momentum
from anchorage.pieces.server_training.anchors import calls_before
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
    announcements = {
        str(i): Announcement("1.train", {}, {DOUBT: np.array([1 - tau])}, {}, update_of([0.0]).manifest)
        for i, tau in enumerate(taus)
    }
    shares = LearningStatus().weigher(of_classes(2)).weigh(announcements, {})
    return normalised(np.array(list(shares.values())))


def update_of(values):
    return ModelBytes.from_arrays(Layout.of([("w", "F64", (len(values),))]), {"w": np.array(values)})


def mean_of(models, taus):
    updates = [update_of(values) for values in models]
    return weighted_mean(updates, list(weights_of(taus)), updates[0].layout)


def test_thresholds_of_silo_and_class(known):
    name = "FL1_cat_thresholds"
    case = known.inputs(name)
    q, same = tensor(case["Q"]), tensor(case["Q_identical_rows"])
    labels, accepted = adaptive_labels(q)
    confidence, thresholds = q.amax(1), class_thresholds(q)
    part = MeanDoubt()
    part.predicted(q)
    (doubt,) = part.auxiliary()[DOUBT].tolist()
    alike = class_thresholds(same)
    known.check(
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


def test_losses_are_means_over_the_images_that_count(known):
    name = "FL2_masked_losses"
    case = known.inputs(name)
    logits, labels = tensor(case["logits_strong"]), torch.tensor(case["labels"])
    each = functional.cross_entropy(logits, labels, reduction="none")
    masks = {kind: torch.tensor(case[f"mask_{kind}"]) for kind in "ap"}
    means = {f"L_{kind}_mean_over_kept": kept_mean(each, mask) for kind, mask in masks.items()}
    over_batch = {f"L_{kind}_mean_over_batch": (each * mask).mean() for kind, mask in masks.items()}
    nothing = kept_mean(each, torch.zeros(len(each), dtype=torch.bool))
    known.check(name, {"per_sample_ce": each.tolist(), **means, **over_batch, "empty_mask": nothing})


def perturbed(values, slopes, case):
    """A perturbation, and the length that it is divided by: what it raises the loss by, to first order, over the radius."""
    perturbations = asam_perturbation(values, slopes, case["rho"], case["eta"])
    raised = sum(float((perturbations[name] * slope).sum()) for name, slope in slopes.items())
    return perturbations, raised / case["rho"]


@pytest.fixture(params=["asam", "sam"])
def kind(request):
    """Perturbations in proportion to the weights, and plain ones: those of tensors that are no weights."""
    return request.param


def renamed(kind, name):
    return name if kind == "asam" else name.replace("weight", "scale")


def test_a_perturbation_is_in_proportion_to_the_weights(known, kind):
    name = "FL3_asam_perturbation"
    case, expected = known.inputs(name), known.expected(name)
    values, slopes = ({renamed(kind, n): tensor(v) for n, v in case[key].items()} for key in ("params", "grads"))
    perturbations, norm = perturbed(values, slopes, case)
    none = asam_perturbation(values, {n: torch.zeros_like(v) for n, v in slopes.items()}, case["rho"], case["eta"])
    computed = {
        "norm": norm,
        "epsilon": {n: perturbations[renamed(kind, n)].tolist() for n in case["params"]},
        "l2_of_epsilon": math.sqrt(sum(float(t.square().sum()) for t in perturbations.values())),
    }
    zero = all(not t.any() for t in none.values())
    known.check(name, {**expected, kind: computed, "zero_gradient_epsilon_is_zero": zero})


class Linear(nn.Module):
    """A linear softmax model whose parameters have the names that a perturbation is to go by."""

    def __init__(self, kind, weight, bias):
        super().__init__()
        self.names = [renamed(kind, "weight"), renamed(kind, "bias")]
        for name, values in zip(self.names, (weight, bias), strict=True):
            self.register_parameter(name, nn.Parameter(tensor(values)))

    def forward(self, x):
        weight, bias = (getattr(self, name) for name in self.names)
        return functional.linear(x, weight, bias)


def slopes_of(loss, network):
    gradients = torch.autograd.grad(loss, list(network.parameters()), retain_graph=True)
    return dict(zip(("weight", "bias"), gradients, strict=True))


def lists(tensors):
    return {name: values.tolist() for name, values in tensors.items()}


def test_one_step_of_a_silo(known, kind):
    name = "FL4_sacr_step"
    case, expected = known.inputs(name), known.expected(name)
    images, labels = tensor(case["X_strong"]), torch.tensor(case["labels"])
    chosen, confident = torch.tensor(case["mask_cat"]), torch.tensor(case["mask_fix"])
    network = Linear(kind, case["W"], case["b"])
    supervised, consistency = sacr_losses(
        network, images[chosen], labels[chosen], confident[chosen], case["rho"], case["eta"]
    )
    logits = network(images)
    pseudo_loss = kept_mean(functional.cross_entropy(logits, labels, reduction="none"), confident & chosen)
    raising = slopes_of(pseudo_loss, network)
    values = {renamed(kind, n): getattr(network, renamed(kind, n)).detach() for n in raising}
    apart, _ = perturbed(values, {renamed(kind, n): slope for n, slope in raising.items()}, case)
    moved = Linear(kind, *((value + apart[n]).tolist() for n, value in values.items()))
    q, q_star = logits.softmax(1).detach(), moved(images).softmax(1).detach()
    gap, reverse = ((a * (a / b).log()).sum(1) for a, b in ((q, q_star), (q_star, q)))
    weight, bias = ({n: v.detach().tolist() for n, v in moved.named_parameters()}[n] for n in moved.names)
    expected_weights = {
        "grad_L_p": lists(raising),
        "Q": q.tolist(),
        "L_a": supervised.detach(),
        "grad_L_a": lists(slopes_of(supervised, network)),
    }
    computed = {
        "epsilon": {n: apart[renamed(kind, n)].tolist() for n in raising},
        "W_star": weight,
        "b_star": bias,
        "Q_star": q_star.tolist(),
        "kl_per_sample": gap.tolist(),
        "L_cs_mean_over_batch": consistency.detach(),
        "L_cs_mean_over_fixed": kept_mean(gap, confident & chosen),
        "L_cs_reverse_mean_over_batch": (reverse * confident)[chosen].mean(),
        "grad_L_cs_at_W_star": lists(slopes_of(consistency, network)),
    }
    optimiser = torch.optim.SGD(network.parameters(), lr=case["lr"])
    (case["w_a"] * supervised + case["w_cs"] * consistency).backward()
    now = [getattr(network, n) for n in network.names]
    computed["total_grad"] = {"weight": now[0].grad.tolist(), "bias": now[1].grad.tolist()}
    computed["total_norm"] = float(nn.utils.clip_grad_norm_(network.parameters(), case["clip"]))
    optimiser.step()
    computed |= {"new_W_plain_sgd_clipped": now[0].tolist(), "new_b_plain_sgd_clipped": now[1].tolist()}
    known.check(name, {**expected, **expected_weights, kind: computed})


def test_silos_that_the_model_is_unsure_of_count_more(known):
    name = "FL5_lsaa_weights"
    case = known.inputs(name)
    means = mean_of(case["theta"], case["tau"])
    known.check(
        name,
        {
            "weights": weights_of(case["tau"]),
            "all_confident_is_uniform": weights_of(case["tau_all_one"]),
            "one_saturated": weights_of(case["tau_one_saturated"]),
            "aggregate": means.arrays()["w"],
        },
    )


def test_the_server_steps_with_momentum(known):
    name = "FL6_server_momentum"
    case = known.inputs(name)
    step = Momentum(learning_rate="1", momentum=known.decimal(case["beta_g"])).step()
    model, rounds = update_of(case["theta0"]), []
    for number, round_case in enumerate(case["rounds"], 1):
        mean, before = mean_of(round_case["theta"], round_case["tau"]), model.arrays()["w"]
        model = step.apply(model, mean, number)
        now = model.arrays()["w"]
        rounds.append({"mean": mean.arrays()["w"].tolist(), "v": (before - now).tolist(), "theta": now.tolist()})
    known.check(name, {"rounds": rounds})
    assert PRESETS["FL2"].slots.server_step == Momentum(learning_rate="1", momentum="0.5")


class Batches:
    """Batches of a single feature, each of them an "image" of the views."""

    def __init__(self, batches):
        self._batches = [tensor(batch)[:, None] for batch in batches]

    def to_device(self, indices):
        return torch.from_numpy(indices)

    def plain(self, indices):
        (index,) = indices.tolist()
        return self._batches[index]


def test_running_statistics_over_batches_and_pooled(known, monkeypatch):
    name = "FL7_static_bn"
    batches = known.inputs(name)["batches"]
    monkeypatch.setattr("anchorage.learning.batch_norm.EVALUATION_BATCH", 1)
    network = nn.Module()
    network.encoder = network.embed = norm = nn.BatchNorm1d(1).double()
    recalibrate(network, Batches(batches), np.arange(len(batches)))
    layout = Layout.of([("norm.running_mean", "F64", (1,)), ("norm.running_var", "F64", (1,))])
    counted = [
        ModelBytes.from_arrays(
            layout, {"norm.running_mean": np.mean(b, keepdims=True), "norm.running_var": np.var(b, keepdims=True)}
        )
        for b in batches
    ]
    sizes = [float(len(batch)) for batch in batches]
    pooled = pool_variances(weighted_mean(counted, sizes, layout), counted, sizes).arrays()
    known.check(
        name,
        {
            "cumulative_mean_equal_batch_weight": norm.running_mean.item(),
            "cumulative_var_equal_batch_weight": norm.running_var.item(),
            "pooled_mean_from_sums": pooled["norm.running_mean"].item(),
            "pooled_var_from_sums": pooled["norm.running_var"].item(),
        },
    )


def test_epochs_before_round_1_reach_a_number_of_steps(known):
    name = "FL8_server_pretraining"
    case = known.inputs(name)
    batch, epochs, steps = case["batch"], case["epochs_per_call"], case["iterations"]
    calls = [calls_before(labels, batch, epochs, steps) for labels in case["n_labels"]]
    # of fewer labels than a batch the published code makes none, because it divides by 0
    coded = [call if labels >= batch else None for call, labels in zip(calls, case["n_labels"], strict=True)]
    known.check(name, {"server_calls_before_round_1": coded})
    assert all(call == steps // epochs for call, labels in zip(calls, case["n_labels"], strict=True) if labels < batch)
