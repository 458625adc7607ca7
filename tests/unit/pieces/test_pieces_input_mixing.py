"""Mixed images against the known answers J1, J2 and J3, and FedMix's third term against its plain form."""

import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from learning_party import CLASSES, network_of
from torch import nn
from torch.nn import functional

from anchorage.pieces.input_mixing.fedmix import FedMix, derivative_along, fedmix_terms
from anchorage.pieces.input_mixing.mixed_inputs import mixed_loss
from anchorage.pieces.input_mixing.pool import means_of

LOSS = functional.cross_entropy


def classifier(case):
    classes, width = len(case["W"]), len(case["W"][0])
    network = nn.Linear(width, classes, dtype=torch.float64)
    with torch.no_grad():
        network.weight.copy_(torch.tensor(case["W"], dtype=torch.float64))
        network.bias.copy_(torch.tensor(case["b"], dtype=torch.float64))
    return network, torch.tensor(case["X"], dtype=torch.float64), torch.tensor(case["Y"])


def double_backward(network, loss, images, labels, mean, share):
    """The third term in its plain form: a gradient of the input, kept in the graph."""
    scaled = ((1 - share) * images).requires_grad_()
    total = (1 - share) * len(images) * loss(network(scaled), labels)  # the sum over the samples, not their mean
    (gradient,) = torch.autograd.grad(total, scaled, create_graph=True)
    return share * (gradient * mean).flatten(1).sum(1).mean()


@pytest.mark.known_answers
def test_j1_fedmix_terms(known):
    case = known.inputs("J1_fedmix_terms")
    network, images, labels = classifier(case)
    mean, label = (torch.tensor([case[name]], dtype=torch.float64) for name in ("x_g", "y_g"))

    def terms(share):
        l1, l2, l3 = (t.item() for t in fedmix_terms(network, LOSS, images, labels, mean, label, share))
        exact = mixed_loss(network, LOSS, images, labels, mean, label, share).item()
        plain = double_backward(network, LOSS, images, labels, mean, share).item()
        assert plain == pytest.approx(l3, abs=1e-15)
        eq4 = l1 + l2 + l3 / (1 - share)
        wrong = l3 / len(images)  # methods reference, section 12, number 10
        return {
            "l1": l1,
            "l2": l2,
            "l3": l3,
            "fedmix": l1 + l2 + l3,
            "exact_mixup_with_mean": exact,
            "error": l1 + l2 + l3 - exact,
            "eq4_form": eq4,
            "l3_if_gradient_of_mean_is_averaged_again": wrong,
            "l3_public_code": wrong,
        }

    def identity(share):
        slope = derivative_along(network, LOSS, (1 - share) * images, labels, mean.expand_as(images)).item()
        return share * (1 - share) * slope

    expected = known.expected("J1_fedmix_terms")
    named = {key: float(key.removeprefix("jvp_identity_")) for key in expected["by_lambda"]}
    by_lambda = {key: (identity if "identity" in key else terms)(share) for key, share in named.items()}
    errors = [by_lambda[key]["error"] for key in named if "identity" not in key]
    ratios = [one / half for one, half in pairwise(errors)]
    known.check(
        "J1_fedmix_terms",
        {"by_lambda": by_lambda, "error_ratio_halving_lambda": ratios[-len(expected["error_ratio_halving_lambda"]) :]},
    )


@pytest.mark.known_answers
def test_j2_means(known):
    case = known.inputs("J2_mafl_means")
    classes, count, size = len(known.expected("J2_mafl_means")["y_bar"][0]), len(case["X"]), case["M_k"]
    images, labels = torch.tensor(case["X"], dtype=torch.float64), torch.eye(classes)[case["labels"]]
    short = np.split(
        np.arange(count), range(size, count, size)
    )  # the plain definition; our groups are merged, see below
    computed = {"x_bar": means_of(lambda g: images[g], short), "y_bar": means_of(lambda g: labels[g], short)}
    known.check("J2_mafl_means", computed)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(5, 2, [2, 3]), (4, 2, [2, 2]), (3, 5, [3]), (9, 5, [9]), (11, 5, [5, 6]), (2, 2, [2])],
)
def test_no_mean_is_of_one_image(count, size, expected):
    images = SimpleNamespace(labelled=np.arange(count))
    work = SimpleNamespace(images=images, run=SimpleNamespace(seed=1), draws=SimpleNamespace(silo="a"))
    groups = FedMix(group_size=size).groups(work)
    assert list(map(len, groups)) == expected
    assert sorted(np.concatenate(groups)) == list(range(count))


@pytest.mark.known_answers
def test_j3_mixup_variants(known):
    case = known.inputs("J3_mixup_variants")
    share = case["lam"]
    network, images, labels = classifier(case)
    mean, label = (torch.tensor([case[name]], dtype=torch.float64) for name in ("x_g", "y_g"))
    one, other = ([int(row)] for row in re.findall(r"X\[(\d+)\]", case["localmix_pair"]))
    local = mixed_loss(network, LOSS, images[one], labels[one], images[other], labels[other], share)
    naive = mixed_loss(network, LOSS, images, labels, mean, label, share)
    known.check("J3_mixup_variants", {"localmix": local.item(), "naivemix": naive.item()})


class Recorded:
    """Batch normalisation by given statistics, for the plain form of frozen ones."""

    def __init__(self, network):
        self.norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
        self.batch_statistics = {}

    def __enter__(self):
        for norm in self.norms:
            norm.forward = lambda x, norm=norm: self.normalised(norm, x)

    def __exit__(self, *error):
        for norm in self.norms:
            del norm.forward

    def normalised(self, norm, x):
        if norm not in self.batch_statistics:  # the first pass, on images that no gradient is asked for
            self.batch_statistics[norm] = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        mean, variance = self.batch_statistics[norm]
        scale = norm.weight / (variance + norm.eps).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + norm.bias[:, None, None]


def test_the_derivative_in_forward_mode_and_its_gradients_are_those_of_the_double_backward():
    """The third term takes the batch's statistics as they are, with their gradients by the weights, and leaves the running ones alone."""
    draws = torch.Generator().manual_seed(0)
    network = network_of("FedMix").double().train()
    images, mean = (torch.rand(n, 1, 8, 8, dtype=torch.float64, generator=draws) for n in (4, 1))
    labels, label = torch.arange(4) % CLASSES, torch.full((1, CLASSES), 1 / CLASSES, dtype=torch.float64)
    *_, third = fedmix_terms(network, LOSS, images, labels, mean, label, 0.2)
    assert all(norm.num_batches_tracked == 1 for norm in network.modules() if isinstance(norm, nn.BatchNorm2d))
    with Recorded(network):
        network(0.8 * images)
        plain = double_backward(network, LOSS, images, labels, mean, 0.2)
    assert third.item() == pytest.approx(plain.item(), rel=1e-9)
    assert third.item() != pytest.approx(double_backward(network, LOSS, images, labels, mean, 0.2).item(), rel=0.01)
    weights = list(network.parameters())
    wanted, actual = (
        torch.autograd.grad(term, weights, materialize_grads=True, allow_unused=True) for term in (plain, third)
    )
    for one, other in zip(wanted, actual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)


def test_the_third_term_cannot_grow_with_the_weights():
    """It has no lower bound: by running statistics, which do not follow the weights of a step, training on it ends in chance."""
    network = network_of("FedMix").double().train()
    draws = torch.Generator().manual_seed(0)
    images, mean = (torch.rand(n, 1, 8, 8, dtype=torch.float64, generator=draws) for n in (4, 1))
    labels, label = torch.arange(4) % CLASSES, torch.full((1, CLASSES), 1 / CLASSES, dtype=torch.float64)
    before = fedmix_terms(network, LOSS, images, labels, mean, label, 0.2)
    with torch.no_grad():
        for layer in network.encoder.convolutions:
            layer.weight.mul_(1000)
    after = fedmix_terms(network, LOSS, images, labels, mean, label, 0.2)
    for one, other in zip(before, after, strict=True):
        assert one.item() == pytest.approx(other.item(), rel=0.05)
