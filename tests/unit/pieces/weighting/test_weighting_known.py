"""Known answers of weights, means and scores (A12, B1 to B6, E1 to E5, F1, F2, Q1, Q2)."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from classification_of import classes as of_classes

from anchorage.algorithms.classification_metrics import precision_per_class
from anchorage.engine.aggregation import ContributionSum, weighted_mean
from anchorage.pieces.batch_norm.pooled import pool_variances
from anchorage.pieces.slots import Weighting
from anchorage.pieces.task.confusion import (
    balanced_accuracy,
    geometric_mean,
    macro_f1,
    mcc,
    micro_f1,
)
from anchorage.pieces.weighting.dvw import Dvw
from anchorage.pieces.weighting.fedavg_semi import FedAvgSemi, normalised
from anchorage.pieces.weighting.sample_count import SampleCount
from anchorage.pieces.weighting.selected_count import SelectedCount
from anchorage.pieces.weighting.semianagg import (
    SemiAnAgg,
    remoteness,
    semianagg_code,
    semianagg_paper,
    share_per_class,
    similarity_share,
)
from anchorage.transport.messages import Announcement, Evaluation
from anchorage.transport.tensors.chunks import Manifest
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

pytestmark = pytest.mark.known_answers

UPDATE = Manifest("layout", 0, ())


def model_of(values: Any) -> ModelBytes:
    array = np.atleast_1d(np.asarray(values, np.float64))
    return ModelBytes.from_arrays(Layout.of([("theta", "F64", array.shape)]), {"theta": array})


def values_of(model: ModelBytes | None) -> np.ndarray:
    assert model is not None
    return model.arrays()["theta"]


def mean_of(thetas: Any, weights: Any) -> np.ndarray:
    models = [model_of(theta) for theta in thetas]
    return values_of(weighted_mean(models, list(weights), models[0].layout))


def shares(weighting: Weighting, announced: list[dict[str, Any]], num_classes: int = 2) -> np.ndarray:
    """Normalised weights of silos that announce `samples` and, maybe, `auxiliary_data` and `update`."""
    announcements = {
        str(index): Announcement("task", a.get("samples", {}), a.get("auxiliary_data", {}), {}, a.get("update", UPDATE))
        for index, a in enumerate(announced)
    }
    weights = weighting.weigher(of_classes(num_classes)).weigh(announcements, {})
    return normalised(np.array([weights[silo] for silo in announcements]))


def similarity(rows: Any) -> np.ndarray:
    return np.array([[np.nan if w is None else w for w in row] for row in rows], np.float64)


def test_a12_empty_fix_set(known):
    inputs = known.inputs("A12_empty_fix_set")
    samples = [{"train": n, "selected": f} for n, f in zip(inputs["n"], inputs["fix_sizes"], strict=True)]
    excluded = [{"samples": s, "update": UPDATE if s["selected"] else None} for s in samples]
    computed = {
        "weights_by_n_over_trained": shares(SampleCount(), excluded),
        "weights_by_fix_size": shares(SelectedCount(), excluded),
        "weights_if_untrained_copy_is_averaged": shares(SampleCount(), [{"samples": s} for s in samples]),
    }
    known.check("A12_empty_fix_set", computed)


def test_b1_semianagg(known):
    w = similarity(known.inputs("B1_semianagg_3x3")["w_hat"])
    announced = [{"auxiliary_data": {"similarity": row}, "samples": {"selected": 1}} for row in w]
    paper = shares(SemiAnAgg(order="Paper"), announced, w.shape[1])
    code = shares(SemiAnAgg(order="Code"), announced, w.shape[1])
    computed = {
        "r": remoteness(w),
        "r_hat": share_per_class(remoteness(w)),
        "paper_weights": paper,
        "code_normalised_w": similarity_share(w),
        "code_weights": code,
        "paper_spread_max_over_min": paper.max() / paper.min(),
        "code_spread_max_over_min": code.max() / code.min(),
    }
    known.check("B1_semianagg_3x3", computed)


def test_b2_semianagg_edges(known):
    w = {name: similarity(rows) for name, rows in known.inputs("B2_semianagg_edges").items()}
    computed = {
        "class_absent_paper": semianagg_paper(w["class_absent_everywhere"]),
        "class_absent_code": semianagg_code(w["class_absent_everywhere"]),
        "nothing_paper_uniform": semianagg_paper(w["nothing"]),
        "nothing_code": semianagg_code(w["nothing"]),
        "negative_paper": semianagg_paper(w["negative"]),
        "negative_code_normalised_w": similarity_share(w["negative"]),
        "negative_code": semianagg_code(w["negative"]),
        "all_random_paper_uniform": semianagg_paper(w["all_random"]),
    }
    known.check("B2_semianagg_edges", computed)


def test_b3_code_is_flatter(known):
    inputs = known.inputs("B3_semianagg_code_is_flatter")
    silos, classes = inputs["K"], inputs["C"]
    w = np.random.default_rng(inputs["seed"]).uniform(*inputs["range_of_w"], (silos, classes))
    paper, code = semianagg_paper(w), semianagg_code(w)
    computed = {
        "paper": paper,
        "code": code,
        "paper_std": paper.std(),
        "code_std": code.std(),
        "ratio": paper.std() / code.std(),
        "predicted_ratio": (silos - 1) * w.mean() / (1 - w.mean()),
    }
    known.check("B3_semianagg_code_is_flatter", computed)


def test_b4_fedavg_semi(known):
    inputs = known.inputs("B4_fedavg_semi")
    semi = FedAvgSemi(labelled_share=known.decimal(inputs["lambda1"]))

    def announced(selected: list[int]) -> list[dict[str, Any]]:
        rows = zip(inputs["sizes"], inputs["N_L"], selected, strict=True)
        return [{"samples": {"train": n, "labelled": labelled, "selected": u}} for n, labelled, u in rows]

    weights = shares(semi, announced(inputs["N_U_selected"]))
    plain = shares(SampleCount(), announced(inputs["N_U_selected"]))
    computed = {
        "weights": weights,
        "theta_global": mean_of(inputs["theta"], weights)[0],
        "plain_fedavg_weights": plain,
        "plain_fedavg_theta": mean_of(inputs["theta"], plain)[0],
        "nothing_selected_weights": shares(semi, announced([0] * len(inputs["sizes"]))),
    }
    known.check("B4_fedavg_semi", computed)


def test_b5_partially_labelled(known):
    inputs = known.inputs("B5_partially_labelled_weights")
    share = known.decimal(inputs["lambda1"])
    rows = zip(inputs["N_L"], inputs["N_U_selected"], inputs["r_normalised"], strict=True)
    announced = [
        {"samples": {"labelled": n, "selected": u}, "auxiliary_data": {"similarity": np.array([1 - r])}}
        for n, u, r in rows
    ]
    computed = {
        "fedavg_semi": shares(FedAvgSemi(labelled_share=share), announced),
        "semianagg": shares(SemiAnAgg(labelled_share=share), announced, 1),
    }
    known.check("B5_partially_labelled_weights", computed)


def test_b6_global_model(known):
    inputs = known.inputs("B6_semianagg_global_model")
    known.check("B6_semianagg_global_model", {"theta_global": mean_of(inputs["thetas"], inputs["weights"])})


def test_e1_two_confusion_matrices(known):
    inputs = known.inputs("E1_dvw_two_confusion_matrices")
    parts = [np.array(inputs[name]) for name in sorted(inputs)]
    pooled = sum(parts)
    weigher = Dvw(metric="MicroF1").weigher(of_classes(len(pooled)))
    own_counts, *others = (np.array([np.trace(part), part.sum()]) for part in parts)
    announcement = Announcement("task", {}, {"validation": own_counts}, {}, UPDATE)
    computed = {
        "CM": pooled,
        "TP": np.trace(pooled),
        "FP": pooled.sum() - np.trace(pooled),
        "FN": pooled.sum() - np.trace(pooled),
        "micro_F1": micro_f1(pooled),
        "accuracy": weigher.weigh(
            {"a": announcement}, {"a": [Evaluation("task", {"validation": other}) for other in others]}
        )["a"],
        "mean_of_silo_accuracies": np.mean([micro_f1(part) for part in parts]),
        "macro_F1": macro_f1(pooled),
        "balanced_accuracy": balanced_accuracy(pooled),
        "macro_precision": np.nanmean(precision_per_class(pooled)),
        "geometric_mean_recall": geometric_mean(pooled),
        "multiclass_MCC": mcc(pooled),
    }
    known.check("E1_dvw_two_confusion_matrices", computed)


def test_e2_community_from_scores(known):
    inputs = known.inputs("E2_dvw_community")
    computed = {
        "weights": normalised(np.array(inputs["p"])),
        "community": mean_of(inputs["theta"], inputs["p"]),
        "all_zero_weights_policy": normalised(np.zeros(len(inputs["p"]))),
    }
    known.check("E2_dvw_community", computed)


def test_e3_flatness(known):
    inputs = known.inputs("E3_dvw_flatness")
    known.check("E3_dvw_flatness", {"weights": normalised(np.array(inputs["p"]))})


def test_e4_sampled_evaluators(known):
    inputs = known.inputs("E4_dvw_sampled_evaluators")
    scores = np.stack([inputs["correct"], inputs["total"]], 1)
    silos, total = len(scores), scores[:, 1].sum()
    choices = [scores[list(choice)].sum(0) for choice in combinations(range(silos), inputs["evaluators_asked"])]
    unbiased = [silos / inputs["evaluators_asked"] * correct / total for correct, _ in choices]
    ratios = [micro_f1(choice) for choice in choices]
    computed = {
        "full": micro_f1(scores.sum(0)),
        "ht_values": unbiased,
        "ht_mean": np.mean(unbiased),
        "ratio_values": ratios,
        "ratio_mean": np.mean(ratios),
    }
    known.check("E4_dvw_sampled_evaluators", computed)


def test_e5_empty_validation(known):
    counts = np.array(known.inputs("E5_dvw_empty_validation")["CM"])
    policy = known.expected("E5_dvw_empty_validation")["policy"]
    known.check("E5_dvw_empty_validation", {"micro_F1": micro_f1(counts), "policy": policy})
    weigher = Dvw(metric="MacroF1").weigher(of_classes(len(counts)))
    announcements = {"a": Announcement("task", {}, {"validation": counts}, {}, UPDATE)}
    assert weigher.weigh(announcements, {}) == {"a": 0.0}
    community = ContributionSum(model_of([1.0]).layout)
    community.commit("a", 0.0, model_of([1.0]))
    assert community.model() is None


def test_f1_community(known):
    events = known.inputs("F1_async_community_cache")["events"]
    community = ContributionSum(model_of(events[0][2]).layout)
    committed: dict[str, tuple[ModelBytes, float]] = {}
    rows = []
    for learner, p, theta in events:
        update = model_of(theta)
        community.commit(str(learner), p, update, *committed.get(str(learner), (None, 0.0)))
        committed[str(learner)] = (update, p)
        model = values_of(community.model())
        row = {"learner": learner, "p": p, "P": community.total, "W": model * community.total, "community": model}
        rows.append(row)
    known.check("F1_async_community_cache", {"rows": rows})


def test_f2_rounding_drift(known):
    inputs = known.inputs("F2_cache_rounding_drift")
    draws = np.random.default_rng(inputs["seed"])
    size, learners = inputs["M"], inputs["learners"]
    community = ContributionSum(model_of(np.zeros(size)).layout)
    committed: dict[int, tuple[ModelBytes, float]] = {}
    sum32, weights32, thetas32 = np.zeros(size, np.float32), np.zeros(learners), np.zeros((learners, size), np.float32)
    for _ in range(inputs["commits"]):
        k, p, theta = int(draws.integers(learners)), float(draws.uniform(0.1, 1.0)), draws.normal(size=size)
        update = model_of(theta)
        community.commit(str(k), p, update, *committed.get(k, (None, 0.0)))
        committed[k] = (update, p)
        sum32 += np.float32(p) * theta.astype(np.float32) - np.float32(weights32[k]) * thetas32[k]
        weights32[k], thetas32[k] = p, theta
    exact = mean_of([values_of(m) for m, _ in committed.values()], [p for _, p in committed.values()])
    drift = {
        "float32": np.abs(sum32 / weights32.sum() - exact).max(),
        "float64": np.abs(values_of(community.model()) - exact).max(),
    }
    expected = known.expected("F2_cache_rounding_drift")  # of the same sums in another order: the last bits are noise
    assert set(drift) == set(expected)
    assert expected["float32"] / 10 < drift["float32"] < 10 * expected["float32"]
    assert 0 < drift["float64"] < 1e-12


def test_q1_fedavg_and_batch_norm(known):
    inputs = known.inputs("Q1_fedavg_and_bn")
    means, variances = np.array(inputs["bn_means"]), np.array(inputs["bn_vars"])
    equal = np.ones(len(means))
    counted = Layout.of([("running_mean", "F64", (1,)), ("running_var", "F64", (1,))])
    pairs = zip(means, variances, strict=True)
    models = [
        ModelBytes.from_arrays(counted, {"running_mean": np.array([m]), "running_var": np.array([v])}) for m, v in pairs
    ]
    counters = Layout.of([("n", "I64", ())])
    batches = [ModelBytes.from_arrays(counters, {"n": np.array(n)}) for n in inputs["num_batches"]]
    computed = {
        "weights": shares(SampleCount(), [{"samples": {"train": n}} for n in inputs["n"]]),
        "theta_global": mean_of(inputs["theta"], inputs["n"])[0],
        "bn_mean_avg": mean_of(means, equal)[0],
        "bn_var_avg": mean_of(variances, equal)[0],
        "bn_var_pooled": pool_variances(weighted_mean(models, equal, counted), models, equal).arrays()["running_var"][
            0
        ],
        known.key("Q1_fedavg_and_bn", "num_batches_mean_.*"): int(np.mean(inputs["num_batches"])),
    }
    known.check("Q1_fedavg_and_bn", computed)
    copied = weighted_mean(batches, [1.0] * len(batches), counters)
    assert copied.arrays()["n"] == inputs["num_batches"][0]


def test_q2_streaming(known):
    inputs = known.inputs("Q2_streaming_aggregation")
    draws = np.random.default_rng(inputs["seed"])
    silos, classes = inputs["K"], inputs["C"]
    thetas = draws.normal(size=(silos, inputs["M"]))
    counts = draws.integers(1, 1000, silos).astype(np.float64)
    w = draws.uniform(0.2, 0.9, (silos, classes))
    exact = counts @ thetas / counts.sum()
    community = ContributionSum(model_of(thetas[0]).layout)
    for index, (theta, count) in enumerate(zip(thetas, counts, strict=True)):
        community.commit(str(index), count, model_of(theta))
    per_class = [mean_of(thetas, remoteness(w)[:, c]) for c in range(classes)]
    errors = {
        "sum_form_error": mean_of(thetas, counts) - exact,
        "incremental_mean_error": values_of(community.model()) - exact,
        "delta_form_error": thetas[0] + mean_of(thetas - thetas[0], counts) - exact,
        "semianagg_class_accumulators_error": np.mean(per_class, 0) - mean_of(thetas, semianagg_paper(w)),
    }
    assert set(errors) == set(known.expected("Q2_streaming_aggregation"))
    assert all(np.abs(error).max() < 1e-13 for error in errors.values())
