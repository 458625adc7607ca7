"""Segmentation with the methods that carry over, in simulation; one silo alone is central training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from drawn_masks import SIDE, write_study

from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

pytest.importorskip("torch")

import torch

from anchorage.api.model import ModelDescription
from anchorage.learning.batch_norm import norm_arrays
from anchorage.learning.data import read
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.models import build_model
from anchorage.learning.round_state import RoundState
from anchorage.learning.views import epoch_batches
from anchorage.methods.resolution import resolve
from anchorage.simulation.run import Simulation, simulate

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "dice": {"name": "FedAvg", "localLoss": {"diceCrossEntropy": {}}},
    "FedProx": {},
    "FedAdam": {},
    "SCAFFOLD": {"local": {"epochs": 1, "batchSize": 4, "optimiser": {"sgd": {"momentum": "0", "weightDecay": "0"}}}},
    "FedBN": {"name": "FedAvg", "batchNorm": {"local": {}}, "serverTraining": {"anchors": {"epochs": 1}}},
    "FedAsync": {},
    "anchors": {"name": "FedAvg", "serverTraining": {"anchors": {"epochs": 1}}},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_for_two_rounds(name: str, tmp_path: Path) -> None:
    file = write_study(tmp_path, {"name": name, **METHODS[name]})
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert {"dice", "dice_all", "pooled_dice", "loss"} <= record.metrics.keys()
    assert all(np.isfinite(value) for value in record.metrics.values())
    assert sum(silo.state == "Counted" for silo in record.silos) >= 1


def test_each_silo_keeps_its_own_scales_and_shifts(tmp_path: Path) -> None:
    """FedBN of a network without batch normalisation, which needs no anchors: the server's stay as drawn, the silos' go their ways."""
    method = {"name": "FedAvg", "batchNorm": {"local": {}}}
    study = validate_study(write_study(tmp_path, method, evaluation={"siloPercent": 20}))
    simulation = Simulation(study, tmp_path / "data", tmp_path / "run")
    simulation.play()
    spec, last = study.federation.spec, simulation.store.latest()
    assert last is not None
    first = build_model(spec.model_description, TrainingMethod.of(resolve(spec.method, spec.task)), spec.seed)
    norms, reached = norm_arrays(first), last.model.arrays()
    assert norms and all(np.array_equal(norms[name], reached[name.split("/", 1)[1]]) for name in norms)
    assert not np.array_equal(first.state_dict()["classifier.weight"].numpy(), reached["classifier.weight"])
    states = [RoundState(folder).of(2) for folder in sorted((tmp_path / "run").rglob("learner-*"))]
    one, other = (arrays for arrays in states if norms.keys() <= arrays.keys())
    assert any(not np.array_equal(one[name], other[name]) for name in norms)
    assert any(not np.array_equal(one[name], norms[name]) for name in norms)


def test_one_silo_alone_is_central_training(tmp_path: Path) -> None:
    optimiser = {"sgd": {"learningRate": "0.05", "momentum": "0", "weightDecay": "0"}}
    method = {"name": "FedAvg", "local": {"epochs": 2, "batchSize": 4, "optimiser": optimiser}}
    study = validate_study(write_study(tmp_path, method, silos=1, seed=3))
    _, store = simulate(study, tmp_path / "data", tmp_path / "run")
    trained = store.latest().model.arrays()

    spec = study.federation.spec
    training = TrainingMethod.of(resolve(spec.method))
    described = ModelDescription(**spec.model.model_dump(), task=spec.task)
    images, _ = read(study.silos[0].spec.managed.data, tmp_path / "data", described, 3)
    network = to_device(build_model(described, training, 3), torch.device("cpu"))
    steps = torch.optim.SGD(network.parameters(), lr=0.05)
    views = augmentation_of("Natural")
    pixels, masks = torch.from_numpy(images.images), torch.from_numpy(images.labels)
    with calculation():
        for number in (1, 2):
            draws = Draws(3, number, "site-0")
            order, augmentation = draws.numpy("batches"), draws.torch("augmentation")
            batches = [rows for _ in range(2) for rows in epoch_batches(order, len(images), 4, 1)]
            every = np.concatenate(batches)  # the product views several batches at once, too
            views_shown, known = views.with_masks(pixels[every], masks[every], augmentation, strong=False)
            start = 0
            for rows in batches:
                stop = start + len(rows)
                steps.zero_grad()
                spec.task.loss(network.train()(views_shown[start:stop]), known[start:stop]).backward()
                steps.step()
                start = stop
    for name, tensor in network.state_dict().items():
        assert np.array_equal(tensor.numpy(), trained[name]), name


@pytest.mark.parametrize(
    ("spec", "method", "words"),
    [
        ({"model": {"network": "SmallCnn", "imageSize": SIDE}}, {}, ("SmallCnn", "SmallUNet", "monai/UNet")),
        ({"task": {"classification": {"classes": ["a", "b"]}}}, {}, ("SmallUNet", "one vector for each image")),
        ({"model": {"network": "SmallUNet", "imageSize": SIDE, "augmentation": "CroppedNatural"}}, {}, ("Natural",)),
        ({"model": {"network": "SmallUNet", "imageSize": SIDE, "hidden": 8}}, {}, ("found hidden",)),
        ({}, {"name": "MOON"}, ("one vector for each image",)),
        ({}, {"selfSupervised": {"fedByol": {}}}, ("fedByol, which serves one vector for each image",)),
        ({}, {"localLoss": {"balancedSoftmax": {}}}, ("serves classification, but the task is segmentation",)),
        ({}, {"secondHead": {"personal": {}}}, ("serves classification, but the task is segmentation",)),
        ({}, {"mixup": {"server": {}}}, ("serves classification, but the task is segmentation",)),
    ],
)
def test_what_does_not_fit_is_refused_before_the_run(
    spec: dict[str, Any], method: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    file = write_study(tmp_path, {"name": "FedAvg", **method}, **spec)
    with pytest.raises(DocumentError) as raised:
        validate_study(file)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("partition", "words"),
    [
        ({"recipe": "PerClass"}, "the recipe PerClass, which divides images by their class"),
        ({"recipe": "Iid", "labelledPerClass": 2}, "found 2, which is by the class of an image"),
        ({"recipe": "Iid", "imbalanceFactor": 10}, "found 10, which is by the class of an image"),
    ],
)
def test_a_pool_is_not_divided_by_class(partition: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = write_study(tmp_path, {"name": "FedAvg"}, silos=1)
    federation, silo = yaml.safe_load_all(file.read_text())
    silo["spec"]["managed"]["data"] |= {"use": "Part", "partition": {**partition, "parts": 2, "part": 0}}
    file.write_text(yaml.safe_dump_all([federation, silo]))
    with pytest.raises(DocumentError, match=words):
        validate_study(file)
    silo["spec"]["managed"]["data"]["partition"] = {"recipe": "Iid", "parts": 2, "part": 0}
    file.write_text(yaml.safe_dump_all([federation, silo]))
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["dice"])


def test_confident_pixels_of_images_without_masks_are_learnt(tmp_path: Path) -> None:
    fix_match = {"name": "FedAvgFixMatch", "pseudoLabels": {"fixMatch": {"threshold": "0.5"}}}
    file = write_study(tmp_path, fix_match, labels="Partial", rounds=2)
    for silo in (0, 1):
        for row in range(2, 6):
            (tmp_path / "data" / f"site-{silo}" / "masks" / f"{row:03d}.png").unlink()
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["dice"])
    for silo in record.silos:
        assert silo.samples["labelled"] == 2 and silo.samples["unlabelled"] == 4
        assert silo.samples["selected"] == 4  # with two classes every pixel reaches one half
        shares = silo.metrics["accepted_foreground"], silo.metrics["accepted_background"]
        assert sum(shares) == pytest.approx(1) and min(shares) >= 0


def test_the_half_of_the_weight_that_goes_by_pseudo_labels(tmp_path: Path) -> None:
    method = {
        "name": "FedAvgSemi",
        "localLoss": {"taskLoss": {}},
        "pseudoLabels": {"fixMatch": {"threshold": "0.5"}},
        "local": {"epochs": 1, "batchSize": 4},
    }
    file = write_study(tmp_path, method, labels="Partial", rounds=1)
    for silo in (0, 1):
        (tmp_path / "data" / f"site-{silo}" / "masks" / "005.png").unlink()
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert [round(silo.weight, 6) for silo in record.silos] == [0.5, 0.5]


@pytest.mark.parametrize("name", ["flexMatch", "classAdaptive", "perFinding"])
def test_pseudo_labels_of_single_classes_are_refused(name: str, tmp_path: Path) -> None:
    file = write_study(tmp_path, {"name": "FedAvg", "pseudoLabels": {name: {}}})
    with pytest.raises(
        DocumentError, match=f"found {name}, which serves .*but the task is segmentation; choose one of none, "
    ):
        validate_study(file)


def test_pixels_are_learnt_on_strong_views(tmp_path: Path) -> None:
    file = write_study(tmp_path, {"name": "FedAvgUDA", "pseudoLabels": {"uda": {"views": "Plain"}}})
    with pytest.raises(DocumentError, match="found Plain, which is for one class per image"):
        validate_study(file)


def test_thresholds_by_class_of_an_image_are_refused(tmp_path: Path) -> None:
    method = {"name": "FedAvgFixMatch", "pseudoLabels": {"fixMatch": {"calibration": "Validation"}}}
    with pytest.raises(DocumentError, match="found Validation, which is for one class per image"):
        validate_study(write_study(tmp_path, method))


def test_the_server_draws_its_validation_images(tmp_path: Path) -> None:
    study = validate_study(write_study(tmp_path, {"name": "FedAvg"}))
    spec = study.federation.spec
    described = ModelDescription(**spec.model.model_dump(), task=spec.task)
    validation, _ = read(spec.server_data["validation"], tmp_path / "data", described, 1)
    learner = build_server_learner(model=described, method=resolve(spec.method), seed=1, validation=validation)
    picture = learner.examples(learner.initialise(), 0)
    assert picture is not None and picture.dtype == np.uint8
    tile = picture.shape[0] // 3
    assert picture.shape == (3 * tile, 6 * tile, 3)
    above, truth = picture[2 : tile - 2, 2 : tile - 2], picture[tile + 2 : 2 * tile - 2, 2 : tile - 2]
    coloured = (above != truth).any(2)
    assert abs(coloured.mean() - (validation.labels[0] == 1).mean()) < 0.05
    _, store = simulate(study, tmp_path / "data", tmp_path / "run")
    without = build_server_learner(model=described, method=resolve(spec.method), seed=1)
    assert without.examples(store.latest().model, 2) is None
