"""The work that every simulation of `make bench-simulate-peers` does: images, network and steps. It needs torch alone."""

import torch
from torch import Tensor, nn

USERS, IMAGES, BATCH, RATE, CLASSES, SIDE = 50, 50, 10, 0.01, 10, 32


def drawn(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return random images, uint8 [users, images, 3, 32, 32], and their classes, int64 [users, images]."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (USERS, IMAGES, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    return pixels, torch.randint(0, CLASSES, (USERS, IMAGES), generator=generator)


def normalised(pixels: Tensor) -> Tensor:
    """Return pixels as float32 in -1 … 1."""
    return (pixels.float() / 255 - 0.5) / 0.5


def encoder() -> nn.Sequential:
    """Return the two convolutions and the dense layer of pfl-research's CIFAR-10 benchmark; width 128."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
    )


def network() -> nn.Sequential:
    """Return the network, 1,626,442 parameters."""
    torch.manual_seed(1)
    return nn.Sequential(*encoder(), nn.Linear(128, CLASSES))
