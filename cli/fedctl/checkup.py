"""One thing that ``fedctl doctor`` looked at."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from anchorage.api.errors import AnchorageError, cluster


class Level(StrEnum):
    """How bad it is: WARN goes on with less, FAIL does not go on."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Check:
    """A finding."""

    name: str
    """What was looked at."""
    level: Level
    """How bad it is."""
    found: str
    """What was found, one line."""
    remedy: str = ""
    """What to do, one line; empty where all is well."""


def guarded(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Yield what a look finds; where it fails, that is the finding (a WARN where the user may not look)."""
    try:
        yield from look()
    except AnchorageError as error:
        level = Level.WARN if error.failure is cluster.CLUSTER_FORBIDDEN else Level.FAIL
        yield Check(name, level, error.message, error.failure.remedy)
