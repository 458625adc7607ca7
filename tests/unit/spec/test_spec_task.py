"""The task: its classes, its names, and which pieces can serve it."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from anchorage.api.files import load_federation
from anchorage.api.mistakes import DocumentError
from anchorage.api.piece import PIECES, piece
from anchorage.learning.local_training import Labelled, Loss
from anchorage.methods import validate_study
from anchorage.pieces.slots import ImageTask, LocalLoss

DIGITS = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"


class Findings(ImageTask):
    """Every image shows any number of findings."""

    def probabilities(self, logits):
        return logits.sigmoid()

    def scores(self, labels, probabilities):
        raise NotImplementedError


class Binary(LocalLoss):
    """A loss that does not mind what the classes mean."""

    tasks: ClassVar[frozenset[str] | None] = None

    def loss(self, data: Labelled, num_classes: int) -> Loss:
        raise NotImplementedError


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register a task and a loss of another package."""
    PIECES.of("task")  # every package is loaded
    monkeypatch.setattr(PIECES, "_pieces", dict(PIECES._pieces))
    piece("acme.Findings")(Findings)
    piece("acme.Binary")(Binary)
    yield


def told(*overrides: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        validate_study(DIGITS, overrides)
    return [
        f"{mistake.code} {'.'.join(map(str, mistake.path))}: {mistake.message}" for mistake in caught.value.mistakes
    ]


FINDINGS = "spec.task={plugin: {name: acme.Findings, options: {classes: [oedema, nodule]}}}"


def test_a_piece_is_refused_beside_a_task_that_it_cannot_serve(acme: None) -> None:
    (line,) = told(FINDINGS, "spec.method={name: FedAvg}")
    assert line.startswith("ANC-1116 spec.method.localLoss: found crossEntropy, which serves classification, but")
    assert "acme.Findings" in line


def test_pieces_of_another_package_serve_its_task(acme: None) -> None:
    study = validate_study(DIGITS, [FINDINGS, "spec.method={name: FedAvg, localLoss: {plugin: {name: acme.Binary}}}"])
    assert study.federation.spec.task.classes == ("oedema", "nodule")
    assert study.federation.spec.model_description.num_classes == 2


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ("[a]", "found a, allowed are at least 2 classes"),
        ("[]", "found no class, allowed are at least 2 classes"),
        ("[a, b, a]", "found a more than once"),
        ("[1, 2]", 'quote a number: "0"'),
        ("['a ', b]", "the name of a class on one line"),
        ('["a\\nb", b]', "the name of a class on one line"),
        ("['', b]", "the name of a class on one line"),
    ],
)
def test_classes_have_distinct_names(classes: str, words: str) -> None:
    for line in told(f"spec.task.classification.classes={classes}"):
        assert "spec.task.classification.classes" in line and words in line


def test_names_of_classes_may_be_any_line_of_text() -> None:
    names = ("Nävus (gutartig)", "0", "no", "B-ALL / Pre-B", "a: b")
    written = f"spec.task.classification.classes={list(names)}"
    assert load_federation(DIGITS, [written]).federation.spec.task.classes == names


def test_a_class_map_leads_to_classes_that_there_are() -> None:
    place, alone = "silo.spec.managed.data.classMap", "silo.spec.managed.data={format: Digits}"
    (line, *_) = told(alone, f"{place}={{zero: '0', eleven: '11'}}")
    assert "spec.managed.data.classMap.eleven: found '11', " in line and "0, 1, 2" in line and "for 'eleven'" in line
    assert "ANC-1204" in line
    counts = "silo.spec.managed.data.classCounts"
    (line, *_) = told(alone, f"{counts}={{'0': 3, '11': 1}}")
    assert "spec.managed.data.classCounts.11: found '11', " in line and "ANC-1204" in line
    (line, *_) = told(alone, f"{counts}={{'0': 0}}")
    assert "found classCounts of 0 images" in line
    silo = load_federation(DIGITS, [alone, f"{place}={{zero: '0'}}"]).silos[0]
    assert silo.spec.managed is not None and silo.spec.managed.data.class_map == {"zero": "0"}
