"""Second heads, groups of silos and the server's two views: what goes together, and what is refused where."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError, format_path
from anchorage.methods import validate_study

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED, LABELLED = EXAMPLES / "digits.yaml", EXAMPLES / "fedavg-digits.yaml"
METHOD = "spec.method="
MEANINGLESS = "ANC-1116"


@pytest.mark.parametrize(
    ("file", "method"),
    [
        (LABELLED, "{name: FedRoD}"),
        (LABELLED, "{name: FedRoD, pseudoLabels: {none: {}}, weighting: {sampleCount: {}}}"),
        (LABELLED, "{name: FedAvg, secondHead: {personal: {}}}"),
        (LABELLED, "{name: OrigACR, pseudoLabels: {fixMatch: {adjustment: None}}}"),
        (LABELLED, "{name: FedAvgFixMatch, secondHead: {balanced: {}}, pseudoLabels: {fixMatch: {adjustment: Local}}}"),
        (LABELLED, "{name: RSCFed, weighting: {subConsensus: {groups: 1, groupSize: 3}}}"),
        (LABELLED, "{name: FedAvg, weighting: {subConsensus: {}}}"),
        (UNLABELLED, "{name: FedCon}"),
        (UNLABELLED, "{name: FedCon, serverTraining: {anchors: {objective: {twoViews: {rampRounds: 3}}}}}"),
        (UNLABELLED, "{name: FedAnchor, serverTraining: {anchors: {objective: {twoViews: {}}}}}"),
    ],
)
def test_what_has_a_meaning_passes(file: Path, method: str) -> None:
    assert validate_study(file, [METHOD + method]).silos


@pytest.mark.parametrize(
    ("file", "method", "mistake"),
    [
        (LABELLED, "{name: FedAvgUDA, secondHead: {personal: {}}}", (MEANINGLESS, "secondHead")),
        (LABELLED, "{name: FedAvg, secondHead: {personalDual: {}}}", (MEANINGLESS, "secondHead")),
        (LABELLED, "{name: FedAvgSemi, secondHead: {balanced: {}}}", (MEANINGLESS, "secondHead")),
        (LABELLED, "{name: MOON, secondHead: {personal: {}}}", (MEANINGLESS, "regulariser")),
        (LABELLED, "{name: FedMix, secondHead: {personal: {}}}", (MEANINGLESS, "secondHead")),
        (LABELLED, "{name: FedBarlow, secondHead: {personal: {}}}", (MEANINGLESS, "secondHead")),
        (LABELLED, "{name: SSILCDM, localLoss: {taskLoss: {}}}", (MEANINGLESS, "localLoss")),
        (
            LABELLED,
            "{name: FedAvgFixMatch, pseudoLabels: {fixMatch: {adjustment: Local}}}",
            (MEANINGLESS, "pseudoLabels.fixMatch.adjustment"),
        ),
        (
            LABELLED,
            "{name: FedRoD, pseudoLabels: {flexMatch: {adjustment: Labelled}}}",
            ("ANC-1007", "pseudoLabels.flexMatch.adjustment"),
        ),
        (
            LABELLED,
            "{name: RSCFed, weighting: {subConsensus: {groupSize: 2}}}",
            ("ANC-1119", "weighting.subConsensus.groupSize"),
        ),
        (
            LABELLED,
            "{name: FedAvg, weighting: {sampleCount: {groups: 2}}}",
            ("ANC-1007", "weighting.sampleCount.groups"),
        ),
        (
            UNLABELLED,
            "{name: FedAnchor, mixup: {both: {}}, serverTraining: {anchors: {objective: {twoViews: {}}}}}",
            (MEANINGLESS, "serverTraining.anchors.objective"),
        ),
        (
            UNLABELLED,
            "{name: FedMatchServer, serverTraining: {anchors: {objective: {twoViews: {}}}}}",
            (MEANINGLESS, "serverTraining.anchors.objective"),
        ),
        (UNLABELLED, "{name: FedCon, pseudoLabels: {fixMatch: {}}}", (MEANINGLESS, "selfSupervised")),
    ],
)
def test_what_means_nothing_is_refused(file: Path, method: str, mistake: tuple[str, str]) -> None:
    with pytest.raises(DocumentError) as refused:
        validate_study(file, [METHOD + method])
    errors = [(error.code, format_path(error.path).removeprefix("spec.method.")) for error in refused.value.mistakes]
    assert errors == [mistake], str(refused.value)


def test_groups_need_rounds() -> None:
    with pytest.raises(DocumentError) as refused:
        validate_study(LABELLED, [f"{METHOD}{{name: RSCFed}}", "spec.protocol.mode=Asynchronous"])
    assert [(error.failure.reason, format_path(error.path)) for error in refused.value.mistakes] == [
        ("BarrierAsynchronous", "spec.protocol.mode")
    ]
