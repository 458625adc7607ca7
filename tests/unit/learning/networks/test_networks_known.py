"""Sizes of models, what travels, and metrics against the known answers M1, M2, M3, Q3 and V1."""

import math
import re

import numpy as np
import pytest
import torch
from learning_party import Party, images_of, method_of
from torch import nn

from anchorage.algorithms.classification_metrics import (
    auc_per_class,
    classification_metrics,
    confusion_matrix,
    precision_per_class,
    recall_per_class,
)
from anchorage.api.model import ModelDescription
from anchorage.learning.heads import before_classifier
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import augmentation_of
from anchorage.learning.models import build_encoder, build_model
from anchorage.learning.network import Network
from anchorage.learning.networks.cnns import TutorialCnn
from anchorage.learning.networks.resnets import ResNet18, WideResNet28
from anchorage.learning.views import Views
from anchorage.pieces.anchor_head import WIDTH
from anchorage.pieces.pseudo_labels.anchor_similarity import AnchorSimilarity
from anchorage.pieces.self_supervised.barlow import Barlow
from anchorage.pieces.task.classification import Classification
from anchorage.pieces.weighting.semianagg import build_random_anchor

pytestmark = pytest.mark.known_answers


def _parameters(module):
    return sum(p.numel() for p in module.parameters())


def _running_values(module):
    return sum(b.numel() for b in module.buffers() if b.is_floating_point())


def _multiply_accumulates(network, image_size):
    counts = []

    def count(layer, inputs, output):
        each = layer.in_features if isinstance(layer, nn.Linear) else layer.weight[0].numel()
        counts.append(output.numel() * each)

    layers = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    for layer in layers:
        layer.register_forward_hook(count)
    network.eval()(torch.empty(1, 3, image_size, image_size, device="meta"))
    return sum(counts)


def _spec(name, classes=10, image_size=32, channels=3, augmentation="Natural"):
    return ModelDescription(
        network=name,
        task=Classification(classes=tuple(map(str, range(classes)))),
        image_size=image_size,
        channels=channels,
        augmentation=augmentation,
    )


def _sizes(network, image_size):
    return {
        "parameters": _parameters(network),
        "bn_running_values": _running_values(network),
        "bn_layers": sum(isinstance(m, nn.BatchNorm2d) for m in network.modules()),
        "forward_MACs": _multiply_accumulates(network, image_size),
        "float32_bytes_params_and_running": 4 * (_parameters(network) + _running_values(network)),
    }


def _network(name, classes=10, **other):
    with torch.device("meta"):
        encoder = build_encoder(_spec(name, classes, **other), seed=1)
        bias, projection = name != "ResNet9", name == "MoonCnn"
        between, features = before_classifier(encoder.width, projection=projection)
        return Network(encoder, encoder.width, nn.Linear(features, classes, bias=bias), projection=between)


def _wide(width, classes):
    with torch.device("meta"):
        encoder = WideResNet28(3, width)
        return Network(encoder, encoder.width, nn.Linear(encoder.width, classes))


def _anchor_head(width):
    name = {512: "ResNet18", 128: "WideResNet28x2"}[width]
    network = _network(name)
    AnchorSimilarity().add_heads(network)
    return {"parameters": _parameters(network.head("anchor_head"))}


def _barlow_projector(width):
    with torch.device("meta"):
        network = Network(nn.Identity(), width, nn.Linear(width, 2))
        Barlow().add_heads(network)
    projector = network.head("projector")
    return {"parameters": _parameters(projector), "bn_running_values": _running_values(projector)}


def _moon(classes):
    network = _network("MoonCnn", classes)
    heads = _parameters(network.projection) + _parameters(network.classifier)
    return {"parameters": _parameters(network), "base": _parameters(network.encoder), "heads": heads}


def _tutorial(crop):
    augmentation = {24: "CroppedNatural", 32: "Natural"}[crop]
    return {"parameters": _parameters(_network("TutorialCnn", augmentation=augmentation))}


def _fedmatch():
    sigma = _parameters(_network("ResNet9"))
    return {"parameters_of_sigma": sigma, "with_sigma_and_psi": 2 * sigma}


SIZES = {
    r"resnet18_cifar_C(\d+)": lambda classes: _sizes(_network("ResNet18", classes), 32),
    r"resnet18_imagenet_C(\d+)": lambda classes: _sizes(_network("ResNet18ImageNet", classes), 224),
    r"resnet18_imagenet_C(\d+)_at(\d+)": lambda classes, side: _sizes(_network("ResNet18ImageNet", classes), side),
    r"wrn28_(\d+)_C(\d+)": lambda width, classes: _sizes(_wide(width, classes), 32),
    r"anchor_head_(?:wrn_)?(\d+)_128": _anchor_head,
    r"barlow_projector_2048x3_on_(\d+)": _barlow_projector,
    r"tf_tutorial_cifar10_2cnn_crop(\d+)": _tutorial,
    r"leaf_femnist_cnn_(\d+)": lambda classes: {
        "parameters": _parameters(_network("LeafCnn", classes, image_size=28, channels=1))
    },
    r"moon_simple_cnn_with_projection_C(\d+)": _moon,
    "fedmatch_resnet9": _fedmatch,
}
"""How the name of a size tells what is measured."""


def _measured(key):
    ((match, measure),) = ((m, measure) for pattern, measure in SIZES.items() if (m := re.fullmatch(pattern, key)))
    return measure(*map(int, match.groups()))


def test_m1_sizes(known):
    known.check("M1_parameter_counts", {key: _measured(key) for key in known.expected("M1_parameter_counts")})


@pytest.mark.parametrize(
    ("name", "image_size", "channels"),
    [("MoonCnn", 16, 3), ("MoonCnn", 28, 1), ("TutorialCnn", 16, 3), ("LeafCnn", 8, 1), ("ResNet9", 8, 3)],
)
def test_every_model_takes_small_images_and_is_drawn_from_the_seed_alone(name, image_size, channels):
    spec = _spec(name, 3, image_size, channels)
    network, rebuilt = (build_model(spec, TrainingMethod.of(method_of("FedAvg")), seed=5).eval() for _ in range(2))
    with torch.no_grad():
        logits = network(torch.rand(2, channels, image_size, image_size, generator=torch.Generator().manual_seed(0)))
    assert logits.shape == (2, 3) and torch.isfinite(logits).all() and (logits[0] != logits[1]).any()
    for key, tensor in network.state_dict().items():
        assert torch.equal(tensor, rebuilt.state_dict()[key]), key


def test_small_images_have_no_size_that_moons_network_cannot_take():
    with pytest.raises(ValueError, match="found imageSize 12, but MoonCnn takes images of at least 16 pixels"):
        _spec("MoonCnn", image_size=12)
    assert build_encoder(_spec("MoonCnn", image_size=16), seed=1).dense1.in_features == 16


def test_local_response_normalisation_is_tensorflows():
    x = torch.rand(1, 12, 2, 2, generator=torch.Generator().manual_seed(0)).double() * 9
    squares = torch.stack([(x[:, max(0, c - 4) : c + 5] ** 2).sum(1) for c in range(12)], 1)
    assert torch.allclose(TutorialCnn(3, 24).respond(x), x / (1 + 0.001 / 9 * squares) ** 0.75)


def test_m2_overhead_of_the_anchors(known):
    name = "M2_fedanchor_overhead_percent"

    def percent(model, classes, rows, digits):
        return round(100 * rows * WIDTH / _parameters(_network(model, classes)), digits)

    def table(model, keys, digits):
        sets = {"CIFAR10": 10, "CIFAR100": 100, "SVHN": 10}
        parts = {key: key.split("_") for key in keys}
        return {k: percent(model, sets[data], int(anchors), digits) for k, (data, anchors) in parts.items()}

    expected = known.expected(name)
    nets = {"resnet18": "ResNet18", "wrn28": "WideResNet28x2"}
    prototypes = {}
    for key in expected["prototypes_C_x_128"]:
        classes = int(re.search(r"_C(\d+)$", key).group(1))
        prototypes[key] = percent(nets[key.split("_")[0]], classes, classes, 5)
    known.check(
        name,
        {
            "paper_formula_resnet18": table("ResNet18", expected["paper_formula_resnet18"], 4),
            "same_formula_wrn28_2": table("WideResNet28x2", expected["same_formula_wrn28_2"], 3),
            "prototypes_C_x_128": prototypes,
        },
    )


def test_m3_bytes_of_the_feature_dictionary(known):
    name = "M3_semianagg_dictionary_bytes"
    sizes = known.inputs(name)["sizes_ISIC"]
    row = torch.empty(1, ResNet18.width).nbytes
    units = {"bytes": 1, "KiB": 2**10, "MiB": 2**20}
    computed = {}
    for key in known.expected(name):
        unit, *which, last = key.split("_")
        images = sum(sizes) if last == "total" else min(sizes) if "smallest" in which else int(last)
        computed[key] = images * row / units[unit]
    known.check(name, computed)


def test_features_have_the_width_and_dtype_of_the_dictionary():
    encoder = build_random_anchor(_spec("ResNet18ImageNet"), seed=0)
    views = Views(np.zeros((2, 3, 32, 32), np.uint8), augmentation_of("Natural"), torch.device("cpu"))
    features = views.map_batches(np.arange(2), lambda i: encoder(views.plain(i)))
    assert features.shape == (2, ResNet18.width) and features.dtype == torch.float32


def test_q3_batch_normalisation_folds_into_the_convolution(known):
    generator = torch.Generator().manual_seed(known.inputs("Q3_bn_folding")["seed"])
    convolution = nn.Conv2d(3, 5, 3, bias=False, dtype=torch.float64)
    norm = nn.BatchNorm2d(5, dtype=torch.float64).eval()
    with torch.no_grad():
        for tensor in (convolution.weight, norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5)
        x = torch.randn(2, 3, 9, 9, generator=generator, dtype=torch.float64)
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        folded = nn.functional.conv2d(
            x, convolution.weight * scale[:, None, None, None], norm.bias - norm.running_mean * scale
        )
        difference = (folded - norm(convolution(x))).abs().max()
    known.check("Q3_bn_folding", {"max_abs_difference": difference}, absolute=1e-12)


def test_v1_metrics(known):
    case = known.inputs("V1_metrics")
    probabilities, labels = np.array(case["probabilities"]), np.array(case["labels"])
    confusion = confusion_matrix(labels, probabilities.argmax(1), probabilities.shape[1])
    metrics = classification_metrics(labels, probabilities)
    known.check(
        "V1_metrics",
        {
            "predictions": probabilities.argmax(1),
            "accuracy": metrics["accuracy"],
            "recall": recall_per_class(confusion),
            "balanced_accuracy": metrics["balanced_accuracy"],
            "precision": precision_per_class(confusion),
            "macro_precision": metrics["macro_precision"],
            "auc_ovr": auc_per_class(labels, probabilities),
            "auc_macro": metrics["macro_auc"],
        },
    )


def test_classes_without_test_images_are_left_out():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.8, 0.1, 0.1]])
    metrics = classification_metrics(np.array([0, 1, 1]), probabilities)
    assert metrics["balanced_accuracy"] == 0.75
    assert metrics["macro_precision"] == 0.75
    assert math.isclose(metrics["macro_auc"], 0.5)


def test_one_class_alone_has_no_auc():
    assert "macro_auc" not in classification_metrics(np.array([0, 0]), np.array([[0.9, 0.1], [0.2, 0.8]]))


def test_a_class_never_predicted_has_precision_zero():
    metrics = classification_metrics(np.array([0, 1]), np.array([[0.9, 0.1], [0.9, 0.1]]))
    assert metrics["macro_precision"] == 0.25


@pytest.mark.parametrize(
    ("name", "augmentation"), [("TutorialCnn", "CroppedNatural"), ("ResNet9", "ResizedNatural"), ("LeafCnn", "Svhn")]
)
def test_models_without_batch_normalisation_train_on_any_kind_of_view(tmp_path, monkeypatch, name, augmentation):
    monkeypatch.setattr("learning_party.MODEL", _spec(name, 3, 8, 1, augmentation))
    slots = {"pseudoLabels": {"threshold": "0"}, "serverTraining": {"pretrainEpochs": 0}}
    silo = Party(method_of("FedAnchor", **slots), images_of(10, labelled=False), tmp_path)
    before = silo.model.arrays()
    silo.train()
    assert all((array != before[key]).any() for key, array in silo.arrays().items())
    model, metrics = silo.server.train(silo.model, 1)
    assert np.isfinite(list(metrics.values())).all()
    assert 0 <= silo.server.evaluate(model, 1).metrics["accuracy"] <= 1
