"""One of a silo's processes: ``python devices_double.py RANK COUNT FOLDER``; the first one writes what each case's training gives."""

import json
import sys
from pathlib import Path

import numpy as np
from learning_party import Party, given, method_of

from anchorage.learning.device_group import DeviceGroup
from anchorage.learning.learners import Checkpointing

GROUPS = {"batchNorm": {"groupNorm": {}}}
LOCAL = {"epochs": 1, "batchSize": 8}
CLOSE = {
    "supervised": ("FedAvg", "All", {**GROUPS, "local": {**LOCAL, "epochs": 2}}),
    "clipped sums of two losses": (
        "FedAvg",
        "All",
        {**GROUPS, "local": {**LOCAL, "accumulation": 2, "optimiser": {"sgd": {"clipNorm": "0.5"}}}},
    ),
    "batches of seven": ("FedAvg", "All", {**GROUPS, "local": {**LOCAL, "batchSize": 7}}),
    "proximal": ("FedProx", "All", GROUPS),
    "contrastive": ("MOON", "All", GROUPS),
    "control variates": ("SCAFFOLD", "All", GROUPS),
    "two heads": ("FedRoDDual", "All", GROUPS),
    "both views": ("FedAvgSemi", "All", GROUPS),
    "FixMatch": ("FedAvgFixMatch", "Partial", {**GROUPS, "pseudoLabels": {"threshold": "0.34"}}),
    "UDA": ("FedProxUDA", "Partial", {**GROUPS, "pseudoLabels": {"threshold": "0"}}),
    "SAGE": ("SAGE", "Partial", {**GROUPS, "pseudoLabels": {"threshold": "0"}}),
    "fixed labels": ("FedAnchorNoMixup", "None", {**GROUPS, "pseudoLabels": {"threshold": "0"}}),
}
"""Methods whose batches are divided, without statistics of batches: two devices give the model of one but for its last digits."""
STATISTICS = {"batch normalisation": ("FedAvg", "All", {})}
"""Each device normalises its own part."""
ALONE = {
    "mixup": ("FedAnchor", "None", {"pseudoLabels": {"threshold": "0"}}),
    "mean over accepted": ("FedPerl", "Partial", {"pseudoLabels": {"threshold": "0"}}),
    "mean teacher": ("FedCon", "None", {}),
}
"""Methods that train on one device."""
CASES = {**CLOSE, **STATISTICS, **ALONE}


def train(folder: Path, case: str, devices: DeviceGroup, **more):
    """One round of a case: update, and the announcement as far as it is compared."""
    name, labels, slots = CASES[case]
    method = method_of(name, **{"local": LOCAL, **slots})
    silo = Party(method, given(labels), folder / case, labels=labels, devices=devices, **more)
    announced = silo.learner.train(silo.task(1), np.frombuffer(silo.received, np.uint8), silo._out, lambda *_: 0)
    metrics = {name: value for name, value in announced.metrics.items() if name != "seconds"}
    return silo.update, {"samples": announced.samples, "metrics": metrics}


def main():
    """Take part in every case."""
    rank, count, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    devices = DeviceGroup.join(rank, count, folder / "rendezvous", "cpu")
    for case in CASES:
        update, announced = train(folder, case, devices, checkpointing=Checkpointing())
        if devices.leads:
            np.save(folder / f"{case}.npy", update)
            (folder / f"{case}.json").write_text(json.dumps(announced))
        elif update is not None:
            raise AssertionError("only the first process writes an update")


if __name__ == "__main__":
    main()
