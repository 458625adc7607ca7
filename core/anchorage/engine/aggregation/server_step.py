"""What the server does with the mean of the updates: take it, or step towards it with a memory of earlier rounds (METHODS.md 6.2, 6.7, 6.11)."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import ServerStep as ServerStepSlot
from anchorage.transport.tensors.layout import CONTROL
from anchorage.transport.tensors.model import ModelBytes

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last part of the names of tensors that are counted, not trained: they are averaged, never stepped."""

State = Mapping[str, NDArray[Any]]
Moments = dict[str, NDArray[np.float64]]


class ServerStep(Protocol):
    """Turns the mean of a round's updates into the community model. A function of its state and its arguments alone."""

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Return the new model, in the layout of `mean`.

        Parameters
        ----------
        previous : ModelBytes
            The community model that the silos received; has every tensor of `mean`.
        mean : ModelBytes
            The weighted mean of the updates.
        round_number : int
            The round, from 1.
        share : float
            Silos whose updates are in the mean, of all members.
        """
        ...

    def state(self) -> State:
        """Return what the next round needs, to be kept in the checkpoint; empty before the first round."""
        ...

    def restore(self, state: State) -> None:
        """Continue from what a checkpoint kept."""
        ...


def build_server_step(slot: ServerStepSlot) -> ServerStep | None:
    """Return the step of a method; None where the mean itself is the new model, and where there is none (`Mixing`)."""
    if slot.type in ("Replace", "Mix"):
        return None
    if slot.type == "Keep":
        return Keep()
    if slot.type == "Residual":
        return Residual(slot.every, float(slot.record_share))
    rate, momentum = float(slot.learning_rate), float(slot.momentum)
    if slot.type == "ControlVariates":
        return ControlVariates(rate)
    if slot.type == "Momentum":
        return Stepper(lambda deltas, moments: _momentum(deltas, moments, rate, momentum))
    decay, tau = float(slot.second_momentum), float(slot.tau)
    second = _SECOND_MOMENTS[slot.type]
    return Stepper(lambda deltas, moments: _adaptive(deltas, moments, rate, momentum, tau, second(decay)))


class Stepper:
    """Steps every trained tensor by a rule that keeps moments; counted tensors are those of the mean.

    Parameters
    ----------
    rule : callable
        ``rule(delta, moments)`` returns the step for one tensor, float64, and updates its moments in place by name.
    """

    def __init__(self, rule: Callable[[NDArray[np.float64], Moments], NDArray[np.float64]]) -> None:
        self._rule = rule
        self._moments: dict[str, Moments] = {}

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Step from `previous` towards `mean`; see `ServerStep.apply`."""
        before, arrays = previous.arrays(), mean.arrays()
        for name, array in arrays.items():
            if name.endswith(BUFFERS) or not np.issubdtype(array.dtype, np.floating):
                continue
            start = before[name].astype(np.float64)
            step = self._rule(array - start, self._moments.setdefault(name, {}))
            arrays[name] = (start + step).astype(array.dtype)
        return ModelBytes.from_arrays(mean.layout, arrays)

    def state(self) -> State:
        """Return the moments, float64, as ``m/NAME`` and ``v/NAME``."""
        return {f"{kind}/{name}": array for name, kinds in self._moments.items() for kind, array in kinds.items()}

    def restore(self, state: State) -> None:
        """Take moments that `state` returned."""
        self._moments = {}
        for key, array in state.items():
            kind, _, name = key.partition("/")
            self._moments.setdefault(name, {})[kind] = array.astype(np.float64)


class Keep:
    """The server keeps its model, whatever the silos made of theirs: SOLO (METHODS.md 6.1)."""

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Return `previous`, as far as `mean` reaches; see `ServerStep.apply`."""
        return ModelBytes.from_arrays(mean.layout, previous.arrays())

    def state(self) -> State:
        """Return nothing."""
        return {}

    def restore(self, state: State) -> None:
        """Take nothing."""


class ControlVariates:
    """SCAFFOLD: ``theta += eta mean(y - theta)`` and ``c += |S|/N mean(c_k' - c_k)``, where an update brings ``c + c_k' - c_k`` (METHODS.md
    6.2, KAT-O1, O2). What it remembers, c, is part of the model.

    Parameters
    ----------
    rate : float
        Step size eta of the server.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Step from `previous` towards `mean`, the control variates by the share of the silos; see `ServerStep.apply`."""
        before, arrays = previous.arrays(), mean.arrays()
        for name, array in arrays.items():
            if name.endswith(BUFFERS) or not np.issubdtype(array.dtype, np.floating):
                continue
            start = before[name].astype(np.float64)
            factor = share if name.startswith(CONTROL) else self._rate
            arrays[name] = (start + factor * (array - start)).astype(array.dtype)
        return ModelBytes.from_arrays(mean.layout, arrays)

    def state(self) -> State:
        """Return nothing: c is in the checkpoint's model."""
        return {}

    def restore(self, state: State) -> None:
        """Take nothing."""


class Residual:
    """CBAFed's residual weight connection: every few rounds the model is mixed with a record of itself (METHODS.md 6.11, KAT-D2).

    Parameters
    ----------
    every : int
        Rounds between two mixtures.
    share : float
        Weight of the record in the mixture, 0 to 1.
    """

    def __init__(self, every: int, share: float) -> None:
        self._every, self._share = every, share
        self._record: dict[str, NDArray[Any]] = {}

    def apply(self, previous: ModelBytes, mean: ModelBytes, round_number: int, share: float = 1.0) -> ModelBytes:
        """Mix where the round is due, and remember the result; see `ServerStep.apply`."""
        if (round_number - 1) % self._every and self._record:
            return mean
        arrays = mean.arrays()
        for name, record in self._record.items():
            if np.issubdtype(record.dtype, np.floating):
                mixed = self._share * record.astype(np.float64) + (1 - self._share) * arrays[name]
                arrays[name] = mixed.astype(record.dtype)
        self._record = arrays
        return ModelBytes.from_arrays(mean.layout, arrays)

    def state(self) -> State:
        """Return the record, as ``record/NAME``."""
        return {f"record/{name}": array for name, array in self._record.items()}

    def restore(self, state: State) -> None:
        """Take a record that `state` returned."""
        self._record = {key.removeprefix("record/"): array for key, array in state.items()}


def _momentum(delta: NDArray[np.float64], moments: Moments, rate: float, momentum: float) -> NDArray[np.float64]:
    """FedAvgM: ``m = beta m - delta``, step ``-eta m`` (KAT-P1); with eta 1 and beta 0.5 SemiFL's step (KAT-T1)."""
    moments["m"] = momentum * moments.get("m", 0.0) - delta
    return -rate * moments["m"]


def _adaptive(
    delta: NDArray[np.float64],
    moments: Moments,
    rate: float,
    momentum: float,
    tau: float,
    second: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """FedOpt (Reddi et al. 2021, Algorithm 2, v0 = 0): ``m = beta1 m + (1 - beta1) delta``, step ``eta m / (sqrt(v) + tau)``."""
    zeros = np.zeros_like(delta)
    moments["m"] = momentum * moments.get("m", zeros) + (1 - momentum) * delta
    moments["v"] = second(moments.get("v", zeros), delta**2)
    step: NDArray[np.float64] = rate * moments["m"] / (np.sqrt(moments["v"]) + tau)
    return step


_SECOND_MOMENTS: Mapping[
    str, Callable[[float], Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]]
] = {
    "Adagrad": lambda decay: lambda v, square: v + square,
    "Adam": lambda decay: lambda v, square: decay * v + (1 - decay) * square,
    "Yogi": lambda decay: lambda v, square: v - (1 - decay) * square * np.sign(v - square),
}
