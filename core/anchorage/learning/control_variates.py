"""SCAFFOLD at a silo: gradients corrected by the control variates of the community and of the silo (METHODS.md 6.2, option II)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anchorage.api.method import ResolvedMethod
from anchorage.engine.aggregation.counted_updates import COUNTED
from anchorage.learning.models import ANCHOR_HEAD
from anchorage.transport.messages import SideChannel
from anchorage.transport.tensors.layout import CONTROL, Layout
from anchorage.transport.tensors.model import ModelBytes, array_dtype

KEPT = "control/"
"""Begins the names of the silo's own control variates, after its last update, among what it keeps."""
BEFORE = "control-before/"
"""Begins the names of those before its last update: they hold again if it did not count."""


def with_controls(layout: Layout, network: nn.Module, method: ResolvedMethod) -> Layout:
    """Return the layout of a network with a tensor ``control.NAME`` for every trained parameter, where the method is SCAFFOLD."""
    if method.regulariser.type != "ControlVariates":
        return layout
    trained = {name for name, _ in network.named_parameters() if not name.startswith(ANCHOR_HEAD)}
    own = [(t.name, t.dtype, t.shape) for t in layout.tensors]
    return Layout.of([*own, *((CONTROL + t.name, t.dtype, t.shape) for t in layout.tensors if t.name in trained)])


def controls_of(layout: Layout, model: ModelBytes | None) -> Mapping[str, NDArray[Any]]:
    """Return the control variates of a community model, zeros before there is one; empty without SCAFFOLD."""
    wanted = [t for t in layout.tensors if t.name.startswith(CONTROL)]
    if wanted and model is not None:
        arrays = model.arrays()
        return {t.name: arrays[t.name] for t in wanted}
    return {t.name: np.zeros(t.shape, array_dtype(t.dtype)) for t in wanted}


class ControlVariates:
    """One round of a silo. Without control variates in the model it does nothing.

    Parameters
    ----------
    network : Module
        The model in training, still as received.
    arrived : mapping of str to ndarray
        Tensors of the received model: the community's variate of the parameter NAME is ``control.NAME``.
    kept : mapping of str to ndarray
        What `kept` returned in an earlier round, empty before the first.
    side : mapping of str to ndarray
        What came with the model: how many of the silo's updates counted.
    """

    def __init__(
        self,
        network: nn.Module,
        arrived: Mapping[str, NDArray[Any]],
        kept: Mapping[str, NDArray[Any]],
        side: SideChannel,
    ) -> None:
        named = dict(network.named_parameters())
        names = [name.removeprefix(CONTROL) for name in arrived if name.startswith(CONTROL)]
        self._parameters = {name: named[name] for name in names}
        self._received = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._renewed: dict[str, Tensor] = {}
        self._community = {name: _beside(arrived[CONTROL + name], p) for name, p in self._parameters.items()}
        self._counted = side.get(COUNTED, np.zeros(1, np.int64))
        last = KEPT if np.array_equal(kept.get(COUNTED, self._counted) + 1, self._counted) else BEFORE
        self._own = {
            name: _beside(kept[last + name], p) if last + name in kept else torch.zeros_like(p)
            for name, p in self._received.items()
        }

    @contextmanager
    def correcting(self) -> Iterator[None]:
        """Have ``c - c_k`` added to every gradient, before momentum."""
        shifts = {name: self._community[name] - self._own[name] for name in self._parameters}
        hooks = [p.register_hook(shifts[name].__add__) for name, p in self._parameters.items()]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def renew(self, rates: float) -> None:
        """Replace the silo's variates by ``c_k - c + (theta - y) / rates``: with plain SGD the mean gradient along its path (KAT-O1).

        Parameters
        ----------
        rates : float
            Sum of the step sizes that were used, above 0.
        """
        self._renewed = {
            name: self._own[name] - self._community[name] + (self._received[name] - p.detach()) / rates
            for name, p in self._parameters.items()
        }

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the silo's variates after and before this round, to keep for its next one; nothing before `renew`."""
        kinds = {KEPT: self._renewed, BEFORE: self._own} if self._renewed else {}
        arrays = {kind + name: t.cpu().numpy() for kind, variates in kinds.items() for name, t in variates.items()}
        return {**arrays, COUNTED: self._counted} if arrays else {}

    def sent(self) -> Mapping[str, NDArray[Any]]:
        """Return what travels up, ``c`` plus the change of the silo's own variate; after `renew`."""
        changed = {name: self._community[name] + new - self._own[name] for name, new in self._renewed.items()}
        return {CONTROL + name: tensor.cpu().numpy() for name, tensor in changed.items()}


def _beside(array: NDArray[Any], parameter: Tensor) -> Tensor:
    return torch.from_numpy(array.copy()).to(parameter.device)
