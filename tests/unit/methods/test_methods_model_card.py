"""The model card: what it says of a run, as a document and as Markdown."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from pydantic import ValidationError

from anchorage.api.card_text import markdown, plain, scored_silos
from anchorage.api.files import Study, dump_yaml
from anchorage.api.model_card import (
    CARD,
    CARD_TEXT,
    Assessment,
    Calibration,
    ClassScores,
    Interval,
    ModelCard,
    ReliabilityBin,
    TrainedModel,
)
from anchorage.api.run import RunDescription
from anchorage.engine.interfaces import RoundRecord, SiloRecord
from anchorage.methods import validate_study
from anchorage.methods.model_card import make_card, read_images, write_card
from anchorage.methods.resolution import resolve
from anchorage.pieces.server_training.recipes import SEVERAL

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
CLASSES = [str(digit) for digit in range(10)]
HOSTILE = "a|b <script>alert(1)</script> ![x](http://x/y) `c` *d*"


def assessment(part: Any = "test", names: Any = CLASSES, images: int = 40) -> Assessment:
    area = Interval(value=0.9, low=0.85, high=0.95)
    scores = [
        ClassScores(name=n, images=images, recall=0.75, specificity=0.5, precision=0.25, auroc=area) for n in names
    ]
    bins = (ReliabilityBin(low=0.8, high=1.0, images=9, confidence=0.9, accuracy=0.7),)
    return Assessment(
        part=part,
        images=max(1, images * len(names)),
        metrics={"accuracy": 0.75, "loss": 0.5},
        macro_auroc=area,
        resamples=1000,
        classes=tuple(scores),
        calibration=Calibration(expected_error=0.2, brier=0.3, bins=bins),
    )


def silo(name: str, state: str = "Counted", weight: float = 0.0, **metrics: float) -> SiloRecord:
    return SiloRecord(name, state, weight, {"train": 7}, metrics, fingerprint="f" * 32)


HISTORY = (
    RoundRecord(0, "d0", 1000.0),
    RoundRecord(
        1,
        "d1",
        1060.0,
        silos=(silo("silo-a", weight=0.4, loss=2.0), silo("silo-b", weight=0.6, loss=1.0)),
        bytes_up=10,
        bytes_down=20,
    ),
    RoundRecord(
        2,
        "d2",
        1120.5,
        silos=(
            silo("silo-a", weight=1.0, loss=0.5, held_out_accuracy=0.8, held_out_images=87.0),
            silo("silo-b", "Late"),
        ),
        bytes_up=1,
        bytes_down=2,
    ),
)


def make(
    scored: Assessment | None,
    *,
    classifier_trained: bool = True,
    study: Study | None = None,
    history: Sequence[RoundRecord] = HISTORY,
) -> ModelCard:
    study = study or validate_study(DIGITS)
    spec = study.federation.spec
    run = RunDescription(
        federation="digits",
        seed=spec.seed,
        model=spec.model_description,
        method=resolve(spec.method),
        down="{}",
        up="{}",
        rounds=2,
        mode="Synchronous",
    )
    images = {"anchors": {"run": "r", "digest": "ab" * 16, "classes": dict.fromkeys(CLASSES, 8), "unlabelled": 0}}
    final = TrainedModel(file="final.safetensors", digest="1" * 64, round=2, assessment=scored)
    best = TrainedModel(file="best.safetensors", digest="2" * 64, round=1, assessment=scored)
    return make_card(study, run, history, images, final=final, best=best, classifier_trained=classifier_trained)


def test_a_card_says_what_the_classifier_was_chosen_from() -> None:
    names = [recipe.name for recipe in SEVERAL]
    compared = {f"guesses_{name}": 0.5 + place / 100 for place, name in enumerate(names)}
    last = replace(
        HISTORY[-1], metrics=dict(sorted({**compared, "guesses_chosen": 4.0}.items()))
    )  # as a file may have them
    card = make(None, history=[*HISTORY[:-1], last])
    assert card.chosen == names[4] == "estimated1" and card.chosen_from is not None
    assert next(iter(card.chosen_from.items())) == ("labels", 0.5) and len(card.chosen_from) == 10
    assert "estimated1, by balanced accuracy on the validation images (labels 0.500," in markdown(card)
    without = make(None)
    assert without.chosen_from is without.chosen is None and "balanced accuracy on the validation" not in markdown(
        without
    )


def test_a_card_adds_the_rounds_up() -> None:
    card = make(assessment())
    assert (card.rounds, card.seconds, card.traffic.bytes_up, card.traffic.bytes_down) == (2, 120.5, 11, 22)
    a, b, c = card.silos
    assert (a.rounds, a.weight, a.failures, a.metrics) == (
        2,
        pytest.approx(0.7),
        0,
        {"loss": 0.5, "held_out_accuracy": 0.8, "held_out_images": 87.0},
    )
    assert (b.rounds, b.weight, b.failures, b.metrics) == (1, 0.6, 1, {"loss": 1.0})
    assert (c.name, c.rounds, c.digest, a.digest) == ("silo-c", 0, "", "f" * 32)
    assert [array.name for array in card.traffic.down] == ["prototypes"] and card.traffic.up == ()
    assert [part.part for part in card.images] == ["anchors"]  # of the others nothing was kept


def test_silos_without_a_document_here_have_the_labels_that_they_said() -> None:
    """In a cluster the server's documents have no silo; names come from the rounds."""
    alone = replace(validate_study(DIGITS), silos=())
    partial_silo = replace(HISTORY[1].silos[0], labels="Partial")
    history = (HISTORY[0], replace(HISTORY[1], silos=(partial_silo, HISTORY[1].silos[1])), HISTORY[2])
    card = make(assessment(), study=alone, history=history)
    assert [(part.name, part.labels) for part in card.silos] == [("silo-a", "Partial"), ("silo-b", "")]
    assert "| silo-a | Partial | 2 |" in markdown(card) and "| silo-b | ? | 1 |" in markdown(card)


def test_documents_are_named_with_their_digests() -> None:
    study, card = validate_study(DIGITS), make(None)
    texts = [dump_yaml([document]) for document in (study.federation, *study.silos)]
    assert [document.digest for document in card.documents] == [hashlib.sha256(t.encode()).hexdigest() for t in texts]
    assert [document.kind for document in card.documents] == ["Federation", "Silo", "Silo", "Silo"]


@pytest.mark.parametrize(
    ("scored", "expected"),
    [
        (None, "only the silos scored it"),
        (assessment(images=0), "how well they are recognised is unknown: 0, 1"),
        (assessment(images=12), "fewer than 30 images, so their scores are uncertain: 0 (12)"),
        (assessment("validation"), "scores may be too good"),
    ],
)
def test_limits_are_said(scored: Assessment | None, expected: str) -> None:
    assert any(expected in limit for limit in make(scored).limits)


def test_a_silo_that_never_counted_and_an_untrained_classifier_are_limits() -> None:
    assert any("silo-c" in limit for limit in make(assessment()).limits)
    assert "Nothing trained its classifier" in make(assessment(), classifier_trained=False).limits[0]


def test_files_are_written_and_read_again(tmp_path: Path) -> None:
    card = make(assessment())
    write_card(tmp_path, card)
    written = (tmp_path / CARD).read_text()
    assert ModelCard.model_validate_json(written) == card
    assert json.loads(written)["final"]["assessment"]["classes"][3]["recall"] == 0.75
    assert (tmp_path / CARD_TEXT).read_text() == markdown(card)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "anchorage-model-card-2"},
        {"seconds": -1.0},
        {"begun": "yesterday"},
        {"labelsAlone": {"accuracy": float("nan")}},
        {"opinion": "good"},
    ],
)
def test_what_is_no_card_is_refused(change: dict[str, Any]) -> None:
    values = {**make(assessment()).model_dump(mode="json", by_alias=True), **change}
    with pytest.raises(ValidationError):
        ModelCard.model_validate_json(json.dumps(values))


def test_leakage_that_the_file_allows_is_a_limit() -> None:
    study = validate_study(DIGITS, ["spec.evaluation.onLeakage=Allow"])
    assert any("onLeakage" in limit for limit in make(assessment(), study=study).limits)
    assert not any("onLeakage" in limit for limit in make(assessment()).limits)


def test_fingerprints_are_read_by_part(tmp_path: Path) -> None:
    (tmp_path / "images-test.json").write_text('{"digest": "x"}')
    assert read_images(tmp_path) == {"test": {"digest": "x"}}


def test_the_text_has_every_figure_and_leaves_the_rest_to_people() -> None:
    card = make(assessment()).model_copy(update={"labels_alone": {"accuracy": 0.6543}})
    text = markdown(card)
    assert "| accuracy | 0.7500 | 0.7500 | 0.6543 |" in text
    assert "| 3 | 40 | 0.7500 | 0.5000 | 0.2500 | 0.9000 (0.8500 to 0.9500) |" in text
    assert "Worst silo: silo-a, accuracy 0.8000" in text
    assert "| 0.8000 | 87 |" in text and "what the task counts of the images" in text
    assert "Silos sent 11 bytes" in text and "prototypes" in text
    for item in ("1", "2 (a)", "2 (d)", "2 (e)", "2 (f)", "2 (g)", "2 (h)", "3", "5", "6", "7", "8", "9"):
        assert item in text.split("Annex IV", 1)[1], item
    assert text.count("*To be filled in by people.*") == 11


def test_without_labelled_images_the_text_says_so() -> None:
    assert "not scored at the server: no labelled images" in markdown(make(None))


def test_the_worst_silo_is_found_by_the_most_telling_score() -> None:
    named = {part.name: part for part in make(None).silos}
    scored = [
        named["silo-a"].model_copy(update={"metrics": {"held_out_accuracy": 0.9, "loss": 0.1}}),
        named["silo-b"].model_copy(update={"metrics": {"held_out_accuracy": 0.7, "loss": 0.0}}),
        named["silo-c"].model_copy(update={"metrics": {"loss": 9.0, "accuracy": 0.1}}),
    ]
    assert list(scored_silos(scored).items()) == [("silo-b", ("accuracy", 0.7)), ("silo-a", ("accuracy", 0.9))]


@pytest.mark.parametrize("text", [HOSTILE, "# head", "- item", "1. one", "a\\|b", "&lt;b&gt;", "x\n\n# y", "~~z~~"])
def test_foreign_text_stays_text(text: str) -> None:
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"| x |\n| --- |\n| {plain(text)} |")
    cell = shown.split("<td>")[1].split("</td>")[0]
    assert "<" not in cell
    paragraph = MarkdownIt("commonmark").enable("strikethrough").render(plain(text))
    assert paragraph.startswith("<p>") and paragraph.count("<") == 2


def test_hostile_names_of_classes_stay_in_their_cells() -> None:
    html = MarkdownIt("commonmark").enable("table").render(markdown(make(assessment(names=[HOSTILE, "b"]))))
    assert "<script" not in html and "<img" not in html and "<em>d" not in html
