"""A trained model as one module: pixels in, what people are shown out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import MODEL_UNUSABLE
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.inference import PER_CHANNEL, PER_IMAGE, Inference, Weights, head_of
from anchorage.api.model import network_called, require_package
from anchorage.api.piece import expect
from anchorage.learning.batch_norm import replace_by_groups
from anchorage.learning.data.augmentation import Augmentation, CroppedAugmentation, levels
from anchorage.learning.heads import GaussianHead, before_classifier
from anchorage.learning.model_hooks import NetworkHooks, TaskHooks, augmentation_of
from anchorage.learning.models import build_classifier
from anchorage.learning.network import Network
from anchorage.learning.weights import load_arrays
from anchorage.transport.tensors.layout import SCORING
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_safetensors


class ImageModel(nn.Module):
    """A network between pixels and what people are shown, such as probabilities, in eval mode, on the CPU.

    Parameters
    ----------
    described : Inference
        What ``model.json`` says.
    arrays : mapping of str to ndarray
        The network's tensors by name; those of heads that only help training may be among them.

    Raises
    ------
    AnchorageError
        Network, task or augmentation is of a package that is not installed, or the tensors are not the network's.
    """

    def __init__(self, described: Inference, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()
        kind = _network(described.network)
        head = described.head or head_of({name: array.shape for name, array in arrays.items()})
        if head is None:
            raise AnchorageError(MODEL_UNUSABLE, "the weights have no classifier")
        self.described, outputs = described, len(described.outputs)
        volume = described.volume
        encoder = (
            kind.encoder(described.channels, described.side)
            if volume is None
            else kind.volume_encoder(described.channels, volume.voxels)
        )
        if head.group_norm:
            replace_by_groups(encoder)
        between, features = before_classifier(
            head.width, projection=head.projection is not None, hidden=head.hidden, components=head.components
        )
        self.task = expect(described.task, TaskHooks)
        if head.covariances is None:
            classifier = build_classifier(self.task, features, 0, bias=head.bias)
        else:
            classifier = GaussianHead(features, outputs, full_covariance=head.covariances == "classes")
        self.network = Network(encoder, head.width, classifier, projection=between, gives_maps=kind.gives_maps)
        with torch.no_grad():
            load_arrays(self.network, {name: array for name, array in arrays.items() if name.startswith(SCORING)})
        self.requires_grad_(False)
        self.eval()
        self._plain = _augmentation(described).plain

    def views(self, images: Tensor) -> Tensor:
        """Return what the network takes, float32 [n, channels, side, side], or of volumes [n, channels, *patch], of pixels as of `forward`."""
        return self._plain(images)

    def forward(self, images: Tensor) -> Tensor:
        """Return what the task makes of the outputs, float32 [n, outputs], of maps [n, outputs, size, size], for pixels uint8
        [n, channels, size, size]; of volumes [n, outputs, *patch] for patches [n, channels, *patch] of values in 0 … 1.
        """
        return self.task.activated(self.network(self.views(images)))

    def score(self, images: NDArray[np.uint8] | NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return what `forward` does for pixels [n, channels, size, size], also of 65,536 levels; n >= 1.

        Raises
        ------
        AnchorageError
            They are not finite.
        """
        with torch.no_grad():
            scores: NDArray[np.float32] = self(levels(torch.from_numpy(np.ascontiguousarray(images)))).numpy()
        if not np.isfinite(scores).all():
            raise AnchorageError(LOSS_NOT_FINITE, "the model's outputs are not finite")
        return scores

    def maps(self, images: NDArray[np.uint8] | NDArray[np.uint16]) -> NDArray[np.uint8]:
        """Return the most probable output at each pixel, uint8 [n, size, size], for pixels as of `score`.

        Raises
        ------
        AnchorageError
            The outputs are not finite.
        """
        maps: NDArray[np.uint8] = self.task.maps(torch.from_numpy(self.score(images))).numpy()
        return maps


def read_weights(folder: Path, weights: Weights) -> ModelBytes:
    """Return the network's tensors of a folder; their digest is checked.

    Raises
    ------
    AnchorageError
        The file is missing or damaged, or has other tensors than ``model.json`` says.
    """
    model = read_safetensors(folder / weights.file).model.of_network()
    if model.digest != weights.digest:
        detail = f"digest {model.digest[:12]}…, but model.json says {weights.digest[:12]}…"
        raise AnchorageError(MODEL_UNUSABLE, f"{folder / weights.file} has {detail}")
    return model


def _augmentation(described: Inference) -> Augmentation:
    normalisation = described.normalisation
    if normalisation.rule == PER_CHANNEL:
        return Augmentation(normalisation.mean, normalisation.std)
    return CroppedAugmentation((), ()) if normalisation.rule == PER_IMAGE else augmentation_of(normalisation.rule)


def _network(name: str) -> NetworkHooks:
    try:
        network = network_called(name)
    except (KeyError, ValueError) as error:
        raise AnchorageError(MODEL_UNUSABLE, f"no installed package has the network {name}") from error
    require_package(name)
    return expect(network, NetworkHooks)
