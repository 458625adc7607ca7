"""The result of one check of ``fedctl doctor``."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from anchorage.api.errors import AnchorageError, cluster


class Level(StrEnum):
    """Severity: WARN limits functionality, FAIL prevents operation."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """A finding."""

    name: str
    """What was checked."""
    level: Level
    """The severity."""
    found: str
    """What was found, one line."""
    remedy: str = ""
    """How to fix it, one line; empty if nothing is wrong."""


def guard(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Yield the findings of a check; an error becomes a finding itself (WARN if the user lacks permission)."""
    try:
        yield from look()
    except AnchorageError as error:
        level = Level.WARN if error.failure is cluster.CLUSTER_FORBIDDEN else Level.FAIL
        yield Check(name, level, error.message, error.failure.remedy)
