"""Exact shortcuts of the methods reference, 9.2 against their plain forms, which live here alone. Drawn cases beside the known answers;
tests/shortcuts.md lists them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from learning_party import MODEL, Party, given, images_of, method_of
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, softplus

from anchorage.algorithms.losses import mixed_cross_entropy
from anchorage.algorithms.pseudo_labels import unit_rows
from anchorage.learning.learners import build_server_learner
from anchorage.learning.weights import load_arrays
from anchorage.pieces.input_mixing.mixed_inputs import mixed_loss
from anchorage.pieces.pseudo_labels.anchor_similarity import (
    AnchorSimilarity,
    accept,
    anchor_scores,
    class_prototypes,
    ensemble_scores,
    unreachable,
)
from anchorage.pieces.regulariser.moon import Moon, model_contrast
from anchorage.pieces.server_objective.label_contrastive import class_terms
from anchorage.pieces.server_step.control_variates import COUNTED, SiloVariates
from anchorage.pieces.weighting import semianagg
from anchorage.pieces.weighting.semianagg import build_random_anchor

few = settings(max_examples=20)
seeds = st.integers(0, 2**31)


def rows(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def classes(seed: int, count: int, most: int) -> Tensor:
    return torch.randint(most, (count,), generator=torch.Generator().manual_seed(seed))


@few
@drawn(seeds, st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
def test_1_2_prototypes_and_mean_views(seed: int, anchors: int, num_classes: int, views: int) -> None:
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


@few
@drawn(seeds, st.integers(1, 12), st.integers(1, 5), st.floats(0, 1))
def test_4_a_class_is_reached_up_to_the_length_of_its_prototype(
    seed: int, anchors: int, num_classes: int, threshold: float
) -> None:
    prototypes, present = class_prototypes(rows(seed, anchors, 6), classes(seed, anchors, num_classes), num_classes)
    lost = unreachable(prototypes, threshold)
    nearest = anchor_scores(
        prototypes, prototypes, present
    ).diagonal()  # to a class nothing is nearer than its prototype
    sure = (prototypes.norm(dim=1) - threshold).abs() > 1e-9
    assert torch.equal(lost[sure], nearest[sure] <= threshold)
    labels, accepted = accept(anchor_scores(rows(seed + 1, 40, 6), prototypes, present), threshold + 1e-9)
    assert not lost[labels[accepted]].any()


@few
@drawn(seeds, st.floats(0, 1))
def test_5_mixup_is_one_cross_entropy(seed: int, share: float) -> None:
    logits, one, other = rows(seed, 7, 4).requires_grad_(), classes(seed, 7, 4), classes(seed + 1, 7, 4)
    soft = mixed_cross_entropy(logits, one, other, share)
    plain = share * cross_entropy(logits, one) + (1 - share) * cross_entropy(logits, other)
    torch.testing.assert_close(soft, plain)
    torch.testing.assert_close(torch.autograd.grad(soft, logits), torch.autograd.grad(plain, logits))


@few
@drawn(seeds, st.integers(1, 9), st.integers(1, 4), st.sampled_from([0.1, 0.5, 2.0]))
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
@drawn(seeds, st.floats(0, 1), st.integers(1, 5))
def test_9_the_mean_label_of_a_block_is_as_good_as_its_labels(seed: int, share: float, block: int) -> None:
    """For the block's mean image each own label counts alike; in the image the mean is another matter (methods reference, 6.4)."""
    network, images, labels = torch.nn.Linear(4, 3, dtype=torch.float64), rows(seed, 6, 4), classes(seed, 6, 3)
    mean, class_rows = rows(seed + 1, block, 4).mean(0, keepdim=True), classes(seed + 1, block, 3)
    rows_of_labels = torch.nn.functional.one_hot(class_rows, 3).double().mean(0, keepdim=True)
    short = mixed_loss(network, cross_entropy, images, labels, mean, rows_of_labels, share)
    each = [mixed_loss(network, cross_entropy, images, labels, mean, label.expand(6), share) for label in class_rows]
    torch.testing.assert_close(short, torch.stack(each).mean())


@few
@drawn(seeds, st.sampled_from([0.1, 0.5, 1.0]))
def test_7_moon_is_a_softplus_and_its_first_round_is_none(seed: int, tau: float) -> None:
    z, received, previous = (rows(seed + i, 6, 4) for i in range(3))
    s_received, s_previous = cosine_similarity(z, received), cosine_similarity(z, previous)
    torch.testing.assert_close(
        model_contrast(z, received, [previous], tau), softplus((s_previous - s_received) / tau).mean()
    )
    first_round: Any = SimpleNamespace(kept={}, copy_received=lambda: None)
    first, _ = Moon(temperature=str(tau)).contrast(first_round)
    assert first(z, z) == 0
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(model_contrast(z, received, [received], tau), z)
    assert gradient.abs().max() < 1e-15, "what is left out has no gradient"


@few
@drawn(seeds, st.integers(1, 6), st.floats(0.001, 0.3))
def test_10_option_two_is_the_mean_gradient_of_plain_steps(seed: int, steps: int, rate: float) -> None:
    network = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    images, targets, community = rows(seed, 8, 3), rows(seed + 1, 8, 2), rows(seed + 2, 2, 3)
    state = {"control/weight": rows(seed + 3, 2, 3).numpy(), COUNTED: np.array([0])}
    silo_round: Any = SimpleNamespace(
        network=network,
        received={"control.weight": community.numpy()},
        kept=state,
        auxiliary_data={COUNTED: np.array([1])},
    )
    controls = SiloVariates(silo_round)
    shift, total = community - torch.from_numpy(state["control/weight"]), torch.zeros(2, 3, dtype=torch.float64)
    sgd = torch.optim.SGD(network.parameters(), lr=rate)
    with controls.stepping():
        for _ in range(steps):
            sgd.zero_grad()
            (network(images) - targets).square().mean().backward()
            total += network.weight.grad - shift
            sgd.step()
    controls.trained(steps * rate)
    np.testing.assert_allclose(controls.kept()["control/weight"], total / steps, rtol=1e-7, atol=1e-9)


def test_16_a_silo_counts_right_and_wrong_as_its_confusion_matrix_would(tmp_path: Path) -> None:
    similarities = {}
    for metric in ("MicroF1", "MacroF1"):
        method = method_of("DVW", weighting={"metric": metric, "validationPercent": 40})
        similarities[metric] = (
            Party(method, given("All"), tmp_path / metric, "All").train().auxiliary_data["validation"]
        )
    matrix = similarities["MacroF1"]
    assert similarities["MicroF1"].tolist() == [np.trace(matrix), matrix.sum()]
    assert matrix.sum() > np.trace(matrix) > 0


def test_18_the_own_score_is_that_of_the_last_validation_and_costs_no_pass(tmp_path: Path) -> None:
    method = method_of(
        "AsyncDVWAdaptive", local={"cycle": {"maxEpochs": 3, "tombstones": 100}}, weighting={"validationPercent": 40}
    )
    party, passes = Party(method, given("All"), tmp_path, "All"), []
    validated = party.learner._validate
    party.learner._validate = lambda *arguments: passes.append(1) or validated(*arguments)  # type: ignore[method-assign]
    announced = party.train(auxiliary_data={"committed_steps": np.array(0)})
    assert announced.metrics["epochs"] == 3
    assert len(passes) == 1 + 3, "once as received, and behind every epoch"
    assert announced.auxiliary_data["validation"].tolist() == validated(party.learner._network, 1)[1].tolist()


def test_25_features_by_the_random_anchor_come_from_the_seed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept while the process lives and never stored: the seed alone gives the same bytes."""
    party = Party(method_of("SemiAnAgg"), given("None"), tmp_path)
    first = party.server.auxiliary_data(party.model, 1)["random_anchor"]
    with monkeypatch.context() as without:
        without.delattr(semianagg, "build_random_anchor")
        assert party.server.auxiliary_data(party.model, 2)["random_anchor"] is first, "the server draws it once"
    weighting = party.method.weighting
    begun = party.learner._round(party.task(), party.task().auxiliary_data, {}, {})
    features = weighting.anchor_features(begun)
    assert weighting.anchor_features(begun) is features
    party.restart()
    views = party.learner._images.views
    assert torch.equal(
        weighting.anchor_features(party.learner._round(party.task(), party.task().auxiliary_data, {}, {})), features
    )
    encoder = build_random_anchor(party.run.model, party.run.seed)
    each = torch.cat([encoder(views.plain(torch.tensor([i]))) for i in range(len(views))])
    torch.testing.assert_close(features, each / each.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("anchors", ["Prototypes", "Raw"])
def test_29_labels_of_a_round_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anchors: str) -> None:
    """The plain form labels every image anew in every epoch, by a frozen copy of the received model."""
    slots = {"pseudoLabels": {"threshold": "0.9965", "anchors": anchors}, "local": {"epochs": 3}}
    party = Party(method_of("FedAnchor", **slots), given("None"), tmp_path)
    made: list[tuple[Tensor, Tensor]] = []
    label = AnchorSimilarity.label
    monkeypatch.setattr(AnchorSimilarity, "label", lambda *arguments: made.append(label(*arguments)) or made[-1])
    announced = party.train()
    assert len(made) == 1 and 0 < announced.samples["selected"] == int(made[0][1].sum()) < 26
    assert len(party.steps) >= 3
    party.restart()
    begun = party.learner._round(party.task(), party.task().auxiliary_data, {}, party.model.arrays())
    load_arrays(party.learner._network, begun.received)
    each = [label(party.method.pseudo_labels, begun, np.array([i])) for _ in range(2) for i in range(26)]
    for once, batched in zip(made[0], (torch.cat(part) for part in zip(*each, strict=True)), strict=True):
        assert torch.equal(once.repeat(2), batched)


def test_29_the_server_looks_at_its_anchors_once_per_model(tmp_path: Path) -> None:
    party, batches = Party(method_of("FedAnchor", pseudoLabels={"threshold": "0.9987"}), given("None"), tmp_path), []
    party.server._network.anchor_head.register_forward_hook(lambda *_: batches.append(1))
    auxiliary = party.server.auxiliary_data(party.model, 1)
    assert party.server.auxiliary_data(party.model, 2) == auxiliary and len(batches) == 1
    trained, metrics = party.server.train(party.model, 1)
    batches.clear()
    rebuilt = build_server_learner(model=MODEL, method=party.method, seed=1, anchors=images_of(12, 9))
    for name, array in rebuilt.auxiliary_data(trained, 2).items():
        np.testing.assert_array_equal(party.server.auxiliary_data(trained, 2)[name], array)
    assert not batches, "the training made them for the next round already"
    lengths = np.linalg.norm(rebuilt.auxiliary_data(trained, 2)["prototypes"], axis=1)
    assert metrics["unreachable_classes"] == (lengths <= 0.9987).sum() == 2, lengths
