"""Time of a round with everything on, compared with plain grpcio streaming of the same bytes, and the server's memory.

`fedctl bench rounds` runs the rounds; the floor (benchmarks/floor.py) runs in blocks between them, in the same run. `--trace` draws
where the time of a round goes (benchmarks/round_trace.py).
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from floor import Floor

MODEL_BYTES = 44_759_784
SKIPPED = 2
"""Rounds at the start of a block that do not count: files are created, connections warm up."""


def events(
    silos: int, copies: int, rounds: int, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what `fedctl bench rounds` prints while it plays so many rounds that count, after `SKIPPED` others."""
    work = Path(tempfile.mkdtemp(prefix="anchorage-bench-"))
    command = [str(Path(sys.executable).with_name("fedctl")), "bench", "rounds", "--silos", str(silos)]
    command += ["--copies", str(copies), "--rounds", str(rounds + SKIPPED), "--work", str(work)]
    try:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode != 0:
            raise SystemExit(f"fedctl bench rounds ended with {process.returncode}")
    finally:
        shutil.rmtree(work)


def play_block(silos: int, copies: int, rounds: int) -> tuple[list[float], int]:
    """Play one block; return the seconds of its counted rounds and the server's peak resident bytes."""
    times, peak, server = [], 0, None
    for event in events(silos, copies, rounds):
        if event["event"] == "process" and event["role"] == "server":
            server = event["pid"]
        elif event["event"] == "round":
            times.append(event["t"])
            peak = max(peak, peak_resident(server))
        elif event["event"] == "final" and event["error"] > 1e-3:
            raise SystemExit(f"the model is wrong by {event['error']}")
    seconds = [after - before for before, after in pairwise(times)]
    return seconds[SKIPPED:], peak


def peak_resident(pid: int | None) -> int:
    """Return the largest resident size so far of a process, in bytes; 0 when it has ended."""
    if pid is None or not psutil.pid_exists(pid):
        return 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def base_resident() -> int:
    """Return the resident bytes of a process that has imported the server and done nothing."""
    code = "import anchorage_server.main, pathlib; print(pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) * 1024


def measure(silos: int, copies: int, rounds: int, blocks: int) -> dict[str, float]:
    """Measure one number of silos."""
    ours: list[float] = []
    floors: list[float] = []
    peak = 0
    for _ in range(blocks):
        with Floor(silos, MODEL_BYTES * copies) as floor:
            floor.round()
            floors += [floor.round() for _ in range(max(2, rounds // blocks))]
        seconds, resident = play_block(silos, copies, -(-rounds // blocks))
        ours += seconds
        peak = max(peak, resident)
    median, floor_median, base = statistics.median(ours), statistics.median(floors), base_resident()
    return {
        "silos": silos,
        "rounds": len(ours),
        "median_s": median,
        "min_s": min(ours),
        "floor_median_s": floor_median,
        "floor_min_s": min(floors),
        "ratio": median / floor_median,
        "server_peak_rss_bytes": peak,
        "server_base_rss_bytes": base,
        "server_rss_budget_bytes": base + 4 * MODEL_BYTES * copies + 8_000_000 * silos,
    }


def main() -> None:
    """Print a table; with --json write the rows too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--copies", type=int, default=1, help="models of 44.76 MB in one")
    parser.add_argument("--rounds", type=int, default=12, help="counted rounds per number of silos")
    parser.add_argument("--blocks", type=int, default=3, help="alternations between floor and rounds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--trace", action="store_true", help="draw the steps of both ends, with spans")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]]
    if arguments.trace:
        from round_trace import trace  # needs anchorage[otel]

        nbytes = MODEL_BYTES * arguments.copies
        rows = [trace(silos, arguments.copies, arguments.rounds, nbytes) for silos in arguments.silos]
    else:
        rows = table(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "round", "rows": rows}, indent=2) + "\n")


def table(arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Measure each number of silos and print its row."""
    rows = []
    print(f"{'silos':>5} {'rounds':>6} {'median s':>9} {'floor s':>9} {'ratio':>6} {'peak MB':>8} {'budget MB':>9}")
    for silos in arguments.silos:
        row = measure(silos, arguments.copies, arguments.rounds, arguments.blocks)
        rows.append(row)
        print(
            f"{silos:5d} {row['rounds']:6.0f} {row['median_s']:9.3f} {row['floor_median_s']:9.3f} {row['ratio']:6.2f} "
            f"{row['server_peak_rss_bytes'] / 1e6:8.0f} {row['server_rss_budget_bytes'] / 1e6:9.0f}",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
