"""Draw federations of few labels, and the studies that compare ways to count the images of silos without labels.

python benchmarks/quality/prepare_unlabelled.py cifar10|isic18|digits|chest --out DIR [--labels PLACE ...] [--validation N]
    [--alphas 0.3 0.5 5] [--draws 5] [--same-silos] [--components N] [--data DIR]

DIR is the data root of the studies; it belongs outside the repository. The folder DIR/SET gets CLASS/IMAGE.png of 96 pixels, and for every
place of the labels, every concentration of the Dirichlet distribution and every draw a table of who holds which image and a federation.
DIR/SET/PLACE.yaml compares ways to count; DIR/SET/PLACE-trained.yaml plays the methods that train on pseudo-labels, on the same files. Where the
server has the labels, PLACE-central.yaml does the same with all other images at one silo: what they tell without hospitals that differ.

PLACE is server-N (N labelled images of each class at the server, none at five silos), one-of-ten (all labels of one silo, none at nine), or
percent-N (N % of the labels of each of five silos). Every draw has other labelled images and other silos, whose class mixes are drawn from a
Dirichlet distribution; with --same-silos the silos are drawn once. Silos state how many images of each class they hold; settings that are told
nothing leave that out. The validation images (N of each class) and the test images are the same in all draws.

cifar10: 6,000 training images and 2,000 test images, of both the first of each class. isic18: the training and test images of
split_lesion_grouped, which share no lesion. digits: those of scikit-learn, a third for the test. chest: drawn, with an opacity or without, at
sites that expose differently.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from first_sets import DRAWN
from numpy.typing import NDArray
from PIL import Image
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
    "all labels": (
        "spec.rounds=1",
        f"{GUESSES}.guesses=None",
        f'{GUESSES}.firstShrinkage="0.1"',
        "silo.spec.labels=All",
    ),
}
"""What is compared; SharesHead is the method of all, whose first round has the labels alone."""
CENTRAL = ("stated", "estimated", "measured", "auto, told counts", "auto, told nothing")
"""Settings that are played with all images at one silo, too."""

TRAINED_ROUNDS = 30
TRAINED_AT_SERVER = {
    "SemiFL": "{name: SemiFL, mixup: {none: {}}, pseudoLabels: {receivedModel: {views: Plain}}}",
    "FL2": "{name: FL2, pseudoLabels: {clientAdaptive: {views: Plain}}}",
    "FedAnchor": "{name: FedAnchor, mixup: {none: {}}}",
}
TRAINED_AT_SILOS = {
    "LowerBound": "{name: LowerBound}",
    "FedAvgSemi": "{name: FedAvgSemi, pseudoLabels: {uda: {views: Plain}}}",
    "SemiAnAgg": "{name: SemiAnAgg}",
    "CBAFed": "{name: CBAFed, pseudoLabels: {classAdaptive: {views: Plain}}}",
    "RSCFed": '{name: RSCFed, pseudoLabels: {meanTeacher: {weight: "1"}}, weighting: {subConsensus: {groupSize: SILOS}}}',
}
"""Methods that train on pseudo-labels, most of images as they are, so that each is encoded once; LowerBound learns of the labels alone."""


@dataclass(frozen=True)
class Place:
    """Where the labels are."""

    server: int = 0
    """Labelled images of each class at the server."""
    silos: int = SILOS
    labelled: int = 0
    """Silos that have labels, the first ones."""
    percent: int = 100
    """How many of the labels these have."""

    @classmethod
    def of(cls, name: str) -> "Place":
        """Return the place of a name.

        Raises
        ------
        ValueError
            There is none of that name.
        """
        kind, _, number = name.rpartition("-")
        if kind == "server":
            return cls(server=int(number))
        if kind == "percent":
            return cls(labelled=SILOS, percent=int(number))
        if name == "one-of-ten":
            return cls(silos=10, labelled=1)
        raise ValueError(name)


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


def digits() -> tuple[list[str], Images]:
    """Return the digits that scikit-learn carries."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    files = [_as_png(Image.fromarray((16 * image).clip(0, 255).astype(np.uint8))) for image in bunch.images]
    rng, split = np.random.default_rng(0), {}
    part_of = np.repeat(["test", "validation", "train"], (600, 200, len(files) - 800))[rng.permutation(len(files))]
    for part in ("train", "test", "validation"):
        rows = np.flatnonzero(part_of == part)
        split[part] = ([f"digit-{row:04d}" for row in rows], bunch.target[rows], [files[row] for row in rows])
    return [str(name) for name in bunch.target_names], split


def chest() -> tuple[list[str], Images]:
    """Return drawn chests, half of them with an opacity."""
    drawn, number, split = DRAWN["chest"], 0, {}
    for part, count in (("train", 3000), ("test", 1000), ("validation", 200)):
        labels = np.arange(count) % len(drawn.classes)
        files = []
        for kind in labels.tolist():
            number += 1
            rng = np.random.default_rng(number)
            files.append(_as_png(drawn.draw(kind, int(rng.integers(4)), rng)))
        split[part] = ([f"{part}-{row:04d}" for row in range(count)], labels, files)
    return list(drawn.classes), split


def _as_png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


SETS: Mapping[str, Callable[[Path], tuple[list[str], Images]]] = {
    "cifar10": cifar10,
    "isic18": isic18,
}
"""Sets of ANCHORAGE_DATA."""
FREE_SETS: Mapping[str, Callable[[], tuple[list[str], Images]]] = {"digits": digits, "chest": chest}
"""Sets that need no files."""


def first_of_each(labels: NDArray[np.integer], order: NDArray[np.integer], count: int) -> NDArray[np.integer]:
    """Return the first rows of each class in an order."""
    return np.concatenate([order[labels[order] == c][:count] for c in np.unique(labels)])


def silos_of(
    labels: NDArray[np.integer],
    rows: NDArray[np.integer],
    alpha: float,
    rng: np.random.Generator,
    silos: int = SILOS,
) -> NDArray[np.integer]:
    """Return the silo of every row; mixes are drawn again until each silo has enough images."""
    while True:
        silo = np.empty(len(rows), np.int64)
        for c in np.unique(labels[rows]):
            class_rows = rng.permutation(np.flatnonzero(labels[rows] == c))
            shares = rng.dirichlet([alpha] * silos)
            for number, part in enumerate(np.split(class_rows, (np.cumsum(shares)[:-1] * len(class_rows)).astype(int))):
                silo[part] = number
        if np.bincount(silo, minlength=silos).min() >= FEWEST:
            return silo


def federation(
    classes: list[str], folder: str, table: str, counts: NDArray[np.integer], place: Place
) -> dict[str, Any]:
    """Return the Federation of one draw; `counts` of its silos, by class."""
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
        "protocol": {"minSilos": len(counts)},
        "evaluation": {
            part.lower(): {**common, "use": part, "partitionFile": table} for part in ("Validation", "Test")
        },
    }
    if place.server:
        spec["anchorData"] = {**common, "use": "Anchors", "partitionFile": table}
    return {"kind": "Federation", "metadata": {"name": "unlabelled"}, "spec": spec}


def silos(
    folder: str, table: str, classes: list[str], counts: NDArray[np.integer], place: Place
) -> list[dict[str, Any]]:
    """Return the Silos of one draw."""
    documents = []
    for number, row in enumerate(counts):
        name = f"silo-{number}"
        data: dict[str, Any] = {
            "format": "ImageFolder",
            "claimName": folder,
            "use": "Part",
            "partition": {"recipe": "File", "file": table, "silo": name},
            "classCounts": {c: int(n) for c, n in zip(classes, row, strict=True)},
        }
        labels = "None" if number >= place.labelled else "All" if place.percent == 100 else "Partial"
        if labels == "Partial":
            data["labelledPercent"] = place.percent
        spec = {"federation": "unlabelled", "labels": labels, "managed": {"data": data}}
        documents.append({"kind": "Silo", "metadata": {"name": name}, "spec": spec})
    return documents


def components_of(document: dict[str, Any], components: int) -> None:
    """Have a Federation find principal components in a round before the others."""
    document["spec"]["rounds"] += 1
    document["spec"]["model"]["principalComponents"] = components
    document["spec"]["warmUp"] = [{"method": "PrincipalComponents", "rounds": 1}]


def settings_of(place: Place, components: int | None) -> Mapping[str, list[str]]:
    """Return what is compared; with principal components a round before finds them."""
    one_more = {"spec.rounds=1": "spec.rounds=2"} if components else {}
    settings = {name: [one_more.get(change, change) for change in changes] for name, changes in SETTINGS.items()}
    if place.percent < 100:
        settings["all labels"].append("silo.spec.managed.data.labelledPercent=100")
    return settings


def trained_settings(place: Place, draw: int) -> Mapping[str, list[str]]:
    """Return the methods that train, with the seed of a draw."""
    methods = TRAINED_AT_SERVER if place.server else TRAINED_AT_SILOS
    common = [f"spec.rounds={TRAINED_ROUNDS}", f"spec.evaluation.everyRounds={TRAINED_ROUNDS}", f"spec.seed={draw}"]
    return {
        name: [*common, f"spec.method={method.replace('SILOS', str(place.silos))}"] for name, method in methods.items()
    }


def main() -> int:
    """Draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("set", choices=(*SETS, *FREE_SETS))
    parser.add_argument("--out", type=Path, required=True, help="data root to make, outside the repository")
    parser.add_argument("--labels", nargs="+", default=["server-4"], help="places of the labels; default: server-4")
    parser.add_argument("--validation", type=int, default=10, help="validation images of each class; default: 10")
    parser.add_argument(
        "--alphas", type=float, nargs="+", default=(0.3, 0.5, 5.0), help="concentrations of the class mixes"
    )
    parser.add_argument("--draws", type=int, default=5, help="draws of labels and silos; default: 5")
    parser.add_argument("--same-silos", action="store_true", help="draw the labels alone anew, not the silos")
    parser.add_argument("--components", type=int, help="principal components of the features; default: the features")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("ANCHORAGE_DATA"),
        help="folder with cifar10/ and isic18/; default: ANCHORAGE_DATA",
    )
    arguments = parser.parse_args()
    if arguments.set in SETS and arguments.data is None:
        parser.error("no images: set ANCHORAGE_DATA or --data to the folder that holds cifar10/ and isic18/")
    try:
        places = {name: Place.of(name) for name in arguments.labels}
    except ValueError:
        parser.error(f"found --labels {' '.join(arguments.labels)}; give server-N, one-of-ten or percent-N")
    folder = arguments.out / arguments.set
    if folder.exists():
        parser.error(f"{folder} exists: name a new folder, or remove this one first")
    drawn = FREE_SETS.get(arguments.set)
    classes, images = SETS[arguments.set](arguments.data) if drawn is None else drawn()
    for names, labels, files in images.values():
        for name, label, file in zip(names, labels, files, strict=True):
            write_image(folder, classes[label], name, file, SIDE)
    for name, place in places.items():
        draws = [(alpha, draw) for alpha in arguments.alphas for draw in range(arguments.draws)]
        write_studies(
            folder,
            name,
            place,
            classes,
            images,
            draws,
            arguments.validation,
            arguments.components,
            arguments.same_silos,
        )
    return 0


def draw_silos(
    labels: NDArray[np.integer], place: Place, alpha: float, draw: int, same_silos: bool
) -> tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.integer]]:
    """Return the rows at the server, those at silos, and the silo of each of these."""
    rng, everyone = np.random.default_rng([draw, round(100 * alpha)]), np.arange(len(labels))
    server = first_of_each(labels, rng.permutation(len(labels)), place.server)
    rest = np.setdiff1d(everyone, server)
    if same_silos:
        rng = np.random.default_rng(round(100 * alpha))
        return server, rest, silos_of(labels, everyone, alpha, rng, place.silos)[rest]
    return server, rest, silos_of(labels, rest, alpha, rng, place.silos)


def write_studies(
    folder: Path,
    name: str,
    place: Place,
    classes: list[str],
    images: Images,
    draws: Sequence[tuple[float, int]],
    of_each: int,
    components: int | None,
    same_silos: bool,
) -> None:
    """Write tables and files for one place of the labels, and its studies.

    `draws` are concentrations with numbers; `of_each` images of each class are for validation.
    """
    names, labels, _ = images["train"]
    held, kinds, _ = images["validation"]
    validation = first_of_each(kinds, np.random.default_rng(0).permutation(len(held)), of_each)
    fixed: list[Row] = [(held[row], "validation", "server") for row in validation]
    fixed += [(test, "test", "server") for test in images["test"][0]]
    counting: dict[str, Any] = {}
    trained: dict[str, Any] = {}
    central: dict[str, Any] = {}
    for alpha, draw in draws:
        server, rest, silo = draw_silos(labels, place, alpha, draw, same_silos)
        key = f"{name}-alpha-{alpha:g}-draw-{draw}"
        held_by = {key: silo} | ({f"{key}-central": np.zeros(len(rest), np.int64)} if place.server else {})
        for file, number_of in held_by.items():
            rows: list[Row] = [(names[row], "train", "server") for row in server]
            rows += [(names[row], "train", f"silo-{number}") for row, number in zip(rest, number_of, strict=True)]
            write_table(folder / f"{file}.csv", [*rows, *fixed])
            silo_count = place.silos if file == key else 1
            counts = [np.bincount(labels[rest[number_of == n]], minlength=len(classes)) for n in range(silo_count)]
            document = federation(classes, folder.name, f"{file}.csv", np.array(counts), place)
            if components:
                components_of(document, components)
            documents = [document, *silos(folder.name, f"{file}.csv", classes, np.array(counts), place)]
            (folder / f"{file}.yaml").write_text(yaml.safe_dump_all(documents, sort_keys=False))
        compared = settings_of(place, components)
        studies = [(counting, key, compared), (trained, key, trained_settings(place, draw))]
        if place.server:
            studies.append((central, f"{key}-central", {setting: compared[setting] for setting in CENTRAL}))
        for settings, file, changes in studies:
            settings |= {
                f"{file}, {setting}": {"federation": f"{file}.yaml", "set": change}
                for setting, change in changes.items()
            }
    for study, settings in ((name, counting), (f"{name}-trained", trained), (f"{name}-central", central)):
        if not settings:
            continue
        document = {
            "federation": next(iter(settings.values()))["federation"],
            "seeds": 1,
            "metric": "balanced_accuracy",
            "methods": {"head": {}},
            "settings": settings,
        }
        (folder / f"{study}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        print(
            f"{folder / study}.yaml: {len(settings)} federations of {len(names)} training images, {len(validation)} validation images"
        )


if __name__ == "__main__":
    sys.exit(main())
