"""A model from its description alone scores as the network that was trained, and so does every program that is made of it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from anchorage.api.errors import AnchorageError, commands, learning
from anchorage.api.inference import describe, parse_inference
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription, network_called
from anchorage.api.piece import PIECES, expect
from anchorage.learning.exporting import save_onnx, save_program, save_torchscript
from anchorage.learning.inference import ImageModel
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import TaskHooks, augmentation_of
from anchorage.learning.models import build_model
from anchorage.learning.network import Network
from anchorage.methods import PRESETS, resolve
from anchorage.pieces.task.classification import Classification
from anchorage.pieces.task.segmentation import Segmentation

TASK = Classification(classes=("benign", "malignant", "other"))
HEADS = ("FedAvg", "FedAnchor", "MOON", "FedMatch", "FedRoD", "FedCon", "FedBarlow")


def trained(model: ModelDescription, preset: str = "FedAvg") -> Network:
    """A network as training leaves it: statistics of batch normalisation that are not those of its beginning."""
    network = build_model(model, TrainingMethod.of(resolve(MethodSpec(name=preset))), 3)
    views = augmentation_of(model.augmentation).plain(torch.from_numpy(images(model, 16)))
    with torch.no_grad():
        network.train()(views)
        network.classifier.weight.mul_(10)  # so that images differ in their scores
    return network.eval()


def classifier(model: ModelDescription, network: Network) -> ImageModel:
    text = json.dumps(describe(model, "derm", classifier_trained=True))
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    return ImageModel(parse_inference(text.encode(), "model.json"), arrays)


def images(model: ModelDescription, count: int = 5) -> np.ndarray:
    shape = (count, model.channels, model.image_size, model.image_size)
    draw = np.random.default_rng(2)
    coarse = draw.integers(0, 256, (count, model.channels, 2, 2))  # not noise, of which all means are alike
    side = -(-model.image_size // 2)
    maps = np.kron(coarse, np.ones((side, side), np.int64))[..., : shape[2], : shape[3]]
    return (maps * draw.uniform(0.5, 1, shape)).astype(np.uint8)


def scores(model: ModelDescription, network: Network, pixels: np.ndarray) -> np.ndarray:
    """As training evaluates."""
    views = augmentation_of(model.augmentation).plain(torch.from_numpy(pixels))
    with torch.no_grad():
        outputs: np.ndarray = expect(model.task, TaskHooks).activated(network(views)).numpy()
    assert np.ptp(outputs, axis=0).max() > 1e-3, "images differ in their scores"
    return outputs


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("augmentation", sorted(PIECES.of("augmentation")))
def test_a_description_prepares_images_as_training_did(augmentation: str, channels: int) -> None:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=16, channels=channels, augmentation=augmentation)
    network = trained(model)
    class_scores = classifier(model, network).score(images(model))
    np.testing.assert_allclose(class_scores, scores(model, network, images(model)), atol=1e-6)


@pytest.mark.parametrize("preset", HEADS)
def test_heads_that_only_help_training_are_left_out(preset: str) -> None:
    assert preset in PRESETS
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    network = trained(model, preset)
    class_scores = classifier(model, network).score(images(model))
    np.testing.assert_allclose(class_scores, scores(model, network, images(model)), atol=1e-6)


def test_a_hidden_layer_is_told_by_the_weights() -> None:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1, hidden=7)
    network = trained(model)
    class_scores = classifier(model, network).score(images(model))
    np.testing.assert_allclose(class_scores, scores(model, network, images(model)), atol=1e-6)


@pytest.mark.parametrize("head", ["NaiveBayes", "Qda"])
def test_a_classifier_with_covariances_is_told_by_the_weights_and_exported(head: str, tmp_path: Path) -> None:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    spec = {"name": "MomentsHead", "serverTraining": {"moments": {"head": head}}}
    made = build_model(model, TrainingMethod.of(resolve(MethodSpec.model_validate(spec))), 3).eval()
    with torch.no_grad():
        made.classifier.scale.copy_(torch.from_numpy(np.random.default_rng(1).normal(size=made.classifier.scale.shape)))
    loaded = classifier(model, made)
    np.testing.assert_allclose(loaded.score(images(model)), scores(model, made, images(model)), atol=1e-6)
    save_program(loaded, tmp_path / "model.pt2", "{}")  # compares what it saved


@pytest.mark.parametrize("network", ["SmallCnn", "MoonCnn", "torchvision/mobilenet_v3_small"])
def test_a_description_tells_group_normalisation_by_the_weights(network: str) -> None:
    model = ModelDescription(network=network, task=TASK, image_size=16, channels=1)
    method = resolve(MethodSpec.model_validate({"name": "FedAvg", "batchNorm": {"groupNorm": {}}}))
    made = build_model(model, TrainingMethod.of(method), 3).eval()
    with torch.no_grad():
        made.classifier.weight.mul_(10)
    class_scores = classifier(model, made).score(images(model))
    np.testing.assert_allclose(class_scores, scores(model, made, images(model)), atol=1e-5)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:FutureWarning")
@pytest.mark.parametrize("network", sorted(name for name in PIECES.of("network") if not name.endswith("/")))
def test_every_network_becomes_programs_that_score_equal(tmp_path: Path, network: str) -> None:
    augmentation = "CroppedNatural" if network == "TutorialCnn" else "Natural"
    task = Segmentation(classes=TASK.classes) if network_called(network).gives_maps else TASK
    model = ModelDescription(network=network, task=task, image_size=24, augmentation=augmentation)
    made = trained(model)
    wanted = scores(model, made, images(model))
    programs: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    save_torchscript(classifier(model, made), tmp_path / "script", "{}")
    programs["torchscript"] = torch.jit.load(tmp_path / "script")
    save_program(classifier(model, made), tmp_path / "program.pt2", "{}")
    programs["export"] = torch.export.load(tmp_path / "program.pt2").module()
    onnxruntime = pytest.importorskip("onnxruntime")
    save_onnx(classifier(model, made), tmp_path / "program.onnx", "{}")
    session = onnxruntime.InferenceSession(tmp_path / "program.onnx")
    programs["onnx"] = lambda pixels: session.run(None, {"images": pixels.numpy()})[0]
    for name, program in programs.items():
        for rows in (slice(0, 1), slice(0, 5)):
            with torch.no_grad():
                probabilities = np.asarray(program(torch.from_numpy(images(model)[rows])))
            np.testing.assert_allclose(probabilities, wanted[rows], atol=1e-5, err_msg=name)


def test_a_network_that_depends_on_values_cannot_become_a_program(tmp_path: Path) -> None:
    class Choosing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mean((2, 3)) if bool(x.mean() > 0) else x.amax((2, 3))

    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    made = classifier(model, trained(model))
    made.network.encoder = torch.nn.Sequential(made.network.encoder, torch.nn.Unflatten(1, (128, 1, 1)), Choosing())
    with pytest.raises(AnchorageError, match="SmallCnn: ") as caught:
        save_program(made, tmp_path / "program", "{}")
    assert caught.value.failure is commands.EXPORT_FAILED and not list(tmp_path.iterdir())


def test_a_program_that_scores_otherwise_is_not_written(tmp_path: Path) -> None:
    class Recorded(torch.nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls  # TorchScript records the number of the moment

    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    made = classifier(model, trained(model))
    made.network.encoder = torch.nn.Sequential(made.network.encoder, Recorded())
    with pytest.raises(AnchorageError, match="probabilities differ") as caught:
        save_torchscript(made, tmp_path / "script", "{}")
    assert caught.value.failure is commands.EXPORT_FAILED and not list(tmp_path.iterdir())


def test_scores_that_are_no_numbers_are_refused() -> None:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=8, channels=1)
    network = trained(model)
    with torch.no_grad():
        network.classifier.weight.fill_(float("nan"))
    with pytest.raises(AnchorageError) as caught:
        classifier(model, network).score(images(model))
    assert caught.value.failure is learning.LOSS_NOT_FINITE


def test_weights_of_another_network_are_refused() -> None:
    model = ModelDescription(network="SmallCnn", task=TASK, image_size=16, channels=1)
    other = ModelDescription(network="MoonCnn", task=TASK, image_size=16, channels=1)
    with pytest.raises(AnchorageError) as caught:
        classifier(model, trained(other))
    assert caught.value.failure is learning.MODEL_MISMATCH
