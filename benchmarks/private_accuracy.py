"""Accuracy against ε on scikit-learn's digits: ``make bench-private-accuracy``.

FedAvg with SmallCnn (group normalisation) over three silos of 400 digits, 15 rounds, accuracy on 597 other digits. Each silo protects single
images (DP-SGD) or all its images together (clipping and noise of the update), with the noise that makes all rounds cost a given ε at
δ = 1e-5. Learning rates are fixed: 0.5 without noise, 0.1 with it.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.accounting import Mechanism, epsilon
from anchorage.learning.data import ImageSet
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.digits import list_digits
from anchorage.learning.dp_sgd import DpSgd
from anchorage.learning.learners import build_server_learner, build_silo_learner
from anchorage.learning.poisson import PoissonBatches
from anchorage.methods import resolve
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.model import ModelBytes, read_arrays
from anchorage_silo.privacy import PrivateLearner
from anchorage_silo.protection import Protection

CLASSES = tuple("0123456789")
SILOS, PER_SILO, ROUNDS, DELTA = 3, 400, 15, 1e-5
EPOCHS, BATCH, CLIP = 2, 40, 1.0
PLAIN_RATE, NOISY_RATE = "0.5", "0.1"
SILO_EPSILONS, IMAGE_EPSILONS = (8.0, 1000.0, 100_000.0), (8.0, 50.0)


def noise_for(wanted: float, mechanism: Callable[[float], Mechanism]) -> float:
    """Return the noise multiplier with which all rounds cost an ε, by bisection, always below it."""
    low, high = 1e-2, 1e3
    for _ in range(40):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if epsilon([mechanism(middle)] * ROUNDS, DELTA) <= wanted else (middle, high)
    return high


def digits() -> ImageSet:
    """Return all digits, shuffled."""
    listing = list_digits(SiteClasses(CLASSES, {}))
    order = np.random.default_rng(3).permutation(len(listing.ids))
    pixels, numbers = np.stack(listing.sources)[:, None], np.arange(len(order), dtype=np.uint64)
    return ImageSet(pixels, listing.labels, listing.ids, listing.ids, listing.strata, CLASSES, numbers).select(order)


def accuracy(images: ImageSet, protect: dict[str, Any]) -> float:
    """Return the accuracy after all rounds."""
    sgd = {"learningRate": NOISY_RATE if protect else PLAIN_RATE, "weightDecay": "0", "momentum": "0"}
    local = {"epochs": EPOCHS, "batchSize": BATCH, "optimiser": {"sgd": sgd}}
    method = resolve(MethodSpec.model_validate({"name": "FedAvg", "local": local, "batchNorm": {"groupNorm": {}}}))
    fields = {
        "task": {"classification": {"classes": list(CLASSES)}},
        "network": "SmallCnn",
        "imageSize": 8,
        "channels": 1,
    }
    model = ModelDescription.model_validate(fields)
    test = images.select(np.arange(SILOS * PER_SILO, len(images.ids)))
    server = build_server_learner(model=model, method=method, seed=1, test=test)
    layout = server.down
    run = RunDescription(
        federation="bench", seed=1, model=model, method=method, rounds=ROUNDS, mode="Synchronous",
        down=layout.to_json(), up=layout.to_json(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        silos: list[Any] = []
        for number in range(SILOS):
            silo_images = images.select(np.arange(number * PER_SILO, (number + 1) * PER_SILO))
            learner: Any = build_silo_learner(
                run=run, silo=f"s{number}", labels="All", images=silo_images, state=Path(folder), device="cpu",
                dp_sgd=protect.get("dp_sgd"),
            )  # fmt: skip
            if "noise_std" in protect:
                learner = PrivateLearner(
                    learner, layout, layout, Protection(clip_norm=CLIP, noise_std=protect["noise_std"], noise_seed=number, always=True),
)  # fmt: skip
            silos.append(learner)
        weights, update = server.initialise(), np.empty(layout.nbytes, np.uint8)

        def out(nbytes: int) -> NDArray[np.uint8]:
            return update[:nbytes]

        for number in range(1, ROUNDS + 1):
            sums = {name: np.zeros(array.shape) for name, array in read_arrays(layout, weights.buffer()).items()}
            for silo in silos:
                silo.train(
                    Task(f"{number}.train", TaskKind.TRAIN, number, weights.manifest), weights.buffer(), out, _go_on
                )
                for name, array in read_arrays(layout, update).items():
                    sums[name] += array / SILOS
            old = read_arrays(layout, weights.buffer())
            weights = ModelBytes.from_arrays(
                layout, {name: each.astype(old[name].dtype) for name, each in sums.items()}
            )
        return server.test(weights, ROUNDS).metrics["accuracy"]


def _go_on(done: int, total: int) -> int:
    return 0


def main() -> None:
    """Print the figures; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    images, rows = digits(), []
    batches = PoissonBatches.of(PER_SILO, BATCH, EPOCHS)
    cases: list[tuple[str, float | None, float, dict[str, Any]]] = [("nothing", None, 0.0, {})]
    for wanted in SILO_EPSILONS:
        multiplier = noise_for(wanted, Mechanism)
        cases.append(("silo", wanted, multiplier, {"noise_std": 2 * CLIP * multiplier}))
    for wanted in IMAGE_EPSILONS:
        image = noise_for(wanted, lambda z: Mechanism(z, batches.rate, batches.steps))
        cases.append(("image", wanted, image, {"dp_sgd": DpSgd(CLIP, image)}))
    for unit, wanted_epsilon, noise, protect in cases:
        reached = accuracy(images, protect)
        rows.append({"protected": unit, "epsilon": wanted_epsilon, "noise": noise, "accuracy": reached})
        print(f"{unit:8} epsilon {wanted_epsilon or 'none':>6} noise {noise:8.3f} accuracy {reached:.3f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
