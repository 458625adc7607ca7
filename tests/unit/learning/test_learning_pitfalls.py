"""Pitfalls of the methods reference, section 12 that local objectives and second heads could fall into; each test names its number."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from learning_party import CLASSES, DENSE, EVERY, MODEL, Party, given, images_of, method_of
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook

from anchorage.algorithms.decomposition import Parts, agreement
from anchorage.api.errors import AnchorageError
from anchorage.api.method import ValidationCycle
from anchorage.learning.adaptive import AdaptiveRound
from anchorage.learning.draws import Draws
from anchorage.learning.learners import build_server_learner
from anchorage.learning.local_training import Batching
from anchorage.learning.silo_networks import Networks
from anchorage.learning.silo_round import LocalImages, Work
from anchorage.learning.validation_cycle import Cycle
from anchorage.methods.registry import PRESETS
from anchorage.pieces.pseudo_labels.consistency import consistency_loss, consistency_targets
from anchorage.pieces.pseudo_labels.flexmatch import LATEST, Curriculum, FlexMatchLosses
from anchorage.pieces.regulariser.moon import kept_models, previous_models
from anchorage.pieces.second_head.balanced import AdjustedLosses, Balanced
from anchorage.pieces.server_objective.label_contrastive import label_contrastive
from anchorage.pieces.weighting.semianagg import semianagg_code, semianagg_paper
from anchorage.transport.messages import Task, TaskKind

STATEFUL = [
    method_of("SemiAnAgg"),
    method_of("MOON"),
    method_of("RSCFed"),
    method_of("FedCon"),
    method_of("FedRoDDual"),
    method_of("SSILCDM", pseudoLabels={"threshold": "0"}),
]


LABELLING = [
    method_of(name, pseudoLabels={"threshold": threshold, **options})
    for name, threshold, options in [
        ("FedAvgFixMatch", "0", {}),
        ("FedAvgUDA", "0", {}),
        ("FedAvgSemi", "0.95", {}),
        ("SemiFL", "0", {}),
        ("FedAnchorEnsemble", "0", {}),
        ("CBAFed", "0.2", {}),
        ("SSILCDM", "0", {}),
        ("FedMatchServer", "0", DENSE),
    ]
]
LABELLING.append(method_of("RSCFed"))


def test_2_a_confidence_at_its_threshold_counts_in_its_own_dtype(tmp_path):
    """Number 2: SemiFL, FixMatch and FlexMatch take what is at least the threshold, compared in one dtype."""
    threshold = 0.95
    at = torch.tensor([threshold], dtype=torch.float32)
    assert at.double() < threshold, "as a double it would be below"
    curriculum = Curriculum(np.array([0, 0]), 2, threshold, torch.device("cpu"))
    assert curriculum.masks(at, torch.tensor([0])) == (torch.tensor([True]), torch.tensor([True]))
    for logits, wanted in (([0.0, 0.0, -torch.inf], True), ([0.0, 0.1, 0.0], False)):
        assert consistency_targets(torch.tensor([logits]), 0.5, None)[1].item() == wanted
    party = Party(method_of("SemiFL", pseudoLabels={"threshold": "0.5"}), given("None"), tmp_path)
    begun = party.learner._round(party.task(), party.task().auxiliary_data, {}, {})
    halves = replace(begun, network=lambda images: torch.tensor([[0.0, 0.0, -torch.inf]]).expand(len(images), -1))
    assert party.method.pseudo_labels.label(halves, np.arange(4))[1].all()


def test_3_half_precision_embeddings_are_compared_in_float32():
    """Number 3: at tau 0.01 a similarity of 1 is a score of 100, and half precision ends at 65504: its exponential would not be."""
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    half = embeddings.half().requires_grad_()
    loss = label_contrastive(half, labels, 3, 1e-5)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(half.grad).all()
    torch.testing.assert_close(loss, label_contrastive(half.detach().float(), labels, 3, 1e-5))


def test_4_absent_classes_weigh_nothing_in_the_paper_s_order_and_code_is_flatter():
    """Number 4: the order of operations; an absent class gives r = 0, never NaN."""
    similarity = np.array([[0.2, np.nan, np.nan], [0.9, 0.5, np.nan], [np.nan, np.nan, np.nan]])
    paper, code = semianagg_paper(similarity), semianagg_code(similarity)
    np.testing.assert_allclose(paper, np.array([0.8 / 0.9, 0.1 / 0.9 + 1, 0]) / 2)
    assert np.isfinite(code).all() and np.ptp(code) < np.ptp(paper)
    assert method_of("SemiAnAgg").weighting.order == "Paper" != method_of("SemiAnAggCode").weighting.order


@pytest.mark.parametrize("method", LABELLING, ids=lambda m: m.name)
def test_5_who_labels_is_in_eval_mode(tmp_path, method):
    """Number 5: without gradients nothing ever runs on a batch's own statistics."""
    passes = set()

    def note(module, _):
        if isinstance(module, _BatchNorm):
            passes.add((module.training, torch.is_grad_enabled()))

    party = Party(method, given("Partial"), tmp_path, "None" if method.server_training.trains else "Partial")
    watching = register_module_forward_pre_hook(note)
    try:
        assert party.train().update is not None
    finally:
        watching.remove()
    assert passes == {(True, True), (False, False)}


def test_5_helpers_label_in_eval_mode(tmp_path):
    """Number 5: FedMatch's helpers label with running statistics, also in the middle of a step."""
    party = Party(method_of("FedMatchServer", pseudoLabels=DENSE), given("None"), tmp_path)
    parts, images = Parts(party.learner._network), torch.rand(4, 1, 8, 8)
    weights = parts.with_psi({name: p.detach() for name, p in parts.psi.items()})
    expected = parts.probabilities(weights, images)
    parts.network.train()
    torch.testing.assert_close(parts.probabilities(weights, images), expected)
    assert parts.network.training


def test_5_a_scored_model_brings_its_own_statistics(tmp_path):
    """Number 5: no silo scores another's model with statistics of its own."""
    party = Party(method_of("DVW"), given("All"), tmp_path, "All")
    update = party.train().update
    party.learner.evaluate(Task("e", TaskKind.EVALUATE, 1, update), party.update)
    scored = party.learner._networks.scoring.state_dict()
    counted = {name: array for name, array in party.arrays().items() if "running" in name}
    assert len(counted) == 8
    assert all(np.array_equal(scored[name].numpy(), array) for name, array in counted.items())


def test_6_another_random_anchor_is_noticed(tmp_path):
    """Number 6: a silo whose random anchor is not the server's says so instead of announcing meaningless similarities."""
    party = Party(method_of("SemiAnAgg"), given("None"), tmp_path / "a")
    other = Party(method_of("SemiAnAggSecondSeed"), given("None"), tmp_path / "b")
    sides = [p.server.auxiliary_data(p.model, 1) for p in (party, other)]
    assert sides[0]["random_anchor"].tobytes() != sides[1]["random_anchor"].tobytes()
    assert other.train(1, sides[1]).update is not None
    with pytest.raises(AnchorageError, match="RandomAnchorDiffers"):
        party.train(1, sides[1])


@pytest.mark.parametrize("method", STATEFUL, ids=lambda m: m.name)
def test_8_state_is_the_silo_s_own(tmp_path, method):
    """Number 8: what persists is keyed by silo, also where silos share folder and networks, and does not start anew in each round."""
    labels = "Partial"
    alone = [Party(method, given(labels), tmp_path / silo, labels, silo=silo) for silo in ("a", "b")]
    expected = [[party.digest(number) for number in (1, 2)] for party in alone]
    shared = [Party(method, given(labels), tmp_path / "shared", labels, silo=silo) for silo in ("a", "b")]
    networks = Networks(shared[0].run, shared[0].learner._device)
    for party in shared:
        party.learner._networks, party.learner._network = networks, networks.training
    digests = [[party.digest(number) for party in shared] for number in (1, 2)]
    assert [list(rounds) for rounds in zip(*digests, strict=True)] == expected
    fresh = Party(method, given(labels), tmp_path / "fresh", labels, silo="a")
    assert fresh.digest(2) != expected[0][1], "the second round goes on from the first"


@pytest.mark.parametrize("persist", [True, False])
def test_8_momentum_and_counters_follow_their_switch(tmp_path, persist):
    """Number 8: whether momentum and FlexMatch's counters outlive a round is what the method says, and not its accident."""
    kind = "Persist" if persist else "Reset"
    method = method_of("FedAvgSemi", local={"optimiser": {"sgd": {"state": kind}}}, pseudoLabels={"curriculum": kind})
    party = Party(method, given("Partial"), tmp_path, "Partial")
    party.train(1)
    state = party.learner._state.of(1)
    assert any(name.startswith("momentum/") for name in state) == persist
    assert ("flexmatch/latest" in state) == persist
    fresh = Party(method, given("Partial"), tmp_path / "fresh", "Partial")
    assert (party.digest(2) != fresh.digest(2)) == persist


@pytest.mark.parametrize("name", sorted(PRESETS.keys() - {method.name for method, _ in EVERY}))
def test_9_every_other_preset_trains(tmp_path, name):
    """Number 9: with test_every_method_trains no preset is left whose silos have no gradient, or move by weight decay alone."""
    party = Party(method_of(name), given("All"), tmp_path, "All")
    gradients = party.watch_gradients()
    assert party.train().update is not None
    received = party.model.arrays()
    assert all(not np.array_equal(array, received[name]) for name, array in party.arrays().items())
    trains = "untrained" not in party.method.facts()  # the moments head: its silos sum up
    assert all((size > 0) == trains for name, size in gradients.items() if name in received)


def test_10_a_masked_mean_is_over_the_whole_batch(tmp_path):
    """Number 10: what two halves of a batch are taught adds up to what the whole is, so nothing divides by the accepted alone."""
    party = Party(method_of("SSILCDM", pseudoLabels={"threshold": "0"}), given("None"), tmp_path)
    network = party.learner._network.train()
    images, labels = torch.rand(8, 1, 8, 8), torch.arange(8) % CLASSES
    masks = [torch.arange(8) < 2, torch.arange(8) >= 2, torch.ones(8, dtype=torch.bool)]
    views = party.learner._images.views
    adjusted = AdjustedLosses(Balanced(), network, network, views, np.arange(8), 0, None, torch.ones(CLASSES))
    losses = [[adjusted._loss(images, (labels, m), (labels, m)).item() for m in masks]]
    weak = torch.rand(8, CLASSES)
    losses.append([consistency_loss(weak, torch.eye(CLASSES)[labels], m).item() for m in masks])
    plain = Party(method_of("FedAvgSemi"), given("None"), tmp_path)
    eight = LocalImages(views, np.full(26, -1), np.arange(8), np.empty(0, np.int64), np.empty(0, np.int64))
    begun = replace(plain.learner._round(plain.task(), plain.task().auxiliary_data, {}, {}), images=eight)
    begun.network.train()
    taught = []
    for mask in masks:
        curriculum = Curriculum(np.full(8, -1), CLASSES, 0.95, torch.device("cpu"))
        curriculum.masks = lambda confidence, labels, mask=mask: (mask, mask)
        flexmatch = FlexMatchLosses(begun, begun.copy_received().eval(), curriculum)
        (loss,) = flexmatch.losses(Batching(1, 8, 1), Draws(1, 1, "north"))
        taught.append(loss.item())
    for first, second, full in [*losses, taught]:
        assert first > 0 and first + second == pytest.approx(full, rel=1e-5)


def test_8_flexmatch_goes_on_from_what_was_kept(tmp_path):
    """Number 8: with counters that start anew a round would begin by taking every image."""
    party = Party(method_of("FedAvgSemi", pseudoLabels={"threshold": "0.34"}), given("Partial"), tmp_path, "Partial")
    partial_labels = np.arange(16) % (CLASSES + 1) - 1
    flexmatch = party.method.pseudo_labels
    later = party.learner._round(party.task(2), {}, {LATEST: partial_labels}, {})
    assert flexmatch.objective(later).kept()[LATEST].tolist() == partial_labels.tolist()
    first = party.learner._round(party.task(1), {}, {}, {})
    labels, sure = flexmatch.label(first, first.images.unlabelled)
    assert sure.any()
    assert flexmatch.objective(first).kept()[LATEST].tolist() == torch.where(sure, labels, -1).tolist()


def test_8_moon_keeps_the_newest_model_first():
    """Number 8: a silo is pushed away from its last model, not from an older one."""
    network, older = torch.nn.Linear(2, 1), {"weight": np.zeros((1, 2)), "bias": np.ones(1)}
    newest, next_one = previous_models(kept_models(network, [older]), 2)
    assert np.array_equal(newest["weight"], network.weight.detach()) and next_one["bias"] == older["bias"]


def test_10_agreement_is_a_mean_over_images_and_helpers():
    """Number 10: FedMatch's divergence does not grow with the batch or the number of helpers."""
    own_probabilities, helper = torch.rand(4, CLASSES).softmax(1), torch.rand(4, CLASSES).softmax(1)
    once = agreement(own_probabilities, [helper])
    torch.testing.assert_close(once, (helper * (helper / own_probabilities).log()).sum(1).mean())
    torch.testing.assert_close(
        agreement(torch.cat([own_probabilities, own_probabilities]), [torch.cat([helper, helper])] * 2), once
    )


def test_12_staleness_has_own_steps_and_may_reach_its_limit():
    """Number 12: a cycle goes on at the limit and ends above it, by what others committed and the silo's own steps."""
    rules = ValidationCycle(plateau_percent="0", tombstones=100, max_epochs=4)
    assert [Cycle(rules, 1.0, 30).ends(0.5, staleness) for staleness in (29, 30, 31)] == [False, False, True]
    falling = count(0, -1)
    for others, epochs in ((24, 3), (25, 2), (28, 1), (18, 4)):
        work = Work(iter([torch.zeros(())] * 12), 12, {}, lambda: 0)
        auxiliary, state = {"committed_steps": np.array(1000)}, {"cycle/staleness": np.full(20, 30)}
        adaptive = AdaptiveRound(rules, auxiliary, state, lambda: (100 + next(falling), np.zeros(2, np.int64)))
        adaptive.hearing(lambda done, total, others=others: 1000 + others)(0, 0)
        assert len(list(adaptive.shorten(work).losses)) == 3 * epochs


@pytest.mark.parametrize(
    ("name", "decayed"), [("FedAvg", True), ("FedAvgSemi", False), ("SemiAnAgg", False), ("FedCLR", False)]
)
def test_15_the_classifier_is_decayed_where_its_method_says_so(tmp_path, name, decayed):
    """Number 15: SemiAnAgg's classifier is not; encoders are."""
    method = method_of(name, local={"optimiser": {"sgd": {"weightDecay": "0.1"}}})
    party = Party(method, given("All"), tmp_path, "All")
    rates = {
        id(p): group["weight_decay"]
        for group in party.learner._optimiser({}, 0.0).param_groups
        for p in group["params"]
    }
    network = party.learner._network
    assert {rates[id(p)] for p in network.classifier.parameters()} == ({0.1} if decayed else {0.0})
    assert {rates[id(p)] for p in network.encoder.parameters()} == {0.1}


def test_15_what_no_loss_reaches_is_not_decayed(tmp_path):
    """Number 15: the anchor head stays where it is at a silo, whatever decay and momentum are."""
    method = method_of(
        "FedAnchor", pseudoLabels={"threshold": "0"}, local={"optimiser": {"sgd": {"weightDecay": "0.5"}}}
    )
    party = Party(method, given("None"), tmp_path)
    received = party.model.arrays()
    party.train()
    heads = {n: t for n, t in party.learner._network.state_dict().items() if n.startswith("anchor_head.")}
    assert len(heads) == 2 and all(np.array_equal(t.numpy(), received[n]) for n, t in heads.items())
    network = party.learner._network
    sgd = method.local.optimiser.build(network)
    network(torch.rand(4, 1, 8, 8)).sum().backward()
    sgd.step()
    assert all(np.array_equal(network.state_dict()[n].numpy(), received[n]) for n in heads)


@pytest.mark.parametrize("name", ["FedRoD", "FedRoDDual", "FedCon"])
def test_what_stays_at_the_silo_never_travels(tmp_path, name):
    labels = "None" if name == "FedCon" else "Partial"
    party = Party(method_of(name), given(labels), tmp_path, labels)
    network = party.learner._network
    before = {n: t.clone() for n, t in network.state_dict().items() if n.startswith("local.")}
    party.train()
    layouts = {t.name for t in (*party.server.down.tensors, *party.server.up.tensors)}
    assert before and not any(tensor.startswith("local.") for tensor in layouts)
    assert all(not t.equal(network.state_dict()[n]) for n, t in before.items()), "it is trained"
    if name == "FedCon":
        travels = {tensor.name for tensor in party.server.up.tensors}
        assert all(tensor.startswith("encoder.") for tensor in travels)


def test_a_personal_head_of_a_silo_without_labels_rests_unless_it_is_dual(tmp_path):
    for name, moves in (("FedRoD", False), ("FedRoDDual", True)):
        party = Party(method_of(name), given("None"), tmp_path / name)
        network = party.learner._network
        before = network.head("local").weight.detach().clone()
        party.train()
        assert before.equal(network.head("local").weight) != moves


@pytest.mark.parametrize("name", ["BalancedSoftmax", "FedRoD", "SSILCDM"])
def test_17_balanced_losses_leave_the_test_alone(name):
    """Number 17: the logits are shifted in training only."""
    initial = build_server_learner(model=MODEL, method=method_of("FedAvg"), seed=1, validation=images_of(30, 8))
    server = build_server_learner(model=MODEL, method=method_of(name), seed=1, validation=images_of(30, 8))
    plain, balanced = (s.evaluate(s.initialise(), 0) for s in (initial, server))
    assert plain.metrics == balanced.metrics
    assert np.array_equal(plain.embeddings, balanced.embeddings)


def test_the_labelled_prior_of_all_silos_is_told(tmp_path):
    party = Party(method_of("OrigACR"), given("Partial"), tmp_path, "Partial")
    assert party.train().auxiliary_data["label_counts"].tolist() == [4, 3, 3]
    assert set(party.task().auxiliary_data) == {"prior"} and party.task().auxiliary_data["prior"].shape == (CLASSES,)
    assert Party(method_of("SSILCDM"), given("Partial"), tmp_path / "b", "Partial").train().auxiliary_data == {}


def test_balanced_softmax_by_all_silos_shares_is_that_of_their_images_in_one_place(tmp_path):
    """The shift is the logarithm of the shares that the server has added up; they are equal in the first round."""
    method = method_of("FedAvg", localLoss={"balancedSoftmax": {"shares": "Federation"}})
    party = Party(method, given("All"), tmp_path, "All")
    counts = party.train().auxiliary_data["label_counts"]
    assert counts.tolist() == np.bincount(given("All").labels, minlength=CLASSES).tolist()
    uniform, shares = np.full(CLASSES, 1 / CLASSES), np.array([0.7, 0.2, 0.1])
    assert np.allclose(party.task().auxiliary_data["prior"], uniform)
    silo_round = party.learner._round(party.task(1, {"prior": shares}), {"prior": shares}, {}, {})
    logits, labels = torch.tensor([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]), torch.tensor([0, 2])
    expected = functional.cross_entropy(logits + torch.from_numpy(np.log(shares)).float(), labels)
    torch.testing.assert_close(silo_round.labelled()[1](logits, labels), expected)
    balanced_method = method_of("BalancedSoftmax")
    assert Party(balanced_method, given("All"), tmp_path / "own", "All").train().auxiliary_data == {}


def test_17_silos_score_models_by_raw_outputs(tmp_path):
    """Number 17: validation, too, is without the shift, which would turn every answer here into the frequent class."""
    images = images_of(60)
    few = np.flatnonzero((images.labels == 0) | (np.arange(60) < 9))
    rare = images.select(few)
    method = method_of("DVW", localLoss={"balancedSoftmax": {}}, weighting={"validationPercent": 50})
    learner = Party(method, rare, tmp_path, "All").learner
    held = rare.labels[learner._images.validation]
    always = torch.tensor([0.0, 0.0, 0.1])
    assert learner._score(lambda images: always.expand(len(images), -1), 1).tolist() == [(held == 2).sum(), len(held)]
    assert 0 < (held == 2).sum() < (held == 0).sum()
