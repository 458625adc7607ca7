"""FedCon: the server's moving average teaches its two views and survives a restart; the silos' targets go by each batch (methods reference, 6.7)."""

from pathlib import Path

import numpy as np
import torch
from learning_party import MODEL, Party, given, images_of, method_of
from torch.nn.functional import log_softmax

from anchorage.learning.learners import TorchServerLearner, build_server_learner
from anchorage.pieces.server_objective.two_views import divergence
from anchorage.transport.tensors.model import ModelBytes

FEDCON = method_of("FedCon", serverTraining={"pretrainEpochs": 1})


def server(**slots: object) -> TorchServerLearner:
    method = method_of("FedCon", serverTraining={"pretrainEpochs": 0, **slots})
    return build_server_learner(model=MODEL, method=method, seed=1, anchors=images_of(10, 9))


def test_each_view_learns_the_other_ones_target() -> None:
    views = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]], requires_grad=True)
    targets = torch.tensor([[[3.0, 0.0]], [[0.0, 0.5]]])
    p, t = (log_softmax(logits.detach().double(), 2) for logits in (views, targets))
    crossed = t.flip(0)
    loss = divergence(list(views), list(targets))
    torch.testing.assert_close(loss.double(), (crossed.exp() * (crossed - p)).sum() / 2)
    loss.backward()
    torch.testing.assert_close(views.grad.double(), (p.exp() - crossed.exp()) / 2)


def test_the_servers_average_keeps_999_of_1000_parts_at_each_step() -> None:
    learner = server(batchSize=5)  # two steps
    start = learner.initialise()
    one_step = server(batchSize=10)
    once, _ = one_step.train(start, 1)
    learner.train(start, 1)
    name = "encoder.convolutions.0.weight"
    begun, after = start.arrays()[name], once.arrays()[name]
    assert not np.array_equal(begun, after)
    average = one_step.state()[f"target/average/{name}"]
    np.testing.assert_allclose(average, 0.999 * begun + 0.001 * after, atol=1e-7)
    assert int(learner.state()["target/steps"]) == 2


def test_the_average_teaches_from_round_to_round_and_survives_a_restart() -> None:
    uncut = server()
    models: list[ModelBytes] = [uncut.initialise()]
    states = [uncut.state()]
    for number in (99, 100, 101):
        model, _ = uncut.train(models[-1], number)
        models.append(model)
        states.append(uncut.state())
    assert not states[0], "it begins with the first training"
    restarted = server()
    restarted.restore(states[2])
    assert restarted.train(models[2], 101)[0].digest == models[3].digest
    forgotten = server()
    assert forgotten.train(models[2], 101)[0].digest != models[3].digest, "the average is what it was rounds ago"
    alone = build_server_learner(model=MODEL, method=method_of("FedAvg"), seed=1)
    assert alone.state() == {}


def test_a_stage_begins_with_an_average_of_its_own() -> None:
    learner = build_server_learner(model=MODEL, method=FEDCON, seed=1, anchors=images_of(10, 9))
    model = learner.initialise()
    first = learner.adopt(model)
    state = learner.state()
    assert learner.adopt(model).digest == first.digest
    assert all(np.array_equal(array, state[name]) for name, array in learner.state().items())


def test_a_silos_target_goes_by_each_batchs_own_statistics(tmp_path: Path) -> None:
    """Its weights lag behind, so the encoder's running statistics are not its own; what was received of them teaches nothing."""
    party = Party(FEDCON, given("None"), tmp_path / "as received")
    party.train()
    arrays = dict(party.model.arrays())
    shifted = {name: array + 3 if name.endswith("running_mean") else array for name, array in arrays.items()}
    other = Party(
        FEDCON, given("None"), tmp_path / "shifted", initial=ModelBytes.from_arrays(party.server.down, shifted)
    )
    other.train()
    for name, array in party.arrays().items():
        if "running" not in name:
            np.testing.assert_array_equal(other.arrays()[name], array, name)
