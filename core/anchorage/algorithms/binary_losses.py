"""Losses of several findings per image, each yes or no, of which only known entries count."""

import torch
from torch import Tensor
from torch.nn import functional


def known_targets(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return targets, float [n, L], and which of them are known, bool [n, L].

    Parameters
    ----------
    labels : Tensor, shape [n, L]
        Integers: 1 and 0, others are not known. Floats: targets from 0 to 1, NaN is not known.
    """
    known = labels.isfinite() if labels.is_floating_point() else (labels == 0) | (labels == 1)
    return torch.where(known, labels, 0).to(torch.get_default_dtype()), known


def masked_cross_entropy(logits: Tensor, labels: Tensor, positive_weight: Tensor | None = None) -> Tensor:
    """Return the sum of the binary cross entropy over the known entries, divided by their number, or by 1 where there is none; a scalar.

    Without a known entry it is exactly 0, with a gradient of 0; the logits of entries that are not known have a gradient of exactly 0.

    Parameters
    ----------
    logits : Tensor of float, shape [n, L]
        The head's outputs.
    labels : Tensor, shape [n, L]
        As of `known_targets`.
    positive_weight : Tensor of float, shape [L], optional
        Factor of the loss of each finding's positives.
    """
    targets, known = known_targets(labels)
    weight = None if positive_weight is None else positive_weight.to(logits)
    each = functional.binary_cross_entropy_with_logits(
        logits, targets.to(logits.dtype), reduction="none", pos_weight=weight
    )
    return (each * known).sum() / known.sum().clamp(min=1)


def guess_loss(logits: Tensor, guesses: Tensor, chosen: Tensor) -> Tensor:
    """Return the sum of the binary cross entropy over the chosen entries, divided by the number of all entries; a scalar.

    Parameters
    ----------
    logits : Tensor of float, shape [n, L]
        The head's outputs for strong views.
    guesses : Tensor, shape [n, L]
        Yes and no, or probabilities.
    chosen : Tensor of bool, shape [n, L]
        Which guesses are learnt.
    """
    each = functional.binary_cross_entropy_with_logits(logits, guesses.to(logits.dtype), reduction="none")
    return (each * chosen).mean()
