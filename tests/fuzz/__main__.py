"""Feeds every parser of foreign bytes with damaged input for some minutes: ``python tests/fuzz --minutes 60 --seed 1 --only images``.

Prints, for each parser, how many inputs it got; an input that brings anything out but a failure of the catalogue is shown, made as small as can
be. Exits with 1 where there is one. ``member`` is no parser: members of a real federation send well-formed messages at random, and its inputs are
plays (`fuzz_member`).
"""

import argparse
import random
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "attacks"))
sys.path.append(str(Path(__file__).parents[1] / "integration"))

from drawn_plays import drawn_plays
from fuzz_member import BrokenPlayError, FuzzedFederation
from fuzz_targets import TARGETS, Target
from hypothesis import HealthCheck, Phase, given, seed, settings

AT_ONCE = 300
"""Inputs of a parser before it is the next one's turn."""
MEMBER = "member"
PLAYS_AT_ONCE = 60
"""Plays against one federation."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="which inputs")
    parser.add_argument("--only", choices=sorted([*TARGETS, MEMBER]), help="one parser, or the members")
    options = parser.parse_args()
    warnings.simplefilter("error")
    names = [options.only] if options.only else [*TARGETS, MEMBER]
    fed, answers = Counter[str](), Counter[tuple[str, str]]()
    broken: set[str] = set()
    end, turn = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end and len(broken) < len(names):
        for name in names:
            if name not in broken and time.monotonic() < end:
                turn += 1
                number = options.seed + turn
                outcome = _play(number, fed, answers, end) if name == MEMBER else _feed(TARGETS[name], number, fed)
                if not outcome:
                    broken.add(name)
                    sys.stdout.write(f"{name}: --only {name} --seed {number - 1} begins with these\n")
    for (call, answer), count in sorted(answers.items()):
        sys.stdout.write(f"  {call:10} {answer:20} {count:9}\n")
    for name in names:
        sys.stdout.write(f"{name:20} {fed[name]:9} inputs{'  BROKEN' if name in broken else ''}\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"seed {options.seed}, at most {peak} MiB of memory, {len(broken)} of {len(names)} broken\n")
    return 1 if broken else 0


def _play(number: int, fed: Counter[str], answers: Counter[tuple[str, str]], end: float) -> bool:
    """Play against a new federation until the plays are over or the time is, and count how calls were answered."""
    with tempfile.TemporaryDirectory(prefix="anchorage-fuzz-") as folder:
        federation = FuzzedFederation(Path(folder))
        try:
            federation.play(drawn_plays(number, PLAYS_AT_ONCE), lambda: time.monotonic() < end)
        except BrokenPlayError:
            traceback.print_exc()
            return False
        finally:
            fed[MEMBER] += federation.played
            answers.update(federation.answers)
            sys.stdout.write(
                f"{federation.played} plays of seed {number}: {federation.counted} rounds with a member's update, "
                f"the server's memory {federation.grown:+} MiB\n"
            )
            sys.stdout.flush()
    return True


def _feed(target: Target, number: int, fed: Counter[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="anchorage-fuzz-") as folder:

        @seed(number)
        @settings(
            max_examples=AT_ONCE, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)
        )  # fmt: skip
        @given(target.inputs)
        def feed(data: bytes) -> None:
            fed[target.name] += 1
            target.try_one(data, Path(folder))

        try:
            feed()
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            traceback.print_exc()
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
