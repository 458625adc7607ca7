"""Every preset with several findings per image and with masks: it trains and is scored, or is refused before the run with a reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_findings import documents, draw_site, section, write
from drawn_masks import write_study

from anchorage.api.files import Study
from anchorage.api.mistakes import DocumentError
from anchorage.api.piece import PIECES
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.registry import BUILT_IN

pytest.importorskip("torch")

from played_study import play_study

OF_WEIGHTS = {
    *("FedAvg", "FedProx", "UpperBound", "LowerBound", "SOLO", "FedAvgM", "FedAdagrad", "FedAdam", "FedYogi", "SCAFFOLD", "Supervised"),
    *("CBAFedLowerBound", "SyncFedAvg", "AsyncFedAvg", "FedAsync"),
}  # fmt: skip
"""Presets that handle weights and the task's own loss alone."""
WITH_COUNTERPARTS = {
    *("FedAvgFixMatch", "FedAvgFixMatchAlternate", "FedAvgUDA", "SemiFL", "FedAvgSemi", "RSCFed"),
    *("DVW", "SyncDVW", "AsyncDVW", "AsyncDVWAdaptive"),
}
OF_IMAGES_ALONE = {"FedBarlow", "FedCLR", "FedSimSiam", "FedBYOL", "FedEMA", "LDAWA", "Orchestra"}
OF_VECTORS = {"FedCLR", "FedBYOL", "FedEMA"}
"""Those whose target network, or classifier, takes the vector of a whole image from the encoder itself."""
SERVED = {
    "multiLabel": OF_WEIGHTS | WITH_COUNTERPARTS | OF_IMAGES_ALONE | {"MOON"},
    "segmentation": OF_WEIGHTS | WITH_COUNTERPARTS | OF_IMAGES_ALONE - OF_VECTORS,
}
SCORES = {"multiLabel": "macro_auroc", "segmentation": "dice"}
PAIRS = [(task, preset.name) for task in SERVED for preset in BUILT_IN]
LOCAL = {"local": {"epochs": 1, "batchSize": 8}}


def study_of(task: str, name: str, folder: Path, method: dict[str, Any] | None = None, **fields: Any) -> Study:
    """Return a federation of a preset: two sites, of which some images have no label where the preset takes such, and anchors at the server."""
    preset = PRESETS[name]
    labels = "Partial" if "Partial" in preset.labels and not preset.every_label else preset.labels[0]
    labels = "All" if "All" in preset.labels and labels == "None" else labels
    chosen = {"name": name, **LOCAL, **(method or {})}
    fields = {"protocol": {"mode": preset.protocols[0]}, "rounds": 2, **fields}
    if task == "segmentation":
        server = {"format": "ImageFolder", "claimName": "anchors"}
        masks = 4 if labels == "Partial" else None
        return validate_study(write_study(folder, chosen, labels=labels, masks=masks, anchorData=server, **fields))
    for seed, site in enumerate("ab"):
        draw_site(folder / "data" / site, 24, seed, unlabelled=8 if labels == "Partial" else 0)
    draw_site(folder / "data" / "check", 24, 4)
    draw_site(folder / "data" / "anchors", 24, 5)
    written = documents(chosen, labels=(labels, labels), claims="ab", anchorData=section("anchors"), **fields)
    written[0]["spec"]["model"]["network"] = "SmallCnn"
    return validate_study(write(folder, written))


@pytest.mark.parametrize(("task", "name"), [pair for pair in PAIRS if pair[1] in SERVED[pair[0]]])
def test_a_preset_trains_and_is_scored(task: str, name: str, tmp_path: Path) -> None:
    assert PRESETS[name].serves(PIECES["task", task])
    study = study_of(task, name, tmp_path)
    moves = name != "SOLO"  # whose silos keep their models
    simulation = play_study(study, tmp_path / "data", tmp_path / "run", moves=moves)
    record = simulation.store.history()[-1]
    if name not in OF_IMAGES_ALONE:
        assert np.isfinite(record.metrics[SCORES[task]])
    assert {silo.state for silo in record.silos} <= {"Counted", "Waiting", "Inactive"}


@pytest.mark.parametrize(("task", "name"), [pair for pair in PAIRS if pair[1] not in SERVED[pair[0]]])
def test_another_preset_is_refused_with_its_reason(task: str, name: str, tmp_path: Path) -> None:
    assert not PRESETS[name].serves(PIECES["task", task])
    words = f"which serves [a-zA-Z ]+, but the task is {task}|which serves one vector for each image, but {task}"
    with pytest.raises(DocumentError, match=words):
        study_of(task, name, tmp_path)
