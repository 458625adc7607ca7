"""Attacks by name: a script plays one, and returns what was seen; what must hold and does not is a `NotHeldError`."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class NotHeldError(Exception):
    """Something did not hold: what, and what was seen instead."""


class Place(IntEnum):
    """Where an attack is played; those of one place are played one after another."""

    SHARED = 0
    """On the one federation that goes on through all of these."""
    SUMMED = 1
    """On one with secure aggregation, the same for all of these."""
    SEPARATE = 2
    """In an empty folder."""


@dataclass(frozen=True)
class Script:
    """One attack."""

    name: str
    play: Callable[[Any], str]
    quick: bool
    """Whether it belongs to the part that `.ci/run` plays: it takes seconds."""
    place: Place


SCRIPTS: dict[str, Script] = {}
"""Every one; within a place they are played in this order."""


def script(
    *, quick: bool = True, place: Place = Place.SHARED
) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Register a script, whose name is the function's with hyphens."""

    def register(play: Callable[[Any], str]) -> Callable[[Any], str]:
        name = play.__name__.replace("_", "-")
        assert name not in SCRIPTS, name
        SCRIPTS[name] = Script(name, play, quick, place)
        return play

    return register


def held(holds: bool, what: str, observation: object) -> None:
    """Check what must hold.

    Raises
    ------
    NotHeldError
        It does not.
    """
    if not holds:
        raise NotHeldError(f"{what}; seen: {observation}")


def refused(code: str, *codes: str) -> str:
    """Check that a code is one of those that are expected, and return it."""
    held(code in codes, f"the answer should be {' or '.join(codes)}", code)
    return code
