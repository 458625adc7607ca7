"""Policies of batch normalisation that a federation cannot follow are refused; the others pass."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

LABELLED = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"
ANCHORS = "spec.anchorData={format: Digits, use: Anchors, anchors: 20, testPercent: 20}"


def policy(name: str) -> str:
    return f"spec.method.batchNorm.policy={name}"


@pytest.mark.parametrize(
    "overrides",
    [
        [policy("Pooled")],
        [policy("Local"), ANCHORS],
        [policy("Local"), ANCHORS, ASYNCHRONOUS],
        [policy("Local"), "spec.evaluation=null"],
        [policy("Recalibrate"), ANCHORS],
        [policy("Static"), ANCHORS],
        ["spec.method.name=DVW", policy("Pooled")],
    ],
)
def test_what_can_be_followed_passes(overrides: list[str]) -> None:
    validate_study(LABELLED, overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([policy("Pooled"), ASYNCHRONOUS], "found Pooled, but it is done once per round, and Asynchronous has none"),
        ([policy("Static"), ASYNCHRONOUS, ANCHORS], "found Static, but it is done once per round"),
        ([policy("Local")], "FedAvg with an evaluation of what batchNorm.policy Local leaves without statistics needs"),
        ([policy("Local"), ANCHORS, "spec.method.name=DVW"], "found Local, but DVW has updates scored by other silos"),
        (
            [policy("Local"), ANCHORS, "spec.method.name=SCAFFOLD"],
            "found Local, but control variates are of every trained",
        ),
        ([policy("Recalibrate")], "FedAvg with batchNorm.policy Recalibrate needs labelled anchors; add it"),
    ],
)
def test_what_cannot_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, overrides)
    (mistake,) = caught.value.mistakes
    assert message in mistake.message
