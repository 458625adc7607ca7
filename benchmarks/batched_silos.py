"""What batching silos into one computation gains: ``make bench-batched-silos ARGS="--repeat 7"``.

Ten silos take ten steps of plain SGD on a batch of ten images each: one silo after another, as a simulation trains them, and all at once, with their
weights stacked and `torch.func.vmap` over gradients. One thread, median processor time of --repeat turns, and the ratio of the two. Networks:
that of ``make bench-simulate-peers`` (1.63 million parameters), a small one for images of 8 pixels, and heads on features of a frozen encoder.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from peers import work
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

SILOS, BATCH, STEPS, CLASSES, RATE = 10, 10, 10, 10, 0.01


def small() -> nn.Module:
    """Return two convolutions and two dense layers for grey images of 8 pixels, 87,000 parameters."""
    layers = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def hidden() -> nn.Module:
    """Return a head with a hidden layer for 1,280 features."""
    return nn.Sequential(nn.Linear(1280, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def linear() -> nn.Module:
    """Return a linear head for 1,280 features."""
    return nn.Linear(1280, CLASSES)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "the peers' network, 32 pixels": (work.network, (3, 32, 32)),
    "small network, 8 pixels": (small, (1, 8, 8)),
    "head with a hidden layer": (hidden, (1280,)),
    "linear head": (linear, (1280,)),
}


def one_by_one(models: list[nn.Module], images: Tensor, labels: Tensor) -> None:
    """Train each silo's network."""
    for model, batch, classes in zip(models, images, labels, strict=True):
        parameters = list(model.parameters())
        for _ in range(STEPS):
            gradients = torch.autograd.grad(cross_entropy(model(batch), classes), parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.sub_(gradient, alpha=RATE)


def at_once(models: list[nn.Module], images: Tensor, labels: Tensor) -> None:
    """Train all silos' networks in one computation."""
    weights, buffers = stack_module_state(models)
    shape = copy.deepcopy(models[0]).to("meta")

    def loss(weights: dict[str, Tensor], buffers: dict[str, Tensor], batch: Tensor, classes: Tensor) -> Tensor:
        return cross_entropy(functional_call(shape, (weights, buffers), (batch,)), classes)

    step = vmap(grad(loss))
    for _ in range(STEPS):
        gradients = step(weights, buffers, images, labels)
        with torch.no_grad():
            for name, weight in weights.items():
                weight.sub_(gradients[name], alpha=RATE)


def seconds(train: Callable[[list[nn.Module], Tensor, Tensor], None], make: Callable[[], nn.Module], shape: tuple[int, ...]) -> float:  # fmt: skip
    """Return the processor seconds of one turn."""
    models = [make() for _ in range(SILOS)]
    images, labels = torch.randn(SILOS, BATCH, *shape), torch.randint(0, CLASSES, (SILOS, BATCH))
    start = time.process_time()
    train(models, images, labels)
    return time.process_time() - start


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    for name, (make, shape) in NETWORKS.items():
        turns = [(seconds(one_by_one, make, shape), seconds(at_once, make, shape)) for _ in range(options.repeat + 1)]
        first, second = (statistics.median(column) for column in zip(*turns[1:], strict=True))
        print(f"{name:32} one by one {first:.4f} s   at once {second:.4f} s   ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
