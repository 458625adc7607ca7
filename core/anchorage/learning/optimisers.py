"""SGD and AdamW by the functions of torch.optim, which calculate what its classes do.

The classes load PyTorch's compiler when they are made, which nothing here uses: 1.9 s of processor time and 155 MB in every process that trains.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class _PlainOptimiser(torch.optim.Optimizer):
    """Parameters in groups, and what is kept of each; without hooks, profiles and compilation.

    Parameters
    ----------
    groups : iterable of dict
        Each with ``params``, ``lr`` and ``weight_decay``.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]]) -> None:  # that of the base class loads the compiler
        self.param_groups = [{**group, "params": list(group["params"])} for group in groups]
        self.state = defaultdict(dict)
        self.defaults = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or set them to zeros."""
        for parameter in self._parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept by the number of its parameter, and the groups with numbers in the place of parameters."""
        numbers = {parameter: number for number, parameter in enumerate(self._parameters())}
        groups = [{**group, "params": [numbers[p] for p in group["params"]]} for group in self.param_groups]
        return {"state": {numbers[p]: state for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Put back the states of `state_dict`; rates and other options of groups stay as they are."""
        parameters = self._parameters()
        for number, state in state_dict["state"].items():
            parameter = parameters[number]
            self.state[parameter] = {key: value.to(parameter.device, torch.float32) for key, value in state.items()}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step along the gradients; a parameter without one stays.

        Raises
        ------
        ValueError
            `closure`: a loss that would be calculated again, which nothing here does.
        """
        if closure is not None:
            raise ValueError("a step takes no closure")
        for group in self.param_groups:
            moving = [parameter for parameter in group["params"] if parameter.grad is not None]
            if moving:
                self._move(group, moving, [parameter.grad for parameter in moving])

    @abstractmethod
    def _move(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Move parameters of a group."""

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]


class PlainSgd(_PlainOptimiser):
    """SGD with momentum.

    Parameters
    ----------
    groups : iterable of dict
        As of the base class.
    momentum : float
        Momentum, 0 for none; buffers may be put into `state` as ``momentum_buffer``.
    nesterov : bool
        Whether the momentum is Nesterov's.
    fused : bool
        Whether all parameters move in one kernel.
    """

    def __init__(
        self, groups: Iterable[Mapping[str, Any]], momentum: float, *, nesterov: bool = False, fused: bool = False
    ) -> None:
        super().__init__(groups)
        self.momentum, self.nesterov, self._fused = momentum, nesterov, fused

    def _move(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        buffers = (
            [self.state[p].get("momentum_buffer") for p in parameters] if self.momentum else [None] * len(parameters)
        )
        sgd(
            parameters,
            gradients,
            buffers,
            foreach=False,
            fused=self._fused,
            weight_decay=group["weight_decay"],
            momentum=self.momentum,
            lr=group["lr"],
            dampening=0.0,
            nesterov=self.nesterov,
            maximize=False,
        )
        if self.momentum:
            for parameter, buffer in zip(parameters, buffers, strict=True):
                self.state[parameter]["momentum_buffer"] = buffer


class PlainAdamW(_PlainOptimiser):
    """AdamW in one kernel for all parameters, with the decays 0.9 and 0.999."""

    def _move(self, group: Mapping[str, Any], parameters: list[Tensor], gradients: list[Tensor]) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=_BETA_1,
            beta2=_BETA_2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=_EPSILON,
            maximize=False,
        )
