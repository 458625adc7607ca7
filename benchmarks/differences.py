"""Savings if DVW sent models for evaluation as differences: ``make bench-differences ARGS="--model ResNet18 --json FILE"``.

Two silos train on the digits, enlarged; then a silo's update is packed like FedMatch's uploads (`anchorage.transport.tensors.differences`),
against the global model that it was trained from and that every silo of a round holds (methods reference, 9.2, number 19).
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.engine.aggregation import weighted_mean
from anchorage.engine.buffers import ModelBuffer
from anchorage.learning.data import ImageSet
from anchorage.learning.data.classes import SiteClasses
from anchorage.learning.data.digits import list_digits
from anchorage.learning.learners import TorchSiloLearner, build_server_learner, build_silo_learner
from anchorage.methods import resolve
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.differences import Differences, Restored
from anchorage.transport.tensors.model import ModelBytes

SILOS, IMAGES = 2, 400
ENLARGED = 2
"""Pixels of 16: at 8 the last layers of ResNet-18 see one pixel, and most of their weights never move."""


def digits(part: int) -> ImageSet:
    """Return one silo's digits."""
    listing = list_digits(SiteClasses(tuple("0123456789"), {}))
    chosen = slice(part * IMAGES, (part + 1) * IMAGES)
    names = listing.ids[chosen]
    pixels = np.stack([np.asarray(image) for image in listing.sources[chosen]])[:, None]
    pixels = pixels.repeat(ENLARGED, 2).repeat(ENLARGED, 3)
    return ImageSet(
        pixels,
        np.asarray(listing.labels[chosen]),
        names,
        names,
        listing.strata[chosen],
        listing.stratum_names,
        np.arange(len(names), dtype=np.uint64),
    )


def packed(update: ModelBytes, received: ModelBytes) -> dict[str, float]:
    """Return the share of the bytes that is left, and how fast they are packed and unpacked, in MB/s of processor time."""
    source = Differences(update, received)
    begun = time.process_time()
    chunks = [source.chunk(index) for index in range(len(update.chunks))]
    between = time.process_time()
    receiver = ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))
    receiver.receive(update.manifest)
    sink = Restored(receiver, received)
    for index, chunk in enumerate(chunks):
        sink.write(index, chunk)
    ended = time.process_time()
    megabytes = update.layout.nbytes / 1e6
    share = sum(map(len, chunks)) / update.layout.nbytes
    return {"left": share, "pack_mb_s": megabytes / (between - begun), "unpack_mb_s": megabytes / (ended - between)}


class Federation:
    """Two silos and their global model.

    Parameters
    ----------
    model : ModelDescription
        The network.
    folder : Path
        Of the silos.
    """

    def __init__(self, model: ModelDescription, folder: Path) -> None:
        method = resolve(MethodSpec.model_validate({"name": "DVW"}))
        server = build_server_learner(model=model, method=method, seed=1, device="cpu")
        run = RunDescription(
            federation="bench", seed=1, model=model, method=method, rounds=99, mode="Synchronous",
            down=server.down.to_json(), up=server.up.to_json(),
        )  # fmt: skip
        self.up, self.global_model = server.up, server.initialise()
        self._learners: list[TorchSiloLearner] = [
            build_silo_learner(
                run=run, silo=f"s{k}", labels="All", images=digits(k), state=folder / str(k), device="cpu"
            )
            for k in range(SILOS)
        ]

    def play(self, number: int) -> dict[str, float]:
        """Play a round; return what is left of an update, and its accuracy on the silo's own validation images."""
        updates = [self._train(learner, number) for learner in self._learners]
        row = {**packed(updates[0][0], self.global_model), "accuracy": updates[0][1], "round": number}
        mean = weighted_mean([update for update, _ in updates], [1.0] * SILOS, self.up)
        self.global_model = self.global_model.with_tensors(mean)
        return row

    def _train(self, learner: TorchSiloLearner, number: int) -> tuple[ModelBytes, float]:
        buffer = np.empty(self.up.nbytes, np.uint8)
        task = Task(str(number), TaskKind.TRAIN, number, self.global_model.manifest)
        update = learner.train(task, self.global_model.buffer(), lambda nbytes: buffer, lambda done, total: 0)
        right, total = update.auxiliary_data["validation"].tolist()
        return ModelBytes.of(self.up, buffer), right / total


def main() -> None:
    """Print the figures; with --json write them, too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="SmallCnn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pixels = 8 * ENLARGED
    model = ModelDescription.model_validate(
        {
            "task": {"classification": {"classes": list("0123456789")}},
            "network": options.model,
            "imageSize": pixels,
            "channels": 1,
            "augmentation": "Digits",
        }
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(model, Path(folder))
        for number in range(1, options.rounds + 1):
            rows.append(row := federation.play(number))
            print(
                f"round {number}: accuracy {row['accuracy']:.2f}, {row['left']:.1%} left, packed at {row['pack_mb_s']:.0f} "
                f"and unpacked at {row['unpack_mb_s']:.0f} MB/s"
            )
    if options.json:
        settings = {"model": options.model, "megabytes": federation.up.nbytes / 1e6}
        options.json.write_text(json.dumps({"benchmark": "differences", "rows": rows, "settings": settings}, indent=2))


if __name__ == "__main__":
    main()
