"""Sizes of models, what travels, and metrics against the known answers M1, M2, M3, Q3 and V1."""

import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from anchorage.data.augmentation import AUGMENTATIONS
from anchorage.learning.metrics import (
    auc_per_class,
    classification_metrics,
    confusion_matrix,
    precision_per_class,
    recall_per_class,
)
from anchorage.learning.models import ANCHOR_WIDTH, Network, ResNet18, WideResNet28, build_encoder
from anchorage.learning.similarity import build_random_anchor
from anchorage.learning.views import Views

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


def _sizes(encoder, classes, image_size):
    with torch.device("meta"):
        network = Network(encoder(), classes, anchor_head=False)
    return {
        "parameters": _parameters(network),
        "bn_running_values": _running_values(network),
        "bn_layers": sum(isinstance(m, nn.BatchNorm2d) for m in network.modules()),
        "forward_MACs": _multiply_accumulates(network, image_size),
        "float32_bytes_params_and_running": 4 * (_parameters(network) + _running_values(network)),
    }


def _anchor_head(encoder):
    with torch.device("meta"):
        return _parameters(Network(encoder(), 10, anchor_head=True).anchor_head)


def _cifar():
    return build_encoder("ResNet18", 3)


def _imagenet():
    return build_encoder("ResNet18ImageNet", 3)


def _wrn28_2():
    return build_encoder("WideResNet28x2", 3)


def _reference_networks():
    """Sizes of the networks of other papers, which Anchorage does not offer."""
    with torch.device("meta"):
        barlow = nn.Sequential(
            nn.Linear(512, 2048, bias=False), nn.BatchNorm1d(2048), nn.Linear(2048, 2048, bias=False),
            nn.BatchNorm1d(2048), nn.Linear(2048, 2048, bias=False), nn.BatchNorm1d(2048, affine=False),
        )  # fmt: skip

        def tutorial(map_size):
            wide = 64 * map_size**2
            return nn.Sequential(
                nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5), nn.Linear(wide, 384), nn.Linear(384, 192), nn.Linear(192, 10)
            )

        femnist = nn.Sequential(
            nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5), nn.Linear(64 * 49, 2048), nn.Linear(2048, 62)
        )
        base = nn.Sequential(nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5), nn.Linear(400, 120), nn.Linear(120, 84))
        heads = nn.Sequential(nn.Linear(84, 84), nn.Linear(84, 256), nn.Linear(256, 10))
        widths = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
        resnet9 = nn.Sequential(*(nn.Conv2d(a, b, 3, bias=False) for a, b in widths), nn.Linear(512, 10, bias=False))
    return {
        "barlow_projector_2048x3_on_512": {"parameters": _parameters(barlow), "bn_running_values": _running_values(barlow)},
        "tf_tutorial_cifar10_2cnn_crop24": {"parameters": _parameters(tutorial(6))},
        "tf_tutorial_cifar10_2cnn_crop32": {"parameters": _parameters(tutorial(8))},
        "leaf_femnist_cnn_62": {"parameters": _parameters(femnist)},
        "moon_simple_cnn_with_projection_C10": {
            "parameters": _parameters(base) + _parameters(heads),
            "base": _parameters(base),
            "heads": _parameters(heads),
        },
        "fedmatch_resnet9": {
            "parameters_of_sigma": _parameters(resnet9),
            "with_sigma_and_psi": 2 * _parameters(resnet9),
        },
    }  # fmt: skip


def test_m1_sizes(known):
    known.check(
        "M1_parameter_counts",
        {
            "resnet18_cifar_C10": _sizes(_cifar, 10, 32),
            "resnet18_cifar_C100": _sizes(_cifar, 100, 32),
            "resnet18_imagenet_C7": _sizes(_imagenet, 7, 224),
            "resnet18_imagenet_C10_at32": _sizes(_imagenet, 10, 32),
            "wrn28_2_C10": _sizes(_wrn28_2, 10, 32),
            "wrn28_2_C100": _sizes(_wrn28_2, 100, 32),
            "wrn28_8_C100": _sizes(lambda: WideResNet28(3, 8), 100, 32),
            "anchor_head_512_128": {"parameters": _anchor_head(_cifar)},
            "anchor_head_wrn_128_128": {"parameters": _anchor_head(_wrn28_2)},
            **_reference_networks(),
        },
    )


def test_m2_overhead_of_the_anchors(known):
    name = "M2_fedanchor_overhead_percent"

    def percent(encoder, classes, rows, digits):
        with torch.device("meta"):
            network = Network(encoder(), classes, anchor_head=False)
        return round(100 * rows * ANCHOR_WIDTH / _parameters(network), digits)

    def table(encoder, keys, digits):
        sets = {"CIFAR10": 10, "CIFAR100": 100, "SVHN": 10}
        parts = {key: key.split("_") for key in keys}
        return {k: percent(encoder, sets[data], int(anchors), digits) for k, (data, anchors) in parts.items()}

    expected = known.expected(name)
    nets = {"resnet18": _cifar, "wrn28": _wrn28_2}
    prototypes = {}
    for key in expected["prototypes_C_x_128"]:
        classes = int(re.search(r"_C(\d+)$", key).group(1))
        prototypes[key] = percent(nets[key.split("_")[0]], classes, classes, 5)
    known.check(
        name,
        {
            "paper_formula_resnet18": table(_cifar, expected["paper_formula_resnet18"], 4),
            "same_formula_wrn28_2": table(_wrn28_2, expected["same_formula_wrn28_2"], 3),
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
        unit, last = key.split("_")[0], key.split("_")[-1]
        computed[key] = (sum(sizes) if last == "total" else int(last)) * row / units[unit]
    known.check(name, computed)


def test_features_have_the_width_and_dtype_of_the_dictionary():
    encoder = build_random_anchor("ResNet18ImageNet", 3, seed=0)
    views = Views(np.zeros((2, 3, 32, 32), np.uint8), AUGMENTATIONS["Natural"], torch.device("cpu"))
    features = views.mapped(np.arange(2), lambda i: encoder(views.plain(i)))
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
