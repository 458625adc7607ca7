"""Masks: streams of AES-256 in counter mode that are added to numbers modulo 2^32."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

BLOCK_WORDS = 1 << 18
"""Numbers that are masked at a time: they stay in the processor's cache."""
_ZEROS = bytes(4 * BLOCK_WORDS)

Words = NDArray[np.uint32]


def add_mask(words: Words, key: bytes, sign: int, start: int = 0) -> None:
    """Add (`sign` 1) or subtract (-1) the stream of a key of 32 bytes, modulo 2^32.

    Parameters
    ----------
    words : ndarray of uint32, shape [n]
        Changed in place.
    key : bytes
        For one vector only: a stream that masks twice masks nothing.
    sign : int
        1 or -1.
    start : int
        Position of the first word in the whole vector, a multiple of 4.
    """
    combine = np.add if sign > 0 else np.subtract
    cipher = Cipher(algorithms.AES(key), modes.CTR((start // 4).to_bytes(16, "big"))).encryptor()
    stream = np.empty(4 * BLOCK_WORDS + 16, np.uint8)
    for first in range(0, len(words), BLOCK_WORDS):
        block = words[first : first + BLOCK_WORDS]
        cipher.update_into(_ZEROS[: block.nbytes], stream.data)
        combine(block, stream[: block.nbytes].view("<u4"), out=block)
