"""Injects faults into federations of real processes and checks what must hold: ``python tests/chaos --faults 50 --seed 7 --json FILE``.

The same seed chooses the same faults; the moments at which they meet the processes are the machine's. Exits with 1 where something did not hold.
"""

import argparse
import json
import math
import multiprocessing
import os
import queue
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from chaos_end import check_sent
from chaos_faults import play
from chaos_federation import BrokenError, Federation
from chaos_network import Network
from chaos_plan import LONG_SECONDS, TRACKED, Fault, plan

EPISODE = 25
"""About as many faults at most come upon one federation."""
MOST_SECONDS = 600.0
"""How long a fault may last."""
AT_ONCE = 3
"""Federations at the same time: most of what they do is wait."""
BROKEN = (
    "lost_rounds", "changed_rounds", "wrong_digests", "double_counted", "late_status",
    "unexplained_ends", "tracebacks", "stray_processes", "stray_files", "lost_results", "repeated_results",
)  # fmt: skip
"""What is counted and must be 0."""
Findings = tuple[Counter[str], list[str]]
"""What an episode counted, and what did not hold in it."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=50, help="how many")
    parser.add_argument("--seed", type=int, default=7, help="which ones")
    parser.add_argument(
        "--long",
        type=float,
        default=LONG_SECONDS,
        help=f"seconds of the first pause, dead link and slow link, up to {MOST_SECONDS:g}",
    )
    parser.add_argument("--json", type=Path, help="where to write what was found")
    options = parser.parse_args()
    if not LONG_SECONDS <= options.long <= MOST_SECONDS:
        parser.error(
            f"--long: found {options.long:g}; set {LONG_SECONDS:g} to {MOST_SECONDS:g}, as a federation is given up after 15 minutes"
        )
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    findings: Counter[str] = Counter(dict.fromkeys(BROKEN, 0))
    broken: list[str] = []
    for counted, lines in _side_by_side(_episodes(plan(options.faults, options.seed, options.long))):
        findings.update(counted)
        broken += lines
    document = _document(findings, broken, options.seed, time.monotonic() - began)
    text = json.dumps(document, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n")
    sys.stdout.write(f"{text}\n")
    return 1 if broken else 0


def _end(number: int, _: object) -> None:
    """End with what is mounted and running put away; a second signal does not cut that short."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _side_by_side(episodes: list[list[list[Fault]]]) -> Iterator[Findings]:
    """Play the episodes, each in a process of its own and `AT_ONCE` at once, and yield what each found."""
    fork = multiprocessing.get_context("fork")  # before any thread starts
    waiting, running = list(enumerate(episodes)), dict[Connection, ForkProcess]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, episode = waiting.pop(0)
            near, far = fork.Pipe(duplex=False)
            process = fork.Process(target=_alone, args=(number, episode, far), daemon=True)
            process.start()
            far.close()
            running[near] = process
        for near in wait(list(running)):
            assert isinstance(near, Connection)
            process = running.pop(near)
            try:
                yield near.recv()
                process.join()
            except EOFError:
                process.join()
                yield Counter(), [f"the driver of an episode ended with {process.exitcode}"]


def _alone(number: int, episode: list[list[Fault]], results: Connection) -> None:
    """Play an episode in a folder and a network of its own; what does not come back is noted."""
    findings: Counter[str] = Counter()
    broken: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="anchorage-chaos-"))
    try:
        network = Network.enter(folder)
        with Federation(folder, findings, broken, network, tracked=episode[0][0].kind in TRACKED) as federation:
            _play(federation, number, episode)
    except (BrokenError, TimeoutError, queue.Empty, subprocess.TimeoutExpired) as error:
        broken.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder)
    results.send((findings, broken))


def _play(federation: Federation, number: int, episode: list[list[Fault]]) -> None:
    began = time.monotonic()
    federation.begin()
    if federation.tracking is not None:
        check_sent(federation, federation.last_round())  # killed while it makes its tables, MLflow does not come back
    for wave in episode:
        words = ", ".join(f"{fault.kind} {fault.silo}" for fault in wave)
        sys.stderr.write(f"{number} {time.monotonic() - began:6.1f} s  {words}\n")
        play(federation, wave)
    federation.conclude()
    sys.stderr.write(f"{number} {time.monotonic() - began:6.1f} s  over\n")


def _episodes(waves: list[list[Fault]]) -> list[list[list[Fault]]]:
    """Return the waves in groups of about `EPISODE` faults; those of MLflow, which take long to start, are the first."""
    tracked = [wave for wave in waves if wave[0].kind in TRACKED]
    others = [wave for wave in waves if wave not in tracked]
    count = sum(map(len, others))
    size = count / max(1, math.ceil(count / EPISODE))
    episodes: list[list[list[Fault]]] = [[]]
    for wave in others:
        if sum(map(len, episodes[-1])) >= size:
            episodes.append([])
        episodes[-1].append(wave)
    return [episode for episode in (tracked, *episodes) if episode]


def _document(findings: Counter[str], broken: list[str], seed: int, seconds: float) -> dict[str, object]:
    def group(prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): count for name, count in sorted(findings.items()) if name.startswith(prefix)}

    kinds, used = group("injected "), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "faults": sum(kinds.values()),
        "seed": seed,
        **{name: findings[name] for name in BROKEN},
        "rounds": findings["rounds"],
        "played_again": findings["played_again"],
        "restored_files": findings["restored_files"],
        "seconds": round(seconds, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load": [round(load, 1) for load in os.getloadavg()],
        "kinds": kinds,
        "skipped": group("skipped "),
        "flipped": group("flipped in "),
        "ended_with": group("ended with "),
        "broken": broken,
    }


if __name__ == "__main__":
    sys.exit(main())
