"""Draw federations whose labels are few and at the server only, and the study that compares ways to count the images of silos without labels.

python benchmarks/quality/prepare_unlabelled.py cifar10|isic18 --out DIR [--labels N] [--validation N] [--alphas 0.3 0.5 5] [--draws 5]
    [--components N] [--data DIR]

DIR is the data root of the studies; it belongs outside the repository. The folder DIR/SET gets CLASS/IMAGE.png of 96 pixels, and for every
concentration of the Dirichlet distribution and every draw a table of who holds which image and a federation; DIR/SET/study.yaml compares them.

Every draw has other labelled images at the server (N of each class), and other silos: five, whose class mixes are drawn from a Dirichlet
distribution. Each silo states how many images of each class it holds; settings that are told nothing leave that out. The validation images (N of
each class) and the test images are the same in all draws.

cifar10: 6,000 training images and 2,000 test images, of both the first of each class. isic18: the training and test images of
split_lesion_grouped, which share no lesion.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from prepare_sites import Row, write_image, write_table

SIDE, SILOS, FEWEST = 96, 5, 10
"""Pixels of a side; silos, each of so many images or more."""
CIFAR_TRAINING, CIFAR_TEST = 600, 200
"""Images of each class."""
ROUNDS = 10

Images = Mapping[str, tuple[list[str], NDArray[np.integer], list[bytes]]]
"""Names, classes and JPEG files, by part: ``train``, ``test`` and the images that are drawn for ``validation``."""
GUESSES = "spec.method.serverTraining.moments"
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "labels alone": ("spec.rounds=1",),
    "stated": (f"{GUESSES}.guesses=Stated", f'{GUESSES}.temperature="2"'),
    "estimated": (f"{GUESSES}.guesses=Estimated", "silo.spec.managed.data.classCounts={}"),
    "measured": (f"{GUESSES}.guesses=Measured", f'{GUESSES}.temperature="3"', "silo.spec.managed.data.classCounts={}"),
    "auto, told counts": (),
    "auto, told nothing": ("silo.spec.managed.data.classCounts={}",),
    "all labels": ("spec.rounds=1", f"{GUESSES}.guesses=None", "silo.spec.labels=All"),
}
"""What is compared; SharesHead is the method of all, whose first round has the labels alone."""


def cifar10(data: Path) -> tuple[list[str], Images]:
    """Return the classes and the images."""
    with np.load(data / "cifar10" / "cifar10_jpeg.npz") as archive:
        files = {
            part: (archive[f"{part}_bytes"], archive[f"{part}_offsets"], archive[f"y_{part}"])
            for part in ("train", "test")
        }
        classes = [str(name) for name in archive["classes"]]
    chosen = {
        "train": ("train", 0, CIFAR_TRAINING),
        "test": ("test", 0, CIFAR_TEST),
        "validation": ("test", CIFAR_TEST, 2 * CIFAR_TEST),
    }
    split = {}
    for part, (source, first, last) in chosen.items():
        content, offsets, labels = files[source]
        rows = np.sort(np.concatenate([np.flatnonzero(labels == c)[first:last] for c in range(len(classes))]))
        split[part] = (
            [f"{source}-{row:05d}" for row in rows],
            labels[rows],
            [content[offsets[row] : offsets[row + 1]].tobytes() for row in rows],
        )
    return classes, split


def isic18(data: Path) -> tuple[list[str], Images]:
    """Return the diagnoses and the images."""
    with np.load(data / "isic18" / "train_200x150.npz") as archive:
        content, offsets, labels = archive["jpeg_bytes"], archive["offsets"], archive["labels"]
        names, parts = archive["image_id"], archive["split_lesion_grouped"]
        classes = [str(name) for name in archive["classes"]]
    split = {}
    for part, source in (("train", "train"), ("test", "test"), ("validation", "val")):
        rows = np.flatnonzero(parts == source)
        jpegs = [content[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
        split[part] = ([str(names[row]) for row in rows], labels[rows], jpegs)
    return classes, split


SETS = {"cifar10": cifar10, "isic18": isic18}


def first_of_each(labels: NDArray[np.integer], order: NDArray[np.integer], count: int) -> NDArray[np.integer]:
    """Return the first rows of each class in an order."""
    return np.concatenate([order[labels[order] == c][:count] for c in np.unique(labels)])


def silos_of(
    labels: NDArray[np.integer], rows: NDArray[np.integer], alpha: float, rng: np.random.Generator
) -> NDArray[np.integer]:
    """Return the silo of every row; mixes are drawn again until each silo has enough images."""
    while True:
        silo = np.empty(len(rows), np.int64)
        for c in np.unique(labels[rows]):
            class_rows = rng.permutation(np.flatnonzero(labels[rows] == c))
            shares = rng.dirichlet([alpha] * SILOS)
            for number, part in enumerate(np.split(class_rows, (np.cumsum(shares)[:-1] * len(class_rows)).astype(int))):
                silo[part] = number
        if np.bincount(silo, minlength=SILOS).min() >= FEWEST:
            return silo


def settings_of(components: int | None) -> Mapping[str, list[str]]:
    """Return what is compared; with principal components a round before finds them."""
    one_more = {"spec.rounds=1": "spec.rounds=2"} if components else {}
    return {name: [one_more.get(change, change) for change in changes] for name, changes in SETTINGS.items()}


def federation(
    name: str, classes: list[str], folder: str, table: str, counts: NDArray[np.integer], components: int | None
) -> str:
    """Return the documents of one draw."""
    common = {"format": "ImageFolder", "claimName": folder}
    spec: dict[str, Any] = {
        "rounds": ROUNDS,
        "task": {"classification": {"classes": classes}},
        "model": {
            "network": "timm/tf_efficientnet_lite0",
            "weights": "imagenet",
            "trainable": "Head",
            "imageSize": SIDE,
            "augmentation": "Natural",
        },
        "method": {"name": "SharesHead"},
        "protocol": {"minSilos": SILOS},
        "anchorData": {**common, "use": "Anchors", "partitionFile": table},
        "evaluation": {
            part.lower(): {**common, "use": part, "partitionFile": table} for part in ("Validation", "Test")
        },
    }
    if components:
        spec["rounds"] += 1
        spec["model"]["principalComponents"] = components
        spec["warmUp"] = [{"method": "PrincipalComponents", "rounds": 1}]
    documents: list[dict[str, Any]] = [{"kind": "Federation", "metadata": {"name": name}, "spec": spec}]
    for number, row in enumerate(counts):
        silo = f"silo-{number}"
        stated = {c: int(n) for c, n in zip(classes, row, strict=True)}
        part = {"recipe": "File", "file": table, "silo": silo}
        data = {**common, "use": "Part", "partition": part, "classCounts": stated}
        documents.append(
            {
                "kind": "Silo",
                "metadata": {"name": silo},
                "spec": {"federation": name, "labels": "None", "managed": {"data": data}},
            }
        )
    return yaml.safe_dump_all(documents, sort_keys=False)


def main() -> int:
    """Draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("set", choices=tuple(SETS))
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    parser.add_argument("--labels", type=int, default=4, help="labelled images of each class at the server; default: 4")
    parser.add_argument("--validation", type=int, default=10, help="validation images of each class; default: 10")
    parser.add_argument(
        "--alphas", type=float, nargs="+", default=(0.3, 0.5, 5.0), help="concentrations of the class mixes"
    )
    parser.add_argument("--draws", type=int, default=5, help="draws of labels and silos; default: 5")
    parser.add_argument("--components", type=int, help="principal components of the features; default: the features")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("ANCHORAGE_DATA"),
        help="folder with cifar10/ and isic18/; default: ANCHORAGE_DATA",
    )
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds cifar10/ and isic18/")
    folder = arguments.out / arguments.set
    if folder.exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    classes, images = SETS[arguments.set](arguments.data)
    for names, labels, jpegs in images.values():
        for name, label, jpeg in zip(names, labels, jpegs, strict=True):
            write_image(folder, classes[label], name, jpeg, SIDE)
    names, labels, _ = images["train"]
    held, kinds, _ = images["validation"]
    validation = first_of_each(kinds, np.random.default_rng(0).permutation(len(held)), arguments.validation)
    fixed: list[Row] = [(held[row], "validation", "server") for row in validation]
    fixed += [(name, "test", "server") for name in images["test"][0]]
    settings: dict[str, Any] = {}
    for alpha in arguments.alphas:
        for draw in range(arguments.draws):
            rng = np.random.default_rng([draw, round(100 * alpha)])
            server = first_of_each(labels, rng.permutation(len(names)), arguments.labels)
            rest = np.setdiff1d(np.arange(len(names)), server)
            silo = silos_of(labels, rest, alpha, rng)
            rows: list[Row] = [(names[row], "train", "server") for row in server]
            rows += [(names[row], "train", f"silo-{number}") for row, number in zip(rest, silo, strict=True)]
            key = f"alpha-{alpha:g}-draw-{draw}"
            write_table(folder / f"{key}.csv", [*rows, *fixed])
            counts = np.array(
                [np.bincount(labels[rest[silo == number]], minlength=len(classes)) for number in range(SILOS)]
            )
            documents = federation("unlabelled", classes, arguments.set, f"{key}.csv", counts, arguments.components)
            (folder / f"{key}.yaml").write_text(documents)
            for name, changes in settings_of(arguments.components).items():
                settings[f"{key}, {name}"] = {"federation": f"{key}.yaml", "set": changes}
    study = {
        "federation": f"{key}.yaml",
        "seeds": 1,
        "metric": "balanced_accuracy",
        "methods": {"head": {}},
        "settings": settings,
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    print(
        f"{folder / 'study.yaml'}: {len(settings)} federations of {len(names)} training images, {len(validation)} validation images"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
