"""FedBarlow, FedCLR and Orchestra: the known answer R1, what travels, what is kept, and the linear probe."""

from pathlib import Path

import numpy as np
import pytest
import torch
from classification_of import classes as of_classes
from learning_party import CLASSES, MODEL, Party, given, images_of, method_of
from torch import nn

from anchorage.api.model import ModelDescription
from anchorage.learning.draws import Draws
from anchorage.learning.learners import TorchServerLearner, build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.probe import linear_probe
from anchorage.learning.round_state import RoundState
from anchorage.pieces.self_supervised.barlow import cross_correlation, redundancy_loss
from anchorage.pieces.self_supervised.cluster_assignment import GlobalCentroids
from anchorage.pieces.self_supervised.clusters import KEPT_FEATURES, RETAINED, turned_images
from anchorage.pieces.task.classification import Classification
from anchorage.transport.tensors.model import ModelBytes

BARLOW, CLR, ORCHESTRA = (method_of(name) for name in ("FedBarlow", "FedCLR", "Orchestra"))


@pytest.mark.known_answers
def test_r1_barlow(known):
    case = known.inputs("R1_barlow")
    views = [torch.tensor(case[name], dtype=torch.float64) for name in ("z1", "z2")]

    def standardised(view, eps):
        return nn.BatchNorm1d(view.shape[1], eps=eps, affine=False).double()(view)

    first, second = (standardised(view, case["eps"]) for view in views)
    same = standardised(views[0], max(case["eps_for_identical_views"], 1e-14))  # torch takes no 0
    correlation = cross_correlation(first, second)
    on = (1 - correlation.diagonal()).square().sum()
    nominal = correlation * len(first) / case["nominal_batch"]
    known.check(
        "R1_barlow",
        {
            "C": correlation,
            "on_diagonal": on,
            "off_diagonal": redundancy_loss(first, second, 1.0) - on,
            "loss": redundancy_loss(first, second, case["lam"]),
            known.key("R1_barlow", "loss_if_divided_by_nominal_batch_.*"): (1 - nominal.diagonal()).square().sum()
            + case["lam"] * (nominal.square().sum() - nominal.diagonal().square().sum()),
            "identical_views_on_diagonal": redundancy_loss(same, same, 0.0),
            "identical_views_loss": redundancy_loss(same, same, case["lam"]),
        },
    )


def test_the_projector_has_the_published_size() -> None:
    model = ModelDescription(network="ResNet18", task=Classification(classes=tuple("0123456789")), image_size=32)
    projector = build_model(model, TrainingMethod.of(BARLOW), 1).head("projector")
    assert projector is not None
    assert sum(p.numel() for p in projector.parameters()) == 9_445_376  # KAT-M1
    running = [b for name, b in projector.named_buffers() if "running" in name]
    assert sum(b.numel() for b in running) == 12_288


def test_a_short_last_batch_counts_by_its_own_size(tmp_path: Path) -> None:
    """Methods reference, section 12, number 10: the diagonal of identical views reaches 1 whatever the batch."""
    for count in (2, 5, 64):
        z = nn.BatchNorm1d(3, affine=False)(torch.randn(count, 3, generator=torch.Generator().manual_seed(count)))
        assert float(redundancy_loss(z, z, 0.0)) < 1e-3
    alone = Party(BARLOW, images_of(1), tmp_path / "one").train()
    assert alone.update is None, "one image has no variance"


@pytest.mark.parametrize("labels", ["None", "All"])
def test_fedbarlow_trains_encoder_and_projector_alone(tmp_path: Path, labels: str) -> None:
    party = Party(BARLOW, given(labels), tmp_path, labels)
    announcement = party.train()
    assert announcement.samples["train"] == 26
    sent = {name.split(".")[0] for name in party.arrays()}
    assert sent == {"encoder", "projector"}
    assert {t.name.split(".")[0] for t in party.server.down.tensors} == {*sent, "classifier"}


def test_labels_change_nothing_in_fedbarlow(tmp_path: Path) -> None:
    digests = {Party(BARLOW, images_of(26, labelled=known), tmp_path / str(known)).digest() for known in (True, False)}
    assert len(digests) == 1


def test_fedclr_trains_the_classifier_on_features_that_it_does_not_change(tmp_path: Path) -> None:
    labelled, unlabelled = (Party(CLR, given(s), tmp_path / s, s) for s in ("All", "None"))
    for party in (labelled, unlabelled):
        party.train()
    plain = Party(BARLOW, given("All"), tmp_path / "plain", "All")
    plain.train()
    with_head, without = labelled.arrays(), unlabelled.arrays()
    received = labelled.model.arrays()["classifier.weight"]
    assert not np.array_equal(with_head["classifier.weight"], received)
    np.testing.assert_array_equal(without["classifier.weight"], received, "a silo without labels leaves it")
    for name, array in plain.arrays().items():
        np.testing.assert_array_equal(with_head[name], array, f"{name}: the classifier's loss stops at the features")


def test_probes_and_reports(tmp_path: Path) -> None:
    anchors, test = images_of(30, 3), images_of(30, 8)
    for method, images, scored in ((BARLOW, anchors, True), (BARLOW, None, False), (CLR, None, True)):
        server = build_server_learner(model=MODEL, method=method, seed=1, anchors=images, validation=test)
        report = server.evaluate(server.initialise(), 1)
        assert ("accuracy" in report.metrics) == scored
        if images is not None:
            assert report.metrics["accuracy"] > 0.6, "corners are told apart by random features"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        one = linear_probe(torch.eye(CLASSES), torch.arange(CLASSES), of_classes(CLASSES), Draws(1))
        torch.manual_seed(1)
        other = linear_probe(torch.eye(CLASSES), torch.arange(CLASSES), of_classes(CLASSES), Draws(1))
    assert torch.equal(one.weight, other.weight) and one.weight.argmax(1).tolist() == list(range(CLASSES))


def test_the_linear_probe_takes_the_published_steps() -> None:
    """Methods reference, 6.13: SGD 0.1, momentum 0.9, 100 epochs, a tenth from 60 and from 80 on, batches of 256."""
    features = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    labels = (features[:, 0] > 0).long()
    probe = linear_probe(features, labels, of_classes(2), Draws(1))
    linear, order = nn.Linear(4, 2), Draws(1).numpy("probe")
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    sgd = torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(sgd, [60, 80], gamma=0.1)
    for _ in range(100):
        permuted = torch.from_numpy(order.permutation(300))
        for chosen in (permuted[:256], permuted[256:]):
            sgd.zero_grad()
            nn.functional.cross_entropy(linear(features[chosen]), labels[chosen]).backward()
            sgd.step()
        schedule.step()
    torch.testing.assert_close(probe.weight, linear.weight)
    torch.testing.assert_close(probe.bias, linear.bias)


def test_orchestra_clusters_first_then_trains(tmp_path: Path) -> None:
    party, memory = Party(ORCHESTRA, given("None"), tmp_path), GlobalCentroids(1)
    first = party.train(1, {})
    assert first.update is None and first.samples["steps"] == 0
    assert first.auxiliary_data["local_centroids"].shape == (16, 128)
    memory.conclude({"north": first})
    auxiliary = memory.auxiliary_data()
    second = party.train(2, auxiliary)
    assert second.update is not None and second.samples["steps"] == 4
    assert {name.split(".")[0] for name in party.arrays()} == {"encoder", "projector", "rotation"}
    received = party.model.arrays()
    assert all(not np.array_equal(a, received[n]) for n, a in party.arrays().items())
    party.restart()
    second_update = party.train(2, auxiliary)
    assert second_update.update is not None and second_update.update.digest == second.update.digest
    np.testing.assert_array_equal(
        second_update.auxiliary_data["local_centroids"], second.auxiliary_data["local_centroids"]
    )


def test_orchestras_target_follows_and_leaves_the_running_statistics_alone(tmp_path: Path) -> None:
    """Methods reference, section 12, number 5: what is sent was counted by the model's own two passes per step."""
    party, memory = Party(ORCHESTRA, given("None"), tmp_path), GlobalCentroids(1)
    memory.conclude({"north": party.train(1, {})})
    begun = party.model.arrays()
    announcement = party.train(2, memory.auxiliary_data())
    counted = party.arrays()["encoder.norms.0.num_batches_tracked"] - begun["encoder.norms.0.num_batches_tracked"]
    assert counted == 2 * announcement.samples["steps"]
    state = RoundState(next(tmp_path.glob("learner-*"))).of(2)
    assert state[KEPT_FEATURES].shape == (52, 128), "26 looked at, 26 trained on"
    moved = np.abs(state["target/encoder.convolutions.0.weight"] - begun["encoder.convolutions.0.weight"]).max()
    trained = np.abs(party.arrays()["encoder.convolutions.0.weight"] - begun["encoder.convolutions.0.weight"]).max()
    assert 0 < moved < 10 * (1 - RETAINED) * trained, "it follows slowly"
    assert not any("running" in name for name in state)


def test_orchestras_target_goes_by_each_batchs_own_statistics(tmp_path: Path) -> None:
    """As in the published code; its weights lag behind, so running statistics that were received would not be its own."""
    features = []
    for shift in (0, 3):
        party = Party(ORCHESTRA, given("None"), tmp_path / str(shift))
        arrays = {n: a + shift if n.endswith("running_mean") else a for n, a in party.model.arrays().items()}
        party = Party(ORCHESTRA, given("None"), party.state, initial=ModelBytes.from_arrays(party.server.down, arrays))
        party.train(2)
        features.append(RoundState(next(party.state.glob("learner-*"))).of(2)[KEPT_FEATURES])
    np.testing.assert_array_equal(*features)


def test_a_stage_takes_over_what_it_knows_by_name() -> None:
    def server(name: str, **slots: dict[str, object]) -> TorchServerLearner:
        method = method_of(name, **slots)
        return build_server_learner(model=MODEL, method=method, seed=1, anchors=images_of(12, 9))

    barlow = server("FedBarlow")
    trained = {
        name: array + 1 if array.dtype == np.float32 else array for name, array in barlow.initialise().arrays().items()
    }
    model = ModelBytes.from_arrays(barlow.down, trained)
    for name in ("FedCLR", "FedAvg", "MOON", "SCAFFOLD", "Orchestra"):
        learner = server(name)
        adopted, seeded = learner.adopt(model).arrays(), learner.initialise().arrays()
        assert adopted.keys() == seeded.keys()
        for tensor, array in adopted.items():
            known = tensor in trained and trained[tensor].shape == array.shape
            np.testing.assert_array_equal(array, trained[tensor] if known else seeded[tensor], f"{name} {tensor}")
    anchored = server("FedAnchor", serverTraining={"pretrainEpochs": 1})
    first, second = (anchored.adopt(model) for _ in range(2))
    assert first.digest == second.digest, "a server that comes back begins the stage with the same bytes"
    before = trained["encoder.convolutions.0.weight"]
    after = first.arrays()["encoder.convolutions.0.weight"]
    assert 0 < np.abs(after - before).max() < 0.5, "it is pre-trained from there"


def test_a_plain_head_begins_as_the_classifier_of_a_warm_up_without_one() -> None:
    def server(name: str) -> TorchServerLearner:
        return build_server_learner(model=MODEL, method=method_of(name), seed=1)

    warm = server("LowerBound")
    learnt = {n: array + 1 if array.dtype == np.float32 else array for n, array in warm.initialise().arrays().items()}
    adopted = server("SSILCDM").adopt(ModelBytes.from_arrays(warm.down, learnt))
    both = adopted.arrays()
    for tensor in ("weight", "bias"):
        np.testing.assert_array_equal(both[f"plain_head.{tensor}"], learnt[f"classifier.{tensor}"])
    apart = {n: array + 1 if n == "plain_head.bias" else array for n, array in both.items()}
    adopted_arrays = server("SSILCDMFedAvgSemi").adopt(ModelBytes.from_arrays(server("SSILCDM").down, apart)).arrays()
    np.testing.assert_array_equal(
        adopted_arrays["plain_head.bias"], apart["plain_head.bias"], "one that was trained stays"
    )


def test_turns() -> None:
    images = torch.arange(8.0).reshape(2, 1, 2, 2)
    turned, turns = turned_images(images, torch.Generator().manual_seed(0))
    for image, result, quarter in zip(images, turned, turns, strict=True):
        assert torch.equal(result, torch.rot90(image, int(quarter), (1, 2)))
