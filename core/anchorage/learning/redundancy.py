"""Barlow Twins: the two views of an image agree in every feature, and no two features say the same (METHODS.md 6.13)."""

import torch
from torch import Tensor


def cross_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Return the correlation of every feature of one view with every one of the other, float [d, d].

    The divisor is the number of images at hand: a nominal batch size would keep the diagonal of a short last batch from reaching 1
    (METHODS.md section 12, number 10, KAT-R1).

    Parameters
    ----------
    first, second : Tensor of float, shape [n, d]
        Projections of two views, each column with zero mean and unit variance; n is at least 2.
    """
    return first.T @ second / len(first)


def redundancy_loss(first: Tensor, second: Tensor, off_diagonal: float) -> Tensor:
    """Return ``sum (1 - c_ii)^2 + off_diagonal * sum c_ij^2`` of the correlation c of two standardised views [n, d]."""
    correlation = cross_correlation(first, second)
    diagonal = torch.diagonal(correlation)
    others = correlation.square().sum() - diagonal.square().sum()
    return (1 - diagonal).square().sum() + off_diagonal * others
