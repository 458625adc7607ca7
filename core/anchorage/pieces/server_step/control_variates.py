"""SCAFFOLD: gradients corrected by control variates of the federation and of the silo (methods reference, 6.2, option II)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.alias_generators import to_camel

from anchorage.api.base import AboveZero
from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE
from anchorage.api.fact import Fact
from anchorage.api.mistakes import Mistake
from anchorage.api.piece import AuxiliaryArray, Need, piece
from anchorage.api.plan import Plan
from anchorage.api.task import Task
from anchorage.engine.aggregation.round_memory import RoundMemory
from anchorage.engine.aggregation.server_step import StatelessStep
from anchorage.learning.hooks import OptimiserHooks
from anchorage.learning.round_part import RoundPart
from anchorage.pieces.server_step.whole_rounds import WholeRoundStep
from anchorage.transport.messages import Announcement, AuxiliaryData
from anchorage.transport.tensors.layout import BUFFERS, CONTROL, Layout
from anchorage.transport.tensors.model import ModelBytes, array_dtype

if TYPE_CHECKING:
    from torch import Tensor

    from anchorage.learning.network import Network
    from anchorage.learning.silo_round import SiloRound

_METHOD = ("spec", "method")

STATE_PREFIX = "control/"
"""Begins the names of the silo's own control variates, after its last update, among what it keeps."""
BEFORE = "control-before/"
"""Begins the names of those before its last update: they hold again if it did not count."""
COUNTED = "counted_updates"
"""Down, int64 [1]: how many updates of the silo have counted."""


@piece("controlVariates")
class ControlVariates(WholeRoundStep):
    """SCAFFOLD: local gradients are corrected by control variates (Karimireddy et al. 2020).

    Gradients are corrected by how they differed from the federation's.
    """

    needs_network: ClassVar[bool] = True

    learning_rate: AboveZero = Field(
        "1", description="Learning rate of the server: factor of the mean update. 1 takes it as it is."
    )

    def facts(self) -> frozenset[str]:
        """Say that a plain mean over silos is needed."""
        return frozenset({Fact.CONTROL_VARIATES})

    def needs(self) -> Sequence[Need]:
        """Need plain gradients of labelled images, and a plain mean over silos."""
        alone = "found a loss without labels, but control variates are of the loss on labels; set none"
        return (
            *super().needs(),
            Need(
                Fact.UNIFORM_WEIGHTS,
                "found another one, but control variates are a plain mean over silos; set uniform",
                path=(*_METHOD, "weighting"),
            ),
            Need(
                Fact.SUM_OF_UPDATES,
                "found another one, but control variates are a plain mean over silos; set aggregation: {mean: {}}",
                path=(*_METHOD, "aggregation"),
            ),
            Need(Fact.SELF_SUPERVISION, alone, refused=True, path=(*_METHOD, "selfSupervised")),
            Need(
                Fact.PERSONAL_NORMS,
                "found layers that stay at silos, but control variates are of every trained tensor; set average",
                refused=True,
                path=(*_METHOD, "batchNorm"),
            ),
        )

    def check(self, plan: Plan) -> Iterator[Mistake]:
        """Need plain SGD at the silos, and silos that train."""
        local, values = plan.method.local, {}
        if isinstance(local.optimiser, OptimiserHooks) and not local.optimiser.follows_gradient:
            message = (
                f"found {local.optimiser.name}, but control variates are mean gradients of plain SGD alone; set sgd"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, local.optimiser.path, message)
        elif local.optimiser is not None:
            for name in ("momentum", "weight_decay", "clip_norm"):
                values[local.optimiser.option(to_camel(name))] = getattr(local.optimiser, name, "0")
        values[*_METHOD, "local", "unlabelled", "clipNorm"] = local.unlabelled.clip_norm or "0"
        for path, value in values.items():
            if float(value):
                message = f"found {value}, but control variates are mean gradients of plain SGD alone; set 0"
                yield Mistake(MEANINGLESS_OVERRIDE, path, message)
        idle = [silo.metadata.name for silo in plan.silos if silo.spec.labels == "None"]
        if idle and Fact.PSEUDO_LABELS not in plan.facts:
            message = (
                f"found {plan.method.name}, whose control variates are a mean over all silos, but {idle[0]} has labels: None and "
                "never trains; leave such silos out"
            )
            yield Mistake(LABELS_MISSING, (*_METHOD, "name"), message)

    def auxiliary(self) -> Sequence[AuxiliaryArray]:
        """Return the variates, and the count of updates."""
        shape = "as the trained parameters"
        return (
            AuxiliaryArray("control.*", shape, "the federation's mean gradient, behind the model"),
            AuxiliaryArray(COUNTED, "[1] int64", "how many of the silo's updates counted"),
            AuxiliaryArray("control.*", shape, "how the silo's mean gradient changed, behind the update", up=True),
        )

    def step(self) -> VariateStep:
        """Return SCAFFOLD's server step."""
        return VariateStep(float(self.learning_rate))

    def memory(self, task: Task, seed: int) -> CountedUpdates:
        """Count every silo's updates."""
        return CountedUpdates()

    def down_layout(self, layout: Layout, network: Network) -> Layout:
        """Add a tensor ``control.NAME`` for every trained parameter."""
        trained = {name for name, _ in network.silo_parameters()}
        network_tensors = [(t.name, t.dtype, t.shape) for t in layout.tensors]
        return Layout.of(
            [*network_tensors, *((CONTROL + t.name, t.dtype, t.shape) for t in layout.tensors if t.name in trained)]
        )

    def travels_beside(self, layout: Layout, model: ModelBytes | None) -> Mapping[str, NDArray[Any]]:
        """Return the federation's variates of a global model, zeros before there is one."""
        wanted = [t for t in layout.tensors if t.name.startswith(CONTROL)]
        if model is None:
            return {t.name: np.zeros(t.shape, array_dtype(t.dtype)) for t in wanted}
        arrays = model.arrays()
        return {t.name: arrays[t.name] for t in wanted}

    def begin(self, silo_round: SiloRound) -> SiloVariates:
        """Correct the silo's gradients in this round."""
        return SiloVariates(silo_round)


class VariateStep(StatelessStep):
    """``theta += eta mean(y - theta)`` and ``c += |S|/N mean(c_k' - c_k)``, where an update brings ``c + c_k' - c_k`` (KAT-O1, O2).

    What it remembers, c, is part of the model.

    Parameters
    ----------
    rate : float
        Learning rate eta of the server.
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


class CountedUpdates(RoundMemory):
    """Counts every silo's updates."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def conclude(self, announcements: Mapping[str, Announcement]) -> None:
        """Count the updates of this round; an inactive silo has none."""
        for silo, announcement in announcements.items():
            self._counts[silo] = self._counts.get(silo, 0) + (announcement.update is not None)

    def auxiliary_data(self, silo: str = "") -> AuxiliaryData:
        """Return the silo's count."""
        return {COUNTED: np.array([self._counts.get(silo, 0)])}

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the counts by silo."""
        return {silo: np.array([count]) for silo, count in self._counts.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take counts that `state` returned."""
        self._counts = {silo: int(count[0]) for silo, count in state.items()}


class SiloVariates(RoundPart):
    """One round of a silo.

    Parameters
    ----------
    silo_round : SiloRound
        The round: its model came with the federation's variate of the parameter NAME as ``control.NAME``.
    """

    resumes = True

    def __init__(self, silo_round: SiloRound) -> None:
        network, received_arrays, previous_state, auxiliary = (
            silo_round.network,
            silo_round.received,
            silo_round.kept,
            silo_round.auxiliary_data,
        )
        import torch

        named = dict(network.named_parameters())
        names = [name.removeprefix(CONTROL) for name in received_arrays if name.startswith(CONTROL)]
        self._parameters = {name: named[name] for name in names}
        self._received = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._renewed: dict[str, Tensor] = {}
        self._global = {name: _like(received_arrays[CONTROL + name], p) for name, p in self._parameters.items()}
        self._counted = auxiliary.get(COUNTED, np.zeros(1, np.int64))
        last = STATE_PREFIX if np.array_equal(previous_state.get(COUNTED, self._counted) + 1, self._counted) else BEFORE
        self._silo_variates = {
            name: _like(previous_state[last + name], p) if last + name in previous_state else torch.zeros_like(p)
            for name, p in self._received.items()
        }

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Have ``c - c_k`` added to every gradient, before momentum."""
        shifts = {name: self._global[name] - self._silo_variates[name] for name in self._parameters}
        hooks = [p.register_hook(shifts[name].__add__) for name, p in self._parameters.items()]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def trained(self, rates: float) -> None:
        """Replace the silo's variates by ``c_k - c + (theta - y) / rates``: with plain SGD the mean gradient along its path (KAT-O1).

        Parameters
        ----------
        rates : float
            Sum of the step sizes that were used, above 0.
        """
        self._renewed = {
            name: self._silo_variates[name] - self._global[name] + (self._received[name] - p.detach()) / rates
            for name, p in self._parameters.items()
        }

    def kept(self) -> Mapping[str, NDArray[Any]]:
        """Return the silo's variates after and before this round, to keep for its next one; nothing before `trained`."""
        kinds = {STATE_PREFIX: self._renewed, BEFORE: self._silo_variates} if self._renewed else {}
        arrays = {kind + name: t.cpu().numpy() for kind, variates in kinds.items() for name, t in variates.items()}
        return {**arrays, COUNTED: self._counted} if arrays else {}

    def beside(self) -> Mapping[str, NDArray[Any]]:
        """Return what travels up, ``c`` plus the change of the silo's own variate; after `trained`."""
        changed = {name: self._global[name] + new - self._silo_variates[name] for name, new in self._renewed.items()}
        return {CONTROL + name: tensor.cpu().numpy() for name, tensor in changed.items()}


def _like(array: NDArray[Any], parameter: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(array.copy()).to(parameter.device)
