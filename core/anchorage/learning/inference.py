"""A trained model as one module: pixels in, probabilities out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import MODEL_UNUSABLE
from anchorage.api.errors.learning import LOSS_NOT_FINITE
from anchorage.api.inference import PER_CHANNEL, PER_IMAGE, Inference, Weights
from anchorage.api.model import network_called, require_package
from anchorage.api.piece import PIECES, Piece
from anchorage.learning.batch_norm import replace_by_groups
from anchorage.learning.data.augmentation import Augmentation, CroppedAugmentation, augmentation_of
from anchorage.learning.hooks import expect
from anchorage.learning.model_hooks import NetworkHooks, TaskHooks
from anchorage.learning.models import GAUSSIAN, HIDDEN, Network
from anchorage.learning.moments import GaussianHead
from anchorage.learning.weights import load_arrays
from anchorage.transport.tensors.layout import BUFFERS, SCORING
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.safetensors_file import read_safetensors

P = TypeVar("P", bound=Piece)


class ImageClassifier(nn.Module):
    """A network between pixels and probabilities, in eval mode, on the CPU.

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
        projection, hidden = arrays.get("projection.0.weight"), arrays.get(HIDDEN)
        weight = arrays.get("classifier.weight")
        if weight is None or any(each is not None and each.ndim != 2 for each in (weight, projection, hidden)):
            raise AnchorageError(MODEL_UNUSABLE, "the weights have no classifier")
        self.described = described
        encoder = kind.encoder(described.channels, described.side)
        if not any(name.startswith("encoder.") and name.endswith(BUFFERS) for name in arrays):
            replace_by_groups(encoder)  # trained so (batchNorm groupNorm), or without any batch normalisation
        self.network = Network(
            encoder,
            next(each for each in (projection, hidden, weight) if each is not None).shape[1],
            len(described.classes),
            anchor_head=False,
            projection=projection is not None,
            bias="classifier.bias" in arrays,
            hidden=None if hidden is None else hidden.shape[0],
        )
        if (scale := arrays.get(GAUSSIAN)) is not None:
            head = GaussianHead(self.network.classifier.in_features, len(described.classes), whole=scale.ndim == 3)
            self.network.classifier = head
        with torch.no_grad():
            load_arrays(self.network, {name: array for name, array in arrays.items() if name.startswith(SCORING)})
        self.requires_grad_(False)
        self.eval()
        self._plain = _augmentation(described).plain
        self._task = _piece("task", described.task, TaskHooks, classes=described.classes)

    def views(self, images: Tensor) -> Tensor:
        """Return what the network takes, float32 [n, channels, side, side], of pixels as of `forward`."""
        return self._plain(images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the probability of each class, float32 [n, C], of pixels uint8 [n, channels, size, size]."""
        return self._task.probabilities(self.network(self.views(images)))

    def score(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return probabilities [n, C] of pixels [n, channels, size, size]; n >= 1.

        Raises
        ------
        AnchorageError
            They are not finite.
        """
        with torch.no_grad():
            found: NDArray[np.float32] = self(torch.from_numpy(np.ascontiguousarray(images))).numpy()
        if not np.isfinite(found).all():
            raise AnchorageError(LOSS_NOT_FINITE, "the model's outputs are not finite")
        return found


def read_weights(folder: Path, weights: Weights) -> ModelBytes:
    """Return the network's tensors of a folder; their digest is checked.

    Raises
    ------
    AnchorageError
        The file is missing or damaged, or has other tensors than ``model.json`` says.
    """
    model = read_safetensors(folder / weights.file).model.of_network()
    if model.digest != weights.digest:
        found = f"digest {model.digest[:12]}…, but model.json says {weights.digest[:12]}…"
        raise AnchorageError(MODEL_UNUSABLE, f"{folder / weights.file} has {found}")
    return model


def _augmentation(described: Inference) -> Augmentation:
    found = described.normalisation
    if found.rule == PER_CHANNEL:
        return Augmentation(found.mean, found.std)
    return CroppedAugmentation((), ()) if found.rule == PER_IMAGE else augmentation_of(found.rule)


def _network(name: str) -> NetworkHooks:
    try:
        found = network_called(name)
    except (KeyError, ValueError) as error:
        raise AnchorageError(MODEL_UNUSABLE, f"no installed package has the network {name}") from error
    require_package(name)
    return expect(found, NetworkHooks)


def _piece(slot: str, name: str, kind: type[P], **fields: Any) -> P:
    found = PIECES.of(slot).get(name)
    if found is None or not issubclass(found, kind):
        raise AnchorageError(MODEL_UNUSABLE, f"no installed package has the {slot} {name}")
    try:
        return found(**fields)
    except ValidationError as error:
        raise AnchorageError(MODEL_UNUSABLE, f"{slot} {name}: {error.errors()[0]['msg']}") from error
