"""How a network is made (methods reference, 5.1). Weights are drawn with numpy's PCG64, a seed per tensor, so every machine draws the same ones."""

import math

import torch
from torch import Tensor, nn

from anchorage.api.model import ModelDescription, ModelSpec, network_called, require_package
from anchorage.api.piece import expect
from anchorage.api.piece_faults import describe_value, wrong_result
from anchorage.learning.heads import before_classifier
from anchorage.learning.hook_checks import check_kind
from anchorage.learning.method import TrainingMethod
from anchorage.learning.model_hooks import NetworkHooks, TaskHooks, augmentation_of
from anchorage.learning.network import EMBEDDED, PROJECTION, TRAVELLING, Network
from anchorage.learning.randomness import generator, seed_of


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
    if not isinstance(embedded, Tensor) or embedded.ndim != EMBEDDED or not embedded.is_floating_point():
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


def build_classifier(task: TaskHooks, width: int, seed: int, *, bias: bool) -> nn.Module:
    """Return a task's classifier of what it sees, of a width; `draw_weights` draws its linear maps and convolutions, the rest is drawn from the seed.

    Raises
    ------
    AnchorageError
        PIECE_WRONG: the task returns something else than a module whose parameters are float32.
    """
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed_of(seed, "classifier"))
        head = check_kind(task, "head", task.head(width, bias=bias), nn.Module, "a torch.nn.Module")
    for name, tensor in head.state_dict().items():
        if tensor.dtype not in TRAVELLING:
            detail = f"a head whose {name} is {str(tensor.dtype).removeprefix('torch.')}"
            raise wrong_result(task, "head", detail, "parameters and buffers of float32 or int64")
    return head


def build_model(model: ModelDescription, method: TrainingMethod, seed: int) -> Network:
    """Return a method's network on the CPU with the weights of the run's seed.

    It has a projection head exactly where a piece needs one (MoonCnn always has its own, as its authors compare methods on the same network),
    and the heads that pieces add; the encoder does not depend on that.
    """
    kind, encoder = network_of(model), build_encoder(model, seed)
    width = _width(encoder, model)
    between, features = before_classifier(
        width,
        projection=any(piece.projection_head for piece in method.pieces) or kind.projects,
        hidden=model.hidden,
        components=model.principal_components,
    )
    network = Network(
        encoder,
        width,
        build_classifier(
            expect(model.task, TaskHooks),
            _map_width(encoder, kind) if kind.gives_maps else features,
            seed,
            bias=kind.classifier_bias,
        ),
        projection=between,
        gives_maps=kind.gives_maps,
    )
    for piece in method.pieces:
        piece.add_heads(network)
    draw_weights(network, seed, "init")
    for piece in method.pieces:
        piece.weights_drawn(network)
    network.freeze(model.trainable)
    if model.principal_components is not None and not method.server_training.finds_components:
        network.frozen |= {name for name in network.state_dict() if name.startswith(PROJECTION)}
    if model.lora is not None:
        network.adapt(model.lora, seed)
    return network
