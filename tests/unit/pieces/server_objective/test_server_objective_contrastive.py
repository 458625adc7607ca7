"""The label contrastive loss against the known answers A1 to A4."""

import math
import re

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from anchorage.pieces.regulariser.feature_distance import feature_distance
from anchorage.pieces.regulariser.moon import model_contrast
from anchorage.pieces.server_objective.label_contrastive import (
    balanced_batches,
    class_terms,
    has_pairs,
    label_contrastive,
)

pytestmark = pytest.mark.known_answers


def _terms(z, y, classes, tau, **options):
    terms, valid = class_terms(z, y, classes, tau, **options)
    return {c: terms[c].item() for c in range(classes) if valid[c]}


def _other_reading(z, y, classes, tau, *, diagonal=False, own_rows=False):
    """The readings of eq. (1) that methods reference, 6.8 sets aside."""
    scores = normalize(z) @ normalize(z).T / tau
    terms = {}
    for c in range(classes):
        member = y == c
        positive = member[:, None] & member
        if not diagonal:
            positive = positive & ~torch.eye(len(y), dtype=torch.bool)
        negative = y[:, None] != y
        if own_rows:
            negative = negative & member[:, None]
        if positive.any() and negative.any():
            terms[c] = (scores[negative].logsumexp(0) - scores[positive].logsumexp(0)).item()
    return terms


def _mean(terms):
    return sum(terms.values()) / len(terms)


def test_a1_small_batch(known):
    case = known.inputs("A1_label_contrastive_4x2")
    z = torch.tensor(case["Z"], dtype=torch.float64, requires_grad=True)
    y, classes, tau = torch.tensor(case["y"]), case["C"], case["tau"]
    loss = label_contrastive(z, y, classes, tau)
    loss.backward()
    plain = z.detach()
    scores = normalize(plain) @ normalize(plain).T / tau
    once = torch.ones_like(scores, dtype=torch.bool).triu(1)  # pairs i < j only: the factor 2 cancels
    key = known.key("A1_label_contrastive_4x2", r"exclude_diag_unordered_l\d+")
    member = y == int(key.rpartition("_l")[2])
    differing, first = y[:, None] != y, member[:, None] & member
    unordered = scores[once & differing].logsumexp(0) - scores[once & first].logsumexp(0)
    bounded = _terms(plain, y, classes, tau, bounded=True)
    diagonal = _other_reading(plain, y, classes, tau, diagonal=True)
    rows = _other_reading(plain, y, classes, tau, own_rows=True)
    known.check(
        "A1_label_contrastive_4x2",
        {
            "cosine_matrix": normalize(plain) @ normalize(plain).T,
            "exclude_diag": {"loss": loss.item(), "per_class": _terms(plain, y, classes, tau), "grad_Z": z.grad},
            "include_diag": {"loss": _mean(diagonal), "per_class": diagonal},
            "denominator_rows_of_c": {"loss": _mean(rows), "per_class": rows},
            "denominator_with_positives": {
                "loss": label_contrastive(plain, y, classes, tau, bounded=True).item(),
                "per_class": bounded,
            },
            key: unordered.item(),
        },
    )


def test_a2_missing_and_singleton_classes(known):
    case = known.inputs("A2_label_contrastive_missing")
    z, tau, classes = torch.tensor(case["Z"], dtype=torch.float64), case["tau"], case["C"]

    def computed(key, fields):
        """Read a batch's labels out of its name: y_0_0_1, y_0_0_only, y_all_distinct, y_0_0_1_with_diag."""
        labels = list(range(len(z))) if "distinct" in key else list(map(int, re.findall(r"\d+", key)))
        batch, y = z[: len(labels)], torch.tensor(labels)
        diagonal = key.endswith("with_diag")
        terms = _other_reading(batch, y, classes, tau, diagonal=True) if diagonal else _terms(batch, y, classes, tau)
        loss = _mean(terms) if diagonal else label_contrastive(batch, y, classes, tau).item()
        results = {
            "loss": loss,
            "loss_mean_present": loss,
            "loss_div_C": sum(terms.values()) / classes,
            "per_class": terms,
            "skipped": [c for c in range(classes) if c not in terms],
        }
        return {field: results[field] for field in fields}

    expected = known.expected("A2_label_contrastive_missing")
    known.check("A2_label_contrastive_missing", {key: computed(key, fields) for key, fields in expected.items()})


def test_a3_small_temperature(known):
    case = known.inputs("A3_label_contrastive_small_tau")
    z, y = torch.tensor(case["Z"], dtype=torch.float64), torch.tensor(case["y"])
    loss = label_contrastive(z, y, case["C"], case["tau"])
    with np.errstate(over="ignore"):
        naive = np.exp(np.float32(1 / case["tau"]))
    known.check("A3_label_contrastive_small_tau", {"loss": loss.item(), "naive_float32_exp": str(naive)})
    assert torch.isfinite(label_contrastive(z.float(), y, case["C"], case["tau"]))


def test_a4_reference_levels(known):
    computed = {}
    for key in known.expected("A4_label_contrastive_reference_levels"):
        classes, size = (int(n) for n in re.search(r"C(\d+)_n(\d+)", key).groups())
        labels = torch.arange(classes).repeat_interleave(size)
        flat = label_contrastive(torch.ones(len(labels), 3, dtype=torch.float64), labels, classes, 0.5).item()
        flat -= 0.0  # every similarity is 1: the level does not depend on the temperature
        tau = re.search(r"tau(\d+)p(\d+)", key)
        computed[key] = flat - 2 / float(".".join(tau.groups())) if tau else flat
    known.check("A4_label_contrastive_reference_levels", computed)


def test_the_bound_is_attained_by_two_opposite_classes():
    z = torch.tensor([[1.0, 0.0]] * 2 + [[-1.0, 0.0]] * 2, dtype=torch.float64)
    loss = label_contrastive(z, torch.tensor([0, 0, 1, 1]), 2, 0.5).item()
    assert math.isclose(loss, math.log(4) - 2 / 0.5, abs_tol=1e-12)


def test_classes_without_a_pair_get_no_gradient():
    z = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    label_contrastive(z, torch.tensor([0, 1, 2]), 3, 0.5).backward()
    assert torch.equal(z.grad, torch.zeros(3, 4))


def test_few_anchors_make_one_batch():
    labels = np.arange(50) % 10
    (batch,) = balanced_batches(labels, np.random.default_rng(0), 512)
    assert sorted(batch) == list(range(50))


def test_many_anchors_make_class_balanced_batches():
    labels = np.repeat([0, 1, 2], [900, 90, 10])
    batches = list(balanced_batches(labels, np.random.default_rng(0), 512))
    assert len(batches) == 2
    for batch in batches:
        counts = np.bincount(labels[batch])
        assert counts.tolist() == [170, 90, 10]
        assert len(set(batch)) == len(batch)


@pytest.mark.parametrize(("labels", "usable"), [([0, 0], False), ([0, 1], False), ([0, 0, 1], True), ([0], False)])
def test_a_batch_needs_a_pair_of_each_kind(labels, usable):
    assert has_pairs(np.array(labels)) is usable
    assert bool(list(balanced_batches(np.array(labels), np.random.default_rng(0), 512))) is usable


def test_i1_moon(known):
    case = known.inputs("I1_moon")
    tensor = lambda name: torch.tensor(case[name], dtype=torch.float64)
    z, received, previous = tensor("z").requires_grad_(), tensor("z_glob"), tensor("z_prev")
    loss = model_contrast(z, received, [previous], case["tau"])
    each = [
        float(model_contrast(z.detach()[i : i + 1], received[i : i + 1], [previous[i : i + 1]], case["tau"]))
        for i in range(len(z))
    ]
    same = model_contrast(z, received, [received], case["tau"])
    gradient, none = torch.autograd.grad(loss, z)[0], torch.autograd.grad(same, z)[0]
    z = z.detach()
    known.check(
        "I1_moon",
        {
            "sim_glob": torch.cosine_similarity(z, received),
            "sim_prev": torch.cosine_similarity(z, previous),
            "loss_per_sample": each,
            "loss_mean": loss.item(),
            "mu_times_loss": case["mu"] * loss.item(),
            "grad_z": gradient,
            "prev_equals_global_loss": same.item(),
            "prev_equals_global_grad_norm": float(none.norm()),
            "two_previous_models": float(model_contrast(z, received, [previous, tensor("z_prev_second")], case["tau"])),
            "l2_variant_mean_of_norms": float(feature_distance(z, received)),
            "l2_variant_norm_of_batch": float((z - received).norm()),
        },
    )
