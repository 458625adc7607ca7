"""Encoders and heads (METHODS.md 5.1). Weights are drawn with numpy's PCG64, a seed per tensor, so every machine draws the same ones."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from anchorage.randomness import generator
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.model import ModelSpec

ANCHOR_WIDTH = 128
"""Width of the anchor head's output (METHODS.md 6.8)."""

ANCHOR_HEAD = "anchor_head."
"""Prefix of the tensors that no client loss reaches: they travel down, not up."""

PROJECTION_WIDTH = 256
"""Width of MOON's projection head (METHODS.md 6.3)."""

ModelName = Literal["SmallCnn", "ResNet18", "ResNet18ImageNet", "WideResNet28x2"]


class SmallCnn(nn.Module):
    """Four convolutions with batch normalisation, for small images such as 8x8 digits; width 128, smallest map a quarter of the image."""

    width = 128
    reduction = 4

    def __init__(self, channels: int) -> None:
        super().__init__()
        plan = [(channels, 16), (16, 32), (32, 64), (64, self.width)]
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b in plan)

    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 128], not negative."""
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if index >= 2:  # the last two see half and a quarter of the image
                x = functional.max_pool2d(x, 2)
            x = functional.relu(norm(convolution(x)))
        return x.mean((2, 3))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside an identity or a 1x1 convolution (ResNet)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, before, H, W] to [n, after, H/stride, W/stride]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 without its classifier, width 512.

    Parameters
    ----------
    channels : int
        Channels of the images.
    large : bool
        The 7x7 stem with max-pooling for large images ("ImageNet"), else the 3x3 stem ("CIFAR").
    """

    width = 512

    def __init__(self, channels: int, large: bool) -> None:
        super().__init__()
        self.large = large
        self.reduction = 32 if large else 8
        self.stem = (
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        )
        self.stem_norm = nn.BatchNorm2d(64)
        plan = [
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        ]
        self.blocks = nn.Sequential(*(BasicBlock(*p) for p in plan))

    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 512], not negative."""
        x = functional.relu(self.stem_norm(self.stem(x)))
        if self.large:
            x = functional.max_pool2d(x, 3, 2, 1)
        features: Tensor = self.blocks(x)
        return features.mean((2, 3))


class PreActivationBlock(nn.Module):
    """Normalise, activate, convolve, twice; the shortcut of a widening block starts after the first activation (wide ResNet)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, before, H, W] to [n, after, H/stride, W/stride]."""
        y = functional.relu(self.bn1(x))
        kept = x if self.shortcut is None else self.shortcut(y)
        output: Tensor = self.conv2(functional.relu(self.bn2(self.conv1(y)))) + kept
        return output


class WideResNet28(nn.Module):
    """WRN-28-k without its classifier, width 64 k.

    Parameters
    ----------
    channels : int
        Channels of the images.
    widen : int
        The factor k.
    """

    reduction = 4

    def __init__(self, channels: int, widen: int) -> None:
        super().__init__()
        self.width = 64 * widen
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        widths = [16, 16 * widen, 32 * widen, 64 * widen]
        blocks = []
        for group in range(3):
            for index in range(4):
                before, stride = (widths[group], 1 + (group > 0)) if index == 0 else (widths[group + 1], 1)
                blocks.append(PreActivationBlock(before, widths[group + 1], stride))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(self.width)

    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 64 k], not negative."""
        return functional.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3))


Encoder = SmallCnn | ResNet18 | WideResNet28


class Network(nn.Module):
    """An encoder with a classifier and, for FedAnchor, an anchor head (METHODS.md 6.8), for MOON a projection head (6.3).

    Parameters
    ----------
    encoder : Encoder
        Images [n, channels, H, W] to embeddings [n, width].
    num_classes : int
        Classes C.
    anchor_head : bool
        Whether there is a linear map to `ANCHOR_WIDTH`, with bias.
    projection : bool
        Whether two linear maps to `PROJECTION_WIDTH` stand between encoder and classifier.
    """

    def __init__(self, encoder: Encoder, num_classes: int, anchor_head: bool, projection: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        width = encoder.width
        self.projection = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION_WIDTH))
            if projection
            else nn.Identity()
        )
        self.classifier = nn.Linear(PROJECTION_WIDTH if projection else width, num_classes)
        self.anchor_head = nn.Linear(encoder.width, ANCHOR_WIDTH) if anchor_head else None

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, C]."""
        logits: Tensor = self.classifier(self.represent(x))
        return logits

    def represent(self, x: Tensor) -> Tensor:
        """Return what the classifier sees [n, d]: the encoder's output, behind the projection head where there is one."""
        z: Tensor = self.projection(self.encoder(x))
        return z

    def anchor(self, x: Tensor) -> Tensor:
        """Return the anchor head's output [n, 128], not normalised."""
        assert self.anchor_head is not None, "the method needs no anchor head"
        output: Tensor = self.anchor_head(self.encoder(x))
        return output

    def smallest_batch(self, image_size: int) -> int:
        """Return 2 where a batch normalisation sees a 1x1 map, of which one image has no variance, else 1 (METHODS.md 6.1)."""
        return 2 if -(-image_size // self.encoder.reduction) <= 1 else 1


def build_encoder(name: ModelName, channels: int) -> Encoder:
    """Return the encoder of a model by its name in the API, with weights that are not drawn yet."""
    if name == "SmallCnn":
        return SmallCnn(channels)
    if name == "WideResNet28x2":
        return WideResNet28(channels, 2)
    return ResNet18(channels, large=name == "ResNet18ImageNet")


def draw_weights(module: nn.Module, seed: int, purpose: str) -> None:
    """Fill a module's parameters: Kaiming normal by fan-out for convolutions, uniform by fan-in for linear maps (METHODS.md 5.1).

    Parameters
    ----------
    module : Module
        On the CPU.
    seed : int
        The run's seed.
    purpose : str
        ``init`` for the model, ``random-anchor`` for SemiAnAgg's encoder.
    """
    state = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in state.items():
            draw = generator(seed, f"{purpose}/{name}")
            if tensor.ndim == 4:
                fan_out = tensor.shape[0] * tensor.shape[2] * tensor.shape[3]
                tensor.copy_(torch.from_numpy(draw.standard_normal(tensor.shape) * math.sqrt(2 / fan_out)))
            elif name.startswith(("classifier.", "projection.", ANCHOR_HEAD)):
                bound = 1 / math.sqrt(state[name.replace("bias", "weight")].shape[1])
                tensor.copy_(torch.from_numpy(draw.uniform(-bound, bound, tensor.shape)))


def build_model(model: ModelSpec, method: ResolvedMethod, seed: int) -> Network:
    """Return a method's network on the CPU with the weights of the run's seed.

    It has an anchor head and a projection head exactly where the method needs one; the encoder does not depend on that.
    """
    needed = method.pseudo_labels.type == "AnchorSimilarity" or method.server_training.contrastive == "Enabled"
    projection = method.regulariser.type in ("Moon", "FeatureDistance")
    network = Network(build_encoder(model.name, model.channels), model.num_classes, needed, projection)
    draw_weights(network, seed, "init")
    return network
