"""The server's memory while FedMix's silos send their means and receive the pool of all: real processes, by the size of the pool.

python benchmarks/pool.py --mib 3 13 117
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import yaml
from PIL import Image
from round import peak_resident

ROW_BYTES = 4 * (3 * 32 * 32 + 2)
"""A mean of 32 x 32 pixels in three colours, and its label."""
GROUP = 2


def write_study(folder: Path, rows: int, silos: int, rounds: int) -> Path:
    """Write random images, and a federation whose silos make so many means of them together."""
    draw = np.random.default_rng(0)
    for number in range(rows * GROUP):
        kind = folder / "claim" / str(number % 2)
        kind.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8)).save(kind / f"{number}.png", compress_level=0)
    spec = {
        "rounds": rounds,
        "task": {"classification": {"classes": ["0", "1"]}},
        "model": {"network": "MoonCnn", "imageSize": 32},
        "method": {
            "name": "FedMix",
            "inputMixing": {"fedMix": {"groupSize": GROUP}},
            "local": {"epochs": 1, "batchSize": 256},
        },
        "protocol": {"minSilos": silos},
    }
    documents = [{"kind": "Federation", "metadata": {"name": "pool"}, "spec": spec}]
    for part in range(silos):
        partition = {"recipe": "Iid", "parts": silos, "part": part}
        data = {"format": "ImageFolder", "claimName": "claim", "use": "Part", "partition": partition}
        silo_spec = {"federation": "pool", "labels": "All", "managed": {"data": data}}
        documents.append({"kind": "Silo", "metadata": {"name": f"silo-{part}"}, "spec": silo_spec})
    file = folder / "federation.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


def peak_of_server(file: Path) -> tuple[int, int]:
    """Run a federation and return the exit status and the server's largest resident size in bytes."""
    fedctl = str(Path(sys.executable).with_name("fedctl"))
    command = [fedctl, "run", "-f", str(file), "--workdir", str(file.parent / "run")]
    log = file.parent / "log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        server, peak = None, 0
        while process.poll() is None:
            server = server or _server_of(process.pid)
            peak = max(peak, peak_resident(server))
            time.sleep(0.05)
    if process.returncode:
        print(log.read_text()[-400:], file=sys.stderr)
    return process.returncode, peak


def _server_of(pid: int) -> int | None:
    try:
        children = psutil.Process(pid).children(recursive=True)
        return next((child.pid for child in children if "anchorage_server" in child.cmdline()), None)
    except psutil.Error:
        return None


def main() -> None:
    """Print a table; with --json write the rows too."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--mib", type=float, nargs="+", default=[3, 13, 117], help="sizes of the pool")
    parser.add_argument("--silos", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    print(f"{'pool MiB':>8} {'means':>6} {'exit':>4} {'server peak MB':>14}")
    for mib in arguments.mib:
        count = int(mib * 2**20 / ROW_BYTES) // arguments.silos * arguments.silos
        with tempfile.TemporaryDirectory(prefix="anchorage-pool-") as folder:
            status, peak = peak_of_server(write_study(Path(folder), count, arguments.silos, arguments.rounds))
        rows.append({"pool_bytes": count * ROW_BYTES, "exit_status": status, "server_peak_rss_bytes": peak})
        print(f"{count * ROW_BYTES / 2**20:8.1f} {count:6d} {status:4d} {peak / 1e6:14.0f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "pool", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
