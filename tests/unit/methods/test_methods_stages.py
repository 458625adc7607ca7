"""What means nothing about stages and about learning without labels is refused, at its place."""

import json
from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError, format_path
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.composition import parts_of
from anchorage.pieces.local_loss.balanced_softmax import BalancedSoftmax
from anchorage.pieces.optimiser.sgd import Sgd
from anchorage.pieces.pseudo_labels.flexmatch import FlexMatch
from anchorage.pieces.regulariser.proximal import Proximal

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED = EXAMPLES / "digits.yaml"
LABELLED = EXAMPLES / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"


PAPER = ("local.epochs=1", "local.batchSize=64", "localLoss={balancedSoftmax: {}}")
"""SemiAnAgg's warm-up with labels (methods reference, 6.9 and 5.3)."""


def overridden(method: str, *overrides: str) -> str:
    return f"spec.warmUp=[{{method: {method}, rounds: 1, set: {json.dumps(overrides)}}}]"


def warm_up(*stages: tuple[str, int]) -> str:
    return f"spec.warmUp=[{', '.join(f'{{method: {method}, rounds: {rounds}}}' for method, rounds in stages)}]"


def test_stages_follow_each_other() -> None:
    overrides = ["spec.rounds=9", "spec.method.name=SemiAnAgg", warm_up(("FedBarlow", 4), ("FedCLR", 2))]
    parts = parts_of(validate_study(LABELLED, overrides).federation.spec)
    assert [(part.method.name, part.after, part.last) for part in parts] == [
        ("FedBarlow", 0, 4),
        ("FedCLR", 4, 6),
        ("SemiAnAgg", 6, 9),
    ]


def test_a_stage_is_its_preset_with_what_it_sets() -> None:
    set_ = (*PAPER, "local.optimiser={sgd: {learningRate: 0.02}}", "local.optimiser.sgd.clipNorm=5")
    overrides = ["spec.method.name=SemiAnAgg", "spec.method.local.epochs=3", overridden("LowerBound", *set_)]
    spec = validate_study(LABELLED, overrides).federation.spec
    stage, main = (part.method for part in parts_of(spec))
    assert (stage.local.epochs, stage.local.batch_size, stage.local_loss) == (1, 64, BalancedSoftmax())
    preset = PRESETS["LowerBound"].slots.local.optimiser
    assert isinstance(preset, Sgd)
    assert stage.local.optimiser == preset.model_copy(update={"learning_rate": "0.02", "clip_norm": "5"})
    assert main.local.epochs == 3 and isinstance(main.pseudo_labels, FlexMatch), "of the main method nothing is set"


def test_a_stage_sets_options_of_its_preset_s_alternative_or_chooses_another() -> None:
    spec = validate_study(
        LABELLED, [overridden("FedAvgFixMatch", "pseudoLabels.fixMatch.threshold=0.5", "regulariser={proximal: {}}")]
    ).federation.spec
    stage = parts_of(spec)[0].method
    wanted = PRESETS["FedAvgFixMatch"].slots.pseudo_labels.model_copy(update={"threshold": "0.5"})
    assert stage.pseudo_labels == wanted and stage.regulariser == Proximal()


@pytest.mark.parametrize(
    ("file", "overrides"),
    [
        (LABELLED, [warm_up(("FedAvg", 2))]),
        (UNLABELLED, [warm_up(("FedBarlow", 1), ("FedAnchor", 1))]),
        (LABELLED, [overridden("FedAsync", "serverStep={replace: {}}")]),
        (
            LABELLED,
            [overridden("FedAnchor", "serverTraining={none: {}}", "pseudoLabels={fixMatch: {}}", "mixup={none: {}}")],
        ),
        (UNLABELLED, ["spec.method={name: FedBarlow, regulariser: {proximal: {}}}"]),
        (LABELLED, ["spec.method={name: FedBarlow}", ASYNCHRONOUS]),
        (LABELLED, ["spec.method={name: FedCLR, localLoss: {balancedSoftmax: {}}}"]),
    ],
)
def test_what_has_a_meaning_passes(file: Path, overrides: list[str]) -> None:
    assert validate_study(file, overrides).silos


@pytest.mark.parametrize(
    ("file", "overrides", "mistakes"),
    [
        (LABELLED, [warm_up(("FedMagic", 1))], ["ANC-1110 spec.warmUp[0].method"]),
        (LABELLED, [warm_up(("FedAvg", 3), ("FedProx", 7))], ["ANC-1010 spec.rounds"]),
        (LABELLED, [warm_up(("FedAvg", 1)), ASYNCHRONOUS], ["ANC-1120 spec.warmUp"]),
        (LABELLED, [warm_up(("AsyncFedAvg", 1))], ["ANC-1120 spec.protocol.mode"]),
        (LABELLED, [warm_up(("SemiFL", 1))], ["ANC-1112 spec.anchorData"]),
        (UNLABELLED, [warm_up(("FedAvg", 1))], ["ANC-1117 spec.warmUp[0].method"]),
        (
            LABELLED,
            [overridden("FedAvg", "local.epochs=0", "local.epoch=1", "localLoss={hinge: {}}")],
            [
                "ANC-1012 spec.warmUp[0].set[2]: localLoss.hinge",
                "ANC-1010 spec.warmUp[0].set[0]: local.epochs",
                "ANC-1007 spec.warmUp[0].set[1]: local.epoch",
            ],
        ),
        (
            LABELLED,
            [overridden("FedAvg", "weighting.semiAnAgg.order=Cod", "regulariser={proximal: {temperature: 1}}")],
            [
                "ANC-1012 spec.warmUp[0].set[0]: weighting.semiAnAgg.order",
                "ANC-1007 spec.warmUp[0].set[1]: regulariser.proximal.temperature",
            ],
        ),
        (
            LABELLED,
            [overridden("FedAvg", "weighting={uniform: {}}", "weighting.stepCount={}")],
            ["ANC-1013 spec.warmUp[0].set[1]: weighting"],
        ),
        (
            LABELLED,
            [overridden("FedAvg", "local.epochs", "local.epochs=[", "name.x=1", "name=FedProx")],
            [f"ANC-1015 spec.warmUp[0].set[{index}]" for index in range(4)],
        ),
        (
            LABELLED,
            [overridden("FedAvg", *PAPER, "mixup={client: {}}", "weighting={stepCount: {}}")],
            ["ANC-1116 spec.warmUp[0].set[3]: mixup", "ANC-1116 spec.warmUp[0].set[4]: weighting"],
        ),
        (UNLABELLED, ["spec.method={name: FedCLR}"], ["ANC-1117 spec.method.name"]),
        (LABELLED, ["spec.method={name: FedCLR}", ASYNCHRONOUS], ["ANC-1120 spec.protocol.mode"]),
        (LABELLED, ["spec.method={name: Orchestra}", ASYNCHRONOUS], ["ANC-1120 spec.protocol.mode"]),
        (LABELLED, ["spec.method={name: Orchestra, weighting: {dvw: {}}}"], ["ANC-1116 spec.method.weighting"]),
        (
            LABELLED,
            ["spec.method={name: FedBarlow, pseudoLabels: {fixMatch: {}}}"],
            ["ANC-1116 spec.method.selfSupervised"],
        ),
        (LABELLED, ["spec.method={name: FedBarlow, regulariser: {moon: {}}}"], ["ANC-1116 spec.method.regulariser"]),
        (
            LABELLED,
            ["spec.method={name: FedBarlow, localLoss: {taskLoss: {}}}"],
            ["ANC-1116 spec.method.localLoss"],
        ),
    ],
)
def test_what_has_no_meaning_is_refused(file: Path, overrides: list[str], mistakes: list[str]) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(file, overrides)
    errors = sorted(f"{error.code} {format_path(error.path)}: {error.message}" for error in caught.value.mistakes)
    assert len(errors) == len(mistakes), errors
    assert all(line.startswith(f"{start}: ") for line, start in zip(errors, sorted(mistakes), strict=True)), errors
