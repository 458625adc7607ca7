"""Generators derived from (run seed, purpose, round, silo), so that no silo's presence changes another's draws (methods reference, section 1)."""

from __future__ import annotations

import hashlib

import numpy as np


def seed_of(seed: int, purpose: str, round_number: int = 0, silo: str = "") -> int:
    """Derive a 63-bit seed for one purpose of one silo in one round.

    Parameters
    ----------
    seed : int
        The run's seed.
    purpose : str
        What is drawn, such as ``init``, ``partition``, ``sampling``, ``batches``, ``augmentation`` or ``mixup``.
    round_number : int
        The round, 0 for what is drawn once per run.
    silo : str
        The silo's name, empty at the server.
    """
    key = f"{seed}\x1f{purpose}\x1f{round_number}\x1f{silo}".encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "little") >> 1


def generator(seed: int, purpose: str, round_number: int = 0, silo: str = "") -> np.random.Generator:
    """Return a numpy generator of its own for `seed_of` the same arguments."""
    return np.random.Generator(np.random.PCG64(seed_of(seed, purpose, round_number, silo)))
