"""Second heads, groups of silos and the server's two views: what goes together, and what is refused with its reason."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError
from anchorage.methods import check, validate_study

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED, LABELLED = EXAMPLES / "digits.yaml", EXAMPLES / "fedavg-digits.yaml"
METHOD = "spec.method="


@pytest.mark.parametrize(
    ("file", "method"),
    [
        (LABELLED, "{name: FedRoD}"),
        (LABELLED, "{name: FedRoD, pseudoLabels: {type: None}, weighting: {type: SampleCount}}"),
        (LABELLED, "{name: FedAvg, heads: {second: Personal}}"),
        (LABELLED, "{name: OrigACR, pseudoLabels: {adjustment: None}}"),
        (LABELLED, "{name: FedAvgFixMatch, heads: {second: Balanced}, pseudoLabels: {adjustment: Local}}"),
        (LABELLED, "{name: RSCFed, weighting: {groups: 1, groupSize: 3}}"),
        (LABELLED, "{name: FedAvg, weighting: {type: SubConsensus}}"),
        (UNLABELLED, "{name: FedCon}"),
        (UNLABELLED, "{name: FedCon, serverTraining: {consistency: Disabled}}"),
    ],
)
def test_what_has_a_meaning_passes(file: Path, method: str) -> None:
    study = validate_study(file, [METHOD + method])
    assert check(study.federation, study.silos) == []


@pytest.mark.parametrize(
    ("file", "method", "reason"),
    [
        (
            LABELLED,
            "{name: FedAvgUDA, heads: {second: Personal}}",
            "Personal with pseudoLabels.type UDA, beside which no",
        ),
        (
            LABELLED,
            "{name: FedAvg, heads: {second: PersonalDual}}",
            "set pseudoLabels.type: FlexMatch, or heads.second",
        ),
        (LABELLED, "{name: FedAvgSemi, heads: {second: Balanced}}", "set pseudoLabels.type: FixMatch, or heads.second"),
        (LABELLED, "{name: MOON, heads: {second: Personal}}", "regulariser.type Moon, whose loss is of one head"),
        (LABELLED, "{name: FedMix, heads: {second: Personal}}", "inputMixing.type FedMix, whose loss is of one head"),
        (LABELLED, "{name: SSILCDM, supervised: {type: CrossEntropy}}", "each head has its loss; remove it"),
        (LABELLED, "{name: FedAvgFixMatch, pseudoLabels: {adjustment: Local}}", "for a balanced head only"),
        (LABELLED, "{name: FedRoD, pseudoLabels: {adjustment: Labelled}}", "only FixMatch reads adjustment; remove it"),
        (
            LABELLED,
            "{name: RSCFed, weighting: {groupSize: 2}}",
            "protocol.minSilos is 3, and all groups may draw the same",
        ),
        (LABELLED, "{name: FedAvg, weighting: {groups: 2}}", "only SubConsensus reads groups; remove it"),
        (
            UNLABELLED,
            "{name: FedAnchorMix, serverTraining: {consistency: Enabled}}",
            "Enabled with mixup at the server",
        ),
        (UNLABELLED, "{name: FedCon, pseudoLabels: {type: FixMatch}}", "Byol, which learns from images alone, with"),
    ],
)
def test_what_means_nothing_is_refused(file: Path, method: str, reason: str) -> None:
    with pytest.raises(DocumentError) as refused:
        validate_study(file, [METHOD + method])
    assert reason in str(refused.value)


def test_groups_need_rounds() -> None:
    with pytest.raises(DocumentError, match="BarrierAsynchronous: .*the weighting SubConsensus normalises"):
        validate_study(LABELLED, [f"{METHOD}{{name: RSCFed}}", "spec.protocol.mode=Asynchronous"])
