"""Tiny federations on scikit-learn's digits, and one of null trainers, as files of documents."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from anchorage.api.files import Study
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.variants import variants

NAME = "derm"
DIGITS = {"format": "Digits", "testPercent": 20, "anchors": 20}
WEIGHTS = {
    "encoder.weight": np.linspace(-1, 1, 600_000, dtype=np.float32),
    "encoder.steps": np.array([3, 4]),
    "classifier.bias": np.zeros(3, np.float32),
}
"""What null trainers begin with: three chunks."""


def document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, "spec": spec}


def write_documents(folder: Path, spec: dict[str, Any], silos: Sequence[dict[str, Any]]) -> Study:
    """Write a federation and its silos into ``federation.yaml``, and return the study."""
    documents = [document("Federation", NAME, spec)]
    names = [chr(ord("a") + place) if place < 26 else f"s{place}" for place in range(len(silos))]
    documents += [document("Silo", name, {"federation": NAME, **silo}) for name, silo in zip(names, silos, strict=True)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "federation.yaml").write_text(yaml.safe_dump_all(documents))
    return validate_study(folder / "federation.yaml")


def null_study(folder: Path, *, silos: int = 2, rounds: int = 2, **spec: Any) -> Study:
    """A federation whose model comes from a file and is averaged only, so that nothing needs torch."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(WEIGHTS, folder / "initial.safetensors")
    described = {
        "rounds": rounds,
        "task": {"classification": {"classes": ["a", "b", "c"]}},
        "model": {"network": "ResNet18", "imageSize": 32, "initial": "initial.safetensors"},
        "method": {"name": "FedAvg"},
        "protocol": {"minSilos": silos, "roundDeadlineSeconds": 600},
        **spec,
    }
    return write_documents(folder, described, [{"labels": "All"}] * silos)


LOCAL = {"epochs": 1, "batchSize": 16}
SERVER = {"anchors": {"pretrainEpochs": 2}}


def labelling(preset: str, **options: Any) -> dict[str, Any]:
    """The slot of a preset's pseudo-labels with other options."""
    return {"pseudoLabels": {PRESETS[preset].slots.pseudo_labels.name: options}}


METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "FedAvg": ({"name": "FedAvg", "local": LOCAL}, "All All All"),
    "FedAnchor": (
        {"name": "FedAnchor", "local": LOCAL, **labelling("FedAnchor", threshold="0.95"), "serverTraining": SERVER},
        "None None None",
    ),
    "SemiAnAgg": (
        {"name": "SemiAnAgg", "local": {"batchSize": 16}, **labelling("SemiAnAgg", threshold="0.25")},
        "All None None",
    ),
    "DVW": ({"name": "DVW", "local": LOCAL, "weighting": {"dvw": {"validationPercent": 20}}}, "All All All"),
    "SyncDVW": ({"name": "SyncDVW", "local": LOCAL}, "All All All"),
    "CBAFed": ({"name": "CBAFed", "local": LOCAL, **labelling("CBAFed", threshold="0.3")}, "All None None"),
    "FedMatch": (
        {"name": "FedMatch", "local": LOCAL, **labelling("FedMatch", threshold="0.2", every=2)},  # helpers in round 2
        "All None None",
    ),
    "FedCLR": ({"name": "FedCLR", "local": {"epochs": 1, "batchSize": 32}}, "All None None"),
    "FedCon": (
        {"name": "FedCon", "local": LOCAL, "serverTraining": {"anchors": {"pretrainEpochs": 2, "epochs": 1}}},
        "None None None",
    ),
}
"""Methods with the labels of their silos."""

ASYNCHRONOUS: dict[str, tuple[dict[str, Any], str]] = {
    name: ({"name": name, "local": LOCAL}, "All All All") for name in ("AsyncFedAvg", "AsyncDVW", "FedAsync")
} | {
    name: ({**variants()[name].method, "local": LOCAL}, "All All All")
    for name in ("FedAsyncPolynomial", "FedAsyncHinge")
}
"""Methods without rounds, with the labels of their silos."""
ASYNCHRONOUS["AsyncDVWAdaptive"] = (
    {"name": "AsyncDVWAdaptive", "local": {"batchSize": 16, "cycle": {"tombstones": 0, "maxEpochs": 3}}},
    "All All All",
)


def digits_study(
    folder: Path, method: str, *, silos: int = 3, rounds: int = 2, slots: dict[str, Any] | None = None, **spec: Any
) -> Study:
    """A federation of one of `METHODS` or `ASYNCHRONOUS`, its silos of 245, 133 and 86 images; `slots` override the method's."""
    described, labels = {**METHODS, **ASYNCHRONOUS}[method]
    mode = "Asynchronous" if method in ASYNCHRONOUS else "Synchronous"
    held = labels.split()[:silos]
    described_spec = {
        "rounds": rounds,
        "task": {"classification": {"classes": list("0123456789")}},
        "model": {"network": "SmallCnn", "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {**described, **(slots or {})},
        "protocol": {"mode": mode, "minSilos": len(held), "roundDeadlineSeconds": 600},
        "evaluation": {"validation": {**DIGITS, "use": "Test"}},
        **spec,
    }
    if "serverTraining" in described or described.get("batchNorm") == {"local": {}}:
        described_spec["anchorData"] = {**DIGITS, "use": "Anchors"}
    parts = [
        {**DIGITS, "use": "Part", "partition": {"recipe": "Iid", "sizes": "PowerLaw", "parts": 12, "part": i + 1}}
        for i in range(silos)
    ]
    managed = [{"labels": labels, "managed": {"data": part}} for labels, part in zip(held, parts, strict=True)]
    return write_documents(folder, described_spec, managed)
