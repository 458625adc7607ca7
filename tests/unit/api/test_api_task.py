"""The task: its classes, its names, and which pieces can serve it."""

from pathlib import Path

import pytest
from outside_package import load_regression

from anchorage.api.files import load_federation
from anchorage.api.metrics import best_metric, improvement, lower_is_better, metric_order, score
from anchorage.api.mistakes import DocumentError
from anchorage.api.slot import read_piece, write_piece
from anchorage.methods import validate_study
from anchorage.pieces.slots import ImageTask

DIGITS = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[ImageTask]:
    """Register a task of another package."""
    return load_regression(tmp_path, monkeypatch)


def told(*overrides: str) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        validate_study(DIGITS, overrides)
    return [
        f"{mistake.code} {'.'.join(map(str, mistake.path))}: {mistake.message}" for mistake in caught.value.mistakes
    ]


AGE = 'spec.task={plugin: {name: acme.Regression, options: {quantity: age, mean: "50"}}}'


@pytest.mark.parametrize(
    ("method", "field", "piece"),
    [
        ("{name: FedAvg, localLoss: {balancedSoftmax: {}}}", "localLoss", "balancedSoftmax"),
        ("{name: FedAvg, weighting: {dvw: {}}}", "weighting", "dvw"),
        ("{name: MomentsHead}", "serverTraining", "moments"),
    ],
)
def test_a_piece_is_refused_beside_a_task_that_it_cannot_serve(
    acme: object, method: str, field: str, piece: str
) -> None:
    lines = told(AGE, f"spec.method={method}")
    expected_error = f"ANC-1116 spec.method.{field}: found {piece}, which serves classification"
    (line,) = (line for line in lines if line.startswith(expected_error))
    assert "acme.Regression" in line


def test_the_task_of_another_package_is_served(acme: object) -> None:
    study = validate_study(DIGITS, [AGE, "spec.method={name: FedAvg}"])
    task = study.federation.spec.task
    assert task.outputs == ("age",) and study.federation.spec.model_description.num_outputs == 1
    assert read_piece("task", write_piece(task)) == task


def test_the_first_metric_of_each_task_decides(acme: object) -> None:
    findings, masks = ("macro_auroc", "mean_average_precision", "brier"), ("dice", "dice_all", "pooled_dice")
    task_metrics = ("balanced_accuracy", "accuracy", "macro_auc", *findings, *masks)
    assert metric_order() == (*task_metrics, "mean_absolute_error", "loss")
    assert lower_is_better("mean_absolute_error") and not lower_is_better("balanced_accuracy")
    better, worse = ({"loss": 0.1, "mean_absolute_error": years} for years in (4.0, 5.0))
    assert score(better) > score(worse) and best_metric(better) == ("mean_absolute_error", 4.0)
    assert improvement("mean_absolute_error", 4.0, 5.0) == pytest.approx(0.2)
    assert improvement("accuracy", 0.6, 0.5) == pytest.approx(0.1)


def test_labels_without_names_are_led_to_by_no_class_map(acme: object) -> None:
    data = "silo.spec.managed.data={format: Digits, classMap: {nine: '9'}}"
    (line, *_) = told(AGE, "spec.method={name: FedAvg}", data)
    assert "spec.managed.data.classMap.nine: found '9'" in line


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
