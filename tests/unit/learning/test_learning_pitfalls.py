"""Pitfalls of METHODS.md section 12 that local objectives and second heads could fall into; each test names its number."""

import numpy as np
import pytest
from learning_party import CLASSES, MODEL, Party, given, images_of, method_of

from anchorage.aggregation.shares import semianagg_code, semianagg_paper
from anchorage.errors import AnchorageError
from anchorage.learning import build_server_learner
from anchorage.learning.silo_learner import Networks

STATEFUL = [
    method_of("SemiAnAgg"),
    method_of("MOON"),
    method_of("RSCFed"),
    method_of("FedCon"),
    method_of("FedRoDDual"),
    method_of("SSILCDM", pseudoLabels={"threshold": "0"}),
]


def test_4_absent_classes_weigh_nothing_in_the_paper_s_order_and_code_is_flatter():
    """Number 4: the order of operations; an absent class gives r = 0, never NaN."""
    similarity = np.array([[0.2, np.nan, np.nan], [0.9, 0.5, np.nan], [np.nan, np.nan, np.nan]])
    paper, code = semianagg_paper(similarity), semianagg_code(similarity)
    np.testing.assert_allclose(paper, np.array([0.8 / 0.9, 0.1 / 0.9 + 1, 0]) / 2)
    assert np.isfinite(code).all() and np.ptp(code) < np.ptp(paper)
    assert method_of("SemiAnAgg").weighting.order == "Paper" != method_of("SemiAnAggCode").weighting.order


def test_6_another_random_anchor_is_noticed(tmp_path):
    """Number 6: a silo whose random anchor is not the server's says so instead of announcing meaningless similarities."""
    party = Party(method_of("SemiAnAgg"), given("None"), tmp_path / "a")
    other = Party(method_of("SemiAnAggSecondSeed"), given("None"), tmp_path / "b")
    sides = [p.server.side_channel(p.model, 1) for p in (party, other)]
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
    found = [[party.digest(number) for party in shared] for number in (1, 2)]
    assert [list(rounds) for rounds in zip(*found, strict=True)] == expected
    fresh = Party(method, given(labels), tmp_path / "fresh", labels, silo="a")
    assert fresh.digest(2) != expected[0][1], "the second round goes on from the first"


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
        before = network.local.weight.detach().clone()
        party.train()
        assert before.equal(network.local.weight) != moves


@pytest.mark.parametrize("name", ["BalancedSoftmax", "FedRoD", "SSILCDM"])
def test_17_balanced_losses_leave_the_test_alone(name):
    """Number 17: the logits are shifted in training only."""
    initial = build_server_learner(model=MODEL, method=method_of("FedAvg"), seed=1, anchors=None, test=images_of(30, 8))
    server = build_server_learner(model=MODEL, method=method_of(name), seed=1, anchors=None, test=images_of(30, 8))
    plain, balanced = (s.evaluate(s.initialise(), 0) for s in (initial, server))
    assert plain.metrics == balanced.metrics
    assert np.array_equal(plain.embeddings, balanced.embeddings)


def test_the_labelled_prior_of_all_silos_is_told(tmp_path):
    party = Party(method_of("OrigACR"), given("Partial"), tmp_path, "Partial")
    assert party.train().side["label_counts"].tolist() == [4, 3, 3]
    assert set(party.task().side) == {"prior"} and party.task().side["prior"].shape == (CLASSES,)
    assert Party(method_of("SSILCDM"), given("Partial"), tmp_path / "b", "Partial").train().side == {}
