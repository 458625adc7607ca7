"""Rounds in which only a head trains: their gap and their bytes with everything on, and what a frozen encoder saves a silo.

The server and the agents are those of `fedctl run`, with mutual TLS, journal, checkpoints and MLflow; the encoder is a ViT-S/16 of timm
(21.7 million parameters, random), which silos receive once. `gap_s` is a round's time, from commit to commit, less the training of its slowest silo:
tasks, announcements, uploads, aggregation, dispatch, writing. `server_s` is the server's part: aggregation to dispatch. `bytes_up` is all
that a silo sends over its rounds, joining, TLS and every message included, by the round;
a relay in front of the server counts it in a federation of its own.
"""

import argparse
import json
import socket
import statistics
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import yaml
from PIL import Image

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.events import Step
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.records import record_from_json
from anchorage.learning.data import ImageSet
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.methods import resolve, validate_study
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import Layout
from fedctl.configurations import open_authority, write_server_config, write_silo_config
from fedctl.local_run import claim, local_silos
from fedctl.observation import read_journal
from fedctl.supervision import Plan, Supervisor
from fedctl.workdir import Workdir

CLASSES = tuple(f"class-{index:02d}" for index in range(17))
"""A head of 384 to 17 has 26,180 bytes."""
NETWORK, SIDE, BATCH = "timm/vit_small_patch16_224", 224, 16
SKIPPED = 3
"""First rounds, in which the encoder travels and every image is encoded."""
RELAYED = 12
"""Rounds whose bytes are counted, beside the skipped ones."""
GAP_SECONDS, BYTES_BESIDE, FASTER = 0.05, 8_000, 50.0


class Relay:
    """Passes connections of this machine on to an address, and counts the bytes that go there."""

    def __init__(self) -> None:
        self.sent = 0
        self._target, self._lock = ("", 0), Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._accept, daemon=True).start()

    def before(self, address: str) -> str:
        """Return the address at which `address` is reached from now on."""
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(self._target)
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Thread(target=self._pass, args=(source, sink, source is near), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if counted:
                    with self._lock:
                        self.sent += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:  # the other side has gone
            source.close()
            sink.close()


class Watcher:
    """Watches in silence."""

    def __init__(self, run: Workdir) -> None:
        self._run = run

    def started(self, name: str, pid: int) -> None:
        """Do nothing."""

    def say(self, line: str) -> None:
        """Show a message."""
        print(line, flush=True)

    def refresh(self, endpoints: Mapping[str, str] | None, processes: Mapping[str, str]) -> int:
        """Return the last committed round."""
        journal = read_journal(self._run)
        return int(journal[-1]["round"]) if journal else -1


def documents(silos: int, rounds: int, images: Path, each: int) -> list[dict[str, Any]]:
    """Return a federation of labelled silos whose images lie in folders of classes, and write these."""
    spec = {
        "rounds": rounds,
        "task": {"classification": {"classes": list(CLASSES)}},
        "model": {"network": NETWORK, "imageSize": SIDE, "trainable": "Head"},
        "method": {"name": "FedAvg", "local": {"epochs": 1, "batchSize": BATCH}},
        "protocol": {"minSilos": silos},
    }
    written: list[dict[str, Any]] = [{"kind": "Federation", "metadata": {"name": "heads"}, "spec": spec}]
    draw = np.random.default_rng(0)
    for number in range(silos):
        name = f"silo-{number}"
        for index in range(each):
            folder = images / name / CLASSES[index % len(CLASSES)]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(folder / f"{index}.png")
        data = {"format": "ImageFolder", "claimName": name, "path": "."}
        silo = {"federation": "heads", "labels": "All", "managed": {"data": data}}
        written.append({"kind": "Silo", "metadata": {"name": name}, "spec": silo})
    return written


def played(silos: int, rounds: int, each: int, relay: Relay | None) -> list[RoundRecord]:
    """Play a federation of real processes and return its records."""
    with tempfile.TemporaryDirectory(prefix="anchorage-heads-") as folder:
        root, run = Path(folder), Workdir(Path(folder) / "run")
        file = root / "federation.yaml"
        file.write_text(yaml.safe_dump_all(documents(silos, rounds + SKIPPED, root, each)))
        study = validate_study(file)
        run.make()
        claim(run, study)
        open_authority(run, "heads")
        agents = {silo.name: silo for silo in local_silos(study, root)}

        def reached(endpoints: Mapping[str, str]) -> Mapping[str, str]:
            return endpoints if relay is None else {**endpoints, "silos": relay.before(endpoints["silos"])}

        plan = Plan(
            workdir=run,
            silos=tuple(agents),
            min_silos=silos,
            server_config=partial(write_server_config, run, root),
            silo_config=lambda name, endpoints: write_silo_config(run, agents[name], "heads", root, reached(endpoints)),
        )
        Supervisor(plan, Watcher(run)).play()
        return [record_from_json(record) for record in read_journal(run)]


def measure_rounds(silos: int, rounds: int, each: int) -> dict[str, float]:
    """Measure the time of rounds, then the bytes."""
    records, relay = played(silos, rounds, each, None), Relay()
    relayed = len(played(silos, RELAYED, len(CLASSES), relay)) - 1
    trainable = len(CLASSES) * (384 + 1) * 4
    gaps, servers, times, trainings = [], [], [], []
    for before, after in pairwise(records[SKIPPED:]):
        training = max(silo.metrics["seconds"] for silo in after.silos)
        times.append(after.time - before.time)
        trainings.append(training)
        gaps.append(times[-1] - training)
        server_steps = (Step.AGGREGATE, Step.SERVER, Step.EVALUATE_AT_SILOS, Step.DISPATCH)
        servers.append(sum(after.seconds[step] for step in server_steps))
        assert after.bytes_up == silos * trainable, "an update is the head alone"
        assert after.bytes_down in (silos * trainable, 0), "a task is the head alone"
    return {
        "silos": silos,
        "rounds": len(gaps),
        "trainable_bytes": trainable,
        "round_s": statistics.median(times),
        "training_s": statistics.median(trainings),
        "gap_s": statistics.median(gaps),
        "gap_min_s": min(gaps),
        "server_s": statistics.median(servers),
        "bytes_up": relay.sent / relayed / silos,
        "first_bytes_down": records[1].bytes_down / silos,
    }


def measure_silo(trainable: str, each: int, repeats: int) -> tuple[float, float, int]:
    """Return the seconds of a silo's first round and of a later one, and the bytes of its update."""
    model = ModelDescription(
        network=NETWORK, image_size=SIDE, task=Classification(classes=CLASSES), trainable=trainable
    )
    method = resolve(MethodSpec.model_validate({"name": "FedAvg", "local": {"epochs": 1, "batchSize": BATCH}}))
    server = build_server_learner(model=model, method=method, seed=1)
    initial = server.initialise()
    buffer, update = initial.buffer(), np.empty(server.up.nbytes, np.uint8)
    up: Layout = server.up
    run = RunDescription(
        federation="heads", seed=1, model=model, method=method, down=server.down.to_json(), up=up.to_json(),
        rounds=repeats + 1, mode="Synchronous",
    )  # fmt: skip
    pixels = np.random.default_rng(0).integers(0, 256, (each, 3, SIDE, SIDE), np.uint8)
    names, order = tuple(map(str, range(each))), np.arange(each)
    labels = order % len(CLASSES)
    images = ImageSet(pixels, labels, names, names, labels, CLASSES, order.astype(np.uint64))
    seconds = []
    with tempfile.TemporaryDirectory() as state:
        silo = build_silo_learner(run=run, silo="a", labels="All", images=images, state=Path(state), device="cpu")
        for number in range(1, repeats + 2):
            begun = time.perf_counter()
            silo.train(
                Task(f"{number}", TaskKind.TRAIN, number, initial.manifest),
                buffer,
                lambda nbytes: update,
                lambda done, total: 0,
            )
            seconds.append(time.perf_counter() - begun)
    return seconds[0], statistics.median(seconds[1:]), up.nbytes


def main() -> None:
    """Print the figures beside their targets; with --json write the rows, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, nargs="+", default=[4])
    parser.add_argument("--rounds", type=int, default=40, help="counted rounds")
    parser.add_argument("--images", type=int, default=32, help="images of a silo")
    parser.add_argument("--repeats", type=int, default=2, help="later rounds of the silo that trains everything")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for silos in arguments.silos:
        row = measure_rounds(silos, arguments.rounds, arguments.images)
        rows.append(row)
        overhead = row["bytes_up"] - row["trainable_bytes"]
        print(
            f"{silos} silos, {row['rounds']} rounds: round {row['round_s']:.3f} s, slowest training {row['training_s']:.3f} s\n"
            f"  gap {row['gap_s']:.3f} s, least {row['gap_min_s']:.3f} (target {GAP_SECONDS:.2f}); "
            f"of it aggregation to dispatch {row['server_s']:.4f} s\n"
            f"  bytes up per silo and round {row['bytes_up']:.0f}: {row['trainable_bytes']} trainable and {overhead:.0f} "
            f"(target {BYTES_BESIDE}); first task {row['first_bytes_down'] / 1e6:.1f} MB",
            flush=True,
        )
    first, later, head = measure_silo("Head", arguments.images, 20)
    _, everything, model_bytes = measure_silo("All", arguments.images, arguments.repeats)
    rows.append(
        {
            "images": arguments.images,
            "first_s": first,
            "head_s": later,
            "all_s": everything,
            "faster": everything / later,
        }
    )
    print(
        f"a silo of {arguments.images} images: head {later:.4f} s a round (the first, which encodes, {first:.2f} s; update {head} bytes), "
        f"everything {everything:.2f} s ({model_bytes} bytes): {everything / later:.0f} times faster (target {FASTER:.0f}), "
        f"{11 * everything / (first + 10 * later):.0f} times over 11 rounds with the encoding"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "head-rounds", "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
