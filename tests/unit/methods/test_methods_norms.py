"""Policies of batch normalisation that a federation cannot follow are refused; the others pass."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError, format_path
from anchorage.methods import validate_study

LABELLED = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"
ANCHORS = "spec.anchorData={format: Digits, use: Anchors, anchors: 20, testPercent: 20, validationPercent: 10}"
MEANINGLESS = ("ANC-1116", "spec.method.batchNorm")
NO_ANCHORS = ("ANC-1112", "spec.anchorData")


def policy(name: str) -> str:
    return f"spec.method.batchNorm={{{name}: {{}}}}"


@pytest.mark.parametrize(
    "overrides",
    [
        [policy("pooled")],
        [policy("local"), ANCHORS],
        [policy("local"), ANCHORS, ASYNCHRONOUS],
        [policy("local"), "spec.evaluation=null"],
        [policy("recalibrate"), ANCHORS],
        [policy("static"), ANCHORS],
        ["spec.method.name=DVW", policy("pooled")],
        [policy("frozen"), "spec.model.initial=weights.safetensors"],
        [policy("frozen"), "spec.warmUp=[{method: FedAvg, rounds: 1}]"],
        [policy("groupNorm"), ASYNCHRONOUS],
        ["spec.method.name=DVW", policy("groupNorm")],
    ],
)
def test_what_can_be_followed_passes(overrides: list[str]) -> None:
    assert validate_study(LABELLED, overrides).silos


@pytest.mark.parametrize(
    ("overrides", "mistake"),
    [
        ([policy("pooled"), ASYNCHRONOUS], MEANINGLESS),
        ([policy("static"), ASYNCHRONOUS, ANCHORS], MEANINGLESS),
        ([policy("local")], NO_ANCHORS),
        ([policy("local"), ANCHORS, "spec.method.name=DVW"], MEANINGLESS),
        ([policy("static"), ANCHORS, "spec.method.name=DVW"], MEANINGLESS),
        ([policy("local"), ANCHORS, "spec.method.name=SCAFFOLD"], MEANINGLESS),
        ([policy("recalibrate")], NO_ANCHORS),
        ([policy("frozen")], MEANINGLESS),
    ],
)
def test_what_cannot_is_refused(overrides: list[str], mistake: tuple[str, str]) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, overrides)
    assert [(error.code, format_path(error.path)) for error in caught.value.mistakes] == [mistake]
