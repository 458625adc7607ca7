"""ResNet-18 and wide ResNets without their classifiers (methods reference, 5.1)."""

from torch import Tensor, nn
from torch.nn import functional

from anchorage.learning.device import mixed_precision


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside an identity or a 1x1 convolution (ResNet)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, before, H, W] to [n, after, H/stride, W/stride]."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 without its classifier, width 512.

    Parameters
    ----------
    channels : int
        Channels of the images.
    large : bool
        The 7x7 stem with max-pooling for large images ("ImageNet"), else the 3x3 stem ("CIFAR").
    """

    width = 512

    def __init__(self, channels: int, large: bool) -> None:
        super().__init__()
        self.large = large
        self.reduction = 32 if large else 8
        self.stem = (
            nn.Conv2d(channels, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        )
        self.stem_norm = nn.BatchNorm2d(64)
        plan = [
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
            (256, 512, 2),
            (512, 512, 1),
        ]
        self.blocks = nn.Sequential(*(BasicBlock(*p) for p in plan))

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 512], not negative."""
        x = functional.relu(self.stem_norm(self.stem(x)))
        if self.large:
            x = functional.max_pool2d(x, 3, 2, 1)
        features: Tensor = self.blocks(x)
        return features.mean((2, 3))


class PreActivationBlock(nn.Module):
    """Normalise, activate, convolve, twice; the shortcut of a widening block starts after the first activation (wide ResNet)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else None

    def forward(self, x: Tensor) -> Tensor:
        """Map [n, before, H, W] to [n, after, H/stride, W/stride]."""
        y = functional.relu(self.bn1(x))
        shortcut = x if self.shortcut is None else self.shortcut(y)
        output: Tensor = self.conv2(functional.relu(self.bn2(self.conv1(y)))) + shortcut
        return output


class WideResNet28(nn.Module):
    """WRN-28-k without its classifier, width 64 k.

    Parameters
    ----------
    channels : int
        Channels of the images.
    widen : int
        The factor k.
    """

    reduction = 4

    def __init__(self, channels: int, widen: int) -> None:
        super().__init__()
        self.width = 64 * widen
        self.stem = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        widths = [16, 16 * widen, 32 * widen, 64 * widen]
        blocks = []
        for group in range(3):
            for index in range(4):
                before, stride = (widths[group], 1 + (group > 0)) if index == 0 else (widths[group + 1], 1)
                blocks.append(PreActivationBlock(before, widths[group + 1], stride))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(self.width)

    @mixed_precision
    def forward(self, x: Tensor) -> Tensor:
        """Map images float [n, channels, H, W] to embeddings [n, 64 k], not negative."""
        return functional.relu(self.norm(self.blocks(self.stem(x)))).mean((2, 3))
