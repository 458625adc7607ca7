"""Segmentation of volumes with the methods that carry over, in simulation; one silo alone is central training."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from drawn_volumes import CLASSES, MODEL, VOLUME, split_channels, write_pairs, write_study

from anchorage.api.data import ServerData
from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

pytest.importorskip("torch")

import torch

from anchorage.api.model import ModelDescription
from anchorage.learning.data import read
from anchorage.learning.device import calculation, to_device
from anchorage.learning.draws import Draws
from anchorage.learning.learners import build_server_learner
from anchorage.learning.method import TrainingMethod
from anchorage.learning.models import build_model
from anchorage.learning.views import epoch_batches
from anchorage.learning.volume_views import VolumeViews
from anchorage.methods.resolution import resolve
from anchorage.simulation.images import DecodedImages, SharedImages
from anchorage.simulation.run import simulate

METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx": {},
    "FedAdam": {},
    "SCAFFOLD": {"local": {"epochs": 1, "batchSize": 2, "optimiser": {"sgd": {"momentum": "0", "weightDecay": "0"}}}},
    "FedAsync": {},
    "anchors": {"name": "FedAvg", "serverTraining": {"anchors": {"epochs": 1}}},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains_for_two_rounds(name: str, tmp_path: Path) -> None:
    study = validate_study(write_study(tmp_path, {"name": name, **METHODS[name]}))
    record, store = simulate(study, tmp_path / "data", tmp_path / "run")
    assert {"dice", "dice_all", "pooled_dice", "loss"} <= record.metrics.keys()
    assert all(np.isfinite(value) for value in record.metrics.values())
    assert [silo.samples["labelled"] for silo in record.silos if silo.state == "Counted"] in ([2, 2], [2])
    before = store.latest().model.digest
    repeated, other = simulate(study, tmp_path / "data", tmp_path / "again")
    assert repeated.metrics == record.metrics and other.latest().model.digest == before


PSEUDO_LABELS: dict[str, dict[str, Any]] = {
    "fixMatch": {"threshold": "0.35"},
    "uda": {"threshold": "0.35"},
    "receivedModel": {"threshold": "0.35"},
    "meanTeacher": {"weight": "1"},
}


@pytest.mark.parametrize("name", PSEUDO_LABELS)
def test_voxels_of_volumes_without_masks_are_learnt(name: str, tmp_path: Path) -> None:
    labels = {name: PSEUDO_LABELS[name]}
    file = write_study(tmp_path, {"name": "FedAvg", "pseudoLabels": labels}, labels="Partial")
    for silo in (0, 1):
        (tmp_path / "data" / f"site-{silo}" / "masks" / "case-01.nii.gz").unlink()
    record, store = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["dice"])
    for silo in record.silos:
        assert silo.samples["labelled"] == 1 == silo.samples["unlabelled"] and silo.samples["selected"] <= 1
        if name != "meanTeacher":
            assert 0 < silo.metrics["accepted_foreground"] + silo.metrics["accepted_background"] <= 1
    plain = write_study(tmp_path / "plain", {"name": "FedAvg"}, labels="Partial")
    for silo in (0, 1):
        (tmp_path / "plain" / "data" / f"site-{silo}" / "masks" / "case-01.nii.gz").unlink()
    _, other = simulate(validate_study(plain), tmp_path / "plain" / "data", tmp_path / "other")
    assert other.latest().model.digest != store.latest().model.digest


def channelled_study(folder: Path, channels: int, **section: Any) -> Path:
    """Write a federation of volumes of two channels in files of their own, as the sections have it, for a model of so many channels."""
    file = write_study(folder, {"name": "FedAvg"}, rounds=1, model={**MODEL, "channels": channels})
    for site in (folder / "data").iterdir():
        split_channels(site / "images", ("_t1", "_t2"))
    federation, *silos = yaml.safe_load_all(file.read_text())
    for data in (federation["spec"]["evaluation"]["validation"], *(silo["spec"]["managed"]["data"] for silo in silos)):
        data |= section
    file.write_text(yaml.safe_dump_all([federation, *silos]))
    return file


def test_volumes_of_channels_in_files_of_their_own_train(tmp_path: Path) -> None:
    study = validate_study(channelled_study(tmp_path, 2, channelFiles=["_t1", "_t2"]))
    record, store = simulate(study, tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["dice"])
    shapes = [tuple(array.shape) for array in store.latest().model.arrays().values()]
    assert any(shape[1:] == (2, 3, 3, 3) for shape in shapes), "the first convolution takes both channels"


@pytest.mark.parametrize("name", ["RSCFed", "SemiFL", "FedAvgSemi"])
def test_a_preset_for_silos_without_masks_trains(name: str, tmp_path: Path) -> None:
    """SemiFL learns masks at the server, the others at one silo; no mask is at the other."""
    anchored = {"serverTraining": {"anchors": {"epochs": 1}}} if name == "SemiFL" else {}
    extra = {} if name == "RSCFed" else {"localLoss": {"taskLoss": {}}}
    file = write_study(tmp_path, {"name": name, **anchored, **extra})
    federation, first, second = yaml.safe_load_all(file.read_text())
    second["spec"]["labels"] = "None"
    if name == "SemiFL":
        first["spec"]["labels"] = "None"
    file.write_text(yaml.safe_dump_all([federation, first, second]))
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["dice"]) and all(silo.state == "Counted" for silo in record.silos)


@pytest.mark.parametrize(
    ("channels", "section", "message"),
    [
        (2, {"channelFiles": ["_t1"]}, "found 1 channels, but the model has 2; name as many as spec.model.channels"),
        (2, {"format": "DicomFolder", "channelFiles": ["a", "b"]}, "name the files or series of each in a table"),
    ],
)
def test_channels_that_do_not_fit_the_model_are_refused_before_the_run(
    channels: int, section: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError) as refused:
        validate_study(channelled_study(tmp_path, channels, **section))
    assert str(refused.value).count(message) == 3, "of both silos and of the validation images"


def test_silos_score_on_volumes_of_their_own(tmp_path: Path) -> None:
    file = write_study(tmp_path, {"name": "FedAvg"}, evaluation={"siloPercent": 50})
    record, _ = simulate(validate_study(file), tmp_path / "data", tmp_path / "run")
    assert np.isfinite(record.metrics["pooled_dice"])
    assert all(silo.samples["labelled"] == 1 for silo in record.silos)


def test_one_silo_alone_is_central_training(tmp_path: Path) -> None:
    optimiser = {"sgd": {"learningRate": "0.05", "momentum": "0", "weightDecay": "0"}}
    method = {"name": "FedAvg", "local": {"epochs": 2, "batchSize": 1, "optimiser": optimiser}}
    study = validate_study(write_study(tmp_path, method, silos=1, seed=3))
    _, store = simulate(study, tmp_path / "data", tmp_path / "run")
    trained = store.latest().model.arrays()

    spec = study.federation.spec
    training = TrainingMethod.of(resolve(spec.method))
    described = ModelDescription(**spec.model.model_dump(), task=spec.task)
    images, _ = read(study.silos[0].spec.managed.data, tmp_path / "data", described, 3)
    network = to_device(build_model(described, training, 3), torch.device("cpu"))
    steps = torch.optim.SGD(network.parameters(), lr=0.05)
    assert spec.model.volume is not None
    views = VolumeViews(images.images, spec.model.volume, torch.device("cpu"))
    with calculation():
        for number in (1, 2):
            draws = Draws(3, number, "site-0")
            order, augmentation = draws.numpy("batches"), draws.torch("augmentation")
            for rows in [rows for _ in range(2) for rows in epoch_batches(order, len(images), 1, 1)]:
                patches, masks = views.with_labels("learnt", torch.from_numpy(rows), torch.empty(0), augmentation)
                steps.zero_grad()
                spec.task.loss(network.train()(patches), masks).backward()
                steps.step()
    for name, tensor in network.state_dict().items():
        assert np.array_equal(tensor.numpy(), trained[name]), name


def test_the_final_assessment_measures_millimetres_and_the_server_draws_slices(tmp_path: Path) -> None:
    study = validate_study(write_study(tmp_path, {"name": "FedAvg"}))
    spec = study.federation.spec
    described = ModelDescription(**spec.model.model_dump(), task=spec.task)
    validation, _ = read(spec.server_data["validation"], tmp_path / "data", described, 1)
    learner = build_server_learner(model=described, method=resolve(spec.method), seed=1, validation=validation)
    model = learner.initialise()
    picture, assessment = learner.examples(model, 0), learner.assess(model, 0)
    assert picture is not None and picture.dtype == np.uint8 and picture.ndim == 3
    assert (
        assessment is not None
        and assessment.images == 2
        and {"dice/front", "dice/back", "dice"} <= assessment.intervals.keys()
    )
    computed = assessment.counts["cases/front"][0]
    assert computed[0] == 2 and assessment.metrics["surface_dice"] >= 0
    spread = described.model_copy(update={"volume": described.volume.model_copy(update={"spacing": ("1", "1", "2")})})
    other, _ = read(spec.server_data["validation"], tmp_path / "data", spread, 1)
    assert other.images.volume(0).shape[3] == 5


@pytest.mark.parametrize(
    ("spec", "method", "words"),
    [
        ({"model": {**MODEL, "network": "SmallCnn"}}, {}, "SmallCnn"),
        ({"model": {**MODEL, "network": "SmallCnn"}, "task": {"classification": {"classes": ["a", "b"]}}}, {}, "classification is of flat images"),
        ({"model": {**MODEL, "augmentation": "Dermoscopy"}}, {}, "Dermoscopy, which is of flat images"),
        ({"model": {**MODEL, "fit": "Crop"}}, {}, "Crop, which is of flat images"),
        ({"model": {**MODEL, "imageSize": 64}}, {}, "leave imageSize out"),
        ({"model": {"network": "SmallUNet"}}, {}, "found neither imageSize nor volume"),
        ({"model": {**MODEL, "volume": {**VOLUME, "patch": [1024, 1024, 1024]}}}, {}, "allowed are at most"),
        ({"model": {**MODEL, "volume": {**VOLUME, "overlap": "1"}}}, {}, "allowed is a share below 1"),
        ({"model": {**MODEL, "volume": {**VOLUME, "spacing": ["1", "1", "900"]}}}, {}, "allowed are 0.05 to 50 mm"),
        ({}, {"name": "FedBarlow"}, "barlow, which does not learn from volumes without masks"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_run(
    spec: dict[str, Any], method: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError, match=words):
        validate_study(write_study(tmp_path, {"name": "FedAvg", **method}, **spec))


def test_volumes_of_simulations_one_after_another_are_read_as_each_takes_them(tmp_path: Path) -> None:
    write_pairs(tmp_path / "data" / "pool", 2)
    section = ServerData.model_validate({"format": "ImageFolder", "claimName": "pool"})
    decoded, shapes = DecodedImages(tmp_path / "volumes"), {}
    for run, spacing in enumerate(("1", "2", "1")):
        volume = {**VOLUME, "spacing": [spacing] * 3}
        model = ModelDescription.model_validate_json(
            json.dumps({**MODEL, "volume": volume, "task": {"segmentation": {"classes": CLASSES}}})
        )
        state = tmp_path / f"run-{run}"
        state.mkdir()
        images = SharedImages(tmp_path / "data", model, 1, state, before=decoded).of(section).images
        shutil.rmtree(state)  # as a study removes what a finished cell needs no more
        shapes[run] = [images.volume(place).mask().shape for place in range(len(images))]
    assert shapes == {0: [(12, 14, 10)] * 2, 1: [(6, 7, 5)] * 2, 2: [(12, 14, 10)] * 2}
