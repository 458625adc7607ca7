"""Encoders and heads (methods reference, 5.1). Weights are drawn with numpy's PCG64, a seed per tensor, so every machine draws the same ones."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Self

import torch
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.api.model import LowRank, ModelDescription, ModelSpec, network_called, require_package
from anchorage.api.piece_faults import describe_value, wrong_result
from anchorage.learning.data.augmentation import augmentation_of
from anchorage.learning.guessing_heads import GuessingHeads
from anchorage.learning.hook_checks import check_kind
from anchorage.learning.hooks import expect
from anchorage.learning.low_rank import Adapters
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import NetworkHooks
from anchorage.learning.principal_components import PrincipalComponents
from anchorage.learning.randomness import generator, seed_of
from anchorage.transport.tensors.layout import ADAPTER_SCALE, BUFFERS, LORA

ANCHOR_WIDTH = 128
"""Width of the anchor head's output (methods reference, 6.8)."""

ANCHOR_HEAD = "anchor_head."
"""Prefix of the tensors that no client loss reaches: they travel down, not up."""

LOCAL_PART = "local."
"""Prefix of the tensors that never leave a silo: FedRoD's personal head, FedCon's projector."""

ENCODER = "encoder."
"""Prefix of the encoder's tensors."""

CLASSIFIER = "classifier."
"""Prefix of the classifier's tensors."""

GAUSSIAN = "classifier.scale"
"""A tensor that only a classifier with a covariance per class has (`anchorage.learning.gaussian_head.GaussianHead`)."""

GUESSERS = "guessers."
"""Prefix of the tensors of classifiers by which silos guess."""

HIDDEN = "projection.hidden.weight"
"""A tensor that only a network with a hidden layer before the classifier has."""

COMPONENTS = ("projection.weight", "projection.bias")
"""Tensors that only a network with principal components before the classifier has."""

PROJECTION_WIDTH = 256
"""Width of MOON's projection head (methods reference, 6.3)."""


_EMBEDDED = 2
"""Dimensions of a batch of embeddings; one of images has four."""

TRAVELLING: Mapping[torch.dtype, str] = {torch.float32: "F32", torch.int64: "I64"}
"""Dtypes of the tensors that a network may have, with their names in a layout."""

_STILL = "stays_as_it_is"
"""Attribute of a module that is frozen."""


class Network(nn.Module):
    """An encoder with a classifier and, for FedAnchor, an anchor head (methods reference, 6.8), for MOON a projection head (6.3).

    Parameters
    ----------
    encoder : Module
        Images [n, channels, H, W] to embeddings [n, width].
    width : int
        Of the embeddings.
    num_outputs : int
        Classes C.
    anchor_head : bool
        Whether there is a linear map to `ANCHOR_WIDTH`, with bias.
    projection : bool
        Whether two linear maps to `PROJECTION_WIDTH` stand between encoder and classifier.
    bias : bool
        Whether the classifier has one.
    hidden : int, optional
        Units of a rectified layer between encoder and classifier, of embeddings that are scaled to mean 0 and variance 1; without `projection`.
    components : int, optional
        Principal components of the embeddings, which the classifier sees; without `projection` and `hidden`.
    map_width : int, optional
        Of an encoder of maps (`anchorage.learning.networks.unets`), their channels: images [n, channels, H, W] to maps [n, map_width, H, W], of
        which the classifier makes logits [n, C, H, W] pixel by pixel.
    """

    def __init__(
        self,
        encoder: nn.Module,
        width: int,
        num_outputs: int,
        anchor_head: bool,
        projection: bool = False,
        *,
        bias: bool = True,
        hidden: int | None = None,
        components: int | None = None,
        map_width: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.width = encoder, width
        self.gives_maps = map_width is not None
        self.frozen: frozenset[str] = frozenset()
        """Names of the tensors that do not train."""
        self.front: tuple[bytes, ...] = ()
        """Digests of the frozen tensors' chunks that were loaded last (`Manifest.fixed`); empty where they are as drawn."""
        self.projection, features = _before_classifier(width, projection, hidden, components)
        self.classifier = nn.Linear(features, num_outputs, bias=bias)
        if map_width is not None:
            self.classifier = PixelClassifier(map_width, num_outputs, bias=bias)
        self.anchor_head = nn.Linear(width, ANCHOR_WIDTH) if anchor_head else None
        self.psi: Psi | None = None
        self.lora: Adapters | None = None
        self.projector: nn.Module | None = None
        self.rotation: nn.Linear | None = None
        self.plain_head: nn.Linear | None = None
        self.guessers: GuessingHeads | None = None
        self.local: nn.Module | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, C], or of maps [n, C, H, W]."""
        logits: Tensor = self.classifier(self.represent(x))
        return logits

    def represent(self, x: Tensor) -> Tensor:
        """Return what the classifier sees [n, d]: the encoder's output, behind projection head, hidden layer or components where there are some.

        Of an encoder of maps it is the map, [n, map_width, H, W].
        """
        if self.gives_maps:
            features: Tensor = self.encoder(x)
            return features
        z: Tensor = self.projection(self.embed(x))
        return z

    def embed(self, x: Tensor) -> Tensor:
        """Return the embeddings [n, width] of images; of what a frozen encoder made of them before (`EncodedViews`) those themselves."""
        if self.gives_maps:
            vector: Tensor = self.encoder.embed(x)  # type: ignore[operator]
            return vector
        if x.ndim == _EMBEDDED and is_frozen(self.encoder):
            return x
        embedded: Tensor = self.encoder(x) if self.lora is None else self.lora.embed(self.encoder, x)
        return embedded

    def train(self, mode: bool = True) -> Self:
        """Set the mode of what trains; frozen modules stay in eval mode."""
        super().train(mode)
        for module in self.modules():
            if is_frozen(module):
                module.eval()
        return self

    def freeze(self, trainable: str) -> None:
        """Keep tensors of the encoder as they are in training: no gradient, no optimiser state, no counting of statistics.

        Parameters
        ----------
        trainable : str
            As `ModelSpec.trainable`.

        Raises
        ------
        AnchorageError
            NETWORK_UNUSABLE: the encoder has no tensor of such a name.
        """
        if trainable == "All":
            return
        names = [name for name in self.state_dict() if name.startswith(ENCODER)]
        patterns = [] if trainable == "Head" else trainable.split(",")
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                modules = ", ".join(sorted({name.rsplit(".", 1)[0] for name in names})[:20])
                message = f"found trainable {pattern}, but the encoder has no such tensor; it has {modules}"
                raise AnchorageError(NETWORK_UNUSABLE, message)
        self.frozen = frozenset(n for n in names if not any(_matches(n, pattern) for pattern in patterns))
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name not in self.frozen)
        for path, module in self.encoder.named_modules(prefix=ENCODER.removesuffix(".")):
            state_names = [f"{path}.{name}" for name in module.state_dict()]
            counted = f"{path}.{BUFFERS[0]}"
            setattr(
                module, _STILL, (bool(state_names) and self.frozen.issuperset(state_names)) or counted in self.frozen
            )
        self.train(self.training)

    def adapt(self, lora: LowRank, seed: int) -> None:
        """Put low-rank adapters on the encoder's frozen weights, drawn from the run's seed. Raises as `Adapters`."""
        self.lora = Adapters(self.encoder, ENCODER, self.frozen, lora, seed)
        self.frozen |= {LORA + ADAPTER_SCALE}

    def anchor(self, x: Tensor) -> Tensor:
        """Return the anchor head's output [n, 128], not normalised."""
        assert self.anchor_head is not None, "the method needs no anchor head"
        output: Tensor = self.anchor_head(self.embed(x))
        return output

    def smallest_batch(self, image_size: int) -> int:
        """Return 2 where a batch normalisation sees a 1x1 map, of which one image has no variance, else 1 (methods reference, 6.1).

        An encoder that does not say how much smaller its smallest map is than the image is taken to have such a map.
        """
        if is_frozen(self.encoder):
            return 1
        reduction = getattr(self.encoder, "reduction", image_size)
        return 2 if -(-image_size // reduction) <= 1 else 1


class PixelClassifier(nn.Linear):
    """A linear map of the features of each pixel: a convolution of one pixel, [n, d, ...] to [n, C, ...] with two or three sides."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of maps."""
        if x.ndim == 4:
            return nn.functional.conv2d(x, self.weight[:, :, None, None], self.bias)
        return nn.functional.conv3d(x, self.weight[:, :, None, None, None], self.bias)


def _before_classifier(
    width: int, projection: bool, hidden: int | None, components: int | None
) -> tuple[nn.Module, int]:
    """Return what stands between embeddings of a width and the classifier, and the width that this sees.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: there are more components than features.
    """
    if components is not None:
        if components > width:
            message = f"found {components} principalComponents, but the encoder has {width} features; set {width} or fewer, or leave it out"
            raise AnchorageError(NETWORK_UNUSABLE, message)
        return PrincipalComponents(width, components), components
    if projection:
        head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION_WIDTH))
        return head, PROJECTION_WIDTH
    if hidden is None:
        return nn.Identity(), width
    layers = {
        "scaled": nn.LayerNorm(width, elementwise_affine=False),
        "hidden": nn.Linear(width, hidden),
        "rectified": nn.ReLU(),
    }
    return nn.Sequential(OrderedDict(layers)), hidden


def is_frozen(module: nn.Module) -> bool:
    """Return whether a module of a network stays as it is in training (`Network.freeze`)."""
    return bool(getattr(module, _STILL, False))


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


class Psi(nn.Module):
    """FedMatch's unsupervised part: one more tensor for every parameter of a network (methods reference, 6.6), first a fifth of it.

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


def network_of(model: ModelSpec) -> NetworkHooks:
    """Return the network that a model's document names.

    Raises
    ------
    AnchorageError
        PACKAGE_MISSING: its library is not installed.
    """
    require_package(model.network)
    return expect(network_called(model.network), NetworkHooks)


def build_encoder(model: ModelSpec, seed: int) -> nn.Module:
    """Return the encoder of a model; `draw_weights` draws its convolutions and linear maps, the rest is drawn here from the seed."""
    kind = network_of(model)
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed_of(seed, "encoder"))
        if model.patch is None:
            side = augmentation_of(model.augmentation).side(model.image_size)
            encoder = check_kind(kind, "encoder", kind.encoder(model.channels, side), nn.Module, "a torch.nn.Module")
        else:
            built = kind.volume_encoder(model.channels, model.patch)
            encoder = check_kind(kind, "volume_encoder", built, nn.Module, "a torch.nn.Module")
    for name, tensor in encoder.state_dict().items():
        if tensor.dtype not in TRAVELLING:
            detail = f"an encoder whose {name} is {str(tensor.dtype).removeprefix('torch.')}"
            raise wrong_result(kind, "encoder", detail, "parameters and buffers of float32 or int64")
    return encoder


def embedding_width(model: ModelSpec) -> int:
    """Return the width of the embeddings of a model's encoder. Raises what building it raises: its package or its size of images may be missing."""
    return _width(build_encoder(model, 0), model)


def _width(encoder: nn.Module, model: ModelSpec) -> int:
    """Return the width of an encoder's embeddings: what it says, else what it returns for an image."""
    if isinstance(width := getattr(encoder, "width", None), int):
        return width
    side = augmentation_of(model.augmentation).side(model.image_size)
    training = encoder.training
    with torch.no_grad():
        embedded = encoder.eval()(torch.zeros(1, model.channels, side, side))
    encoder.train(training)
    if not isinstance(embedded, Tensor) or embedded.ndim != _EMBEDDED or not embedded.is_floating_point():
        detail = f"an encoder that makes {describe_value(embedded)} of one image"
        raise wrong_result(network_of(model), "encoder", detail, "one that makes a float tensor of [images, width]")
    return int(embedded.shape[1])


def _map_width(encoder: nn.Module, kind: NetworkHooks) -> int:
    """Return the channels of the maps that an encoder gives, as it says."""
    width: object = getattr(encoder, "map_width", None)
    if not isinstance(width, int):
        raise wrong_result(
            kind, "encoder", "an encoder of maps without map_width", "one that says how many channels its maps have"
        )
    return width


def draw_weights(module: nn.Module, seed: int, purpose: str) -> None:
    """Fill a module's parameters: Kaiming normal by fan-out for convolutions without bias, else uniform by fan-in (methods reference, 5.1).

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
        if isinstance(layer, (nn.Conv2d, nn.Conv3d, nn.Linear)):
            for name, tensor in layer.named_parameters(path):
                draw = generator(seed, f"{purpose}/{name}")
                if isinstance(layer, (nn.Conv2d, nn.Conv3d)) and layer.bias is None:
                    fan_out = tensor.shape[0] * math.prod(tensor.shape[2:])
                    values = draw.standard_normal(tensor.shape) * math.sqrt(2 / fan_out)
                else:
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    values = draw.uniform(-bound, bound, tensor.shape)
                with torch.no_grad():
                    tensor.copy_(torch.from_numpy(values))


def build_model(model: ModelDescription, method: TrainingMethod, seed: int) -> Network:
    """Return a method's network on the CPU with the weights of the run's seed.

    It has an anchor head and a projection head exactly where a piece needs one (MoonCnn always has its projection head, as its
    authors compare methods on the same network); the encoder does not depend on that.
    """
    anchor_head = any(piece.anchor_head for piece in method.pieces)
    kind, encoder = network_of(model), build_encoder(model, seed)
    projection = any(piece.projection_head for piece in method.pieces) or kind.projects
    width = _width(encoder, model)
    network = Network(
        encoder,
        width,
        model.num_outputs,
        anchor_head,
        projection,
        bias=kind.classifier_bias,
        hidden=model.hidden,
        components=model.principal_components,
        map_width=_map_width(encoder, kind) if kind.gives_maps else None,
    )
    for piece in method.pieces:
        piece.add_heads(network)
    draw_weights(network, seed, "init")
    for piece in method.pieces:
        piece.weights_drawn(network)
    network.freeze(model.trainable)
    if model.principal_components is not None and not method.server_training.finds_components:
        network.frozen |= {*COMPONENTS}
    if model.lora is not None:
        network.adapt(model.lora, seed)
    return network
