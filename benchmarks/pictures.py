"""A hospital with many images: ``make bench-pictures ARGS="--images 20000"``.

Makes JPEG images of 224 pixels in a temporary folder and measures what a trainer does with them: decoding beside Pillow alone, the first start
(which decodes all of them into the store), the second start (which decodes none), the peak memory of both, and an epoch from the store beside
one from memory. Times are processor time where other work on the machine would disturb them, and each pair is measured in turn.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from anchorage.api.data import SiloData
from anchorage.api.method import MethodSpec
from anchorage.api.model import ModelDescription
from anchorage.api.run import RunDescription
from anchorage.learning.data import ImageSet, read, reading
from anchorage.learning.data.decoders import decode_content
from anchorage.learning.data.decoding import Input, read_content
from anchorage.learning.data.picture_store import PictureStore
from anchorage.learning.data.stored_pictures import StoredPictures
from anchorage.methods import resolve
from anchorage.pieces.task.classification import Classification
from anchorage.transport.messages import Task, TaskKind
from anchorage.transport.tensors.layout import Layout

SIDE = 224
CLASSES = ("benign", "malignant")
MODEL = ModelDescription(network="ResNet18ImageNet", task=Classification(classes=CLASSES), image_size=SIDE)
SECTION = SiloData(format="ImageFolder", claim_name="site")
BATCH = 16


def make_images(folder: Path, count: int) -> list[Path]:
    """Write smooth images with some noise, as photographs have, in a folder per class."""
    rng, files = np.random.default_rng(0), []
    for name in CLASSES:
        (folder / "site" / name).mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (14, 14, 3), np.uint8)).resize(
            (SIDE, SIDE), Image.Resampling.BICUBIC
        )
        pixels = np.asarray(coarse, np.int16) + rng.integers(-8, 9, (SIDE, SIDE, 1), np.int16)
        files.append(folder / "site" / CLASSES[number % 2] / f"{number:06d}.jpg")
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(files[-1], quality=85)
    return files


def decoding(files: list[Path]) -> dict[str, float]:
    """Return images per second and core by Pillow alone and as a trainer decodes them; the better of three times in turn."""

    def pillow() -> None:
        for file in files:
            with Image.open(file) as image:
                np.asarray(image.convert("RGB"))

    def trainer() -> None:
        for file in files:
            decode_content(read_content(file), file.name, Input(SIDE, 3))

    alone, pipeline = in_turn(pillow, trainer, 3)
    return {
        "pillow_per_second": len(files) / alone,
        "decoded_per_second": len(files) / pipeline,
        "ratio": pipeline / alone,
    }


def in_turn(one: Callable[[], object], other: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the least processor seconds of two calls that are made in turn."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(repeats):
        for work, durations in zip((one, other), seconds, strict=True):
            start = time.process_time()
            work()
            durations.append(time.process_time() - start)
    return min(seconds[0]), min(seconds[1])


def begin(file: Path, local: dict[str, int]) -> dict[str, Any]:
    """Do what a server does before round 1: return the run and the task, and write the model to a file; in a process of its own."""
    from anchorage.learning.learners import build_server_learner

    method = resolve(MethodSpec.model_validate({"name": "FedAvg", "local": {"batchSize": BATCH, **local}}))
    server = build_server_learner(model=MODEL, method=method, seed=1, device="cpu", rounds=1)
    initial = server.initialise()
    run = RunDescription(
        federation="bench", seed=1, model=MODEL, method=method, down=server.down.to_json(), up=server.up.to_json(),
        rounds=1, mode="Synchronous",
    )  # fmt: skip
    initial.buffer().tofile(file)
    return {"run": run, "task": Task("1", TaskKind.TRAIN, 1, initial.manifest, {}), "model": file}


class Silo:
    """A silo that trains with FedAvg on images that are given.

    Parameters
    ----------
    images : ImageSet
        Its images.
    state : Path
        Its folder.
    begun : mapping
        What `begin` returned.
    """

    def __init__(self, images: ImageSet, state: Path, begun: dict[str, Any]) -> None:
        from anchorage.learning.learners import build_silo_learner

        run = begun["run"]
        self._task, self._model = begun["task"], np.memmap(begun["model"], np.uint8, "r")
        self._out = np.empty(Layout.from_json(run.up).nbytes, np.uint8)
        self._learner = build_silo_learner(run=run, silo="a", labels="All", images=images, state=state, device="cpu")

    def train(self) -> str:
        """Train once; return the digest of the update."""
        update = self._learner.train(self._task, self._model, lambda nbytes: self._out, lambda done, total: 0).update
        assert update is not None, "it trained"
        return update.digest


def start_trainer(folder: Path, begun: dict[str, Any], started: float) -> dict[str, float]:
    """Do what a trainer does until its first steps, then read every picture once, as an epoch does; in a process of its own."""
    import torch

    torch.set_num_threads(1)
    loaded = peak_bytes()
    images = stored_images(folder)
    silo = Silo(images, folder / "state", begun)
    ready, ready_bytes = time.time() - started, peak_bytes()
    silo.train()
    order = np.random.default_rng(0).permutation(len(images))
    assert isinstance(images.images, StoredPictures), "they are in the store"
    for start in range(0, len(images), BATCH):
        images.images.read(order[start : start + BATCH])
    return {
        "seconds_until_training": ready,
        "program_bytes": loaded,
        "ready_bytes": ready_bytes,
        "peak_bytes": peak_bytes(),
    }


def stored_images(folder: Path) -> ImageSet:
    """Read the images, however few, by way of the store."""
    reading.IN_MEMORY_BYTES = 0
    return read(SECTION, folder, MODEL, 1, store=PictureStore(folder / "store"))[0]


def peak_bytes() -> int:
    """Return the peak memory of this process, mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def epochs(folder: Path, begun: dict[str, Any], count: int) -> dict[str, float]:
    """Return processor seconds of an epoch over some images from memory and from the store, and whether the updates are equal."""
    import torch

    torch.set_num_threads(1)
    images = stored_images(folder)
    stored = images.select(np.linspace(0, len(images) - 1, count).astype(np.int64))
    assert isinstance(stored.images, StoredPictures), "a selection stays in the store"
    held = replace(stored, images=stored.images.read(np.arange(count)))
    memory, store = (Silo(each, folder / name, begun) for each, name in ((held, "memory"), (stored, "disk")))
    in_memory, from_store = in_turn(memory.train, store.train, 3)
    equal = memory.train() == store.train()
    return {"memory_seconds": in_memory, "store_seconds": from_store, "ratio": from_store / in_memory, "equal": equal}


def in_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def main() -> None:
    """Print a line per measurement, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--decoded", type=int, default=500, help="images by which decoding is measured")
    parser.add_argument("--epoch", type=int, default=512, help="images of the epoch")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_images(folder, arguments.images)
        steps = in_process(begin, folder / "steps.bin", {"steps": 2})
        epoch = in_process(begin, folder / "epoch.bin", {"epochs": 1})
        measurements: dict[str, Callable[[], dict[str, float]]] = {
            "decoding": lambda: decoding(files[: arguments.decoded]),
            "first start": lambda: in_process(start_trainer, folder, steps, time.time()),
            "second start": lambda: in_process(start_trainer, folder, steps, time.time()),
            "epoch": lambda: in_process(epochs, folder, epoch, arguments.epoch),
        }
        rows = {}
        for title, measure in measurements.items():
            rows[title] = measure()
            print(f"{title:>12}: " + ", ".join(f"{key} {value:.4g}" for key, value in rows[title].items()), flush=True)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"benchmark": "pictures", "images": arguments.images, "rows": rows}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
