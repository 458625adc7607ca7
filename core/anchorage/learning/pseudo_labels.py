"""Directions of embeddings."""

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
