"""An optimiser's state that was kept elsewhere."""

from collections.abc import Mapping

import torch
from torch import Tensor


def put_back(optimiser: torch.optim.Optimizer, states: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Load states by the number of their parameter.

    What has the parameter's shape gets its layout in memory, too: a fused step pairs numbers by their places there.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    laid_out = {
        number: {
            key: torch.empty_like(target).copy_(value) if value.shape == target.shape else value
            for key, value in state.items()
        }
        for number, state in states.items()
        for target in (parameters[number],)
    }
    optimiser.load_state_dict({"state": laid_out, "param_groups": optimiser.state_dict()["param_groups"]})
