"""What the summary and the report say in words of pseudo-labels and weights in the last rounds."""

from pathlib import Path
from typing import Any

import pytest

from anchorage.api.files import load_federation
from fedctl.diagnosis import LAST, acceptance_of, diagnose, notes

EXAMPLES = Path(__file__).parents[3] / "examples"
FEDANCHOR = load_federation(EXAMPLES / "digits.yaml").federation.spec.method
FEDAVG = load_federation(EXAMPLES / "fedavg-digits.yaml").federation.spec.method


def silo(
    name: str,
    selected: int = 50,
    unlabelled: int = 100,
    weight: float = 0.5,
    state: str = "Counted",
    right: float | None = None,
) -> dict[str, Any]:
    samples = {"train": unlabelled, "unlabelled": unlabelled, "selected": selected}
    metrics = {} if right is None else {"pseudo_label_accuracy": right}
    return {"name": name, "state": state, "weight": weight, "samples": samples, "metrics": metrics}


def rounds(*silos: dict[str, Any], count: int = LAST) -> list[dict[str, Any]]:
    return [{"round": number, "silos": list(silos)} for number in range(1, count + 1)]


def test_a_run_that_is_as_it_should_be_has_no_notes() -> None:
    assert diagnose(FEDANCHOR, rounds(silo("a"), silo("b", 99))) == []
    assert diagnose(FEDANCHOR, []) == []


def test_a_threshold_that_sorts_nothing_out_is_named() -> None:
    (line,) = diagnose(FEDANCHOR, rounds(silo("a", 100), silo("b", 100)))
    assert "every silo accepts all" in line and "raise it" in line
    early = [*rounds(silo("a", 100), count=5), *rounds(silo("a", 60))]
    assert diagnose(FEDANCHOR, early) == [], "only the last rounds are looked at"


@pytest.mark.parametrize(
    ("silos", "expected"),
    [
        ((silo("a", 100, right=0.6), silo("b", 100, right=0.97)), "every silo accepts all its pseudo-labels, of which 60 % to 97 % are right"),
        ((silo("a", 100, right=0.96), silo("b", 100, right=0.97)), None),
        ((silo("a", 50, right=0.6), silo("b", 50, right=0.9)), "a: only 60 % of the accepted pseudo-labels are right; raise"),
        ((silo("a", 5, right=0.99), silo("b", 50, right=0.9)), "a: 99 % of the accepted pseudo-labels are right, but few are accepted; lower"),
    ],
)  # fmt: skip
def test_where_the_truth_is_known_the_words_go_by_it(silos: tuple[dict[str, Any], ...], expected: str | None) -> None:
    lines = diagnose(FEDANCHOR, rounds(*silos))
    assert [line.startswith(expected or "-") for line in lines] == ([True] if expected else [])


def test_a_silo_that_accepts_nothing_and_weighs_nothing_is_named() -> None:
    nothing = silo("b", 0, weight=0.0)
    first, second = diagnose(FEDANCHOR, rounds(silo("a"), nothing))
    assert (
        first.startswith("b: no pseudo-label is accepted")
        and second == "b: its weight is 0.000: it accepts no pseudo-label"
    )
    (line,) = diagnose(FEDANCHOR, rounds(silo("a"), silo("b", weight=0.0001)))
    assert line.startswith("b: its weight is 0.000: its images")
    inactive = silo("b", 0, weight=0.0, state="Inactive")
    (line,) = diagnose(FEDANCHOR, rounds(silo("a"), inactive))
    assert line.startswith("b: no pseudo-label")


def test_a_method_without_pseudo_labels_has_no_acceptance() -> None:
    assert diagnose(FEDAVG, rounds(silo("a", 0), silo("b", 0))) == []
    assert acceptance_of({"samples": {"train": 3}}) is None and acceptance_of(silo("a", 25)) == 0.25


def test_shares_that_are_neither_none_nor_all_are_not_written_so() -> None:
    (line,) = diagnose(FEDANCHOR, rounds(silo("a", 5, 1000, right=0.9991)))
    assert line.startswith("a: 99.9 % of the accepted pseudo-labels are right, but few are accepted")


def test_notes_of_a_document_whose_method_is_not_known_here_are_none() -> None:
    known = {"spec": {"method": {"name": "FedAnchor"}}}
    assert len(notes(known, rounds(silo("a", 100)))) == 1
    assert notes({"spec": {"method": {"name": "Elsewhere"}}}, rounds(silo("a", 100))) == []
    assert notes({"spec": {"method": {"name": 7}}}, rounds(silo("a", 100))) == []
