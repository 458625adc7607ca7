"""Pseudo-labels, mixing and what stays on the server against the known answers A5 to A12, B7, L1 and N1."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from anchorage.algorithms import losses
from anchorage.algorithms.losses import balanced_softmax, log_prior, mixed_cross_entropy, proximal_penalty
from anchorage.algorithms.pseudo_labels import unit_rows
from anchorage.learning.network import Network
from anchorage.learning.stepping import take_steps
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.anchor_similarity import accept, anchor_scores, class_prototypes, ensemble_scores
from anchorage.pieces.pseudo_labels.consistency import consistency_loss, consistency_targets
from anchorage.pieces.pseudo_labels.flexmatch import Curriculum, class_thresholds
from anchorage.pieces.weighting.semianagg import SimilaritySums

pytestmark = pytest.mark.known_answers


def _double(values):
    return torch.tensor(values, dtype=torch.float64)


def _number(text):
    """Read a number such as 0p75 out of the name of an expected output."""
    return float(re.search(r"\d+p\d+", text)[0].replace("p", "."))


def test_a5_scores_and_fix_set(known):
    name = "A5_pseudo_label_scores"
    case = known.inputs(name)
    labels = torch.tensor(case["anchor_labels"])
    prototypes, present = class_prototypes(_double(case["anchors"]), labels, int(labels.max()) + 1)
    scores = anchor_scores(_double(case["queries"]), prototypes, present)
    pseudo, accepted = accept(scores, case["threshold"])
    second = case["second_threshold"]
    known.check(
        name,
        {
            "prototypes_unnormalised": prototypes,
            "prototype_norms": prototypes.norm(dim=1),
            "scores": scores,
            "pseudo_labels": pseudo,
            "max_scores": scores.max(1).values,
            "fix_indices_strict_gt": torch.nonzero(accepted).flatten(),
            known.key(name, "fix_indices_at_.*_strict"): torch.nonzero(accept(scores, second)[1]).flatten(),
            known.key(name, "fix_indices_at_.*_ge"): torch.nonzero(scores.max(1).values >= second).flatten(),
        },
    )


def test_a6_a_score_at_the_threshold(known):
    case = known.inputs("A6_threshold_boundary")

    def score(dtype):
        anchors = torch.tensor(case["anchor"], dtype=dtype)
        prototypes, present = class_prototypes(anchors, torch.zeros(len(anchors), dtype=torch.int64), 1)
        return anchor_scores(torch.tensor(case["query"], dtype=dtype), prototypes, present)

    wide, narrow = score(torch.float64), score(torch.float32)
    known.check(
        "A6_threshold_boundary",
        {
            "float64_score": wide,
            "float64_selected": accept(wide, case["threshold"])[1],
            "float32_score_as_python_float": narrow.double(),
            "float32_selected_when_compared_with_python_double": narrow.double() > case["threshold"],
            "float32_selected_when_threshold_cast": accept(narrow, case["threshold"])[1],
        },
    )


def test_a7_prototypes_score_like_every_anchor(known):
    name = "A7_prototype_shortcut"
    case = known.inputs(name)
    rng = np.random.default_rng(case["seed"])
    anchors = torch.from_numpy(rng.standard_normal((case["S"], case["d"])))
    labels = torch.from_numpy(rng.permutation(np.arange(case["S"]) % case["C"]))
    queries = torch.from_numpy(rng.standard_normal((case["N"], case["d"])))

    def both(dtype):
        units, member = unit_rows(anchors.to(dtype)), (labels[:, None] == torch.arange(case["C"])).to(dtype)
        every = (unit_rows(queries.to(dtype)) @ units.T) @ member / member.sum(0)
        prototypes, present = class_prototypes(anchors.to(dtype), labels, case["C"])
        return every, anchor_scores(queries.to(dtype), prototypes, present), prototypes, units

    every, short, prototypes, units = both(torch.float64)
    every32, short32, _, _ = both(torch.float32)
    inside = torch.stack([(units[labels == c] @ units[labels == c].T).mean() for c in range(case["C"])])
    sums, counts = torch.zeros_like(prototypes), torch.zeros(case["C"], dtype=torch.float64)
    for unit, label in zip(units, labels, strict=True):
        sums[label] += unit
        counts[label] += 1
    fix_set = known.key(name, "fix_set_equal_t.*")
    threshold = _number(fix_set)
    computed = {
        "max_abs_difference_scores": (every - short).abs().max(),
        "labels_equal": bool((every.argmax(1) == short.argmax(1)).all()),
        fix_set: bool((accept(every, threshold)[1] == accept(short, threshold)[1]).all()),
        "streaming_max_abs_difference": (sums / counts[:, None] - prototypes).abs().max(),
        "norm_sq_equals_mean_pairwise_cosine": (prototypes.square().sum(1) - inside).abs().max(),
        "cauchy_bound_holds": bool((short <= prototypes.norm(dim=1) + 1e-12).all()),
        "float32_max_abs_difference": (every32 - short32).abs().max(),
        "float32_label_disagreements": int((every32.argmax(1) != short32.argmax(1)).sum()),
    }
    known.check(name, computed, absolute=1e-6)
    differences = [computed[k] for k in computed if "difference" in k and "float32" not in k]
    assert max(differences) < 1e-14 and computed["norm_sq_equals_mean_pairwise_cosine"] < 1e-14


def test_a8_a_prototype_of_length_one_is_another_method(known):
    case = known.inputs("A8_normalised_prototype_is_different")
    labels, computed = torch.tensor(case["labels"]), {}
    prototypes, present = class_prototypes(_double(case["anchors"]), labels, int(labels.max()) + 1)
    for angle in (key[len("query_") : -len("deg")] for key in case if key.startswith("query_")):
        query = _double([case[f"query_{angle}deg"]])
        for kind, rows in (("unnormalised", prototypes), ("normalised", unit_rows(prototypes))):
            scores = anchor_scores(query, rows, present)
            computed[f"scores_{kind}_{angle}"] = scores[0]
            computed[f"label_{kind}_{angle}"] = scores.argmax().item()
    known.check("A8_normalised_prototype_is_different", computed)


def test_a9_one_score_of_the_mean_view(known):
    name = "A9_ensemble_shortcut"
    case = known.inputs(name)
    rng = np.random.default_rng(case["seed"] if isinstance(case["seed"], int) else 9)  # "continues A7": any other
    views = torch.from_numpy(rng.standard_normal((case["K"], case["N"], case["d"])))
    anchors, labels = rng.standard_normal((4 * case["C"], case["d"])), torch.arange(4 * case["C"]) % case["C"]
    prototypes, present = class_prototypes(torch.from_numpy(anchors), labels, case["C"])
    each = torch.stack([anchor_scores(view, prototypes, present) for view in views]).mean(0)
    difference = (each - ensemble_scores(views, prototypes, present)).abs().max()
    known.check(name, {"max_abs_difference": difference}, absolute=1e-14)


def test_a10_fix_and_mix(known):
    case = known.inputs("A10_fix_plus_mix")
    fixed, mixed = _double(case["logits_strong_fix"]), _double(case["logits_mixed"])
    fix, mix, share = torch.tensor(case["y_fix"]), torch.tensor(case["y_mix"]), case["lam"]
    l_fix, l_mix = (
        cross_entropy(fixed, fix),
        share * cross_entropy(mixed, fix) + (1 - share) * cross_entropy(mixed, mix),
    )
    soft = mixed_cross_entropy(mixed, fix, mix, share)
    mean, variance = (known.key("A10_fix_plus_mix", f"beta_.*_{moment}") for moment in ("mean", "variance"))
    alpha = _number(variance)
    known.check(
        "A10_fix_plus_mix",
        {
            "L_fix": l_fix,
            "L_mix": l_mix,
            "L_mix_as_soft_label_CE": soft,
            "L_combine": l_fix + case["b"] * soft,
            mean: 0.5,
            variance: 1 / (4 * (2 * alpha + 1)),
        },
    )


class _Linear(nn.Linear):
    """An encoder."""

    def __init__(self, inputs, width):
        super().__init__(inputs, width)
        self.width, self.reduction = width, 1


def test_a11_no_client_loss_reaches_the_anchor_head(known):
    name = "A11_anchor_head_untouched_on_client"
    case = known.inputs(name)
    (inputs, width), (_, classes), (_, anchor_width) = (
        map(int, layer) for layer in re.findall(r"Linear\((\d+),(\d+)\)", case["layers"])
    )
    torch.manual_seed(case["torch_seed"])
    network = Network(_Linear(inputs, width), width, nn.Linear(width, classes))
    network.add_head("anchor_head", nn.Linear(width, anchor_width))
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    optimiser = Sgd(
        learning_rate=known.decimal(case["lr"]),
        momentum=known.decimal(case["momentum"]),
        weight_decay=known.decimal(case["weight_decay"]),
    )
    sgd = optimiser.build(network)

    def steps():
        for step in range(case["steps"]):
            x = torch.randn(6, inputs, generator=torch.Generator().manual_seed(step))
            labels = torch.arange(6) % classes
            yield cross_entropy(network(x), labels) + mixed_cross_entropy(network(x * 0.5), labels, labels.flip(0), 0.3)

    take_steps(network, sgd, steps())
    head = [n for n in before if n.startswith("anchor_head.")]
    now = dict(network.named_parameters())
    assert all(now[n].grad is None for n in head)
    change = max((now[n] - before[n]).abs().max().item() for n in head)
    encoder = any(not torch.equal(now[n], before[n]) for n in before if n.startswith("encoder."))
    largest = max(before[n].abs().max().item() for n in head)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    sgd.step()
    decayed = max((now[n] - before[n]).abs().max().item() for n in head)
    decay = "anchor_head_change_after_one_step_with_zero_gradient"  # of another draw there: compared by what it must be
    expected = known.expected(name)[decay]
    known.check(name, {"anchor_head_change_grad_None": change, "encoder_changed": encoder, decay: expected})
    assert change == 0 and expected > 0
    assert math.isclose(decayed, case["lr"] * case["weight_decay"] * largest, rel_tol=1e-2)


def test_b7_similarity_per_pseudo_class(known):
    case = known.inputs("B7_similarity_scalars")
    q, model = _double(case["q_anchor"]), _double(case["q_global"])
    labels, selected = torch.tensor(case["pseudo_label"]), torch.tensor(case["selected"])
    sums = SimilaritySums(len(known.expected("B7_similarity_scalars")["w_hat"]), torch.device("cpu"))
    half = len(q) // 2
    for rows in (slice(0, half), slice(half, None)):  # sums run over batches and are divided once
        sums.add(q[rows], model[rows], labels[rows], selected[rows])
    means = sums.means().tolist()
    absent = [math.isnan(w) for w in means]
    known.check(
        "B7_similarity_scalars",
        {
            "cosines": (unit_rows(q) * unit_rows(model)).sum(1),
            "w_hat": [None if a else w for w, a in zip(means, absent, strict=True)],
            "counts": sums.counts(),
            "r": [0.0 if a else 1 - w for w, a in zip(means, absent, strict=True)],
        },
    )


def test_a_class_of_too_few_images_is_not_told_of():
    """Methods reference, section 10."""
    sums = SimilaritySums(3, torch.device("cpu"))
    q, model = torch.rand(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    sums.add(q, model, torch.tensor([0, 2, 2, 2, 1]), torch.tensor([True, True, True, True, False]))
    means, fewer = sums.means(), sums.means(2)
    np.testing.assert_array_equal(np.isnan(fewer), [True, True, False])
    assert fewer[2] == means[2]


def test_g2_the_pull_adds_the_distance_to_the_gradient(known):
    case = known.inputs("G2_proximal_gradient")
    received = _double(case["w_g"])

    def pull(mu):
        weights = _double(case["w"]).requires_grad_()
        penalty = proximal_penalty([weights], [received], mu)
        penalty.backward()
        return _double(case["grad"]) + weights.grad, penalty.item()

    (fedasync, penalty_rho), (fedprox, penalty_mu) = pull(case["rho"]), pull(case["mu_fedprox"])
    known.check(
        "G2_proximal_gradient",
        {"fedasync": fedasync, "fedprox": fedprox, "penalty_rho": penalty_rho, "penalty_mu": penalty_mu},
    )


def test_l1_flexmatch(known):
    name = "L1_flexmatch"
    case, expected = known.inputs(name), known.expected(name)
    tau, tables = case["tau"], {}
    for label, table in expected["tables"].items():
        counts, total = torch.tensor(table["counts"]), table["N"]
        thresholds = class_thresholds(counts, total, tau)
        tables[label] = {
            "counts": counts,
            "N": total,
            "beta": 2 * thresholds / (tau + thresholds),
            "thresholds": thresholds,
            "thresholds_without_warmup": class_thresholds(counts, int(counts.sum()), tau),
        }
    late = expected["tables"]["late"]
    latest = np.full(late["N"], -1)
    latest[: sum(late["counts"])] = np.repeat(np.arange(len(late["counts"])), late["counts"])
    curriculum = Curriculum(latest, len(late["counts"]), tau, torch.device("cpu"))
    used, confident = curriculum.masks(_double(case["max_prob"]), torch.tensor(case["label"]))
    known.check(
        name,
        {"tables": tables, "loss_mask_late": used.int(), "counted_for_curriculum": confident.int()},
    )


def test_the_curriculum_follows_the_latest_confident_class():
    curriculum = Curriculum(np.array([0, 0, -1, 1]), 3, 0.9, torch.device("cpu"))
    assert curriculum.counts.tolist() == [2, 1, 0]
    curriculum.update(torch.tensor([0, 2]), torch.tensor([2, 2]), torch.tensor([True, False]))
    assert curriculum.latest.tolist() == [2, 0, -1, 1]
    assert curriculum.counts.tolist() == [1, 1, 1]


def test_n1_balanced_softmax(known, monkeypatch):
    case = known.inputs("N1_balanced_softmax")
    monkeypatch.setattr(losses, "ABSENT_CLASS", case["eps_inside_log_for_the_absent_class"])
    logits, counts = _double([case["logits"]]), _double(case["counts"])
    classes = [torch.tensor([c]) for c in range(len(counts))]
    key = known.key("N1_balanced_softmax", "class_.*_absent_balanced")
    absent = counts.clone()
    absent[int(key.split("_")[1])] = 0
    weighted = counts * logits[0].exp()
    known.check(
        "N1_balanced_softmax",
        {
            "ce": [cross_entropy(logits, c) for c in classes],
            "balanced": [balanced_softmax(logits, c, log_prior(counts)) for c in classes],
            key: [balanced_softmax(logits, c, log_prior(absent)) for c in classes],
            "equals_weighted_softmax": -(weighted / weighted.sum()).log(),
        },
    )


def test_classes_without_anchors_are_never_chosen():
    prototypes, present = class_prototypes(_double([[1.0, 0.0]]), torch.tensor([1]), 2)
    scores = anchor_scores(_double([[-1.0, 0.0]]), prototypes, present)
    assert scores.tolist() == [[-math.inf, -1.0]]
    assert accept(scores, -2.0) == (torch.tensor([1]), torch.tensor([True]))


def test_l2_fixmatch_and_uda(known):
    case = known.inputs("L2_fixmatch_uda")
    weak, strong = _double(case["logits_weak"]), _double(case["logits_strong"])
    hard, confident = consistency_targets(weak, case["tau_fixmatch"], None)
    soft, certain = consistency_targets(weak, case["tau_uda"], case["T_uda"])
    fixmatch = consistency_loss(strong, hard, confident)
    uda = consistency_loss(strong, soft, certain)
    entropy = -(soft * soft.log()).sum(1)[certain].sum() / len(weak)
    known.check(
        "L2_fixmatch_uda",
        {
            "max_prob_weak": weak.softmax(1).max(1).values,
            "mask_fixmatch": confident.double(),
            "loss_fixmatch": fixmatch,
            "loss_fixmatch_divided_by_selected": fixmatch * len(weak) / confident.sum(),
            "loss_uda_ce": uda,
            "loss_uda_kl": uda - entropy,
        },
    )
