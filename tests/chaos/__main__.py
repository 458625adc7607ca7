"""Injects faults into federations of real processes and checks what must hold: ``python tests/chaos --faults 50 --seed 7 --json FILE``.

The same seed chooses the same faults; the moments at which they meet the processes are the machine's. Exits with 1 where something did not hold.
"""

import argparse
import json
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from chaos_faults import play
from chaos_federation import BrokenError, Federation
from chaos_network import Network
from chaos_plan import TRACKED, Fault, plan

EPISODE = 25
"""Faults after which a federation ends and another one begins, at least."""
BROKEN = (
    "lost_rounds", "changed_rounds", "wrong_digests", "double_counted", "late_status",
    "unexplained_ends", "tracebacks", "stray_processes", "stray_files", "lost_results", "repeated_results",
)  # fmt: skip
"""What is counted and must be 0."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=50, help="how many")
    parser.add_argument("--seed", type=int, default=7, help="which ones")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    began = time.monotonic()
    found: Counter[str] = Counter(dict.fromkeys(BROKEN, 0))
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="anchorage-chaos-") as names:
        network = Network.enter(Path(names))
        for episode in _episodes(plan(options.faults, options.seed)):
            _try(episode, found, broken, network)
    document = _document(found, broken, options.seed, time.monotonic() - began)
    text = json.dumps(document, indent=2)
    if options.json is not None:
        options.json.write_text(text + "\n")
    sys.stdout.write(f"{text}\n")
    return 1 if broken else 0


def _end(number: int, _: object) -> None:
    """End with what is mounted and running put away; a second signal does not cut that short."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _try(episode: list[list[Fault]], found: Counter[str], broken: list[str], network: Network | None) -> None:
    """Play an episode in a folder of its own; what does not come back is noted."""
    folder = Path(tempfile.mkdtemp(prefix="anchorage-chaos-"))
    try:
        with Federation(folder, found, broken, network, tracked=episode[0][0].kind in TRACKED) as federation:
            _play(federation, episode)
    except (BrokenError, TimeoutError, queue.Empty, subprocess.TimeoutExpired) as error:
        broken.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder)


def _play(federation: Federation, episode: list[list[Fault]]) -> None:
    began = time.monotonic()
    federation.begin()
    for wave in episode:
        words = ", ".join(f"{fault.kind} {fault.silo}" for fault in wave)
        sys.stderr.write(f"{time.monotonic() - began:6.1f} s  {words}\n")
        play(federation, wave)
    federation.conclude()


def _episodes(waves: list[list[Fault]]) -> list[list[list[Fault]]]:
    """Return the waves in groups of about `EPISODE` faults; those of MLflow are the last."""
    tracked = [wave for wave in waves if wave[0].kind in TRACKED]
    episodes: list[list[list[Fault]]] = [[]]
    for wave in waves:
        if wave in tracked:
            continue
        if sum(map(len, episodes[-1])) >= EPISODE:
            episodes.append([])
        episodes[-1].append(wave)
    return [episode for episode in (*episodes, tracked) if episode]


def _document(found: Counter[str], broken: list[str], seed: int, seconds: float) -> dict[str, object]:
    def group(prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): count for name, count in sorted(found.items()) if name.startswith(prefix)}

    kinds, used = group("injected "), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "faults": sum(kinds.values()),
        "seed": seed,
        **{name: found[name] for name in BROKEN},
        "rounds": found["rounds"],
        "played_again": found["played_again"],
        "restored_files": found["restored_files"],
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
