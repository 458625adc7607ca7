"""Federations of several findings per image: every method that serves them trains, what a site does not know it never trains, one silo is central."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_findings import documents, draw_site, section, write

pytest.importorskip("torch")

import torch

from anchorage.api.mistakes import DocumentError
from anchorage.engine.interfaces import RoundRecord
from anchorage.learning.data import read
from anchorage.learning.device import calculation, to_device
from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.draws import Draws
from anchorage.learning.encoded_views import views_of
from anchorage.learning.local_training import Batching, Labelled, labelled_losses
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.methods import resolve, validate_study
from anchorage.simulation.run import Simulation, simulate

SGD = {"sgd": {"learningRate": "0.05", "momentum": "0.9", "weightDecay": "0"}}
LOCAL = {"local": {"epochs": 1, "batchSize": 8, "optimiser": SGD}}
ANCHORS = {"anchorData": section("anchors")}
PER_FINDING = {"pseudoLabels": {"perFinding": {}}}
TWO, THREE = ("All", "Partial"), ("All", "Partial", "None")
METHODS: Mapping[str, tuple[dict[str, Any], tuple[str, ...], dict[str, Any]]] = {
    "FedAvg": ({**LOCAL}, TWO, {}),
    "FedProx": ({**LOCAL}, TWO, {}),
    "FedAdam": ({**LOCAL}, TWO, {}),
    "FedYogi": ({**LOCAL}, TWO, {}),
    "SCAFFOLD": ({}, TWO, {}),
    "MOON": ({}, TWO, {}),
    "AsyncFedAvg": ({**LOCAL}, TWO, {"protocol": {"mode": "Asynchronous"}}),
    "local norms": ({"name": "FedAvg", "batchNorm": {"local": {}}}, TWO, ANCHORS),
    "anchors": ({"name": "FedAvg", "serverTraining": {"anchors": {}}}, TWO, ANCHORS),
    "soft": (
        {"name": "FedAvg", "localLoss": {"binaryCrossEntropy": {"uncertain": "Soft", "positiveWeight": "Silo"}}},
        TWO,
        {},
    ),
    "balanced": ({"name": "FedAvg", "localLoss": {"balancedBinary": {"shares": "Federation"}}}, TWO, {}),
    "guesses": ({"name": "FedAvg", **PER_FINDING, **LOCAL}, THREE, {}),
    "guesses, validated": (
        {"name": "FedAvg", "pseudoLabels": {"perFinding": {"calibration": "Validation"}}},
        THREE,
        {},
    ),
    "guesses, received": (
        {"name": "SemiFL", "mixup": {"none": {}}, "pseudoLabels": {"perFinding": {"labelledBy": "Received"}}},
        ("None",),
        ANCHORS,
    ),
    "FedAvgSemi": ({"localLoss": {"taskLoss": {}}, **PER_FINDING, **LOCAL}, THREE, {}),
    "RSCFed": ({**PER_FINDING}, THREE, {}),
    "scored by silos": ({"name": "FedAvg", **LOCAL}, TWO, {"evaluation": {"siloPercent": 30}}),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draw_site(tmp_path / "a", 24, 1)
    draw_site(tmp_path / "b", 24, 2, ("Mass", "Effusion"), unlabelled=8)
    draw_site(tmp_path / "c", 16, 3, unlabelled=16)
    draw_site(tmp_path / "check", 24, 4)
    draw_site(tmp_path / "anchors", 16, 5)
    return tmp_path


def played(root: Path, method: dict[str, Any], **fields: Any) -> RoundRecord:
    return simulate(validate_study(write(root, documents(method, **fields))), root, root / "state")[0]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_several_findings(name: str, root: Path) -> None:
    method, labels, spec = METHODS[name]
    result = played(root, {"name": name, **method}, labels=labels, **spec)
    assert np.isfinite(result.metrics["macro_auroc"]) and result.metrics["macro_auroc_labels"] == 3
    assert {silo.state for silo in result.silos} == {"Counted"}


@pytest.mark.parametrize(
    ("method", "piece"),
    [
        ({"name": "FedAvg", "pseudoLabels": {"fixMatch": {}}}, "fixMatch"),
        ({"name": "FedAvg", "secondHead": {"balanced": {}}}, "balanced"),
        ({"name": "SemiAnAgg"}, "semiAnAgg"),
    ],
)
def test_what_is_of_single_classes_is_refused(root: Path, method: dict[str, Any], piece: str) -> None:
    with pytest.raises(
        DocumentError, match=f"found {piece}, which serves classification.*, but the task is multiLabel"
    ):
        validate_study(write(root, documents(method, labels=THREE)))


def test_a_metric_of_single_classes_is_refused(root: Path) -> None:
    method = {"name": "DVW", "weighting": {"dvw": {"metric": "MCC"}}}
    with pytest.raises(DocumentError, match="found MCC, which does not score the task multiLabel; set MacroAUROC"):
        validate_study(write(root, documents(method)))


def trained(
    root: Path, method: dict[str, Any], **fields: Any
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Return the network's weights before training and after it."""
    study = validate_study(write(root, documents(method, **fields)))
    simulation = Simulation(study, root, root / "state")
    simulation.play()
    spec, last = study.federation.spec, simulation.store.latest()
    assert last is not None
    first = build_model(spec.model_description, TrainingMethod.of(resolve(spec.method)), spec.seed)
    return {name: tensor.numpy() for name, tensor in first.state_dict().items()}, last.model.arrays()


def test_a_site_never_trains_a_finding_that_it_does_not_know(root: Path) -> None:
    """Its logit has a gradient of exactly 0: after two rounds its weights are the drawn ones, and those of the others are not."""
    start, end = trained(root, {"name": "FedAvg", **LOCAL}, labels=("Partial",), claims="b")
    for name in ("classifier.weight", "classifier.bias"):
        np.testing.assert_array_equal(start[name][2], end[name][2])
        assert all((before != after).any() for before, after in zip(start[name][:2], end[name][:2], strict=True))


def test_one_silo_is_central_training(root: Path) -> None:
    """A loop over the site's images, with none of the federation's code but its order of images and views, gives the same bits."""
    _, federated = trained(root, {"name": "FedAvg", **LOCAL}, labels=("All",), rounds=3)
    study = validate_study(write(root, documents({"name": "FedAvg", **LOCAL}, labels=("All",), rounds=3)))
    spec = study.federation.spec
    method, model = TrainingMethod.of(resolve(spec.method)), spec.model_description
    managed = study.silos[0].spec.managed
    assert managed is not None
    images, _ = read(managed.data, root, model, spec.seed)
    views = views_of(images.images, model, method, torch.device("cpu"), Draws(spec.seed, silo="a"), None)
    data = Labelled(views, np.arange(len(images)), images.labels)
    with calculation():
        network = to_device(build_model(model, method, spec.seed), torch.device("cpu")).train()
        for number in (1, 2, 3):
            optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
            draws, batching = Draws(spec.seed, number, "a"), Batching(1, 8, network.smallest_batch(8))
            for loss in labelled_losses(
                network, data, model.task.loss, batching, draws, both_views=False, devices=DeviceGroup()
            ):
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), federated[name])


def test_two_runs_of_one_seed_are_the_same_bits(root: Path, tmp_path: Path) -> None:
    method = {"name": "FedAvg", **PER_FINDING, **LOCAL}
    digests = [
        simulate(validate_study(write(root, documents(method, labels=THREE))), root, tmp_path / name)[0].digest
        for name in ("one", "other")
    ]
    assert digests[0] == digests[1]
