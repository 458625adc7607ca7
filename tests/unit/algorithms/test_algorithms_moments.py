"""Class moments of frozen features and their classifiers, against the known answers GH1 to GH11."""

import math
from dataclasses import replace
from functools import reduce
from operator import add

import pytest
import torch

from anchorage.algorithms.moments import ABSENT, Moments, naive_bayes, shrunk
from anchorage.algorithms.synthetic_heads import distillation_loss, fisher_subspace
from anchorage.learning.device import calculation
from anchorage.learning.heads import GaussianHead
from anchorage.pieces.server_training.closed_form import classifier_of
from anchorage.pieces.server_training.moments import ClassMoments

pytestmark = pytest.mark.known_answers


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def moments_of(case, second="Pooled", rows=None):
    rows = range(len(case["X"])) if rows is None else rows
    features = tensor([case["X"][i] for i in rows]).reshape(len(rows), len(case["X"][0]))
    labels = torch.tensor([case["y"][i] for i in rows], dtype=torch.int64)
    return Moments.of(features, labels, case.get("C", max(case["y"]) + 1), second)


def options(known, head, shrinkage, **others):
    return ClassMoments(head=head, shrinkage=known.decimal(shrinkage), **others)


def linear(statistics_of, queries):
    return tensor(queries) @ statistics_of["weight"].T + statistics_of["bias"]


def gaussian(statistics_of, queries):
    """Score by the module that is exported, in float64."""
    classes, width = statistics_of["weight"].shape
    head = GaussianHead(width, classes, full_covariance=statistics_of["scale"].ndim == 3).double()
    head.load_state_dict(statistics_of)
    with torch.no_grad():
        return head(tensor(queries))


def test_moments_are_the_same_however_images_are_divided(known):
    name = "GH1_statistics_any_split"
    case = known.inputs(name)
    statistics = []
    for split in case["splits"]:
        pooled, diagonal, per_class = (
            Moments.from_arrays(reduce(add, (moments_of(case, second, part) for part in split)).arrays(), second)
            for second in ("Pooled", "Diagonal", "PerClass")
        )
        for same in (diagonal, per_class):
            torch.testing.assert_close(
                same.within(), pooled.within().diagonal() if same is diagonal else pooled.within()
            )
        statistics.append({
            "A": pooled.sums[:-1],
            "N": pooled.labelled,
            "B": pooled.seconds,
            "D": diagonal.seconds,
            "S": per_class.seconds,
            "mu": pooled.means(),
            "prior": pooled.log_prior().exp(),
            "Sigma_pool": pooled.within(),
            "Sigma_class": per_class.of_classes(),
            "var_diag": diagonal.variances(fewest=0),
            "Sigma_total_fedcgs": pooled.total(),
        })  # fmt: skip
    bound = "max_difference_between_splits_below"
    limit = known.expected(name)[bound]
    for statistic in statistics:
        assert all(float((statistic[key] - first).abs().max()) < limit for key, first in statistics[0].items())
        known.check(name, {**{key: value.tolist() for key, value in statistic.items()}, bound: limit})


def test_heads_in_closed_form(known):
    name = "GH2_closed_form_heads"
    case = known.inputs(name)
    pooled, queries = moments_of(case), case["queries"]
    diagonal, per_class = moments_of(case, "Diagonal"), moments_of(case, "PerClass")
    results = {
        "nb": gaussian(naive_bayes(diagonal, diagonal.log_prior(), 0), queries),
        "lda": linear(classifier_of(pooled, options(known, "Lda", case["alpha_lda"])), queries),
        "qda": gaussian(classifier_of(per_class, options(known, "Qda", case["alpha_qda"])), queries),
        "fedcgs": linear(classifier_of(pooled, options(known, "Total", 0)), queries),
    }
    classes = {head: scores.argmax(1).tolist() for head, scores in results.items()}
    known.check(name, {**{h: s.tolist() for h, s in results.items()}, "argmax": classes})


def test_shrinkage_keeps_the_trace(known):
    name = "GH3_shrinkage"
    case = known.inputs(name)
    shrunk_by_alpha = {str(alpha): shrunk(tensor(case["S"]), alpha) for alpha in case["alphas"]}
    computed = {
        alpha: {
            "matrix": matrix.tolist(),
            "trace": float(matrix.trace()),
            "eigenvalues": torch.linalg.eigvalsh(matrix).tolist(),
        }
        for alpha, matrix in shrunk_by_alpha.items()
    }
    known.check(name, computed)


def test_a_class_without_images_never_wins(known):
    name = "GH4_absent_and_singleton_class"
    case = known.inputs(name)
    pooled, diagonal, per_class = (moments_of(case, second) for second in ("Pooled", "Diagonal", "PerClass"))
    scores = linear(classifier_of(pooled, options(known, "Lda", case["alpha_lda"])), case["queries"])
    absent = torch.bincount(torch.tensor(case["y"]), minlength=case["C"]) == 0
    assert (scores[:, absent] == ABSENT).all()
    constant = math.log(1e-12)  # the public code's prior of an absent class is all that it scores
    coded = torch.where(absent, constant, scores)
    prior = pooled.log_prior()
    assert prior[absent].isneginf().all()
    known.check(
        name,
        {
            "N": pooled.labelled,
            "mu": pooled.means().tolist(),
            "log_prior": torch.where(absent, constant, prior),
            "Sigma_pool": pooled.within().tolist(),
            "singleton_uses_pooled": per_class.of_classes().tolist(),
            "var_diag_floor": diagonal.variances(fewest=0).tolist(),
            "lda_as_coded": coded.tolist(),
            "argmax_as_coded": coded.argmax(1).tolist(),
            "argmax_absent_masked": scores.argmax(1).tolist(),
        },
    )


def test_the_subspace_that_sets_classes_apart(known):
    name = "GH5_fisher_subspace"
    case = known.inputs(name)
    moments = moments_of(case)
    means, prior = moments.means(), moments.log_prior().exp()
    values, v = fisher_subspace(means, prior, moments.within(), case["alpha_lda"], case["energy"], case["max_dim"])
    projected = means @ v
    known.check(
        name,
        {
            "eigenvalues": values.tolist(),
            "k": v.shape[1],
            "squared_distances_of_projected_means": (projected[:, None] - projected).square().sum(2).tolist(),
            "projector_V_Vt": (v @ v.T).tolist(),
            "rank_bound_C_minus_1": int(torch.linalg.matrix_rank(projected - prior @ projected)),
        },
    )


def test_a_student_learns_labels_and_its_teacher(known):
    name = "GH6_kd_ce_loss"
    case = known.inputs(name)
    student, teacher, labels = tensor(case["student"]), tensor(case["teacher"]), torch.tensor(case["y"])
    loss = distillation_loss(student, teacher, labels, case["alpha"], case["T"])
    labels_alone, teacher_alone = (
        distillation_loss(student, teacher, labels, share, case["T"]) for share in (0.0, 1.0)
    )
    apart = teacher - teacher.mean(1, keepdim=True)
    known.check(
        name,
        {
            "ce": labels_alone,
            "kl": teacher_alone / case["T"] ** 2,
            "loss": loss,
            "loss_alpha_0": labels_alone,
            # an older version of the public code scaled its teacher so
            "standardised_teacher": (apart / apart.square().mean(1, keepdim=True).sqrt()).tolist(),
        },
    )


@pytest.mark.parametrize("head", ["FisherMix", "ProtoHyper"])
def test_heads_trained_on_drawn_features_tell_the_classes(known, head):
    """Of the images whose moments they know, with one class more of which there are none."""
    case = {**known.inputs("GH2_closed_form_heads"), "C": 4}
    moments = moments_of(case)
    chosen = options(known, head, case["alpha_lda"])
    with calculation():
        classifier = classifier_of(moments, chosen, torch.Generator().manual_seed(1))
    assert linear(classifier, case["X"]).argmax(1).tolist() == case["y"]
    assert classifier["bias"][3] == ABSENT and not classifier["weight"][3].any()


def test_second_moments_far_from_the_origin_need_float64(known):
    name = "GH7_cancellation"
    case, expected = known.inputs(name), known.expected(name)
    values = case["offset"] + case["step"] * (
        torch.arange(case["n"], dtype=torch.float64) % 7 - 3
    )  # as the case has it
    true = float(values.var(unbiased=False))
    assert true == pytest.approx(expected["true_variance"], abs=1e-10)
    labels = torch.zeros(case["n"], dtype=torch.int64)
    for shift, most in ((0.0, 100 * expected["float64_relative_error"]), (case["shift"], 1e-12)):
        features = (values - shift).float()[:, None]  # float32 holds the features, but not their sums of squares
        variance = float(Moments.of(features, labels, 1, "Diagonal").variances(0))
        assert abs(variance / true - 1) < most < expected["float32_relative_error"]


def test_a_ridge_head_does_not_penalise_its_intercept(known):
    name = "GH8_ridge_head"
    case = known.inputs(name)
    moments = moments_of(case)
    uncounted = replace(moments, counts=torch.zeros_like(moments.counts))  # of which nothing is centred
    weight, bias = moments.ridge(case["lam"])
    scores = linear({"weight": weight, "bias": bias}, case["queries"])
    known.check(
        name,
        {
            "W": weight.T.tolist(),
            "b": bias.tolist(),
            "scores": scores.tolist(),
            "argmax": scores.argmax(1).tolist(),
            "row_sums_of_scores": scores.sum(1).tolist(),
            "no_intercept_scores": (tensor(case["queries"]) @ uncounted.ridge(case["lam"])[0].T).tolist(),
        },
    )


def test_with_two_classes_total_and_within_covariance_point_alike(known):
    name = "GH9_two_class_fedcgs_vs_lda"
    case = known.inputs(name)
    moments = moments_of(case)
    heads = [classifier_of(moments, options(known, head, 0)) for head in ("Lda", "Total")]
    within, total = (head["weight"][1] - head["weight"][0] for head in heads)
    margins = [float(scores[0, 0] - scores[0, 1]) for scores in (linear(head, case["query"]) for head in heads)]
    known.check(
        name,
        {
            "cosine_of_directions": float(within @ total / within.norm() / total.norm()),
            "norm_ratio_within_over_total": float(within.norm() / total.norm()),
            "lda_margin": margins[0],
            "fedcgs_margin": margins[1],
        },
    )


def test_moments_of_projected_features(known):
    name = "GH10_random_projection"
    case = known.inputs(name)
    projection = tensor(case["R"])
    projected = {**case, "X": (tensor(case["X"]) @ projection).tolist()}
    pooled, diagonal, per_class = (moments_of(projected, second) for second in ("Pooled", "Diagonal", "PerClass"))
    torch.testing.assert_close(pooled.sums, moments_of(case).sums @ projection)
    torch.testing.assert_close(pooled.seconds, projection.T @ moments_of(case).seconds @ projection)
    known.check(
        name,
        {
            "A_projected": pooled.sums[:-1].tolist(),
            "B_projected": pooled.seconds.tolist(),
            "S0_projected": per_class.seconds[0].tolist(),
            "D_projected_is_diagonal_of_RtSR_not_of_D": diagonal.seconds.tolist(),
        },
    )


def test_unlabelled_images_tell_the_total_covariance(known):
    name = "GH11_unlabelled_total_covariance"
    case = known.inputs(name)
    parts = [(case["X_anchor"], case["y_anchor"])]
    parts += [(rows, [-1] * len(rows)) for rows in case["clients_unlabelled"]]
    moments = reduce(add, (Moments.of(tensor(x), torch.tensor(y), case["C"], "Pooled") for x, y in parts))
    chosen = options(known, "Total", case["alpha"], prior="Uniform")
    # the case leaves out the prior, which is the same for every class
    scores = linear(classifier_of(moments, chosen), case["queries"]) - moments.log_prior(uniform=True)
    distances = torch.cdist(tensor(case["queries"]), moments.means())
    known.check(
        name,
        {
            "n": float(moments.counts.sum()),
            "total_covariance": moments.total().tolist(),
            "scores": scores.tolist(),
            "argmax": scores.argmax(1).tolist(),
            "argmax_nearest_mean": distances.argmin(1).tolist(),
        },
    )


@pytest.mark.parametrize("size", [1e-10, 1e-4])
@pytest.mark.parametrize("head", ["Lda", "NaiveBayes", "Qda", "Ridge", "Total", "FisherMix", "ProtoHyper"])
def test_a_stored_classifier_tells_classes_by_features_of_any_size(head, size):
    """Networks that nobody trained make features of 1e-10; what is told in float64 alone is lost in a model."""
    z = torch.randn(240, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    labels = torch.arange(240) % 3
    z[torch.arange(240), labels] += 3
    slot = ClassMoments(head=head, minimum_count=1)
    results = []
    for factor in (1.0, size):
        features = (z + 2) * factor
        drawn = torch.Generator().manual_seed(1)
        with calculation():
            head_of = classifier_of(Moments.of(features, labels, 3, slot.second), slot, drawn)
        stored = {name: values.float() for name, values in head_of.items()}
        classifier = (
            torch.nn.Linear(6, 3) if slot.second == "Pooled" else GaussianHead(6, 3, full_covariance=head == "Qda")
        )
        classifier.load_state_dict(stored)
        results.append(float((classifier(features.float()).argmax(1) == labels).float().mean()))
    assert results[0] > 0.9
    assert results[1] == pytest.approx(results[0], abs=0.02)


@pytest.mark.parametrize("second", ["Pooled", "Diagonal", "PerClass"])
def test_features_that_differ_by_rounding_alone_are_alike(second):
    z = torch.randn(50, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    labels = torch.arange(50) % 2
    alike = [Moments.of(1 + factor * z, labels, 2, second).alike() for factor in (1e-8, 1e-5, 1.0)]
    assert alike == [True, False, False]
    assert not Moments.of(1e-12 * z, labels, 2, second).alike()
