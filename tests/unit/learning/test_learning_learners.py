"""Silo learners end to end on small synthetic images: what they train, announce, keep and refuse."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from learning_party import (
    ANCHOR,
    CLASSES,
    EVERY,
    MODEL,
    SEMI,
    Party,
    given,
    images_of,
    method_of,
)

from anchorage.api.errors import AnchorageError
from anchorage.learning.learners import build_server_learner
from anchorage.learning.weights import load
from anchorage.methods.preset import auxiliary_arrays
from anchorage.pieces.pseudo_labels.prototypes import Prototypes
from anchorage.transport.tensors.chunks import Manifest


@pytest.mark.parametrize(("method", "labels"), EVERY)
def test_every_method_trains_and_repeats_to_the_same_bytes(tmp_path, method, labels):
    first = Party(method, given(labels), tmp_path / "a", labels)
    gradients = first.watch_gradients()
    announcement = first.train()
    assert announcement.update is not None
    learnt = {name for name in first.arrays() if name in gradients}
    if isinstance(method.pseudo_labels, Prototypes):  # class means fill in the classifier
        learnt -= {name for name in learnt if name.startswith("classifier.")}
    assert learnt <= {name for name, size in gradients.items() if size > 0}, "no parameter moves by decay alone"
    assert announcement.update.layout == first.server.up.digest
    up = first.server.up
    assert Manifest.of(up.digest, first.update).digest == announcement.update.digest
    digest = Manifest.of(up.digest, first.update[: up.nbytes].copy()).digest
    assert first.steps[-1][0] == first.steps[-1][1] == len(first.steps) > 0
    assert announcement.samples["train"] > 0
    received = first.model.arrays()
    changed = [n for n, a in first.arrays().items() if not np.array_equal(a, received[n])]
    assert set(changed) == set(first.arrays()), (
        "every tensor that travels was trained"
    )  # methods reference, section 12, number 9
    for task_data, up in (
        (first.task().auxiliary_data, False),
        (announcement.auxiliary, True),
    ):  # methods reference, section 12, number 19
        assert set(task_data) <= {array.name for array in auxiliary_arrays(method, up=up)}, "what travels is declared"
    counters = [array for name, array in first.arrays().items() if name.endswith("num_batches_tracked")]
    assert all(array.dtype == np.int64 for array in counters)

    second = Party(method, given(labels), tmp_path / "b", labels)
    other = Party(method, given(labels), tmp_path / "c", labels, seed=2)
    other.train()  # other work in between changes nothing
    second.learner.evaluate(second.task(), second.model.buffer())
    assert second.digest() == digest
    first.restart()
    assert first.digest() == digest, "a repeated task gives the same bytes"


def test_silos_draw_differently(tmp_path):
    one, two = (Party(ANCHOR[0], given("None"), tmp_path / s, silo=s) for s in ("a", "b"))
    assert one.digest() != two.digest()


def test_the_thread_count_of_the_caller_does_not_matter(tmp_path):
    import torch

    before = torch.get_num_threads()
    party = Party(ANCHOR[0], given("None"), tmp_path / "a")
    expected = party.digest()
    torch.set_num_threads(2)
    try:
        assert party.digest() == expected
        names: list[str] = []
        thread = threading.Thread(target=lambda: names.append(party.digest()))
        thread.start()
        thread.join()
        assert names == [expected]
    finally:
        torch.set_num_threads(before)


def test_what_is_announced(tmp_path):
    images = given("Partial")
    party = Party(method_of("SemiAnAgg"), images, tmp_path, "Partial")
    announcement = party.train()
    assert {k: announcement.samples[k] for k in ("train", "labelled", "unlabelled")} == {
        "train": 26, "labelled": 10, "unlabelled": 16,
    }  # fmt: skip
    similarity = announcement.auxiliary_data["similarity"]
    assert similarity.shape == (CLASSES,) and similarity.dtype == np.float64
    assert np.isnan(similarity).sum() < CLASSES or announcement.samples["selected"] == 0
    assert set(announcement.metrics) == {"loss", "acceptance", "seconds"}


@pytest.mark.parametrize("name", ["SemiAnAgg", "FedAnchor"])
def test_19_a_class_of_few_confident_images_is_not_told_of(tmp_path, name):
    """Methods reference, section 12, number 19: such a mean would be nearly an image's own."""
    auxiliary_arrays = []
    for minimum in (1, 9, 27):  # of 26 images, 9, 9 and 8 of the classes
        weighting = {"semiAnAgg": {"minimumPerClass": minimum}}
        method = method_of(name, pseudoLabels={"threshold": "0"}, weighting=weighting)
        auxiliary_arrays.append(
            Party(method, given("None"), tmp_path / str(minimum)).train().auxiliary_data["similarity"]
        )
    one, some, none = (np.isfinite(similarity) for similarity in auxiliary_arrays)
    assert one.any() and none.sum() == 0 and (some <= one).all()
    np.testing.assert_array_equal(auxiliary_arrays[1][some], auxiliary_arrays[0][some])


def test_labelled_silos_say_nothing_of_similarity(tmp_path):
    announcement = Party(method_of("SemiAnAgg"), given("All"), tmp_path, "All").train()
    assert np.isnan(announcement.auxiliary_data["similarity"]).all()
    assert announcement.samples["selected"] == 0


def test_labels_of_a_silo_without_labels_are_not_looked_at(tmp_path):
    images = given("None")
    bare = images.without_labels()
    shown, hidden = (Party(method_of("SemiAnAgg"), i, tmp_path / n) for i, n in ((images, "a"), (bare, "b")))
    assert shown.digest() == hidden.digest()


def test_raw_anchors_and_prototypes_give_the_same_labels(tmp_path):
    counts = {}
    for anchors in ("Prototypes", "Raw"):
        method = method_of("FedAnchor", pseudoLabels={"anchors": anchors, "threshold": "0.5"})
        party = Party(method, given("None"), tmp_path / anchors)
        counts[anchors] = (party.train().samples["selected"], set(party.server.auxiliary_data(party.model, 1)))
    assert counts["Raw"][0] == counts["Prototypes"][0]
    assert counts["Raw"][1] == {"anchors", "anchor_labels"} and counts["Prototypes"][1] == {"prototypes"}


@pytest.mark.parametrize(
    ("name", "inactive"),
    [("FedAnchor", True), ("SemiFL", True), ("CBAFed", True), ("FedAvgSemi", False), ("SSILCDM", False)],
)
def test_a_threshold_that_nothing_passes(tmp_path, name, inactive):
    """Labels of the round: the silo is inactive. Labels of a batch: it trains on nothing, and tells that it used none (methods reference, 6)."""
    ceiling = {"ceiling": "1"} if name == "CBAFed" else {}
    party = Party(method_of(name, pseudoLabels={"threshold": "1", **ceiling}), given("None"), tmp_path)
    announcement = party.train()
    assert (announcement.update is None) == (party.update is None) == inactive
    assert announcement.samples["selected"] == 0


@pytest.mark.parametrize("name", ["FedAnchor", "SemiFL", "FedCon", "FedBarlow", "Orchestra"])
def test_labels_that_a_method_must_not_see_change_nothing(tmp_path, name):
    slots = {"pseudoLabels": {"threshold": "0"}} if name in ("FedAnchor", "SemiFL") else {}
    parties = (Party(method_of(name, **slots), given(labels), tmp_path / labels, labels) for labels in ("None", "All"))
    hidden, shown = (party.digest(2) for party in parties)
    assert hidden == shown


def test_no_labels_and_no_pseudo_labels_is_inactive(tmp_path):
    assert Party(method_of("FedAvg"), given("None"), tmp_path).train().update is None


def test_one_image_cannot_be_a_batch_of_fedanchor(tmp_path):
    party = Party(ANCHOR[0], images_of(1), tmp_path)
    assert party.train().update is None


def test_the_anchor_head_stays_at_the_server(tmp_path):
    party = Party(ANCHOR[0], given("None"), tmp_path)
    heads = {t.name for t in party.server.down.tensors if t.name.startswith("anchor_head.")}
    assert len(heads) == 2
    assert heads.isdisjoint(t.name for t in party.server.up.tensors)
    party.train()
    network = party.learner._network
    assert all(p.grad is None for n, p in network.named_parameters() if n.startswith("anchor_head."))
    received = party.model.arrays()
    assert all(np.array_equal(network.state_dict()[n].numpy(), received[n]) for n in heads)


def test_without_contrast_and_anchors_there_is_no_anchor_head():
    server = build_server_learner(model=MODEL, method=method_of("FedAvg"), seed=1)
    assert server.down == server.up
    assert server.evaluate(server.initialise(), 0).metrics == {}


def test_momentum_and_curriculum_persist(tmp_path):
    method = method_of("SemiAnAgg")
    party = Party(method, given("None"), tmp_path / "a")
    party.train(1)
    second = party.digest(2)
    party.restart()
    assert party.digest(2) == second, "round 2 again starts from what round 1 kept"
    fresh = Party(method, given("None"), tmp_path / "b")
    assert fresh.digest(2) != second


def test_what_persists_outlives_an_extended_run(tmp_path):
    digests = []
    for rounds in (5, 50):
        party = Party(method_of("SemiAnAgg"), given("All"), tmp_path / str(rounds), "All")
        party.digest(1)
        party.run = party.run.model_copy(update={"rounds": rounds})
        party.restart()
        digests.append(party.digest(2))
    assert digests[0] == digests[1]


def test_momentum_that_is_reset_leaves_no_state(tmp_path):
    party = Party(ANCHOR[0], given("None"), tmp_path)
    party.train(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", [ANCHOR[0], SEMI[1]])
def test_pseudo_labels_come_from_eval_mode(tmp_path, method):
    party = Party(method, given("None"), tmp_path)
    modes = []  # a frozen copy of the received model takes the hook along
    party.learner._network.encoder.register_forward_pre_hook(
        lambda module, _: modes.append((module.training, module.norms[0].weight.requires_grad))
    )
    party.train()
    assert not modes[0][0]
    assert (True, True) in modes
    assert (True, False) not in modes, "the frozen copy never sees batch statistics"


def test_wrong_random_anchor_is_refused(tmp_path):
    party = Party(method_of("SemiAnAgg"), given("None"), tmp_path)
    auxiliary = {"random_anchor": np.zeros(32, np.uint8)}
    with pytest.raises(AnchorageError, match="RandomAnchorDiffers"):
        party.train(1, auxiliary)


def test_missing_prototypes_are_refused(tmp_path):
    with pytest.raises(AnchorageError, match="AuxiliaryDataMissing"):
        Party(ANCHOR[0], given("None"), tmp_path).train(1, {})


def test_a_loss_that_is_not_finite_is_refused(tmp_path):
    method = method_of("FedAvg", local={"epochs": 3, "optimiser": {"sgd": {"learningRate": "999999999"}}})
    party = Party(method, given("All"), tmp_path, "All")
    with pytest.raises(AnchorageError, match="LossNotFinite"):
        party.train()


def test_a_model_of_another_shape_is_refused(tmp_path):
    party = Party(method_of("FedAvg"), given("All"), tmp_path, "All")
    layout = party.server.down
    with pytest.raises(AnchorageError, match="ModelMismatch"):
        load(party.learner._network, layout.select([t.name for t in layout.tensors][1:]), party.model.buffer())


def test_images_of_another_size_are_refused(tmp_path):
    images = given("All")
    large = replace(images, images=np.zeros((26, 1, 9, 9), np.uint8))
    with pytest.raises(AnchorageError, match="ModelMismatch"):
        Party(method_of("FedAvg"), large, tmp_path, "All")
