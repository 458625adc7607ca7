"""Cost of evaluation compared with training in DVW: ``make bench-dvw ARGS="--device cuda --json FILE"``.

DVW sends every committed model to all silos, which evaluate it on their validation images (methods reference, 6.14). The cost of a commit is the
sum of those times over all silos, including the committing one; it is compared with the time of the training that made the update. Images are
random, since their content does not affect the time. The last column is computed by counting multiplications: a step costs three forward passes.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.learning.data import ImageSet
from anchorage.learning.learners import TorchSiloLearner, build_server_learner, build_silo_learner
from anchorage.methods import resolve
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.model import ModelBytes

TARGET = 0.05
CLASSES = 10


def drawn(count: int, size: int, seed: int) -> ImageSet:
    """Return random images with labels."""
    draws = np.random.default_rng(seed)
    names = tuple(map(str, range(count)))
    pixels = draws.integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    labels = draws.integers(0, CLASSES, count)
    return ImageSet(
        pixels,
        labels,
        names,
        names,
        labels,
        tuple(map(str, range(CLASSES))),
        np.arange(count, dtype=np.uint64),
    )


class Silos:
    """A federation's silos, and a model to train and to score.

    Parameters
    ----------
    count, images : int
        Silos, and images of each.
    model : ModelDescription
        The network.
    batch_size : int
        Images per step.
    device : str
        Where to train.
    state : Path
        Folder of the silos.
    """

    def __init__(
        self, count: int, images: int, model: ModelDescription, batch_size: int, device: str, state: Path
    ) -> None:
        method = resolve(MethodSpec.model_validate({"name": "DVW", "local": {"batchSize": batch_size}}))
        server = build_server_learner(model=model, method=method, seed=1, device=device)
        run = RunDescription(
            federation="bench", seed=1, model=model, method=method, rounds=9, mode="Asynchronous",
            down=server.down.to_json(), up=server.up.to_json(),
        )  # fmt: skip
        self.initial, self.up, self.method = server.initialise(), server.up, method
        self.learners: list[TorchSiloLearner] = []
        for index in range(count):
            data = drawn(images, model.image_size, index)
            self.learners.append(
                build_silo_learner(
                    run=run, silo=f"s{index}", labels="All", images=data, state=state / str(index), device=device
                )
            )

    def train(self, number: int) -> tuple[float, ModelBytes]:
        """Have a silo train one cycle; return the seconds and the update."""
        update = np.empty(self.up.nbytes, np.uint8)
        task = Task(f"{number}", TaskKind.TRAIN, number, self.initial.manifest)
        begun = time.perf_counter()
        self.learners[number % len(self.learners)].train(
            task, self.initial.buffer(), lambda nbytes: update, lambda done, total: 0
        )
        return time.perf_counter() - begun, ModelBytes.of(self.up, update)

    def score(self, number: int, update: ModelBytes) -> float:
        """Have every silo score an update; return the sum of the seconds."""
        buffer, begun = update.buffer(), time.perf_counter()
        for learner in self.learners:
            learner.evaluate(Task(f"{number}", TaskKind.EVALUATE, number, update.manifest), buffer)
        return time.perf_counter() - begun


def main() -> None:
    """Print the figures; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, default=10)
    parser.add_argument("--images", type=int, default=1000, help="of every silo, 5 %% of them for validation")
    parser.add_argument("--model", default="SmallCnn")
    parser.add_argument("--size", type=int, default=32, help="pixels")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--commits", type=int, default=5, help="counted commits")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    model = ModelDescription.model_validate(
        {
            "task": {"classification": {"classes": list(map(str, range(CLASSES)))}},
            "network": options.model,
            "imageSize": options.size,
            "channels": 3,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        silos = Silos(options.silos, options.images, model, options.batch_size, options.device, Path(folder))
        training, scoring = [], []
        for number in range(
            1, options.commits + options.silos + 1
        ):  # a silo's first cycle and its first score are slow
            seconds, update = silos.train(number)
            training.append(seconds)
            scoring.append(silos.score(number, update))
    trained, scored = (statistics.median(times[options.silos :]) for times in (training, scoring))
    percent, epochs = silos.method.weighting.validation_percent / 100, silos.method.local.epochs
    counted = options.silos * percent / (3 * epochs * (1 - percent))
    print(f"training {trained * 1e3:.1f} ms, scoring by {options.silos} silos {scored * 1e3:.1f} ms per commit")
    print(f"share {scored / trained:.1%}, by counting {counted:.1%}, target {TARGET:.0%}")
    if options.json:
        figures = {"training_s": trained, "scoring_s": scored, "share": scored / trained, "counted": counted}
        settings = {key: str(value) for key, value in vars(options).items() if key != "json"}
        options.json.write_text(json.dumps({"benchmark": "dvw", **figures, "settings": settings}, indent=2))


if __name__ == "__main__":
    main()
