"""Which faults are injected when: the same for the same seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

LIVE = (
    "kill-server", "kill-agent", "kill-trainer",
    "pause-server", "pause-agent", "pause-trainer",
    "cut-connection", "half-open-connection", "half-open-server", "slow-link", "no-link", "no-name",
)  # fmt: skip
"""Faults of a federation at work; several may be there at once."""
STOPPED = (
    "kill-everything", "flip-byte", "damage-checkpoint", "truncate-journal", "disk-full", "read-only-disk", "disk-full-silo", "clock-jump",
    "packet-loss", "read-only-disk-silo", "memory-limit", "certificate-ends", "slow-disk",
    "restore-backup",
)  # fmt: skip
"""Faults that come alone: most need a process stopped, or stop one."""
TRACKED = ("mlflow-down", "mlflow-silent", "mlflow-slow")
"""Faults of MLflow, in a federation whose results go there."""
KINDS = LIVE + STOPPED + TRACKED
OFTEN = ("flip-byte", "flip-byte")
"""As many files as there are want to be damaged."""
SILOS = ("a", "b", "c")
MOST_AT_ONCE = 3
LONG_SECONDS = 30.0
"""How long the first pause of a plan lasts, and the first of each of `LONG`: longer than a connection lives without a sign of its other end."""
LONG = ("slow-link", "no-link")


@dataclass(frozen=True)
class Fault:
    """One fault."""

    kind: str
    """One of `KINDS`."""
    silo: str
    """Whose agent, trainer or link."""
    delay: float
    """Seconds from when the federation was at work again."""
    seconds: float
    """How long it lasts, where it lasts."""
    share: float
    """Where in a file or in the bytes of a connection, 0 to 1."""

    @property
    def target(self) -> str:
        """What it concerns: two faults at once never concern the same."""
        what = "link" if self.kind not in ("kill-agent", "pause-agent") else "agent"
        what = "trainer" if self.kind.endswith("trainer") else what
        return "server" if self.kind.endswith("server") else f"{what} {self.silo}"


def plan(count: int, seed: int, long_seconds: float = LONG_SECONDS) -> list[list[Fault]]:
    """Return waves of faults, `count` in all: every kind comes before one comes again, and the first of those that last is long."""
    rng = random.Random(seed)
    waves: list[list[Fault]] = []
    room, lasted = 0, set[str]()
    for kind in islice(_kinds(rng), count):
        fault = Fault(kind, rng.choice(SILOS), rng.uniform(0, 0.5), rng.uniform(0.5, 3), rng.random())
        lasts = "pause" if kind.startswith("pause") else kind
        if lasts in ("pause", *LONG) and lasts not in lasted:
            fault = replace(fault, seconds=long_seconds)
        lasted.add(lasts)
        if kind in LIVE and room and fault.target not in {other.target for other in waves[-1]}:
            waves[-1].append(fault)
            room -= 1
        else:
            waves.append([fault])
            room = rng.randrange(MOST_AT_ONCE) if kind in LIVE else 0
    return waves


def _kinds(rng: random.Random) -> Iterator[str]:
    while True:
        deck = [*KINDS, *OFTEN]
        rng.shuffle(deck)
        yield from deck
