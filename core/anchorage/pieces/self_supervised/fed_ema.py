"""FedEMA: a silo goes on from a mixture of the global model and its own last one (methods reference, N8.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from anchorage.api.base import AboveZero
from anchorage.api.errors.documents import PROTOCOL_REFUSED
from anchorage.api.fact import Fact
from anchorage.api.piece import Need, piece
from anchorage.pieces.self_supervised.fed_byol import FedByol

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound, Work

STATE_PREFIX = "fed-ema/"
"""Prefix of a silo's last model in its kept state; beside it stand ``round``, ``scale`` and ``divergence``."""


@piece("fedEma")
class FedEma(FedByol):
    """BYOL that starts each round from a mixture of the global and the silo's last model (FedEMA)."""

    tau: AboveZero = Field(
        "0.7",
        description="Share of its own last model with which a silo starts its second round. Later, it is proportional to how far the "
        "silo's model moved in the round before, up to 1.",
    )

    def needs(self) -> Sequence[Need]:
        """Need rounds, of which a silo knows whether it took part in the last one."""
        message = "found Asynchronous, but a silo goes on from its model of the round before; set Synchronous, or selfSupervised: {fedByol: {}}"
        return (
            *super().needs(),
            Need(Fact.ROUNDS, message, failure=PROTOCOL_REFUSED, path=("spec", "protocol", "mode")),
        )

    def objective(self, silo_round: SiloRound) -> Work:
        """Mix the silo's last model in, where it took part in the round before, and return BYOL's losses."""
        silo_weights = OwnWeights(silo_round, float(self.tau))
        work = super().objective(silo_round)
        if not work.steps:
            return work
        return replace(
            work,
            kept=lambda: {**work.kept(), **silo_weights.kept()},
            metrics=lambda: {**work.metrics(), "own_share": silo_weights.share},
        )


class OwnWeights:
    """A silo's last encoder, projector and predictor, mixed into the received ones; running statistics are the received ones.

    Parameters
    ----------
    silo_round : SiloRound
        The round, its network as received.
    tau : float
        `FedEma.tau`.
    """

    def __init__(self, silo_round: SiloRound, tau: float) -> None:
        import torch

        self._network, self._round, self._tau = silo_round.network, silo_round.draws.round, tau
        previous_state = silo_round.kept
        self._scale = float(previous_state.get(STATE_PREFIX + "scale", 0.0))
        self.share = 0.0
        """Share of the silo's own model at the start."""
        if int(previous_state.get(STATE_PREFIX + "round", -1)) == self._round - 1:
            self.share = own_share(self._scale, float(previous_state[STATE_PREFIX + "divergence"]))
            with torch.no_grad():
                for name, parameter in own_parameters(self._network).items():
                    last = torch.from_numpy(previous_state[STATE_PREFIX + name].copy()).to(parameter.device)
                    parameter.copy_(mix(last, parameter, self.share))
        self._start = [kernel.detach().clone() for kernel in kernels(self._network)]

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the trained parameters, how far they moved, and the scale, which stays as it was first."""
        moved = divergence(self._start, kernels(self._network))
        scale = self._scale or first_scale(self._tau, moved)
        model = {STATE_PREFIX + n: p.detach().cpu().numpy().copy() for n, p in own_parameters(self._network).items()}
        scalars = {"round": np.array(self._round), "scale": np.array(scale), "divergence": np.array(moved)}
        return model | {STATE_PREFIX + name: array for name, array in scalars.items()}


def own_parameters(network: Network) -> dict[str, Tensor]:
    """Return the parameters that travel, by name: all but the classifier's."""
    return {n: p for n, p in network.named_parameters() if not n.startswith("classifier.")}


def kernels(network: Network) -> list[Tensor]:
    """Return the encoder's convolution kernels; all of its parameters where it has none."""
    parameters: list[Tensor] = list(network.encoder.parameters())
    return [p for p in parameters if p.ndim > 2] or parameters  # [out, in, *window]


def divergence(start: Sequence[Tensor], end: Sequence[Tensor]) -> float:
    """Return the mean length of the differences of tensors (equation N40)."""
    return float(np.mean([float((after.detach() - before).norm()) for before, after in zip(start, end, strict=True)]))


def first_scale(tau: float, moved: float) -> float:
    """Return the scale of a silo whose model moved so far in its first round; 0, so that the next round sets it, where it did not move."""
    return tau / moved if moved else 0.0


def own_share(scale: float, moved: float) -> float:
    """Return the share of its own model with which a silo begins, 0 to 1, by how far that moved in the round before."""
    return min(1.0, scale * moved)


def mix(local: Tensor, received: Tensor, share: float) -> Tensor:
    """Return ``share * own + (1 - share) * received``."""
    return share * local + (1 - share) * received
