"""ProtoFSSL's class means against the known answer PF1, at the server and over the rounds of a silo."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learning_party import CLASSES, MODEL, Party, given, images_of, memory_of, method_of

from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.pieces.pseudo_labels.prototypes import (
    HELPERS,
    LARGEST,
    MEANS,
    class_means,
    classifier_of,
    consistency,
    fill_missing,
    helpers_labels,
    mean_of_known,
    means_or_others,
    scores,
)
from anchorage.transport.messages import Announcement
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

METHOD = method_of("ProtoFSSL", local={"epochs": 2})


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.known_answers
def test_other_silos_class_means_label(known):
    name = "PF1_protofssl"
    case = known.inputs(name)
    helper_means, there = tensor(case["helper_prototypes"]), torch.tensor(case["helper_has_class"])
    helpers = fill_missing(helper_means.masked_fill(~there[..., None], torch.nan))
    z = tensor(case["z"])
    local, targets = scores(z, tensor(case["local_prototypes"])), helpers_labels(z, helpers, case["T"])
    loss = consistency(local, targets)
    known.check(
        name,
        {
            "filled_prototypes": helpers,
            "mean_helper_probability": helpers_labels(z, helpers, 1.0),
            "pseudo_label": targets,
            "local_probability": local.softmax(1),
            "loss_unlabelled": loss,
            "weighted": case["weight"] * loss,
        },
    )


def test_a_class_that_nobody_has_gets_no_probability_and_leaves_no_gap_in_the_gradient():
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    means = class_means(z, torch.tensor([0, 2]), 4)
    assert means.isnan().any(1).tolist() == [False, True, False, True]
    means = means_or_others(means, torch.tensor([[9.0, 9.0], [0.5, 0.5], [9.0, 9.0], [torch.nan, torch.nan]]))
    assert means[:3].tolist() == [[1, 0], [0.5, 0.5], [0, 1]]
    targets = helpers_labels(z.detach(), fill_missing(means.detach()[None]), 0.5)
    assert not targets[:, 3].any() and targets.sum(1).tolist() == pytest.approx([1, 1])
    consistency(scores(z, means), targets).backward()
    assert z.grad.isfinite().all() and z.grad.any()


def test_the_classifier_tells_what_is_nearest():
    means = np.random.default_rng(1).normal(size=(4, 5))
    means[2] = np.nan
    weight, bias = (torch.from_numpy(part) for part in classifier_of(means))
    z = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)).double()
    logits, wanted = z @ weight.T + bias, scores(z, torch.from_numpy(means))
    torch.testing.assert_close(logits[:, [0, 1, 3]], wanted[:, [0, 1, 3]])
    assert (logits[:, 2] < logits[:, [0, 1, 3]].amin(1) - 5).all() and wanted[:, 2].isneginf().all()


def announced(means):
    return Announcement("1.train", {"train": 24}, {MEANS: means}, {}, None)


MEANING_NOTHING = [
    np.zeros((CLASSES, 2)),
    np.zeros((CLASSES + 1, 2), np.float32),
    np.full((CLASSES, 2), np.nan, np.float32),
    np.array([[0, np.nan]] * CLASSES, np.float32),
    np.full((CLASSES, 2), 2 * LARGEST, np.float32),
]


def test_the_server_sends_the_last_round_s_class_means_and_leaves_out_what_means_nothing():
    memory = memory_of(METHOD)
    assert memory.auxiliary_data() == {} and memory.behind() is None
    one = np.array([[1, 2], [np.nan, np.nan], [3, 4]], np.float32)
    wide = np.ones((CLASSES, 3), np.float32)
    memory.conclude({"b": announced(one + 1), "a": announced(one), "c": announced(wide)})
    restarted = memory_of(METHOD)
    restarted.restore(memory.state())
    np.testing.assert_array_equal(restarted.auxiliary_data()[HELPERS], np.stack([one, one + 1]))
    restarted.conclude({str(n): announced(means) for n, means in enumerate(MEANING_NOTHING)})
    np.testing.assert_array_equal(restarted.auxiliary_data()[HELPERS], np.stack([one, one + 1]))
    restarted.conclude({"a": announced(np.ones((CLASSES, 100_000), np.float32))})
    assert restarted.auxiliary_data() == {} and restarted.behind().layout.by_name[HELPERS].shape == (
        1,
        CLASSES,
        100_000,
    )


def test_the_aggregated_classifier_is_of_the_mean_of_the_class_means():
    layout = Layout.of([("classifier.weight", "F32", (CLASSES, 2)), ("classifier.bias", "F32", (CLASSES,))])
    mean = ModelBytes.from_arrays(layout, {t.name: np.ones(t.shape, np.float32) for t in layout.tensors})
    one = np.array([[1, 2], [np.nan, np.nan], [3, 4]], np.float32)
    two = np.array([[3, 2], [5, 5], [np.nan, np.nan]], np.float32)
    announcements = [announced(one), announced(two), *map(announced, MEANING_NOTHING)]
    arrays = METHOD.pseudo_labels.refine(mean, [], [], announcements).arrays()
    weight, bias = classifier_of(np.array([[2.0, 2], [5, 5], [3, 4]]))
    np.testing.assert_allclose(arrays["classifier.weight"], weight)
    np.testing.assert_allclose(arrays["classifier.bias"], bias)
    assert METHOD.pseudo_labels.refine(mean, [], [], announcements[2:]) is mean
    assert np.isnan(mean_of_known(np.stack([one, one]).astype(np.float64))[1]).all()


def test_a_silo_learns_labels_first_and_then_what_other_silos_tell(tmp_path):
    party = Party(METHOD, given("Partial"), tmp_path, "Partial")
    first = party.train(1, {})
    means = first.auxiliary_data[MEANS]
    assert means.shape == (CLASSES, party.learner._network.classifier.in_features) and np.isfinite(means).all()
    assert first.trained and first.samples["selected"] == 0 and first.samples["smallest_group"] == 3
    weight, bias = classifier_of(means.astype(np.float64))  # what nothing trains
    np.testing.assert_allclose(party.arrays()["classifier.weight"], weight, rtol=1e-5)
    np.testing.assert_allclose(party.arrays()["classifier.bias"], bias, rtol=1e-5)
    alone = {name: array.copy() for name, array in party.arrays().items()}
    second = party.train(2, {HELPERS: means[None]})
    assert second.samples["selected"] == second.samples["unlabelled"] == 16
    assert any(not np.array_equal(array, alone[name]) for name, array in party.arrays().items())


def test_a_silo_without_labels_waits_for_others_and_tells_nothing(tmp_path):
    party = Party(METHOD, images_of(24, labelled=False), tmp_path)
    first = party.train(1, {})
    assert not first.trained and MEANS not in first.auxiliary_data and "smallest_group" not in first.samples
    width = party.learner._network.classifier.in_features
    helpers = np.random.default_rng(1).normal(size=(2, CLASSES, width)).astype(np.float32)
    second = party.train(2, {HELPERS: helpers})
    assert second.trained and MEANS not in second.auxiliary_data
    weight, _ = classifier_of(helpers.mean(0).astype(np.float64))
    np.testing.assert_allclose(party.arrays()["classifier.weight"], weight, rtol=1e-5)


def test_one_label_of_each_class_makes_class_means_alone(tmp_path):
    images = images_of(24)
    few = replace(images, labels=np.where(np.arange(24) < CLASSES, images.labels, -1))
    party = Party(METHOD, few, tmp_path, "Partial")
    first = party.train(1, {})
    assert not first.trained  # nothing is left to be told by them
    assert first.auxiliary_data[MEANS].shape[0] == CLASSES


def test_a_network_without_a_bias_gets_one():
    model = MODEL.model_copy(update={"network": "ResNet9", "image_size": 32})
    biased = build_model(model, TrainingMethod.of(METHOD), 1)
    plain = build_model(model, TrainingMethod.of(method_of("FedAvg")), 1)
    assert "classifier.bias" in biased.state_dict() and "classifier.bias" not in plain.state_dict()
