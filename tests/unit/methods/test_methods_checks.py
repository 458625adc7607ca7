"""Combinations that mean nothing are refused with their reason; the others are not."""

from pathlib import Path

import pytest

from anchorage.api.files import load_federation
from anchorage.api.mistakes import DocumentError
from anchorage.methods import PRESETS, check, validate_study

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED = EXAMPLES / "digits.yaml"
LABELLED = EXAMPLES / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"


@pytest.mark.parametrize(
    ("file", "overrides"),
    [
        (UNLABELLED, []),
        (UNLABELLED, ["spec.method.weighting.type=SemiAnAgg"]),
        (UNLABELLED, ["spec.method.weighting.type=DVW", "spec.method.weighting.metric=MacroF1"]),
        (UNLABELLED, ["spec.method.weighting.type=SelectedCount"]),
        (UNLABELLED, ["spec.method.mixup.at=None"]),
        (UNLABELLED, ["spec.method.mixup.at=Server"]),
        (UNLABELLED, ["spec.method.mixup.at=Both", "spec.method.mixup.alpha=1"]),
        (UNLABELLED, ["spec.method.serverTraining.contrastive=Disabled"]),
        (UNLABELLED, ["spec.method.pseudoLabels={views: 4, anchors: Raw}"]),
        (UNLABELLED, ["spec.method={name: FedAvgSemi, serverTraining: {type: Anchors}}"]),
        (LABELLED, []),
        (LABELLED, [ASYNCHRONOUS]),
        (LABELLED, ["spec.method.name=FedProx", "spec.method.regulariser.mu=0.1"]),
        (LABELLED, ["spec.method.name=SemiAnAgg", "spec.method.weighting.order=Code"]),
        (LABELLED, ["spec.method.name=FedAvgSemi"]),
        (LABELLED, ["spec.method.name=DVW"]),
        (LABELLED, ["spec.method.name=DVW", ASYNCHRONOUS]),
        (LABELLED, ["spec.method.name=AsyncDVWAdaptive", "spec.method.local.cycle.tombstones=1", ASYNCHRONOUS]),
        (LABELLED, ["spec.method.local.cycle={maxEpochs: 8}", ASYNCHRONOUS]),
        *(
            (LABELLED, [f"spec.method.name={name}"])
            for name in ("SCAFFOLD", "SOLO", "FedMix", "GlobalMixup", "UpperBound")
        ),
        (LABELLED, ["spec.method={name: FedAvg, inputMixing: {type: Local, share: '0.2'}}", ASYNCHRONOUS]),
        (LABELLED, ["spec.method={name: SCAFFOLD, inputMixing: {type: Local}}"]),
        (LABELLED, ["spec.method.name=FedAsync", "spec.method.serverStep={staleness: Hinge, grace: 9}", ASYNCHRONOUS]),
    ],
)
def test_what_has_a_meaning_passes(file: Path, overrides: list[str]) -> None:
    study = validate_study(file, overrides)
    assert check(study.federation, study.silos) == []


@pytest.mark.parametrize(
    ("file", "override", "line"),
    [
        (
            UNLABELLED,
            "spec.method.name=FedMagic",
            (
                "ANC-1110 UnknownMethod: {}: spec.method.name: found 'FedMagic', allowed are "
                + ", ".join(sorted(PRESETS))
            ),
        ),
        (
            UNLABELLED,
            "spec.anchorData=null",
            (
                "ANC-1112 NoAnchorData: {}: spec.anchorData: found nothing, but FedAnchor with server training "
                "and pseudo-labels by AnchorSimilarity needs labelled anchors; add it"
            ),
        ),
        (
            UNLABELLED,
            "spec.anchorData.anchors=9",
            (
                "ANC-1113 ClassWithoutAnchors: {}: spec.anchorData.anchors: found 9, but the model has 10 "
                "classes and each needs an anchor; take more"
            ),
        ),
        (
            UNLABELLED,
            ASYNCHRONOUS,
            (
                "ANC-1115 ServerTrainingAsynchronous: {}: spec.protocol.mode: found Asynchronous, but the "
                "server trains on its anchors after each round's aggregation; set Synchronous, or "
                "serverTraining.type: None"
            ),
        ),
        (
            UNLABELLED,
            "spec.method={name: FedAvg}",
            (
                "ANC-1117 LabelsMissing: {}: spec.method.name: found FedAvg, whose silos learn from their own "
                "labels, but every silo has labels: None; label a silo, or choose a method with pseudo-labels"
            ),
        ),
        (
            UNLABELLED,
            "spec.method={name: DVW}",
            (
                "ANC-1117 LabelsMissing: {}: spec.method.name: found DVW, whose silos learn from their own "
                "labels, but every silo has labels: None; label a silo, or choose a method with pseudo-labels"
            ),
        ),
        (
            UNLABELLED,
            "spec.method={name: FedAvgSemi}",
            (
                "ANC-1117 LabelsMissing: {}: spec.method.name: found FedAvgSemi with pseudo-labels by "
                "FlexMatch, but every silo has labels: None and the server trains on none; label a silo, or set "
                "serverTraining.type: Anchors with anchorData"
            ),
        ),
        (
            UNLABELLED,
            "spec.method.regulariser.mu=0.1",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.regulariser.mu: found a value that nothing "
                "reads: regulariser.type is None, and only Proximal, Moon and FeatureDistance read mu; remove it"
            ),
        ),
        (
            UNLABELLED,
            "spec.method.weighting.order=Code",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.weighting.order: found a value that nothing "
                "reads: weighting.type is SampleCount, and only SemiAnAgg reads order; remove it"
            ),
        ),
        (
            UNLABELLED,
            "spec.method.pseudoLabels.flexState=Reset",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.pseudoLabels.flexState: found a value that "
                "nothing reads: pseudoLabels.type is AnchorSimilarity, and only FlexMatch reads flexState; "
                "remove it"
            ),
        ),
        (
            UNLABELLED,
            "spec.method.supervised.type=BalancedSoftmax",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.supervised.type: found BalancedSoftmax, but "
                "AnchorSimilarity labels all images of a silo, so no silo trains on labels of its own; remove it"
            ),
        ),
        (
            UNLABELLED,
            "spec.method.pseudoLabels.type=FlexMatch",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.mixup.at: found Client, but silos mix images "
                "whose labels are fixed for the round, and pseudoLabels.type FlexMatch fixes none; set "
                "AnchorSimilarity or ReceivedModel, or no mixup at the silos"
            ),
        ),
        (
            LABELLED,
            "spec.method.mixup.at=Server",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.mixup.at: found Server, but the server trains on "
                "nothing; set serverTraining.type: Anchors, or mixup elsewhere"
            ),
        ),
        (
            LABELLED,
            "spec.method.serverTraining.contrastive=Enabled",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.serverTraining.contrastive: found Enabled, but the "
                "server trains on nothing; set serverTraining.type: Anchors, or Disabled"
            ),
        ),
        (
            LABELLED,
            "spec.method.serverTraining.type=Anchors",
            (
                "ANC-1112 NoAnchorData: {}: spec.anchorData: found nothing, but FedAvg with server training "
                "needs labelled anchors; add it"
            ),
        ),
        (
            LABELLED,
            "spec.method.pseudoLabels.type=AnchorSimilarity",
            (
                "ANC-1112 NoAnchorData: {}: spec.anchorData: found nothing, but FedAvg with pseudo-labels by "
                "AnchorSimilarity needs labelled anchors; add it"
            ),
        ),
        (
            LABELLED,
            "spec.method.weighting.type=SemiAnAgg",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.method.weighting.type: found SemiAnAgg, which weighs "
                "silos by accepted pseudo-labels, but there are none; set pseudoLabels.type"
            ),
        ),
        (
            LABELLED,
            "spec.protocol={mode: Asynchronous, silosPerRound: 2}",
            (
                "ANC-1116 MeaninglessOverride: {}: spec.protocol.silosPerRound: found a number, but an "
                "asynchronous protocol samples no silos: all train all the time; remove it"
            ),
        ),
    ],
)
def test_what_has_none_is_refused_with_its_reason(file: Path, override: str, line: str) -> None:
    study = load_federation(file, [override])
    mistakes = check(study.federation, study.silos)
    text = "\n".join(str(study.located(mistake)) for mistake in mistakes)
    places = {f"--set {override}", *(f"{file}:{number}" for number in range(1, 30))}
    assert text in {line.format(place) for place in places}
    with pytest.raises(DocumentError) as caught:
        validate_study(file, [override])
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("overrides", "code", "message"),
    [
        (["spec.method.name=AsyncFedAvg"], "ANC-1120", "found Synchronous, but AsyncFedAvg allows Asynchronous"),
        (["spec.method.name=SyncDVW", ASYNCHRONOUS], "ANC-1120", "found Asynchronous, but SyncDVW allows Synchronous"),
        (["spec.method.name=FedAsync"], "ANC-1120", "the server step Mix takes each update as it comes"),
        (["spec.method.name=AsyncDVWAdaptive"], "ANC-1120", "with local.cycle every silo trains as long as it likes"),
        (["spec.method.serverStep.type=Adam", ASYNCHRONOUS], "ANC-1120", "Adam takes the mean of a whole round"),
        (["spec.method.serverStep.type=Mix", ASYNCHRONOUS], "ANC-1116", "Mix weighs updates by their age alone"),
        (["spec.method.pseudoLabels.type=ClassAdaptive", ASYNCHRONOUS], "ANC-1120", "the round before announced"),
        (["spec.method={name: FedAsync, serverStep: {alpha: '0'}}", ASYNCHRONOUS], "ANC-1116", "no update would count"),
        (["spec.method={name: FedAsync, serverStep: {grace: 2}}", ASYNCHRONOUS], "ANC-1116", "staleness is Constant"),
        (
            ["spec.method={name: FedAvg, pseudoLabels: {type: UDA}, local: {cycle: {}}}", ASYNCHRONOUS],
            "ANC-1116",
            "counts passes over labelled",
        ),
    ],
)
def test_rounds_or_none(overrides: list[str], code: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, overrides)
    (mistake,) = caught.value.mistakes
    assert (mistake.code, message in mistake.message) == (code, True), str(mistake)


@pytest.mark.parametrize("name", ["SemiAnAgg", "FedAvgSemi"])
def test_a_barrier_needs_rounds(name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, [f"spec.method.name={name}", ASYNCHRONOUS])
    (mistake,) = caught.value.mistakes
    assert mistake.code == "ANC-1114"
    assert "(a barrier)" in mistake.message


def test_dvw_needs_another_silo(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("---".join(LABELLED.read_text().split("---")[:2]))
    with pytest.raises(DocumentError) as caught:
        validate_study(file, ["spec.method.weighting.type=DVW", "spec.protocol.minSilos=1"])
    assert [mistake.code for mistake in caught.value.mistakes] == ["ANC-1119"]


def test_mistakes_of_documents_and_of_methods_come_together() -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(UNLABELLED, ["spec.raunds=3", "spec.protocol.minSilos=9", ASYNCHRONOUS])
    assert [mistake.code for mistake in caught.value.mistakes] == ["ANC-1007", "ANC-1106", "ANC-1115"]


def test_a_mistake_of_the_method_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(UNLABELLED.read_text().replace("name: FedAnchor", "name: FedAvg"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "name: FedAvg" in text)
    with pytest.raises(DocumentError, match=rf"digits\.yaml:{line}: spec\.method\.name: found FedAvg"):
        validate_study(file)
