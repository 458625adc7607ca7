"""Directions of embeddings, and which pseudo-labels were accepted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional


def unit_rows(embeddings: Tensor) -> Tensor:
    """Scale every row to length 1; a row of zeros stays.

    Parameters
    ----------
    embeddings : Tensor of float, shape [n, d]
        Any rows.
    """
    return functional.normalize(embeddings, eps=1e-12)


_NAMES = ("indices", "labels", "accepted")


class Accepted:
    """The pseudo-labels of a silo's last pass over its unlabelled images; nothing waits for the device before it is asked for."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor, Tensor]] = []

    def begin(self) -> None:
        """Begin another pass."""
        self._batches = []

    def add(self, indices: Tensor, labels: Tensor, accepted: Tensor) -> None:
        """Note a batch.

        Parameters
        ----------
        indices : Tensor of int64, shape [n]
            Which of the silo's images.
        labels : Tensor of int64, shape [n]
            Their pseudo-labels.
        accepted : Tensor of bool, shape [n]
            Whether they are accepted.
        """
        self._batches.append((indices, labels, accepted))

    def __len__(self) -> int:
        return int(torch.stack([accepted.sum() for _, _, accepted in self._batches]).sum()) if self._batches else 0

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the batches of this pass, joined: indices, labels int64 [n] and accepted bool [n]."""
        if not self._batches:
            return {}
        joined = map(torch.cat, zip(*self._batches, strict=True))
        return {name: tensor.cpu().numpy() for name, tensor in zip(_NAMES, joined, strict=True)}

    def restore(self, arrays: Mapping[str, NDArray[Any]], device: torch.device) -> None:
        """Take what `arrays` returned."""
        if arrays:
            indices, labels, accepted = (torch.from_numpy(arrays[name]).to(device) for name in _NAMES)
            self._batches = [(indices, labels, accepted)]

    def labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the images with accepted labels and these labels, int64 [accepted] each."""
        if not self._batches:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        indices, labels, accepted = map(torch.cat, zip(*self._batches, strict=True))
        return indices[accepted].cpu().numpy(), labels[accepted].cpu().numpy()
