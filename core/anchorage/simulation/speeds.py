"""How fast simulated silos are: seconds per training step and per transfer of a model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import SPEED_INVALID

_SECONDS = r"\d{1,9}(?:\.\d{1,9})?"
_SPEED = re.compile(rf"([^=]+)=({_SECONDS})(?:\+({_SECONDS}))?")


@dataclass(frozen=True, slots=True)
class Speed:
    """What one silo needs.

    Parameters
    ----------
    step_seconds : float
        For a training step. A batch that is only scored takes a third: one pass instead of three (methods reference, 9.1).
    transfer_seconds : float
        For a model or an update, each way.
    """

    step_seconds: float = 0.05
    transfer_seconds: float = 0.0


class Speeds:
    """Speeds by patterns of silos' names; the last that fits counts, and a silo that none fits has the default speed.

    Parameters
    ----------
    rules : sequence of (str, Speed)
        Patterns as of file names: ``*``, ``?``, ``[abc]``.
    """

    def __init__(self, rules: Sequence[tuple[str, Speed]] = ()) -> None:
        self._rules = tuple(rules)

    def of(self, silo: str) -> Speed:
        """Return a silo's speed."""
        return next((speed for pattern, speed in reversed(self._rules) if fnmatchcase(silo, pattern)), Speed())

    def check(self, silos: Iterable[str]) -> None:
        """See that every pattern fits a silo.

        Raises
        ------
        AnchorageError
            One fits none.
        """
        names = list(silos)
        for pattern, _ in self._rules:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise AnchorageError(
                    SPEED_INVALID, f"no silo's name fits {pattern!r}, there are {', '.join(names[:10])}"
                )


def parse_speeds(texts: Sequence[str]) -> Speeds:
    """Read speeds of the form ``PATTERN=STEP`` or ``PATTERN=STEP+TRANSFER``, in seconds, such as ``cpu-*=0.4+2``.

    Raises
    ------
    AnchorageError
        One has another form.
    """
    rules = []
    for text in texts:
        match = _SPEED.fullmatch(text)
        if match is None:
            wanted = "PATTERN=STEP or PATTERN=STEP+TRANSFER in seconds, such as 'cpu-*=0.4+2'"
            raise AnchorageError(SPEED_INVALID, f"found {text!r}, allowed is {wanted}")
        pattern, step, transfer = match.groups(default="0")
        rules.append((pattern, Speed(float(step), float(transfer))))
    return Speeds(rules)
