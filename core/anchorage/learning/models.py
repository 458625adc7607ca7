"""Encoders and heads (METHODS.md 5.1). Weights are drawn with numpy's PCG64, a seed per tensor, so every machine draws the same ones."""

import math

import torch
from torch import Tensor, nn

from anchorage.api.method import ResolvedMethod
from anchorage.api.model import ModelSpec
from anchorage.learning.cnns import LeafCnn, MoonCnn, ResNet9, SmallCnn, TutorialCnn
from anchorage.learning.data.augmentation import AUGMENTATIONS
from anchorage.learning.heads import build_second_part
from anchorage.learning.projectors import Projector, build_projector
from anchorage.learning.randomness import generator
from anchorage.learning.resnets import ResNet18, WideResNet28

ANCHOR_WIDTH = 128
"""Width of the anchor head's output (METHODS.md 6.8)."""

ANCHOR_HEAD = "anchor_head."
"""Prefix of the tensors that no client loss reaches: they travel down, not up."""

CLASSIFIER = "classifier."
"""Prefix of the classifier's tensors."""

PROJECTION_WIDTH = 256
"""Width of MOON's projection head (METHODS.md 6.3)."""

Encoder = SmallCnn | ResNet18 | WideResNet28 | MoonCnn | TutorialCnn | LeafCnn | ResNet9


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
        seen = PROJECTION_WIDTH if projection else width
        self.classifier = nn.Linear(seen, num_classes, bias=not isinstance(encoder, ResNet9))
        self.anchor_head = nn.Linear(encoder.width, ANCHOR_WIDTH) if anchor_head else None
        self.psi: Psi | None = None
        self.projector: Projector | None = None
        self.rotation: nn.Linear | None = None
        self.plain_head: nn.Linear | None = None
        self.local: nn.Module | None = None

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


class Psi(nn.Module):
    """FedMatch's unsupervised part: one more tensor for every parameter of a network (METHODS.md 6.6), first a fifth of it.

    Parameters
    ----------
    network : Module
        Whose parameters, by their names, get a second part.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        for name, parameter in network.named_parameters():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(0.2 * parameter.detach()))

    def restart(self, network: nn.Module) -> None:
        """Take a fifth of the network's present parameters."""
        with torch.no_grad():
            parts = self.by_name()
            for name, parameter in network.named_parameters():
                if name in parts:
                    parts[name].copy_(0.2 * parameter)

    def by_name(self) -> dict[str, nn.Parameter]:
        """Return the parts by the names of the network's parameters."""
        return {name.replace("/", "."): parameter for name, parameter in self.named_parameters()}


def build_encoder(model: ModelSpec) -> Encoder:
    """Return the encoder of a model, with weights that are not drawn yet."""
    side = AUGMENTATIONS[model.augmentation].side(model.image_size)
    match model.name:
        case "SmallCnn":
            return SmallCnn(model.channels)
        case "WideResNet28x2":
            return WideResNet28(model.channels, 2)
        case "MoonCnn":
            return MoonCnn(model.channels, side)
        case "TutorialCnn":
            return TutorialCnn(model.channels, side)
        case "LeafCnn":
            return LeafCnn(model.channels, side)
        case "ResNet9":
            return ResNet9(model.channels)
        case _:
            return ResNet18(model.channels, large=model.name == "ResNet18ImageNet")


def draw_weights(module: nn.Module, seed: int, purpose: str) -> None:
    """Fill a module's parameters: Kaiming normal by fan-out for convolutions without bias, else uniform by fan-in (METHODS.md 5.1).

    Batch normalisation keeps its ones and zeros.

    Parameters
    ----------
    module : Module
        On the CPU.
    seed : int
        The run's seed.
    purpose : str
        ``init`` for the model, ``random-anchor`` for SemiAnAgg's encoder.
    """
    for path, layer in module.named_modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            for name, tensor in layer.named_parameters(path):
                draw = generator(seed, f"{purpose}/{name}")
                if isinstance(layer, nn.Conv2d) and layer.bias is None:
                    fan_out = tensor.shape[0] * tensor.shape[2] * tensor.shape[3]
                    values = draw.standard_normal(tensor.shape) * math.sqrt(2 / fan_out)
                else:
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    values = draw.uniform(-bound, bound, tensor.shape)
                with torch.no_grad():
                    tensor.copy_(torch.from_numpy(values))


def build_model(model: ModelSpec, method: ResolvedMethod, seed: int) -> Network:
    """Return a method's network on the CPU with the weights of the run's seed.

    It has an anchor head and a projection head exactly where the method needs one (MoonCnn always has its projection head, as its
    authors compare methods on the same network); the encoder does not depend on that.
    """
    needed = method.pseudo_labels.type == "AnchorSimilarity" or method.server_training.contrastive == "Enabled"
    projection = method.regulariser.type in ("Moon", "FeatureDistance") or model.name == "MoonCnn"
    network = Network(build_encoder(model), model.num_classes, needed, projection)
    network.projector, network.rotation = build_projector(method, network.encoder.width)
    network.plain_head, network.local = build_second_part(method, network.classifier, network.encoder.width)
    draw_weights(network, seed, "init")
    if method.decomposition.type == "SigmaPsi":
        network.psi = Psi(network)
    return network
