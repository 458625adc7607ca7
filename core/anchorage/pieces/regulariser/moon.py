"""MOON: representations near the global model's and away from the silo's own last ones (methods reference, 6.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero, PositiveDecimal
from anchorage.api.piece import piece
from anchorage.pieces.regulariser.representations import RepresentationRegulariser

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.local_training import Contrast
    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound

    Arrays = Mapping[str, NDArray[Any]]

PREVIOUS = "previous/"
"""Prefix of the silo's last local models among what it keeps: ``previous/AGE/TENSOR``, age 0 the newest."""


@piece("moon")
class Moon(RepresentationRegulariser):
    """MOON: contrast between representations of the global model and of the silo's previous models (Li et al. 2021)."""

    resumes: ClassVar[bool] = True

    mu: PositiveDecimal = Field(
        "5",
        description="Factor mu of the contrastive loss. A larger value keeps representations nearer to the global model's.",
    )
    temperature: AboveZero = Field("0.5", description="Temperature of the contrastive loss.")
    previous_models: Annotated[int, Field(ge=1, le=8)] = Field(
        1,
        description="Number of the silo's previous models to contrast with. Each costs a forward pass, and is stored at the silo.",
    )

    def contrast(self, silo_round: SiloRound) -> tuple[Contrast, Callable[[], Arrays]]:
        """Return the contrast, and what the silo keeps: its last models. Without any, it is a constant without a gradient, and left out."""
        import torch

        from anchorage.learning.weights import load_arrays

        earlier = previous_models(silo_round.kept, self.previous_models)
        previous = [silo_round.copy_received() for _ in earlier]
        for network, arrays in zip(previous, earlier, strict=True):
            load_arrays(network, arrays)
        received = silo_round.copy_received()
        mu, temperature = float(self.mu), float(self.temperature)

        def term(images: Tensor, z: Tensor) -> Tensor:
            if not previous:
                return z.new_zeros(())
            with torch.no_grad():
                by_received = received.represent(images)
                by_previous = [model.represent(images) for model in previous]
            return mu * model_contrast(z, by_received, by_previous, temperature)

        recent = earlier[: self.previous_models - 1]
        return term, lambda: kept_models(silo_round.network, recent)


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
    import torch
    from torch.nn import functional

    similarities = [functional.cosine_similarity(z, other, eps=1e-8) for other in (received, *previous)]
    scores = torch.stack(similarities, 1) / temperature
    return functional.cross_entropy(scores, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def previous_models(previous_state: Mapping[str, NDArray[Any]], count: int) -> list[dict[str, NDArray[Any]]]:
    """Return the tensors by name of up to `count` last local models, the newest first."""
    models: list[dict[str, NDArray[Any]]] = []
    for age in range(count):
        prefix = f"{PREVIOUS}{age}/"
        if model := {
            key.removeprefix(prefix): array for key, array in previous_state.items() if key.startswith(prefix)
        }:
            models.append(model)
    return models


def kept_models(network: Network, earlier: Sequence[Mapping[str, NDArray[Any]]]) -> Mapping[str, NDArray[Any]]:
    """Return what to keep: the model as trained now, then `earlier` ones, one round older each."""
    from anchorage.learning.weights import trained_arrays

    trained = {name: array.copy() for name, array in trained_arrays(network).items()}
    models = [trained, *earlier]
    return {f"{PREVIOUS}{age}/{name}": array for age, model in enumerate(models) for name, array in model.items()}
