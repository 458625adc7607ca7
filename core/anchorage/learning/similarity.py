"""SemiAnAgg's similarity to a random anchor encoder (METHODS.md 6.9, KAT B7)."""

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.model import ModelSpec
from anchorage.learning.models import Encoder, build_encoder, draw_weights
from anchorage.learning.pseudo_labels import unit_rows


def build_random_anchor(model: ModelSpec, seed: int, number: int = 1) -> Encoder:
    """Return the encoder that every silo draws from the run's seed, on the CPU, in eval mode with initial batch statistics.

    `number` tells the random anchors of one run apart.
    """
    encoder = build_encoder(model)
    draw_weights(encoder, seed, "random-anchor" if number == 1 else f"random-anchor-{number}")
    return encoder.eval().requires_grad_(False)


def fingerprint(module: nn.Module) -> bytes:
    """Return SHA-256 over names, shapes and values of a module's tensors, 32 bytes; equal only for equal weights."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


class SimilaritySums:
    """Sums of cosines per pseudo-class, divided once at the end.

    Parameters
    ----------
    num_classes : int
        Classes C.
    device : torch.device
        Where features come from.
    """

    def __init__(self, num_classes: int, device: torch.device) -> None:
        self._classes = torch.arange(num_classes, device=device)
        self._sums = torch.zeros(num_classes, dtype=torch.float64, device=device)
        self._counts = torch.zeros(num_classes, dtype=torch.int64, device=device)

    def add(self, anchor: Tensor, model: Tensor, labels: Tensor, selected: Tensor) -> None:
        """Add a batch.

        Parameters
        ----------
        anchor : Tensor of float, shape [n, d]
            Features q by the random anchor encoder.
        model : Tensor of float, shape [n, d]
            Features q-hat by the received model's encoder.
        labels : Tensor of int64, shape [n]
            Pseudo-labels.
        selected : Tensor of bool, shape [n]
            Whether the pseudo-label is confident; others do not count.
        """
        cosines = (unit_rows(anchor) * unit_rows(model)).sum(1).double()
        member = (labels[:, None] == self._classes) & selected[:, None]
        self._sums += (member * cosines[:, None]).sum(0)
        self._counts += member.sum(0)

    def means(self, minimum: int = 1) -> NDArray[np.float64]:
        """Return the mean cosine per class, float64 [C], NaN where fewer than `minimum` were selected (METHODS.md section 10)."""
        told = self._counts >= minimum
        return torch.where(told, self._sums / self._counts.clamp(min=1), torch.nan).cpu().numpy()

    def counts(self) -> NDArray[np.int64]:
        """Return the selected images per class, int64 [C]."""
        return self._counts.cpu().numpy()
