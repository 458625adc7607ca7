"""What `fedctl plan` forecasts beside what `fedctl run` takes, on six federations of scikit-learn's digits.

Bytes are those of the run's journal; the time is from the start of round 1 to the last commit; memory is the peak of each process (VmHWM,
Linux), read while it runs. As other work on the machine makes a run longer, the same federation is also played in one process
(`fedctl simulate --at-once 1`), of which the processor's time counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

from anchorage.engine.events import RoundCommitted, RunEvent
from anchorage.methods import validate_study
from anchorage.simulation.rehearsal import warm_up
from anchorage.simulation.run import Simulation

ROOT = Path(__file__).parents[1]
POLL_SECONDS = 0.1
POOL = {"format": "Digits", "testPercent": 20, "validationPercent": 10}
ROLES = {"anchorage_server": "server", "anchorage_silo.trainer": "trainer", "anchorage_silo": "agent"}
"""Roles by the module that a process runs."""


def federation(
    labels: str,
    method: Mapping[str, Any],
    *,
    network: Mapping[str, Any] | None = None,
    anchors: int = 0,
    parts: int = 0,
    **spec: Any,
) -> str:
    """Return a federation of digits as YAML, with a silo per word of `labels`, each of one of so many `parts` (as many as there are silos)."""
    pool = POOL | ({"anchors": anchors} if anchors else {})
    model = {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits", **(network or {})}
    evaluation = {"validation": {**pool, "use": "Validation"}, "test": {**pool, "use": "Test"}}
    described: dict[str, Any] = {
        "task": {"classification": {"classes": list("0123456789")}},
        "model": model,
        "method": dict(method),
        "evaluation": evaluation | spec.pop("evaluation", {}),
        **({"anchorData": {**pool, "use": "Anchors"}} if anchors else {}),
        **spec,
    }
    written: list[dict[str, Any]] = [{"kind": "Federation", "metadata": {"name": "plan"}, "spec": described}]
    silos = labels.split()
    for part, label_use in enumerate(silos):
        partition = {"recipe": "PerClient", "parts": parts or len(silos), "part": part, "alpha": "2"}
        data = {
            **pool,
            "use": "Part",
            "partition": partition,
            **({"labelledPercent": 30} if label_use == "Partial" else {}),
        }
        silo = {"federation": "plan", "labels": label_use, "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": f"silo-{part}"}, "spec": silo})
    return yaml.safe_dump_all(written, sort_keys=False)


EXAMPLES: Mapping[str, str] = {
    "FedAnchor (examples/digits.yaml)": (ROOT / "examples" / "digits.yaml").read_text(),
    "FedAvg, 3 of 6 silos a round, scored at the silos": federation(
        "All All All All All All",
        {"name": "FedAvg", "local": {"epochs": 10}},
        rounds=20,
        protocol={"silosPerRound": 3},
        evaluation={"siloPercent": 20, "everyRounds": 5},
    ),
    "FedBarlow, then SemiAnAgg": federation(
        "All Partial None None",
        {"name": "SemiAnAgg", "local": {"epochs": 2, "batchSize": 16}},
        rounds=12,
        warmUp=[{"method": "FedBarlow", "rounds": 2, "set": ["local.epochs=1"]}],
    ),
    "AsyncDVW": federation(
        "All All All",
        {"name": "AsyncDVW", "local": {"epochs": 4}},
        rounds=40,
        protocol={"mode": "Asynchronous"},
    ),
    "FedMix with its pool": federation(
        "All All All",
        {"name": "FedMix", "local": {"epochs": 2, "batchSize": 16}},
        network={"imageSize": 32},
        rounds=8,
    ),
    "FedAnchor on ResNet18": federation(
        "None None",
        {"name": "FedAnchor", "local": {"epochs": 1, "batchSize": 32}},
        network={"network": "ResNet18", "imageSize": 16},
        anchors=80,
        parts=8,
        rounds=5,
    ),
}


def planned(file: Path) -> Any:
    """Return what `fedctl plan` says."""
    command = [sys.executable, "-m", "fedctl.main", "plan", "-f", str(file), "-o", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measured(file: Path, workdir: Path) -> dict[str, Any]:
    """Run a federation, and return bytes, seconds, and the peak memory per role."""
    command = [sys.executable, "-m", "fedctl.main", "run", "-f", str(file), "--workdir", str(workdir)]
    peaks: dict[str, dict[int, int]] = {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for role, pid, nbytes in _resident(process.pid):
                peaks.setdefault(role, {})[pid] = nbytes
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(f"{file}: fedctl run ended with {process.returncode}; its logs are in {workdir / 'logs'}")
    lines = (workdir / "server" / "journal.jsonl").read_text().splitlines()
    rounds = [(entry := json.loads(line)).get("record", entry) for line in lines]
    started = rounds[1]["time"] - sum(rounds[1]["seconds"].values()) if rounds[1]["seconds"] else rounds[0]["time"]
    return {
        "bytesUp": sum(each["bytesUp"] for each in rounds),
        "bytesDown": sum(each["bytesDown"] for each in rounds),
        "seconds": rounds[-1]["time"] - started,
        "server": max(peaks["server"].values()),
        "silo": max(peaks["trainer"].values()) + max(peaks["agent"].values()),
        "serverDisk": sum(_size(workdir / "server" / part) for part in ("checkpoints", "spool", "model", "large")),
        "siloDisk": max(map(_size, (workdir / "silos").iterdir())),
    }


def simulated(file: Path, state: Path) -> float:
    """Play a federation in this process, and return the processor's seconds from round 1 to the last commit."""
    marks: list[float] = []

    def observe(event: RunEvent) -> None:
        if isinstance(event, RoundCommitted):
            marks.append(time.process_time())

    warm_up()
    Simulation(validate_study(file), file.parent, state, device="cpu").play(observe)
    return marks[-1] - marks[0]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _resident(pid: int) -> Iterator[tuple[str, int, int]]:
    """Yield role, id and peak memory of the processes below one."""
    for process in psutil.Process(pid).children(recursive=True):
        try:
            words = process.cmdline()
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (psutil.Error, OSError):
            continue
        module = next((word for before, word in pairwise(words) if before == "-m"), "")
        peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
        yield ROLES.get(module, module), process.pid, 1024 * int(peak)


def compared(name: str, folder: Path) -> dict[str, Any]:
    """Plan and run one example; return what was forecast and measured by figure."""
    file = folder / "federation.yaml"
    folder.mkdir()
    file.write_text(EXAMPLES[name])
    plan, run = planned(file), measured(file, folder / "run")
    run["processor"] = simulated(file, folder / "simulation")
    forecast = {
        "bytesUp": plan["bytes"]["up"],
        "bytesDown": plan["bytes"]["down"],
        "processor": plan["time"]["oneAfterAnother"],
        "seconds": plan["time"]["onThisMachine"],
        "server": plan["memory"]["server"],
        "silo": plan["memory"]["silo"],
        "serverDisk": plan["disk"]["server"]["all"],
        "siloDisk": plan["disk"]["silo"]["all"],
    }
    return {"example": name, "forecast": forecast, "measured": run, "load": psutil.getloadavg()[0]}


def main() -> None:
    """Print a line per example and figure, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, help="index of one example, from 0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = list(EXAMPLES) if arguments.only is None else [list(EXAMPLES)[arguments.only]]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(names):
            row = compared(name, Path(folder, str(index)))
            rows.append(row)
            print(f"{name} (load {row['load']:.1f})")
            for figure, forecast in row["forecast"].items():
                measured = row["measured"][figure]
                print(
                    f"  {figure:<10} forecast {forecast:>15,.1f}  measured {measured:>15,.1f}  {forecast / measured:.3f}",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "plan", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
