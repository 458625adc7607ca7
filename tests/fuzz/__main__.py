"""Feeds every parser of foreign bytes with damaged input for some minutes: ``python tests/fuzz --minutes 60 --seed 1 --only images``.

Prints, for each parser, how many inputs it got; an input that brings anything out but a failure of the catalogue is shown, made as small as can
be. Exits with 1 where there is one.
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

from fuzz_targets import TARGETS, Target
from hypothesis import HealthCheck, Phase, given, seed, settings

AT_ONCE = 300
"""Inputs of a parser before it is the next one's turn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="which inputs")
    parser.add_argument("--only", choices=sorted(TARGETS), help="one parser")
    options = parser.parse_args()
    warnings.simplefilter("error")
    targets = [TARGETS[options.only]] if options.only else list(TARGETS.values())
    fed: Counter[str] = Counter()
    broken: set[str] = set()
    end, turn = time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end and len(broken) < len(targets):
        for target in targets:
            if target.name not in broken and time.monotonic() < end:
                turn += 1
                if not _feed(target, options.seed + turn, fed):
                    broken.add(target.name)
    for target in targets:
        sys.stdout.write(f"{target.name:20} {fed[target.name]:9} inputs{'  BROKEN' if target.name in broken else ''}\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"seed {options.seed}, at most {peak} MiB of memory, {len(broken)} parsers broken\n")
    return 1 if broken else 0


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
