"""Shamir's secret sharing of 32 bytes, over the prime field of 2^521 - 1."""

import secrets
from collections.abc import Mapping

PRIME = 2**521 - 1
SECRET_BYTES = 32
SHARE_BYTES = 66


def split(secret: bytes, shares: int, threshold: int) -> list[bytes]:
    """Return shares of a secret of 32 bytes, `SHARE_BYTES` each; any `threshold` of them tell it, fewer tell nothing."""
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= shares:
        raise ValueError(f"{threshold} of {shares} shares of {len(secret)} bytes")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]

    def at(x: int) -> int:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        return value

    return [at(x).to_bytes(SHARE_BYTES, "big") for x in range(1, shares + 1)]


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret of at least as many shares as the threshold, by their positions from 0.

    Raises
    ------
    ValueError
        The shares are not of one secret.
    """
    secret = 0
    for point, share in shares.items():
        numerator = denominator = 1
        for other in shares:
            if other != point:
                numerator = numerator * (other + 1) % PRIME
                denominator = denominator * (other - point) % PRIME
        secret += int.from_bytes(share, "big") * numerator * pow(denominator, -1, PRIME)
    if (secret := secret % PRIME) >> (8 * SECRET_BYTES):
        raise ValueError("the shares are not of one secret")
    return secret.to_bytes(SECRET_BYTES, "big")
