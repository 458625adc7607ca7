"""How many accepted pseudo-labels are right: told by simulations, which know the truth, without telling it to anything that trains."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from anchorage.api.metric_names import ACCEPTANCE, PSEUDO_LABEL_ACCURACY
from anchorage.api.mistakes import DocumentError
from anchorage.engine.interfaces import SiloRecord
from anchorage.methods import validate_study

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch
from sklearn.datasets import load_digits

from anchorage.learning.data import Pools
from anchorage.learning.data.listing import Listing
from anchorage.learning.silo_round import SiloRound
from anchorage.pieces.pseudo_labels.received_model import ReceivedModel
from anchorage.simulation import silos
from anchorage.simulation.run import simulate
from anchorage.simulation.silos import judge, section_of

PART = "{format: Digits, use: Part, anchors: 20, partition: {recipe: Iid, parts: 30, part: %d}}"
DOCUMENTS = f"""
kind: Federation
metadata: {{name: tiny}}
spec:
  rounds: 1
  task: {{classification: {{classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]}}}}
  model: {{network: SmallCnn, imageSize: 8, channels: 1, augmentation: Digits}}
  method: METHOD
  anchorData: {{format: Digits, use: Anchors, anchors: 20}}
---
kind: Silo
metadata: {{name: blind}}
spec: {{federation: tiny, labels: None, managed: {{data: {PART % 0}}}}}
"""
PARTIAL = f"""---
kind: Silo
metadata: {{name: partial}}
spec: {{federation: tiny, labels: Partial, managed: {{data: {(PART % 1).replace("anchors: 20", "anchors: 20, labelledPercent: 50")}}}}}
"""
METHODS = {
    "SemiFL": 'receivedModel: {threshold: "0"}',
    "FedAnchor": 'anchorSimilarity: {threshold: "0"}',
    "FedAvgFixMatch": 'fixMatch: {threshold: "0.1"}',
    "FedAvgUDA": 'uda: {threshold: "0.1"}',
    "SemiAnAgg": 'flexMatch: {threshold: "0.1"}',
    "SSILCDM": 'fixMatch: {threshold: "0.1"}',
    "CBAFed": 'classAdaptive: {threshold: "0.1", ceiling: "0.1"}',
    "RSCFed": "meanTeacher: {}",
    "FedMatch": 'helpers: {threshold: "0.1"}',
}
SERVER_ALONE = ("SemiFL", "FedAnchor")


def played(folder: Path, method: str, pseudo_labels: str, *others: str) -> dict[str, SiloRecord]:
    local = "local: {epochs: 2, batchSize: 8}"
    documents = DOCUMENTS + ("" if method in SERVER_ALONE else PARTIAL)
    if method not in SERVER_ALONE:
        documents = documents.replace("  anchorData: {format: Digits, use: Anchors, anchors: 20}\n", "")
    written = f"{{name: {method}, {local}, pseudoLabels: {{{pseudo_labels}}}}}"
    (folder / "tiny.yaml").write_text(documents.replace("METHOD", written))
    record, _ = simulate(validate_study(folder / "tiny.yaml", others), folder, folder / "state")
    return {part.name: part for part in record.silos}


def listing_of(folder: Path, silo: str, *overrides: str) -> Listing:
    study = validate_study(folder / "tiny.yaml", overrides)
    spec = study.federation.spec
    sections = {each.metadata.name: section_of(each) for each in study.silos} | spec.server_data
    return Pools().choose(sections[silo], folder, spec.task, spec.seed).listing


def test_every_piece_tells_which_labels_it_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels_by_image: dict[bytes, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def judge_noting(truth: NDArray[np.int64]) -> Any:
        def examine(images: NDArray[np.int64], labels: NDArray[np.int64]) -> Mapping[str, float]:
            labels_by_image[truth.tobytes()] = images, labels
            return judge(truth)(images, labels)

        return examine

    monkeypatch.setattr(silos, "judge", judge_noting)
    for method, piece in METHODS.items():
        (folder := tmp_path / method).mkdir()
        for name, part in played(folder, method, piece).items():
            truth = listing_of(folder, name).labels
            assert PSEUDO_LABEL_ACCURACY in part.metrics, (method, part)
            images, labels = labels_by_image[truth.tobytes()]
            assert part.metrics[PSEUDO_LABEL_ACCURACY] == np.mean(truth[images] == labels), (method, name)
            assert set(labels) <= set(range(10)) and len(labels) >= 8, (method, name)
            if method not in ("FedMatch", "RSCFed"):  # these count in proportion what they saw
                assert len(images) == part.samples["selected"], (method, name)


def label_as_three(piece: ReceivedModel, silo_round: SiloRound, indices: NDArray[np.int64]) -> tuple[Any, Any]:
    """Call every image a 3, and accept every other one of these labels."""
    assert (silo_round.images.labels == -1).all(), "what trains must not see a label of a silo without labels"
    return torch.full((len(indices),), 3), torch.arange(len(indices)) % 2 == 0


def test_the_share_is_that_of_the_accepted_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReceivedModel, "label", label_as_three)
    part = played(tmp_path, "SemiFL", "receivedModel: {}")["blind"]
    threes = listing_of(tmp_path, "blind").labels[::2] == 3
    assert part.metrics[PSEUDO_LABEL_ACCURACY] == np.mean(threes) > 0 and part.metrics[ACCEPTANCE] == pytest.approx(
        0.5, abs=0.02
    )


def test_images_that_are_left_out_of_training_shift_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first images of the silo are test images, too: every label of the others is judged by its own image."""
    monkeypatch.setattr(ReceivedModel, "label", label_as_three)
    digits = load_digits()
    for row, (pixels, label) in enumerate(zip(digits.images[:60], digits.target[:60], strict=True)):
        for part in ("own", "test") if row < 7 else ("own",):
            (folder := tmp_path / part / str(label)).mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype(np.uint8)).save(folder / f"{row:03}.png")
    for label in range(10):
        (tmp_path / "test" / str(label)).mkdir(exist_ok=True)
    test = "spec.evaluation={test: {format: ImageFolder, claimName: test}, onLeakage: Skip}"
    others = (test, "silo.spec.managed.data={format: ImageFolder, claimName: own}")
    part = played(tmp_path, "SemiFL", "receivedModel: {}", *others)["blind"]
    listing = listing_of(tmp_path, "blind", *others)
    labels_kept = [label for name, label in zip(listing.ids, listing.labels, strict=True) if int(Path(name).stem) >= 7]
    assert len(labels_kept) == part.samples["train"] == 53 and len(listing.ids) == 60
    assert part.metrics[PSEUDO_LABEL_ACCURACY] == np.mean(np.array(labels_kept)[::2] == 3) > 0


def test_images_of_which_nobody_knows_the_class_are_not_judged() -> None:
    truth = np.array([0, -1, 2, -1])
    assert judge(truth)(np.array([0, 1, 2]), np.array([0, 1, 1])) == {PSEUDO_LABEL_ACCURACY: 0.5}
    assert judge(truth)(np.array([1, 3]), np.array([0, 0])) == judge(truth)(np.array([], int), np.array([], int)) == {}


def test_images_as_they_are_and_mixup_at_silos_are_refused_together(tmp_path: Path) -> None:
    document = DOCUMENTS.replace("METHOD", "{name: SemiFL, pseudoLabels: {receivedModel: {views: Plain}}}")
    (tmp_path / "tiny.yaml").write_text(document)
    with pytest.raises(DocumentError, match=r"found Plain, but the method's mixup at silos .* set mixup: {none: {}}"):
        validate_study(tmp_path / "tiny.yaml")
    validate_study(tmp_path / "tiny.yaml", ["spec.method.mixup={none: {}}"])
