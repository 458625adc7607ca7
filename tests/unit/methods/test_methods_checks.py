"""Combinations that mean nothing are refused, each mistake once, at the field that is wrong; the others are not."""

from pathlib import Path

import pytest

from anchorage.api.files import load_federation
from anchorage.api.mistakes import DocumentError, format_path
from anchorage.methods import PRESETS, check, validate_study
from anchorage.methods.cautions import idle_silos, unread_labels
from anchorage.methods.checks import WITHOUT_LABELS

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED = EXAMPLES / "digits.yaml"
LABELLED = EXAMPLES / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"
METHOD = "spec.method="
ROUNDED = "spec.protocol.modelEncoding=Int8"
BUDGET = METHOD + "{{name: FedCoPLBudget, pseudoLabels: {{classBudget: {{mix: {}}}}}}}"


def found(file: Path, *overrides: str) -> list[tuple[str, str]]:
    """Return code and field of every mistake; both ways of asking tell the same."""
    study = load_federation(file, overrides)
    mistakes = check(study.federation, study.silos)
    if mistakes:
        with pytest.raises(DocumentError) as caught:
            validate_study(file, overrides)
        assert sorted(map(str, caught.value.mistakes)) == sorted(str(study.add_place(mistake)) for mistake in mistakes)
    return [(mistake.code, format_path(mistake.path).removeprefix("spec.")) for mistake in mistakes]


@pytest.mark.parametrize(
    ("file", "overrides"),
    [
        (UNLABELLED, []),
        (UNLABELLED, ["spec.method.weighting={semiAnAgg: {}}"]),
        (UNLABELLED, ["spec.method.weighting={dvw: {metric: MacroF1}}"]),
        (UNLABELLED, ["spec.method.weighting={selectedCount: {}}"]),
        (UNLABELLED, ["spec.method.mixup={none: {}}"]),
        (UNLABELLED, ["spec.method.mixup={server: {}}"]),
        (UNLABELLED, ["spec.method.mixup={both: {alpha: 1}}"]),
        (UNLABELLED, ["spec.method.serverTraining.anchors.objective={taskLoss: {}}"]),
        (UNLABELLED, ["spec.method.serverTraining.anchors.objective={twoViews: {}}"]),
        (UNLABELLED, ["spec.method.pseudoLabels.anchorSimilarity.calibration=Validation"]),
        (UNLABELLED, [f"{METHOD}{{name: SemiFL, pseudoLabels: {{receivedModel: {{calibration: Alignment}}}}}}"]),
        (UNLABELLED, ["spec.method.pseudoLabels={anchorSimilarity: {views: 4, anchors: Raw}}"]),
        (UNLABELLED, [f"{METHOD}{{name: FedAvgSemi, serverTraining: {{anchors: {{}}}}}}"]),
        (LABELLED, []),
        (LABELLED, [ASYNCHRONOUS]),
        (LABELLED, ["spec.method.name=FedProx", "spec.method.regulariser.proximal.mu=0.1"]),
        (LABELLED, ["spec.method.name=SemiAnAgg", "spec.method.weighting.semiAnAgg.order=Code"]),
        (LABELLED, ["spec.method.name=FedAvgSemi"]),
        (LABELLED, ["spec.method.name=DVW"]),
        (LABELLED, ["spec.method.name=DVW", ASYNCHRONOUS]),
        (LABELLED, ["spec.method.name=AsyncDVWAdaptive", "spec.method.local.cycle.tombstones=1", ASYNCHRONOUS]),
        (LABELLED, ["spec.method.local.cycle={maxEpochs: 8}", ASYNCHRONOUS]),
        (
            LABELLED,
            [
                f"{METHOD}{{name: SCAFFOLD, local: {{steps: 3, optimiser: {{sgd: {{schedule: OneCycle, momentum: 0}}}}}}}}"
            ],
        ),
        (LABELLED, [f"{METHOD}{{name: FedAvgFixMatch, local: {{steps: 3, unlabelled: {{batchSize: 2}}}}}}"]),
        *(
            (LABELLED, [f"spec.method.name={name}"])
            for name in ("SCAFFOLD", "SOLO", "FedMix", "GlobalMixup", "UpperBound")
        ),
        (LABELLED, [f"{METHOD}{{name: FedAvg, inputMixing: {{local: {{share: '0.2'}}}}}}", ASYNCHRONOUS]),
        (LABELLED, [f"{METHOD}{{name: SCAFFOLD, inputMixing: {{local: {{}}}}}}"]),
        (LABELLED, [f"{METHOD}{{name: SCAFFOLD, inputMixing: {{fedMix: {{}}}}}}"]),
        (LABELLED, [f"{METHOD}{{name: FedAsync, serverStep: {{mixHinge: {{grace: 9}}}}}}", ASYNCHRONOUS]),
        (LABELLED, [f"{METHOD}{{name: AsyncFedAvg, serverStep: {{adam: {{}}}}}}"]),  # what decided the mode is another
    ],
)
def test_what_has_a_meaning_passes(file: Path, overrides: list[str]) -> None:
    assert found(file, *overrides) == []


@pytest.mark.parametrize(
    ("file", "override", "mistake"),
    [
        (UNLABELLED, "spec.method.name=FedMagic", ("ANC-1110", "method.name")),
        (UNLABELLED, BUDGET.format("['0.5', '0.5']"), ("ANC-1116", "method.pseudoLabels.classBudget.mix")),
        (UNLABELLED, BUDGET.format(["0.1"] * 9 + ["0.2"]), ("ANC-1116", "method.pseudoLabels.classBudget.mix")),
        (UNLABELLED, "spec.anchorData=null", ("ANC-1112", "anchorData")),
        (UNLABELLED, "spec.anchorData.anchors=9", ("ANC-1113", "anchorData.anchors")),
        (UNLABELLED, ASYNCHRONOUS, ("ANC-1115", "protocol.mode")),
        (UNLABELLED, f"{METHOD}{{name: FedAvg}}", ("ANC-1117", "method.name")),
        (UNLABELLED, f"{METHOD}{{name: DVW}}", ("ANC-1117", "method.name")),
        (UNLABELLED, f"{METHOD}{{name: FedAvgSemi}}", ("ANC-1117", "method.name")),
        (UNLABELLED, "spec.method.localLoss={balancedSoftmax: {}}", ("ANC-1116", "method.localLoss")),
        (UNLABELLED, "spec.method.pseudoLabels={flexMatch: {}}", ("ANC-1116", "method.mixup")),
        (
            UNLABELLED,  # the server's momentum starts anew (methods reference, 1)
            "spec.method.serverTraining.anchors.optimiser.sgd.state=Persist",
            ("ANC-1116", "method.serverTraining.anchors.optimiser.sgd.state"),
        ),
        (LABELLED, f"{METHOD}{{name: FedMatch, encoding: {{int8: {{}}}}}}", ("ANC-1116", "method.encoding")),
        (LABELLED, "spec.method.encoding={topK: {share: '0.6'}}", ("ANC-1116", "method.encoding.topK.share")),
        (LABELLED, "spec.method.encoding={topK: {share: '0'}}", ("ANC-1116", "method.encoding.topK.share")),
        (LABELLED, "spec.method.mixup={server: {}}", ("ANC-1116", "method.mixup")),
        (LABELLED, "spec.method.serverTraining={anchors: {}}", ("ANC-1112", "anchorData")),
        (LABELLED, "spec.method.pseudoLabels={anchorSimilarity: {}}", ("ANC-1112", "anchorData")),
        (LABELLED, "spec.method.weighting={semiAnAgg: {}}", ("ANC-1116", "method.weighting")),
        (LABELLED, "spec.method.weighting={stepCount: {}}", ("ANC-1116", "method.weighting")),
        (
            LABELLED,
            f"{METHOD}{{name: FedAvgFixMatch, weighting: {{semiAnAgg: {{}}}}}}",
            ("ANC-1116", "method.weighting"),
        ),
        (
            LABELLED,
            f"{METHOD}{{name: FedAvgFixMatch, pseudoLabels: {{fixMatch: {{calibration: Alignment}}}}}}",
            ("ANC-1112", "anchorData"),
        ),
        (
            LABELLED,
            f"{METHOD}{{name: OrigACR, pseudoLabels: {{fixMatch: {{calibration: Validation}}}}}}",
            ("ANC-1116", "method.pseudoLabels.fixMatch.calibration"),
        ),
        *(
            (LABELLED, f"{METHOD}{{{method}}}", ("ANC-1116", "method.local.steps"))
            for method in (
                "name: FedAvgSemi, local: {steps: 3}",
                "name: SSILCDM, local: {steps: 3}",
                "name: FedAvgFixMatch, local: {steps: 3, unlabelled: {epochs: 2}}",
                "name: FedBarlow, local: {steps: 3, optimiser: {sgd: {}}}",
                "name: FedAvg, local: {steps: 3, optimiser: {sgd: {schedule: WarmUpCosine}}}",
            )
        ),
        (
            LABELLED,
            "spec.protocol={mode: Asynchronous, silosPerRound: 2}",
            ("ANC-1116", "protocol.silosPerRound"),
        ),
    ],
)
def test_what_has_none_is_refused_at_its_field(file: Path, override: str, mistake: tuple[str, str]) -> None:
    assert found(file, override) == [mistake]


@pytest.mark.parametrize("labels", ["fixMatch", "uda", "meanTeacher", "classAdaptive"])
def test_labels_that_tell_no_features_are_refused_beside_semianagg(labels: str) -> None:
    """Unlabelled silos would announce no similarity, and weigh nothing."""
    method = f"{METHOD}{{name: FedAvgFixMatch, pseudoLabels: {{{labels}: {{}}}}, weighting: {{semiAnAgg: {{}}}}}}"
    assert ("ANC-1116", "method.weighting") in found(LABELLED, method)


@pytest.mark.parametrize(
    ("network", "method", "refused"),
    [
        ("SmallCnn", "FedAvg", False),
        ("SmallCnn", "MOON", True),
        ("SmallCnn", "MomentsHead", True),
        ("MoonCnn", "FedAvg", True),
    ],
)
def test_a_hidden_layer_needs_its_place_and_training(network: str, method: str, refused: bool) -> None:
    hidden = ["spec.model.hidden=8", f"spec.model.network={network}", "spec.model.imageSize=32"]
    mistakes = found(LABELLED, f"{METHOD}{{name: {method}}}", *hidden)
    assert (("ANC-1116", "model.hidden") in mistakes) == refused


def test_thresholds_by_validation_images_need_some() -> None:
    method = f"{METHOD}{{name: FedAvgFixMatch, pseudoLabels: {{fixMatch: {{calibration: Validation}}}}}}"
    assert found(LABELLED, method) == []
    assert found(LABELLED, method, "spec.evaluation.validation=null") == [
        ("ANC-1116", "method.pseudoLabels.fixMatch.calibration")
    ]


def test_an_unknown_method_is_told_with_those_there_are() -> None:
    with pytest.raises(DocumentError, match=r"found 'FedMagic', allowed are .*FedAnchor, .*SemiFL"):
        validate_study(UNLABELLED, ["spec.method.name=FedMagic"])


@pytest.mark.parametrize(
    ("overrides", "mistake"),
    [
        (["spec.method.name=AsyncFedAvg"], ("ANC-1120", "protocol.mode")),
        (["spec.method.name=AsyncFedAvg", "spec.method.regulariser={proximal: {}}"], ("ANC-1120", "protocol.mode")),
        (["spec.method.name=SyncDVW", ASYNCHRONOUS], ("ANC-1120", "protocol.mode")),
        (["spec.method.name=FedAsync"], ("ANC-1120", "protocol.mode")),
        (["spec.method.name=AsyncDVWAdaptive"], ("ANC-1120", "protocol.mode")),
        (["spec.method.serverStep={adam: {}}", ASYNCHRONOUS], ("ANC-1120", "protocol.mode")),
        (["spec.method.serverStep={mix: {}}", ASYNCHRONOUS], ("ANC-1116", "method.weighting")),
        (["spec.method.pseudoLabels={classAdaptive: {}}", ASYNCHRONOUS], ("ANC-1120", "protocol.mode")),
        (
            [f"{METHOD}{{name: FedAvg, pseudoLabels: {{uda: {{}}}}, local: {{cycle: {{}}}}}}", ASYNCHRONOUS],
            ("ANC-1116", "method.local.cycle"),
        ),
        (
            [f"{METHOD}{{name: FedAvg, local: {{cycle: {{}}, steps: 3}}}}", ASYNCHRONOUS],
            ("ANC-1116", "method.local.steps"),
        ),
        (["spec.method.name=SemiAnAgg", ASYNCHRONOUS], ("ANC-1114", "protocol.mode")),
        (["spec.method.encoding={int8: {}}", ASYNCHRONOUS], ("ANC-1120", "protocol.mode")),
        ([ROUNDED, ASYNCHRONOUS], ("ANC-1116", "protocol.modelEncoding")),
        (["spec.method.name=FedAvgSemi", ASYNCHRONOUS], ("ANC-1114", "protocol.mode")),
    ],
)
def test_rounds_or_none(overrides: list[str], mistake: tuple[str, str]) -> None:
    assert found(LABELLED, *overrides) == [mistake]


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("FedMatch", "models of their own"),
        ("ProtoFSSL", "makes a classifier"),
        ("FedMix", "behind the model"),
    ],
)
def test_models_are_not_rounded_where_updates_are_more_than_changes_of_one_model(method: str, why: str) -> None:
    with pytest.raises(DocumentError, match=rf"modelEncoding: found it with .*{why}"):
        validate_study(LABELLED, [f"spec.method={{name: {method}}}", ROUNDED])


def test_models_may_be_rounded_where_updates_are_changes() -> None:
    assert found(LABELLED, ROUNDED) == found(UNLABELLED, ROUNDED) == []


def test_fedasync_counts_every_update() -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, [f"{METHOD}{{name: FedAsync, serverStep: {{mix: {{alpha: '0'}}}}}}", ASYNCHRONOUS])
    (mistake,) = caught.value.mistakes
    assert (mistake.code, format_path(mistake.path)) == ("ANC-1010", "spec.method.serverStep.mix.alpha")


def test_dvw_needs_another_silo(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("---".join(LABELLED.read_text().split("---")[:2]))
    dvw = ["spec.method.weighting={dvw: {}}", "spec.protocol.minSilos=1"]
    assert found(file, *dvw) == [("ANC-1119", "method.weighting")]


def test_two_pieces_that_need_the_same_say_it_once() -> None:
    """FedAnchor's labels and its server training both need anchors; static statistics do, too."""
    no_anchors = ["spec.anchorData=null", "spec.evaluation=null", "spec.method.batchNorm={static: {}}"]
    assert found(UNLABELLED, *no_anchors) == [("ANC-1112", "anchorData")]


def test_mistakes_of_documents_and_of_methods_come_together() -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(UNLABELLED, ["spec.raunds=3", "spec.protocol.minSilos=9", ASYNCHRONOUS])
    assert [mistake.code for mistake in caught.value.mistakes] == ["ANC-1007", "ANC-1106", "ANC-1115"]


def test_a_mistake_of_the_method_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(UNLABELLED.read_text().replace("{anchorSimilarity: {", "{flexMatch: {"))
    study = load_federation(file)
    (mistake,) = check(study.federation, study.silos)
    assert mistake.path == ("spec", "method", "mixup")
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if text.strip() == "method:")
    assert study.add_place(mistake).where == f"{file}:{line}", "the slot is the preset's, so the method's line is told"
    file.write_text(UNLABELLED.read_text().replace("name: FedAnchor", "name: FedAvg"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "name: FedAvg" in text)
    with pytest.raises(DocumentError, match=rf"digits\.yaml:{line}: spec\.method\.name: found FedAvg"):
        validate_study(file, ["spec.method.pseudoLabels=null"])


@pytest.mark.parametrize(
    ("overrides", "idle"),
    [
        ([], True),
        (["spec.method.name=MOON"], True),
        (["spec.method.name=DVW", ASYNCHRONOUS], True),
        (["spec.method.serverTraining={none: {}}", "spec.method.inputMixing={local: {}}"], True),
        (["spec.method.name=LowerBound"], False),
        (["spec.method.name=FedAvgSemi"], False),
        (["spec.method.name=FedCLR"], False),
        (["spec.method.pseudoLabels={fixMatch: {}}"], False),
        (["spec.method.name=FedAvgFixMatch", "spec.method.pseudoLabels={none: {}}"], True),
        (["spec.warmUp=[{method: FedCLR, rounds: 1}]", "spec.rounds=3"], False),
        (["spec.warmUp=[{method: FedProx, rounds: 1}]", "spec.rounds=3"], True),
    ],
)
def test_silos_that_never_train_are_named(overrides: list[str], idle: bool) -> None:
    overrides = [*overrides, "silo.spec.labels=None"]
    study = load_federation(LABELLED, overrides)
    names = tuple(silo.metadata.name for silo in study.silos)
    assert idle_silos(study.federation, study.silos) == (names if idle else ())
    partly = load_federation(LABELLED, [*overrides, "silo.spec.labels=Partial"])
    assert not idle_silos(partly.federation, partly.silos)


@pytest.mark.parametrize(
    ("overrides", "unread"),
    [
        (["spec.method.name=SemiFL"], True),
        (["spec.method.name=ImFedSemi"], True),
        (["spec.method.name=FL2"], True),
        (["spec.method.name=FedAnchor"], True),
        (["spec.method={name: SemiAnAgg, pseudoLabels: {receivedModel: {}}}"], True),
        (["spec.method.name=SemiFL", "spec.warmUp=[{method: FedBYOL, rounds: 1}]", "spec.rounds=3"], True),
        (["spec.method.name=SemiFL", "spec.warmUp=[{method: LowerBound, rounds: 1}]", "spec.rounds=3"], False),
        (["spec.method.name=SemiAnAgg"], False),
        (["spec.method.name=FedAvg"], False),
        (["spec.method.name=FedBYOL"], False),
        (["spec.method.name=SharesHead"], False),
    ],
)
def test_silos_whose_labels_nothing_reads_are_named(overrides: list[str], unread: bool) -> None:
    study = load_federation(LABELLED, overrides)
    names = tuple(silo.metadata.name for silo in study.silos if silo.spec.labels != "None")
    assert names
    assert unread_labels(study.federation, study.silos) == (names if unread else ())
    unlabelled = load_federation(LABELLED, [*overrides, "silo.spec.labels=None"])
    assert not unread_labels(unlabelled.federation, unlabelled.silos)


def test_presets_that_take_silos_without_labels_train_them_but_lower_bounds() -> None:
    takes = {name for name, preset in PRESETS.items() if preset.slots.facts() & WITHOUT_LABELS}
    declare = {name for name, preset in PRESETS.items() if "None" in preset.labels}
    assert takes <= declare
    assert declare - takes == {"LowerBound", "CBAFedLowerBound"}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["spec.evaluation={siloPercent: 20}", "spec.protocol.mode=Asynchronous", "spec.method.name=AsyncFedAvg"],
            "without rounds",
        ),
        (["spec.evaluation={siloPercent: 20}", "spec.method.name=FedBarlow"], "FedBarlow, which trains no classifier"),
    ],
)
def test_who_cannot_be_scored_at_silos_is_refused(overrides, words):
    with pytest.raises(DocumentError) as raised:
        validate_study(LABELLED, overrides)
    mistakes = [mistake for mistake in raised.value.mistakes if mistake.path == ("spec", "evaluation", "siloPercent")]
    assert len(mistakes) == 1 and words in mistakes[0].message


AVERAGED = "spec.evaluation={siloPercent: 20, averageDecay: '0.9'}"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["spec.protocol.mode=Asynchronous", "spec.method.name=AsyncFedAvg"], "without rounds"),
        (["spec.method.name=SOLO"], "whose own models are scored"),
    ],
)
def test_an_average_of_global_models_needs_rounds_that_make_some(overrides, words):
    validate_study(LABELLED, [AVERAGED])
    with pytest.raises(DocumentError) as raised:
        validate_study(LABELLED, [AVERAGED, *overrides])
    mistakes = [mistake for mistake in raised.value.mistakes if mistake.path == ("spec", "evaluation", "averageDecay")]
    assert len(mistakes) == 1 and words in mistakes[0].message
