"""Embeddings of the layer that a federation names, on the server's validation images."""

import numpy as np
import pytest
import torch
from learning_party import ANCHOR, MODEL, images_of, method_of
from torch import nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.api.federation import Embeddings
from anchorage.learning.layer_outputs import layer_outputs
from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.pieces.anchor_head import anchor_outputs


def server(layer="encoder", *, images=20, model=MODEL, **parts):
    pictured = None if layer is None else Embeddings(layer=layer, images=images)
    parts = {"anchors": images_of(30, 9), "validation": images_of(40, 8), **parts}
    return build_server_learner(model=model, method=ANCHOR[0], seed=1, **parts, pictured=pictured)


def network(model=MODEL):
    return build_model(model, TrainingMethod.of(ANCHOR[0]), 1).eval()


@pytest.mark.parametrize("layer", ["encoder", "projection", "classifier", "anchor_head"])
def test_a_report_carries_the_outputs_of_the_named_layer(layer):
    learner, plain = server(layer), server(None)
    model = learner.initialise()
    report, usual = learner.evaluate(model, 0), plain.evaluate(plain.initialise(), 0)
    assert (report.layer, usual.layer, len(report.embeddings)) == (layer, "", 20)
    assert report.metrics == usual.metrics
    layered = network()
    layered.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in model.arrays().items()})
    validation = images_of(40, 8)
    expected = {
        "encoder": layered.embed,
        "projection": layered.represent,
        "classifier": layered,
        "anchor_head": lambda images: anchor_outputs(layered, images),
    }[layer]
    with torch.no_grad():
        outputs = expected(learner._scored["validation"].views.plain(torch.arange(40))).numpy()
    for label, _, *row in report.embeddings:
        near = np.flatnonzero(np.abs(outputs - np.array(row)).max(1) < 1e-4)
        assert label in validation.labels[near]


def test_only_validation_images_are_drawn():
    learner = server("classifier", test=images_of(30, 7))
    model = learner.initialise()
    tested = learner.test(model, 0)
    assert tested.layer == "" and tested.embeddings.shape == (30, 2 + 128)
    assert learner.evaluate(model, 0).embeddings.shape == (20, 2 + len(MODEL.task.outputs))


def test_maps_and_tokens_are_averaged():
    class Inside(nn.Module):
        def forward(self, x):
            return x

    layered, images = network(), torch.rand(5, 1, 8, 8)
    layered.encoder.inside, forward_before = Inside(), layered.encoder.forward
    for shape in ((5, 6, 4, 3), (5, 12, 6)):
        made = torch.rand(shape)

        def forward(x, made=made):
            layered.encoder.inside(made)
            return forward_before(x)

        layered.encoder.forward = forward
        mean = made.mean((2, 3)) if made.ndim == 4 else made.mean(1)
        assert torch.equal(layer_outputs(layered, "encoder.inside")(images), mean)
    assert not layered.encoder.inside._forward_hooks


@pytest.mark.parametrize("layer", ["encoder.layer9", "encoder.weight", "head"])
def test_a_layer_that_the_network_has_not_is_refused_at_the_start(layer):
    with pytest.raises(AnchorageError, match=r"which the network has not; name a module such as encoder, ") as raised:
        server(layer)
    assert raised.value.failure is NETWORK_UNUSABLE and "\n" not in raised.value.message


def test_a_layer_that_does_not_see_the_images_is_refused():
    frozen = MODEL.model_copy(update={"trainable": "Head"})
    validation = images_of(40, 8)

    def built(layer):
        return build_server_learner(
            model=frozen, method=method_of("FedAvg"), seed=1, validation=validation, pictured=Embeddings(layer=layer)
        )

    learner = built("encoder")
    assert learner.evaluate(learner.initialise(), 0).embeddings.shape[0] == 40
    inside = next(name for name, _ in learner._network.named_modules() if name.startswith("encoder."))
    learner = built(inside)
    with pytest.raises(AnchorageError, match=f"layer {inside} takes no part") as raised:
        learner.evaluate(learner.initialise(), 0)
    assert raised.value.failure is NETWORK_UNUSABLE
