"""Federations with secure aggregation in which one member lies: what came of so many, drawn at random (``make bench-secure-attacks``).

In one process and fake time, each with certificates, 4 to 7 silos, one lie of one member in every round or in the first alone, in some a new server
after two rounds, and in some of 7 silos an honest one that is lost in every round.
"""

import argparse
import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from lying_members import LONGEST_SEARCH, NAMES, Case, Hospitals, is_sought, lies, unnamed


def drawn(number: int, seed: int) -> Case:
    """Draw one federation; the lies come in turns, so that each has as many."""
    numbers, every = random.Random(f"{seed} {number}"), list(lies())
    kind, lie = every[number % len(every)]
    silos = numbers.randint(4, 7)
    case = Case(kind, lie, silos, numbers.choice(NAMES[:silos]), once=numbers.random() < 0.25, seed=number)
    if is_sought(kind, lie):
        case = replace(case, rounds=LONGEST_SEARCH)
    elif numbers.random() < 0.25:
        case = replace(case, rounds=4, restart_after=2)
    if silos == 7 and numbers.random() < 0.5:
        case = replace(case, lost=numbers.choice([silo for silo in NAMES if silo != case.liar]))
    return case


def main() -> int:
    """Play and print; exit status 1 where anything is not as it should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--federations", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    totals = Counter[str]()
    with Hospitals.made() as hospitals:
        for number in range(arguments.first, arguments.first + arguments.federations):
            case = drawn(number, arguments.seed)
            outcome = hospitals.play(case)
            for fault in outcome.faults(case):
                print(f"{number}: {case}: {fault}", flush=True)
            attributable, rounds = unnamed(case) is None and not case.once, len(outcome.counted)
            totals += Counter(
                federations=1,
                faulty=bool(outcome.faults(case)),
                rounds=rounds,
                rounds_without_change=sum(not counted for counted in outcome.counted),
                wrong_commits=len(outcome.wrong),
                servers_ended=outcome.ended is not None,
                honest_left_out=bool(outcome.named - {case.liar}),
                can_be_told=attributable,
                told=attributable and case.liar in outcome.named,
            )
    figures = {name: totals[name] for name in FIGURES}
    print(json.dumps(figures, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))
    return 1 if totals["faulty"] else 0


FIGURES = (
    "federations",
    "faulty",
    "rounds",
    "rounds_without_change",
    "wrong_commits",
    "servers_ended",
    "honest_left_out",
    "can_be_told",
    "told",
)

if __name__ == "__main__":
    sys.exit(main())
