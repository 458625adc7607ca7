"""Small encoders without residual connections: Anchorage's own for small images, and those of the papers (methods reference, 5.1)."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from anchorage.learning.device import mixed_precision


class SmallCnn(nn.Module):
    """Four convolutions with batch normalisation, for small images such as 8x8 digits; width 128, smallest map a quarter of the image."""

    width = 128
    reduction = 4

    def __init__(self, channels: int) -> None:
        super().__init__()
        plan = [(channels, 16), (16, 32), (32, 64), (64, self.width)]
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in plan)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b in plan)

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 128], not negative."""
        for index, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if index >= 2:  # the last two see half and a quarter of the image
                x = functional.max_pool2d(x, 2)
            x = functional.relu(norm(convolution(x)))
        return x.mean((2, 3))


class MoonCnn(nn.Module):
    """MOON's network, and RSCFed's simple one: two convolutions of 6 and 16 maps, two dense layers; width 84.

    Parameters
    ----------
    channels : int
        Channels of the images.
    side : int
        Their height and width, at least 16 pixels.
    """

    width = 84
    reduction = 1

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.dense1 = nn.Linear(16 * (((side - 4) // 2 - 4) // 2) ** 2, 120)
        self.dense2 = nn.Linear(120, self.width)

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 84], not negative."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return functional.relu(self.dense2(functional.relu(self.dense1(x.flatten(1)))))


class TutorialCnn(nn.Module):
    """TensorFlow's CIFAR-10 tutorial: two convolutions of 64 maps with local response normalisation, two dense layers; width 192.

    Parameters
    ----------
    channels : int
        Channels of the images.
    side : int
        Their height and width: 24, or 32 where they are not cropped.
    """

    width = 192
    reduction = 1

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.respond = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)  # TensorFlow's radius 4, alpha 0.001 / 9
        self.dense1 = nn.Linear(64 * (side // 2 // 2) ** 2, 384)
        self.dense2 = nn.Linear(384, self.width)

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 192], not negative."""
        x = functional.relu(self.conv1(x))
        x = self.respond(functional.max_pool2d(x, 3, 2, ceil_mode=True))
        x = self.respond(functional.relu(self.conv2(x)))
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        return functional.relu(self.dense2(functional.relu(self.dense1(x.flatten(1)))))


class LeafCnn(nn.Module):
    """LEAF's network for FEMNIST: two convolutions of 32 and 64 maps, one dense layer; width 2048.

    Parameters
    ----------
    channels : int
        Channels of the images.
    side : int
        Their height and width, 28 in FEMNIST.
    """

    width = 2048
    reduction = 1

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.dense = nn.Linear(64 * (side // 2 // 2) ** 2, self.width)

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 2048], not negative."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return functional.relu(self.dense(x.flatten(1)))


class ResNet9(nn.Module):
    """FedMatch's ResNet-9 without its classifier: eight convolutions, no bias and no normalisation anywhere; width 512.

    Parameters
    ----------
    channels : int
        Channels of the images, which are at least 8 pixels high and wide.
    """

    width = 512
    reduction = 1

    def __init__(self, channels: int) -> None:
        super().__init__()
        widths = (channels, 64, 128, 128, 128, 256, 512, 512, 512)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(widths))

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 512], not negative."""
        shortcut = x
        for index, convolution in enumerate(self.convolutions):
            x = functional.relu(convolution(x))
            if index in (3, 7):  # the second of a residual pair
                x = x + shortcut
            if index in (1, 4, 5):
                x = functional.max_pool2d(x, 2)
            if index in (1, 5):
                shortcut = x
        return torch.amax(x, (2, 3))
