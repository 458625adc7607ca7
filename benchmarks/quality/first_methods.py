"""Compare methods that a first file may begin with where pretrained weights lie in the data root: on a frozen encoder, few labels.

python benchmarks/quality/first_methods.py --workdir DIR --weights DIR [--sets cifar10,isic18] [--labels server,some] [--draws 3]

Draws share the images and have other labels and other silos: five, by a Dirichlet distribution of concentration 0.5, of 1,000 images of 96 pixels.
Labels are at the server only (CIFAR-10: 25 of each class, HAM10000: 10), or two silos have all of theirs. Ten validation images of each class, up to
50 test images of each. `--weights`: a folder of pretrained weights (prepare_encoder.py). Balanced accuracy and macro AUROC of the last round's model
on the test images, mean and standard deviation over draws, and of the differences to the labels alone. What was played before is not played again.
Without ANCHORAGE_DATA it ends with a message.

trained       the training method: what `fedctl init` writes without validation images, which are put in afterwards
labels alone  that file without what silos guess: the anchors alone, or a federation of the two silos with labels
SharesHead, 256 components              ten rounds of SharesHead behind one of PrincipalComponents
first classifier of 256 components      its first round: what the labels have in this form, before anything is guessed
SharesHead                              ten rounds on all features
"""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import yaml
from prepare_sites import write_image
from prepare_unlabelled import SETS, SIDE, SILOS, first_of_each, silos_of

from fedctl.anchors_alone import measure
from fedctl.init import InitRequest, begin_study
from fedctl.output import Format
from fedctl.research.results import SimulationFolder
from fedctl.research.simulation import SimulationRequest, simulate_federation

METRICS = ("balanced_accuracy", "macro_auc")
ANCHORS = {"cifar10": 25, "isic18": 10}
"""Labelled images of each class at the server."""
TRAINING, VALIDATION, TEST, ALPHA, COMPONENTS = 1000, 10, 50, 0.5, 256
"""Images at silos; of each class for validation and, at most, for the test; concentration of the class mixes; principal components."""
LABELLED = tuple(f"silo-{number}" for number in range(2))
"""Silos with labels, where some have them."""
Figures = Mapping[str, float]
Document = dict[str, Any]


def main() -> int:
    """Play what is missing, and print a table for each set and place of labels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--workdir", type=Path, required=True, help="images, files and results")
    parser.add_argument("--weights", type=Path, required=True, help="folder of pretrained weights")
    parser.add_argument("--sets", default=",".join(SETS), help="names of sets")
    parser.add_argument("--labels", default="server,some", help="where the labels are")
    parser.add_argument("--draws", type=int, default=3)
    chosen = parser.parse_args()
    if "ANCHORAGE_DATA" not in os.environ:
        print("skipped: set ANCHORAGE_DATA to the folder that holds cifar10/ and isic18/")
        return 0
    for name in chosen.sets.split(","):
        folders = [chosen.workdir.resolve() / f"{name}-{draw}" for draw in range(chosen.draws)]
        write_draws(name, folders, chosen.weights.resolve())
        for labels in chosen.labels.split(","):
            results = [dict(played(folder, labels, draw)) for draw, folder in enumerate(folders)]
            print(f"\n{name}, labels: {labels}, {len(results)} draws\n\n{table(results)}", flush=True)
    return 0


def table(results: Sequence[Mapping[str, Figures]]) -> str:
    """Write the figures of draws as a table in Markdown."""
    lines = ["| recipe | balanced accuracy | macro AUROC | gain | gain in AUROC |", "| --- | --- | --- | --- | --- |"]
    for recipe in results[0]:
        values = [[draw[recipe][metric] for draw in results] for metric in METRICS]
        gains = [[draw[recipe][metric] - draw["labels alone"][metric] for draw in results] for metric in METRICS]
        cells = [spread(each, "") for each in values] + [spread(each, "+") for each in gains]
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Sequence[float], sign: str) -> str:
    """Write mean ± standard deviation."""
    return f"{mean(values):{sign}.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def write_draws(name: str, folders: Sequence[Path], weights: Path) -> None:
    """Write the folders of the draws that are missing: server and silos, each with a folder per class; draws share the images."""
    pool = folders[0].parent / f"{name}-images"
    if not pool.exists():
        write_pool(name, pool)
    files = sorted((pool / "train").glob("*/*.png"))
    labels = np.unique([file.parent.name for file in files], return_inverse=True)[1]
    for draw, folder in enumerate(folders):
        if (folder / "weights").exists():
            continue
        rng = np.random.default_rng([draw, 33])
        anchors = first_of_each(labels, rng.permutation(len(files)), ANCHORS[name])
        rest = np.setdiff1d(np.arange(len(files)), anchors)
        silos = silos_of(labels, rest, ALPHA, rng)
        places = {files[row]: "server/anchors" for row in anchors}
        places |= {files[row]: f"silo-{number}" for row, number in zip(rest, silos, strict=True)}
        places |= {file: f"server/{part}" for part in ("validation", "test") for file in (pool / part).glob("*/*.png")}
        for file, place in places.items():
            target = folder / place / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():  # after an interruption
                target.hardlink_to(file)
        (folder / "weights").symlink_to(weights)


def write_pool(name: str, pool: Path) -> None:
    """Write the images of all draws: PART/CLASS/NAME.png; of a class, as many for training as one draw of the set has, anchors included."""
    classes, images = SETS[name](Path(os.environ["ANCHORAGE_DATA"]))
    for part, (names, labels, files) in images.items():
        order = np.random.default_rng([0, 33] if part == "train" else 0).permutation(len(names))
        rows = first_of_each(labels, order, {"train": ANCHORS[name], "validation": VALIDATION, "test": TEST}[part])
        if part == "train":
            rows = np.concatenate([rows, order[~np.isin(order, rows)][:TRAINING]])
        for row in rows:
            write_image(pool / part, classes[labels[row]], names[row], files[row], SIDE)


def played(folder: Path, labels: str, draw: int) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each recipe on one draw."""
    file = written(folder, labels, LABELLED if labels == "some" else (), [f"silo-{number}" for number in range(SILOS)])
    yield "trained", simulated(folder, f"{labels}-trained", file, draw)
    if labels == "some":
        alone = written(folder, "alone", LABELLED, LABELLED)
        yield "labels alone", simulated(folder, "alone", alone, draw)
    else:
        yield "labels alone", anchors_alone(folder, file, draw)
    recipes: Mapping[str, Callable[[Document], None]] = {
        "SharesHead, 256 components": lambda spec: shares_head(spec, 11, COMPONENTS),
        "first classifier of 256 components": lambda spec: shares_head(spec, 2, COMPONENTS),
        "SharesHead": lambda spec: shares_head(spec, 10),
    }
    for number, (recipe, change) in enumerate(recipes.items()):
        other = folder / f"{labels}-{number}.yaml"
        documents = list(yaml.safe_load_all(file.read_text()))
        change(documents[0]["spec"])
        other.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        yield recipe, simulated(folder, f"{labels}-{number}", other, draw)


def shares_head(spec: Document, rounds: int, components: int | None = None) -> None:
    """Make a federation begin with SharesHead in place of a training method."""
    spec["rounds"], spec["method"] = rounds, {"name": "SharesHead"}
    spec["evaluation"].pop("averageDecay")
    spec["model"].pop("hidden")
    spec.pop("warmUp", None)
    if components:
        spec["model"]["principalComponents"] = components
        spec["warmUp"] = [{"method": "PrincipalComponents", "rounds": 1}]


def written(folder: Path, name: str, labelled: Sequence[str], silos: Sequence[str]) -> Path:
    """Have `fedctl init` write a file of a training method, put the validation images in, and return it."""
    file = folder / f"{name}.yaml"
    if not file.exists():
        server = {"test": folder / "server/test"} | ({} if labelled else {"anchors": folder / "server/anchors"})
        folders = tuple(f"{silo}={folder / silo}" + ":labels" * (silo in labelled) for silo in silos)
        with contextlib.redirect_stdout(io.StringIO()):
            begin_study(InitRequest(file, (), server, folders))
        documents = list(yaml.safe_load_all(file.read_text()))
        evaluation = documents[0]["spec"]["evaluation"]
        evaluation["validation"] = evaluation["test"] | {"path": "validation"}
        file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    return file


def simulated(folder: Path, name: str, file: Path, draw: int) -> Figures:
    """Simulate a file, unless that was done, and return the figures of its last model on the test images."""
    work = folder / "work" / name
    embeddings = folder.parent / "embeddings"
    wanted = SimulationRequest(
        file, (f"spec.seed={draw + 1}",), data_root=folder, tracking=False, at_once=1, embeddings=embeddings, keep=False
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        simulate_federation(wanted, work, Format.JSON)
    (result,) = SimulationFolder(work).read_finished()
    last = result.rounds[-1]
    print(
        f"{folder.name} {name}: {last.test['final']['balanced_accuracy']:.3f}, {result.seconds:.0f} s", file=sys.stderr
    )
    return {metric: last.test["final"][metric] for metric in METRICS}


def anchors_alone(folder: Path, file: Path, draw: int) -> Figures:
    """Return the figures of training on the anchors alone, which are measured unless they were."""
    result = folder / "work" / "anchors.json"
    if not result.exists():
        document = folder / "anchors.yaml"
        documents = list(yaml.safe_load_all(file.read_text()))
        documents[0]["spec"]["seed"] = draw + 1
        document.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        result.write_text(json.dumps(measure(document, folder)))
    stored: Figures = json.loads(result.read_text())
    return {metric: stored[metric] for metric in METRICS}


if __name__ == "__main__":
    sys.exit(main())
