"""Plays the attacks of the table in README.md against real processes: ``python tests/attacks --only NAME --json FILE --quick``.

Prints the table with what was seen. Exits with 1 where something did not hold.
"""

import argparse
import json
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import attacks_at_random  # noqa: F401 - registers its script
import attacks_by_files  # noqa: F401
import attacks_by_members  # noqa: F401
import attacks_by_server  # noqa: F401
import attacks_from_outside  # noqa: F401
import attacks_on_sums  # noqa: F401
from attack_scripts import SCRIPTS, NotHeldError, Place, Script
from attack_table import Row, rows
from attacked_federation import Federation
from attacks_on_sums import SummedFederation

FEDERATIONS = {Place.SHARED: Federation, Place.SUMMED: SummedFederation}


@dataclass(frozen=True)
class Observation:
    """What came of one attack."""

    script: str
    who: str
    attempt: str
    held: bool
    observation: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(SCRIPTS), action="append", help="one attack; may be repeated")
    parser.add_argument("--json", type=Path, help="where to write what was seen")
    parser.add_argument("--quick", action="store_true", help="without what starts further servers or takes minutes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chosen = [
        each
        for each in SCRIPTS.values()
        if each.name in (options.only or SCRIPTS) and (each.quick or not options.quick)
    ]
    table = {row.script: row for row in rows()}
    outcomes = []
    folder = Path(tempfile.mkdtemp(prefix="anchorage-attacks-"))
    try:
        for place, scripts in groupby(sorted(chosen, key=lambda each: each.place), key=lambda each: each.place):
            with ExitStack() as stack:
                federation = None
                if place in FEDERATIONS:
                    federation = stack.enter_context(FEDERATIONS[place](folder / place.name.lower()))
                    federation.begin()
                for each in scripts:
                    script_folder = folder / each.name
                    script_folder.mkdir()
                    outcomes.append(_played(each, table[each.name], federation or script_folder))
    finally:
        shutil.rmtree(folder)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2) + "\n")
    lost = [each.script for each in outcomes if not each.held]
    sys.stdout.write(f"{len(outcomes) - len(lost)} of {len(outcomes)} held\n")
    return 1 if lost else 0


def _played(script: Script, row: Row, place: Federation | Path) -> Observation:
    began = time.monotonic()
    try:
        answer, holds = script.play(place), True
    except (NotHeldError, AssertionError, queue.Empty, TimeoutError, subprocess.TimeoutExpired) as error:
        answer, holds = f"{type(error).__name__}: {error}", False
    outcome = Observation(script.name, row.who, row.attempt, holds, answer, round(time.monotonic() - began, 1))
    sys.stdout.write(
        f"{'held' if holds else 'NOT HELD':8}  {outcome.seconds:5.1f} s  {script.name}: {row.who} {row.attempt}\n"
    )
    sys.stdout.write(f"{'':20}{answer}\n")
    sys.stdout.flush()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
