"""Masks: streams of AES-256 in counter mode that are added to numbers modulo 2^32."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

BLOCK_WORDS = 1 << 16
"""Numbers that get all their masks before the next ones do: they stay in the processor's cache."""
_ZEROS = bytes(4 * BLOCK_WORDS)

Words = NDArray[np.uint32]


class Mask(NamedTuple):
    """One stream."""

    key: bytes
    """32 bytes, for one vector only: a stream that masks twice masks nothing."""
    sign: int
    """1 where it is added, -1 where it is subtracted."""


def add_masks(words: Words, masks: Sequence[Mask], start: int = 0) -> None:
    """Add or subtract streams, modulo 2^32.

    Parameters
    ----------
    words : ndarray of uint32, shape [n]
        Changed in place.
    masks : sequence of Mask
        The streams.
    start : int
        Position of the first word in the whole vector, a multiple of 4.
    """
    counter = modes.CTR((start // 4).to_bytes(16, "big"))
    streams = [
        (Cipher(algorithms.AES(mask.key), counter).encryptor(), np.add if mask.sign > 0 else np.subtract)
        for mask in masks
    ]
    stream = np.empty(4 * BLOCK_WORDS + 16, np.uint8)
    for first in range(0, len(words), BLOCK_WORDS):
        block = words[first : first + BLOCK_WORDS]
        zeros, numbers = _ZEROS[: block.nbytes], stream[: block.nbytes].view("<u4")
        for cipher, combine in streams:
            cipher.update_into(zeros, stream.data)
            combine(block, numbers, out=block)
