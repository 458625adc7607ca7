"""Exact shortcuts of METHODS.md 9.2 against their plain forms, which live here alone. Drawn cases beside the known answers."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, softplus

from anchorage.aggregation.counted_updates import COUNTED
from anchorage.learning.contrast_models import ModelContrast, model_contrast
from anchorage.learning.contrastive import class_terms
from anchorage.learning.control_variates import ControlVariates
from anchorage.learning.losses import mixed_cross_entropy
from anchorage.learning.pseudo_labels import anchor_scores, class_prototypes, ensemble_scores, unit_rows
from anchorage.spec.method import Regulariser

few = settings(max_examples=20)
seeds = st.integers(0, 2**31)


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def classes(seed: int, count: int, most: int) -> Tensor:
    return torch.randint(most, (count,), generator=torch.Generator().manual_seed(seed))


@few
@given(seeds, st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
def test_1_2_4_prototypes_and_mean_views(seed: int, anchors: int, num_classes: int, views: int) -> None:
    units, labels = unit_rows(rows(seed, anchors, 6)), classes(seed, anchors, num_classes)
    queries = rows(seed + 1, views, 5, 6)
    queries[:, 0] = 0
    prototypes, present = class_prototypes(units, labels, num_classes)
    each = torch.full((views, 5, num_classes), -torch.inf, dtype=torch.float64)
    for c in labels.unique():
        each[..., c] = torch.stack([unit_rows(view) @ units[labels == c].T for view in queries]).mean(-1)
    for view, plain in zip(queries, each, strict=True):
        torch.testing.assert_close(anchor_scores(view, prototypes, present), plain, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(ensemble_scores(queries, prototypes, present), each.mean(0), rtol=1e-12, atol=1e-14)
    assert (each <= prototypes.norm(dim=1) + 1e-12)[..., present].all(), (
        "a class is reached up to its prototype's length"
    )


@few
@given(seeds, st.floats(0, 1))
def test_5_mixup_is_one_cross_entropy(seed: int, share: float) -> None:
    logits, one, other = rows(seed, 7, 4).requires_grad_(), classes(seed, 7, 4), classes(seed + 1, 7, 4)
    soft = mixed_cross_entropy(logits, one, other, share)
    plain = share * cross_entropy(logits, one) + (1 - share) * cross_entropy(logits, other)
    torch.testing.assert_close(soft, plain)
    torch.testing.assert_close(torch.autograd.grad(soft, logits), torch.autograd.grad(plain, logits))


@few
@given(seeds, st.integers(1, 9), st.integers(1, 4), st.sampled_from([0.1, 0.5, 2.0]))
def test_6_all_classes_share_the_pairs_of_different_ones(seed: int, count: int, num_classes: int, tau: float) -> None:
    z, labels = rows(seed, count, 3), classes(seed, count, num_classes)
    terms, valid = class_terms(z, labels, num_classes, tau)
    for c in range(num_classes):
        pairs = {True: [], False: []}
        for i in range(count):
            for j in range(count):
                same = labels[i] == labels[j]
                if (not same) or (i != j and labels[i] == c):
                    pairs[bool(same)].append(torch.exp(cosine_similarity(z[i], z[j], dim=0) / tau))
        assert valid[c].item() == bool(pairs[True] and pairs[False])
        if valid[c]:
            plain = -torch.log(torch.stack(pairs[True]).sum() / torch.stack(pairs[False]).sum())
            torch.testing.assert_close(terms[c], plain)
        else:
            assert terms[c] == 0


@few
@given(seeds, st.sampled_from([0.1, 0.5, 1.0]))
def test_7_moon_is_a_softplus_and_its_first_round_is_none(seed: int, tau: float) -> None:
    z, received, previous = (rows(seed + i, 6, 4) for i in range(3))
    s_received, s_previous = cosine_similarity(z, received), cosine_similarity(z, previous)
    torch.testing.assert_close(
        model_contrast(z, received, [previous], tau), softplus((s_previous - s_received) / tau).mean()
    )
    first = ModelContrast(Regulariser(type="Moon", temperature=str(tau)), None, ())
    assert first(z, z) == 0
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(model_contrast(z, received, [received], tau), z)
    assert gradient.abs().max() < 1e-15, "what is left out has no gradient"


@few
@given(seeds, st.integers(1, 6), st.floats(0.001, 0.3))
def test_10_option_two_is_the_mean_gradient_of_plain_steps(seed: int, steps: int, rate: float) -> None:
    network = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    images, targets, community = rows(seed, 8, 3), rows(seed + 1, 8, 2), rows(seed + 2, 2, 3)
    kept = {"control/weight": rows(seed + 3, 2, 3).numpy(), COUNTED: np.array([0])}
    controls = ControlVariates(network, {"control.weight": community.numpy()}, kept, {COUNTED: np.array([1])})
    shift, seen = community - torch.from_numpy(kept["control/weight"]), torch.zeros(2, 3, dtype=torch.float64)
    sgd = torch.optim.SGD(network.parameters(), lr=rate)
    with controls.correcting():
        for _ in range(steps):
            sgd.zero_grad()
            (network(images) - targets).square().mean().backward()
            seen += network.weight.grad - shift
            sgd.step()
    controls.renew(steps * rate)
    np.testing.assert_allclose(controls.kept()["control/weight"], seen / steps, rtol=1e-7, atol=1e-9)
