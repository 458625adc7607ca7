"""Every alternative of every slot does what it claims: with each task that it says it serves a federation trains, and beside others it is refused.

What a preset has is played with this package's tasks by test_presets_serve_tasks.py and, with classification, by
tests/integration/test_preset_digests.py; regression is of a package outside the tree (docs/writing-a-task.md).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from drawn_sites import SIDE, TASKS, draw_site, section
from outside_package import load_regression
from pydantic.alias_generators import to_camel

from anchorage.api.files import Study
from anchorage.api.method import SLOTS
from anchorage.api.mistakes import DocumentError
from anchorage.api.piece import PIECES
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.registry import BUILT_IN

pytest.importorskip("torch")

from played_study import play_study
from torch import nn

from anchorage.simulation.images import DecodedImages

pytestmark = pytest.mark.outside_package

SITES = "abcde"
REGRESSION = "acme.Regression"
SCORES = {
    "classification": "balanced_accuracy",
    "multiLabel": "macro_auroc",
    "segmentation": "dice",
    REGRESSION: "mean_absolute_error",
}
UNIFORM = {"weighting": {"uniform": {}}}
PLAIN_SGD = {"sgd": {"momentum": "0", "weightDecay": "0"}}
ANY_PSEUDO_LABELS = {"pseudoLabels": {"meanTeacher": {}}}
FIXED_LABELS = {"pseudoLabels": {"receivedModel": {"threshold": "0.5"}}}  # which a model of one round exceeds
AT_SERVER = {"serverTraining": {"anchors": {}}}
EXTRA_SLOTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    **{
        ("aggregation", name): UNIFORM
        for name in ("median", "trimmedMean", "multiKrum", "zeno", "layerCosine", "privateMean")
    },
    **{("server_step", name): UNIFORM for name in ("mix", "mixPolynomial", "mixHinge", "controlVariates")},
    **{("weighting", name): ANY_PSEUDO_LABELS for name in ("selectedCount", "usedCount", "fedAvgSemi")},
    ("weighting", "learningStatus"): {"pseudoLabels": {"clientAdaptive": {}}},
    ("weighting", "semiAnAgg"): FIXED_LABELS,
    ("weighting", "stepCount"): {"selfSupervised": {"clusters": {}}},
    ("second_head", "balanced"): {"pseudoLabels": {"fixMatch": {}}},
    ("second_head", "personalDual"): {"pseudoLabels": {"flexMatch": {}}},
    ("mixup", "client"): FIXED_LABELS,
    ("mixup", "server"): AT_SERVER,
    ("mixup", "both"): {**FIXED_LABELS, **AT_SERVER},
}
"""Further slots that an alternative needs."""
INNER_SLOTS = {
    "server_objective": ("serverTraining", "anchors", "objective"),
    "optimiser": ("local", "optimiser"),
}
"""Slots inside those of a method, and where they stand."""
TWO_ROUNDS = {"frozen", "clusters", "stepCount"}
"""What begins in the second one: behind another method, or with the centroids of the first."""
ASYNCHRONOUS = {"mix", "mixPolynomial", "mixHinge"}
BY_PSEUDO_LABELS = {"selectedCount", "usedCount", "fedAvgSemi"}
"""Weightings by the count of accepted pseudo-labels, whatever these say; none of this package are numbers, but those of another may be."""
OF_VECTORS = {"byol", "fedByol", "fedEma", "featureDistance", "moon"}
"""What compares, or predicts, the vectors of whole images."""
LIKE_ANOTHER = {("self_supervised", "clusters")}
"""What another alternative is played with: weights by steps with clusters."""


def in_a_preset(task: str) -> set[tuple[str, str]]:
    """Return the alternatives that a preset has for a task of this package."""
    kind: Any = PIECES.list_loaded("task").get(task)
    served = [preset.slots_of(kind) for preset in BUILT_IN if kind is not None and preset.serves(kind)]
    return {(piece.slot, piece.name) for method in served for piece in method.pieces()}


ALTERNATIVES = [(slot, name) for slot in (*SLOTS, *INNER_SLOTS) for name in PIECES.of(slot) if "." not in name]
CASES = [(task, slot, name) for task in TASKS for slot, name in ALTERNATIVES]
PLAIN = [(piece.slot, piece.name) for piece in PRESETS["FedAvg"].slots.pieces()]


def reason(task: str, slot: str, name: str) -> str | None:
    """Return why an alternative does not serve a task; None: it does."""
    tasks = PIECES[slot, name].tasks
    if tasks is not None and task not in tasks:
        return f"which serves {' and '.join(sorted(tasks))}, but the task is {task}; choose one of"
    if task == "segmentation" and name in OF_VECTORS:
        return "which serves one vector for each image, but segmentation has maps; choose another"
    if task == REGRESSION and name in BY_PSEUDO_LABELS:
        return "which weighs silos by accepted pseudo-labels, but there are none; fill the slot pseudoLabels"
    return None


SERVED = [case for case in CASES if reason(*case) is None]
REFUSED = [case for case in CASES if reason(*case) is not None]
PLAYED = [
    (task, slot, name)
    for task, slot, name in SERVED
    if (slot, name) not in in_a_preset(task) | LIKE_ANOTHER and (slot, name) not in PLAIN[1:]
]
"""What no preset has; of the alternatives of plain FedAvg, which are one federation, the first."""


@pytest.fixture(scope="module", autouse=True)
def _regression(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Register the task of the other package, with a head of its own."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        regression = load_regression(tmp_path_factory.mktemp("site"), monkeypatch)
        monkeypatch.setattr(regression, "head", _normalised_head)
        yield


def _normalised_head(task: Any, width: int, *, bias: bool) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1, bias=bias))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all sites, of each of which there is one with every label and one without some."""
    folder = tmp_path_factory.mktemp("data")
    for seed, claim in enumerate(("server", "anchors", *SITES)):
        draw_site(folder / claim, 6, seed)
        draw_site(folder / f"{claim}-partly", 6, seed, every_label=False)
    return folder


@pytest.fixture(scope="module")
def decoded() -> DecodedImages:
    """Give every play the images that another one decoded."""
    return DecodedImages()


def method_with(task: str, slot: str, name: str) -> dict[str, Any]:
    """Return plain FedAvg with an alternative and what it needs."""
    method: dict[str, Any] = {"name": "FedAvg", "local": {"epochs": 1, "batchSize": 3, "optimiser": PLAIN_SGD}}
    extra = EXTRA_SLOTS.get((slot, name), {})
    method |= {} if task == REGRESSION and name in BY_PSEUDO_LABELS else extra
    *outer, last = INNER_SLOTS.get(slot, (to_camel(slot),))
    place = method
    for key in outer:
        place = place.setdefault(key, {})
    metric = {"multiLabel": "MacroAUROC", "segmentation": "Dice"}.get(task, "MicroF1")
    place[last] = {name: {"metric": metric} if name == "dvw" else {}}
    return method


def study_of(task: str, slot: str, name: str, file: Path) -> Study:
    """Return a federation of one round, of three silos or, where updates are compared, five."""
    method = method_with(task, slot, name)
    partly = method.get("pseudoLabels", {"none": {}}) != {"none": {}}
    spec: dict[str, Any] = {
        "rounds": 2 if name in TWO_ROUNDS else 1,
        "task": TASKS[task],
        "model": {
            "network": "SmallUNet" if task == "segmentation" else "SmallCnn",
            "imageSize": SIDE,
            "channels": 1,
            "augmentation": "Digits",
        },
        "method": method,
        "protocol": {"mode": "Asynchronous" if name in ASYNCHRONOUS else "Synchronous"},
        "anchorData": section(task, "anchors"),
        "evaluation": {"validation": section(task, "server")},
    }
    if name == "frozen":  # whose model must be one that was trained
        spec["warmUp"] = [{"method": "FedAvg", "rounds": 1}]
    documents: list[dict[str, Any]] = [{"kind": "Federation", "metadata": {"name": "tiny"}, "spec": spec}]
    for site in SITES if slot == "aggregation" else SITES[:3]:
        silo = {
            "federation": "tiny",
            "labels": "Partial" if partly else "All",
            "managed": {"data": section(task, f"{site}-partly" if partly else site)},
        }
        documents.append({"kind": "Silo", "metadata": {"name": site}, "spec": silo})
    file.write_text(yaml.safe_dump_all(documents))
    return validate_study(file)


@pytest.mark.parametrize(("task", "slot", "name"), PLAYED)
def test_an_alternative_trains_with_every_task_that_it_serves(
    task: str, slot: str, name: str, data: Path, decoded: DecodedImages, tmp_path: Path
) -> None:
    study = study_of(task, slot, name, tmp_path / "study.yaml")
    simulation = play_study(study, data, tmp_path / "run", moves=name != "keep", decoded=decoded)
    metrics = simulation.store.history()[-1].metrics
    assert np.isfinite(metrics[SCORES[task]])


@pytest.mark.parametrize(("task", "slot", "name"), REFUSED)
def test_it_is_refused_beside_every_other_task(task: str, slot: str, name: str, tmp_path: Path) -> None:
    words = re.escape(f"found {name}, {reason(task, slot, name)}")
    place = re.escape(".".join(INNER_SLOTS.get(slot, (to_camel(slot),))))
    with pytest.raises(DocumentError, match=rf"ANC-1116 MeaninglessOverride: .*: spec\.method\.{place}: {words}"):
        study_of(task, slot, name, tmp_path / "study.yaml")


def test_no_alternative_is_left_out() -> None:
    played = {(slot, name) for _, slot, name in PLAYED} | LIKE_ANOTHER | set(PLAIN)
    assert played.union(*map(in_a_preset, TASKS)) == set(ALTERNATIVES)
