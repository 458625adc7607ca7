"""The optimisers step bit for bit as the classes of torch.optim, and load nothing of PyTorch's compiler."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anchorage.learning.optimisers import PlainAdamW, PlainSgd

STEPS = 5


def parameters() -> list[nn.Parameter]:
    drawn = torch.Generator().manual_seed(3)
    filters = torch.randn(4, 3, 2, 2, generator=drawn).to(memory_format=torch.channels_last)
    return [
        nn.Parameter(filters),
        nn.Parameter(torch.randn(5, generator=drawn)),
        nn.Parameter(torch.randn(2, generator=drawn)),
    ]


def groups(moving: Sequence[Tensor]) -> list[dict[str, Any]]:
    return [
        {"params": [*moving[:1]], "lr": 0.1, "weight_decay": 0.01},
        {"params": [*moving[1:]], "lr": 0.02, "weight_decay": 0.0},
    ]


def after_steps(optimiser: torch.optim.Optimizer, moving: Sequence[nn.Parameter], seed: int = 7) -> None:
    """Take steps; the last parameter gets its first gradient in the third."""
    drawn = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        optimiser.zero_grad()
        optimiser.param_groups[0]["lr"] = 0.1 / (1 + step)
        for parameter in moving if step > 1 else moving[:-1]:
            parameter.grad = torch.randn(parameter.shape, generator=drawn)
        optimiser.step()


@pytest.mark.parametrize("options", [{"momentum": 0.0}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
def test_sgd_steps_as_torch_s(options: Mapping[str, Any]) -> None:
    product_parameters, reference = parameters(), parameters()
    after_steps(PlainSgd(groups(product_parameters), **options), product_parameters)
    after_steps(torch.optim.SGD(groups(reference), **options), reference)
    assert all(torch.equal(a, b) for a, b in zip(product_parameters, reference, strict=True))


def test_adamw_steps_as_torch_s_fused_one() -> None:
    product_parameters, reference = parameters(), parameters()
    after_steps(PlainAdamW(groups(product_parameters)), product_parameters)
    after_steps(torch.optim.AdamW(groups(reference), fused=True), reference)
    assert all(torch.equal(a, b) for a, b in zip(product_parameters, reference, strict=True))


@pytest.mark.parametrize("build", [PlainAdamW, lambda groups: PlainSgd(groups, 0.9)])
def test_what_is_kept_goes_on_in_another_optimiser(build: Any) -> None:
    uncut, cut = parameters(), parameters()
    first, begun = build(groups(uncut)), build(groups(cut))
    for optimiser, moving in ((first, uncut), (begun, cut)):
        after_steps(optimiser, moving)
    resumed = build(groups(cut))
    resumed.load_state_dict(begun.state_dict())
    for optimiser, moving in ((first, uncut), (resumed, cut)):
        after_steps(optimiser, moving, seed=8)
    assert all(torch.equal(a, b) for a, b in zip(uncut, cut, strict=True))


def test_gradients_are_forgotten_or_zeros() -> None:
    moving = parameters()
    optimiser = PlainSgd(groups(moving), 0.0)
    moving[0].grad = torch.ones(4, 3, 2, 2)
    optimiser.zero_grad(set_to_none=False)
    assert moving[0].grad is not None and not moving[0].grad.any() and moving[1].grad is None
    optimiser.zero_grad()
    assert moving[0].grad is None
    with pytest.raises(ValueError, match="no closure"):
        optimiser.step(lambda: torch.zeros(()))


def test_a_step_loads_no_compiler() -> None:
    program = (
        "import sys, torch; from anchorage.learning.optimisers import PlainAdamW, PlainSgd\n"
        "moving = torch.nn.Parameter(torch.zeros(3)); moving.grad = torch.ones(3)\n"
        "for build in (PlainAdamW, lambda groups: PlainSgd(groups, 0.9)):\n"
        "    optimiser = build([{'params': [moving], 'lr': 0.1, 'weight_decay': 0.0}]); optimiser.step(); optimiser.state_dict()\n"
        "print(*(name for name in ('torch._dynamo', 'torch._inductor', 'sympy') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
