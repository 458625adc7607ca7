"""What the summary says in words of pseudo-labels, weights, and a federation that does not pay."""

from pathlib import Path
from typing import Any

import pytest

from anchorage.api.files import load_federation
from fedctl.diagnosis import LAST, acceptance_of, diagnose

EXAMPLES = Path(__file__).parents[3] / "examples"
FEDANCHOR = load_federation(EXAMPLES / "digits.yaml").federation
FEDAVG = load_federation(EXAMPLES / "fedavg-digits.yaml").federation


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
    assert diagnose(FEDANCHOR, rounds(silo("a"), silo("b", 99)), {"accuracy": 0.9}, {"accuracy": 0.8}) == []
    assert diagnose(FEDANCHOR, [], {}, None) == []


def test_a_threshold_that_sorts_nothing_out_is_named() -> None:
    (line,) = diagnose(FEDANCHOR, rounds(silo("a", 100), silo("b", 100)), {}, None)
    assert "every silo accepts all" in line and "raise it" in line
    early = [*rounds(silo("a", 100), count=5), *rounds(silo("a", 60))]
    assert diagnose(FEDANCHOR, early, {}, None) == [], "only the last rounds are looked at"


@pytest.mark.parametrize(
    ("silos", "told"),
    [
        ((silo("a", 100, right=0.6), silo("b", 100, right=0.97)), "every silo accepts all its pseudo-labels, of which 60 % to 97 % are right"),
        ((silo("a", 100, right=0.96), silo("b", 100, right=0.97)), None),
        ((silo("a", 50, right=0.6), silo("b", 50, right=0.9)), "a: only 60 % of the accepted pseudo-labels are right; raise"),
        ((silo("a", 5, right=0.99), silo("b", 50, right=0.9)), "a: 99 % of the accepted pseudo-labels are right, but few are accepted; lower"),
    ],
)  # fmt: skip
def test_where_the_truth_is_known_the_words_go_by_it(silos: tuple[dict[str, Any], ...], told: str | None) -> None:
    lines = diagnose(FEDANCHOR, rounds(*silos), {}, None)
    assert [line.startswith(told or "-") for line in lines] == ([True] if told else [])


def test_a_silo_that_accepts_nothing_and_weighs_nothing_is_named() -> None:
    nothing = silo("b", 0, weight=0.0)
    first, second = diagnose(FEDANCHOR, rounds(silo("a"), nothing), {}, None)
    assert (
        first.startswith("b: no pseudo-label is accepted")
        and second == "b: its weight is 0.000: it accepts no pseudo-label"
    )
    (line,) = diagnose(FEDANCHOR, rounds(silo("a"), silo("b", weight=0.0001)), {}, None)
    assert line.startswith("b: its weight is 0.000: its images")
    inactive = silo("b", 0, weight=0.0, state="Inactive")
    (line,) = diagnose(FEDANCHOR, rounds(silo("a"), inactive), {}, None)
    assert line.startswith("b: no pseudo-label")


def test_a_method_without_pseudo_labels_has_no_acceptance() -> None:
    assert diagnose(FEDAVG, rounds(silo("a", 0), silo("b", 0)), {}, None) == []
    assert acceptance_of({"samples": {"train": 3}}) is None and acceptance_of(silo("a", 25)) == 0.25


@pytest.mark.parametrize(("reached", "told"), [(0.79, True), (0.81, False)])
def test_a_federation_below_its_labels_alone_is_told_so(reached: float, told: bool) -> None:
    lines = diagnose(FEDANCHOR, rounds(silo("a")), {"loss": 2.0, "accuracy": reached}, {"accuracy": 0.8, "loss": 1.0})
    assert len(lines) == told
    if told:
        assert "accuracy 0.7900 against 0.8000" in lines[0] and "choosing-a-method" in lines[0]
