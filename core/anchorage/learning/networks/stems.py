"""How the first layer of a library's network fits small images; needs no torch (docs/networks.md).

Networks of ImageNet take 224 pixels a side and begin by throwing three quarters of them or more away. Below `SMALL` pixels a side

- an overlapping first convolution has a 3×3 kernel and stride 1, and a max-pooling right behind it is left out,
- a first convolution that cuts the image into patches has patches of `patch_side` pixels.

From `SMALL` pixels on networks stay as their library has them.
"""

SMALL = 64


def patch_side(native: int, side: int) -> int:
    """Return the side of a patch in pixels: of small images a quarter of the network's own, but at least 2."""
    return native if side >= SMALL else max(2, native // 4)
