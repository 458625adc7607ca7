"""Low-rank adapters: LoRA (Hu et al. 2021, arXiv:2106.09685, equation 3), ``W + (alpha / r) B A`` in the place of a frozen weight ``W``."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.learning import NETWORK_UNUSABLE
from anchorage.api.model import LowRank
from anchorage.learning.randomness import generator
from anchorage.transport.tensors.layout import ADAPTER_A, ADAPTER_B, ADAPTER_SCALE, LORA

_WEIGHTS = (
    (nn.Linear, "weight"),
    (nn.Conv2d, "weight"),
    (nn.MultiheadAttention, "in_proj_weight"),
)
"""What is adapted; the kernel of a convolution counts as the matrix [out, in · height · width]."""


class Adapters(nn.Module):
    """Matrices A [r, in] and B [out, r] for frozen weights of an encoder.

    A weight has them where together they are smaller than itself. B begins as zeros, so the network begins as it was; A is uniform in
    ``±1 / sqrt(in)`` (Kaiming with a = sqrt(5)), drawn from the run's seed.

    Parameters
    ----------
    encoder : Module
        The encoder.
    prefix : str
        Of the names of its tensors in the network.
    frozen : frozenset of str
        Names of the network's tensors that do not train.
    lora : LowRank
        Rank r and alpha.
    seed : int
        The run's seed.

    Raises
    ------
    AnchorageError
        NETWORK_UNUSABLE: no frozen weight is larger than its matrices would be.
    """

    def __init__(self, encoder: nn.Module, prefix: str, frozen: frozenset[str], lora: LowRank, seed: int) -> None:
        super().__init__()
        self._prefix, rank = prefix, lora.rank
        self._keys: dict[str, str] = {}
        for name, weight in _weights(encoder):
            rows, columns = weight.shape[0], weight[0].numel()
            if f"{prefix}{name}" not in frozen or rank * (rows + columns) >= rows * columns:
                continue
            key = f"{prefix}{name}".replace(".", "/")
            bound = 1 / math.sqrt(columns)
            drawn = generator(seed, f"init/{LORA}{key}{ADAPTER_A}").uniform(-bound, bound, (rank, columns))
            self.register_parameter(key + ADAPTER_A, nn.Parameter(torch.from_numpy(drawn).float()))
            self.register_parameter(key + ADAPTER_B, nn.Parameter(torch.zeros(rows, rank)))
            self._keys[name] = key
        if not self._keys:
            detail = f"found spec.model.lora of rank {rank}, which is smaller than no frozen linear map or convolution"
            raise AnchorageError(NETWORK_UNUSABLE, f"{detail}; choose a smaller rank, or remove lora")
        self.register_buffer(ADAPTER_SCALE, torch.tensor(lora.alpha / rank))

    def embed(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """Return the embeddings [n, width] of images by the encoder with the adapted weights."""
        embedded: Tensor = functional_call(encoder, self._adapt(encoder), (x,))
        return embedded

    def _adapt(self, encoder: nn.Module) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        weights = {}
        for name, key in self._keys.items():
            weight = encoder.get_parameter(name)
            change = tensors[ADAPTER_SCALE] * (tensors[key + ADAPTER_B] @ tensors[key + ADAPTER_A])
            weights[name] = weight + change.view_as(weight)
        return weights


def _weights(encoder: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, layer in encoder.named_modules():
        for kind, name in _WEIGHTS:
            if isinstance(layer, kind) and (weight := getattr(layer, name)) is not None:
                yield f"{path}.{name}".removeprefix("."), weight
