"""MOON: a silo's representation is pulled towards the community model's and away from its own last ones (METHODS.md 6.3)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anchorage.api.method import Regulariser
from anchorage.learning.models import Network

PREVIOUS = "previous/"
"""Prefix of the silo's last local models among what it keeps: ``previous/AGE/TENSOR``, age 0 the newest."""


def model_contrast(z: Tensor, received: Tensor, previous: Sequence[Tensor], temperature: float) -> Tensor:
    """Return MOON's mean contrast; with one previous model ``mean softplus((s_prev - s_glob) / tau)`` (KAT-I1).

    Parameters
    ----------
    z : Tensor of float, shape [n, d]
        Representations by the model in training.
    received : Tensor of float, shape [n, d]
        Those by the model as received.
    previous : sequence of Tensor of float, shape [n, d]
        Those by the silo's last local models, at least one.
    temperature : float
        Tau.
    """
    similarities = [functional.cosine_similarity(z, other, eps=1e-8) for other in (received, *previous)]
    scores = torch.stack(similarities, 1) / temperature
    return functional.cross_entropy(scores, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def feature_distance(z: Tensor, received: Tensor) -> Tensor:
    """Return the mean over samples of the distance of two representations [n, d]: MOON's L2 ablation, not squared (METHODS.md 6.3)."""
    return ((z - received).square().sum(1) + 1e-12).sqrt().mean()


class ModelContrast:
    """The term that MOON adds to the loss of a batch, times mu.

    Parameters
    ----------
    regulariser : Regulariser
        Moon or FeatureDistance.
    received : Network
        The model as received; frozen, in eval mode.
    previous : sequence of Network
        The silo's last local models, likewise. Without any, the contrast is a constant without a gradient, and left out.
    """

    def __init__(self, regulariser: Regulariser, received: Network, previous: Sequence[Network]) -> None:
        self._mu, self._temperature = float(regulariser.mu), float(regulariser.temperature)
        self._distance = regulariser.type == "FeatureDistance"
        self._received, self._previous = received, previous

    def __call__(self, images: Tensor, z: Tensor) -> Tensor:
        """Return the term for images [n, channels, H, W] with representations [n, d] by the model in training."""
        if not (self._distance or self._previous):
            return z.new_zeros(())
        with torch.no_grad():
            received = self._received.represent(images)
            previous = [model.represent(images) for model in self._previous]
        if self._distance:
            return self._mu * feature_distance(z, received)
        return self._mu * model_contrast(z, received, previous, self._temperature)


def previous_models(kept: Mapping[str, NDArray[Any]], count: int) -> list[dict[str, NDArray[Any]]]:
    """Return the tensors by name of up to `count` last local models, the newest first."""
    models: list[dict[str, NDArray[Any]]] = []
    for age in range(count):
        prefix = f"{PREVIOUS}{age}/"
        if model := {key.removeprefix(prefix): array for key, array in kept.items() if key.startswith(prefix)}:
            models.append(model)
    return models


def kept_models(network: Network, earlier: Sequence[Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    """Return what to keep: the model as trained now, then `earlier` ones, one round older each."""
    trained = {name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()}
    models = [trained, *earlier]
    return {f"{PREVIOUS}{age}/{name}": array for age, model in enumerate(models) for name, array in model.items()}
