"""One silo's FedAnchor round on CIFAR-like random images: ``make bench-train ARGS="--device cuda"``.

Every image is accepted (threshold 0), so a round has epochs x images / batch steps, each with a strong, a weak and a mixed view. On the
CPU the time is that of one thread, as in a silo's trainer; the processor's own clock is read beside the wall's, since other work may run.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.learning.data import ImageSet
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Task, TaskKind

CLASSES = 10


def random_images(count: int, side: int) -> ImageSet:
    """Return labelled noise."""
    rng = np.random.default_rng(count)
    names = tuple(map(str, range(count)))
    pixels = rng.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
    labels = np.arange(count) % CLASSES
    return ImageSet(
        pixels,
        labels,
        names,
        names,
        labels,
        tuple(map(str, range(CLASSES))),
        np.arange(count, dtype=np.uint64),
    )


def timed(work: Callable[[], object], device: str, repeats: int) -> tuple[float, float]:
    """Return the least wall seconds and the least processor seconds of a call."""
    walls, processors = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        walls.append(time.perf_counter() - start)
        processors.append(time.process_time() - used)
    return min(walls), min(processors)


def measure(arguments: argparse.Namespace) -> dict[str, float | int | str]:
    """Play rounds of one silo."""
    model = ModelDescription(
        network=arguments.model, task=Classification(classes=tuple(map(str, range(CLASSES)))), image_size=arguments.side
    )
    local = {"epochs": arguments.epochs, "batchSize": arguments.batch}
    spec = {"name": "FedAnchor", "pseudoLabels": {"anchorSimilarity": {"threshold": "0"}}, "local": local}
    method = resolve(MethodSpec.model_validate({**spec, "serverTraining": {"anchors": {"pretrainEpochs": 0}}}))
    anchors, images = random_images(5 * CLASSES, arguments.side), random_images(arguments.images, arguments.side)
    server = build_server_learner(
        model=model, method=method, seed=1, anchors=anchors, device=arguments.device, rounds=1
    )
    initial = server.initialise()
    auxiliary, buffer, out = server.auxiliary_data(initial, 1), initial.buffer(), np.empty(server.up.nbytes, np.uint8)
    run = RunDescription(
        federation="bench", seed=1, model=model, method=method, down=server.down.to_json(), up=server.up.to_json(),
        rounds=1, mode="Synchronous",
    )  # fmt: skip
    task = Task("1", TaskKind.TRAIN, 1, initial.manifest, auxiliary)
    steps = 0

    def progress(done: int, total: int) -> int:
        nonlocal steps
        steps = total
        return 0

    with tempfile.TemporaryDirectory() as state:
        silo = build_silo_learner(
            run=run, silo="a", labels="None", images=images, state=Path(state), device=arguments.device
        )
        digests = set()

        def play() -> None:
            update = silo.train(task, buffer, lambda nbytes: out, progress).update
            assert update is not None
            digests.add(update.digest)

        wall, processor = timed(play, arguments.device, arguments.repeats)
    return {
        "device": arguments.device,
        "model": arguments.model,
        "images": arguments.images,
        "batch": arguments.batch,
        "epochs": arguments.epochs,
        "steps": steps,
        "round_s": wall,
        "round_processor_s": processor,
        "step_ms": 1e3 * wall / steps,
        "step_processor_ms": 1e3 * processor / steps,
        "digests": len(digests),
    }


def main() -> None:
    """Print a line, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="ResNet18")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--images", type=int, default=50, help="500 as published")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=1, help="5 as published")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    row = measure(arguments)
    for name, value in row.items():
        print(f"{name:>18} {value:.3f}" if isinstance(value, float) else f"{name:>18} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "train", "rows": [row]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
