"""What means nothing about stages and about learning without labels is refused, at its place."""

import json
from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError, dotted
from anchorage.methods import PRESETS, validate_study
from anchorage.methods.study import parts_of

EXAMPLES = Path(__file__).parents[3] / "examples"
UNLABELLED = EXAMPLES / "digits.yaml"
LABELLED = EXAMPLES / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"


PAPER = ("local.epochs=1", "local.batchSize=64", "supervised.type=BalancedSoftmax")
"""SemiAnAgg's warm-up with labels (METHODS.md 6.9 and 5.3)."""


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
    set_ = (*PAPER, "local.optimiser={learningRate: 0.02}", "local.optimiser.clipNorm=5")
    overrides = ["spec.method.name=SemiAnAgg", "spec.method.local.epochs=3", overridden("LowerBound", *set_)]
    spec = validate_study(LABELLED, overrides).federation.spec
    stage, main = (part.method for part in parts_of(spec))
    assert (stage.local.epochs, stage.local.batch_size, stage.supervised.type) == (1, 64, "BalancedSoftmax")
    assert (stage.local.optimiser.learning_rate, stage.local.optimiser.clip_norm) == ("0.02", "5")
    assert stage.local.optimiser.momentum == PRESETS["LowerBound"].slots.local.optimiser.momentum
    assert (main.local.epochs, main.pseudo_labels.type) == (3, "FlexMatch"), "of the main method nothing is overridden"


@pytest.mark.parametrize(
    ("file", "overrides"),
    [
        (LABELLED, [warm_up(("FedAvg", 2))]),
        (UNLABELLED, [warm_up(("FedBarlow", 1), ("FedAnchor", 1))]),
        (LABELLED, [overridden("FedAsync", "serverStep.type=Replace")]),
        (
            LABELLED,
            [overridden("FedAnchor", "serverTraining.type=None", "pseudoLabels.type=FixMatch", "mixup.at=None")],
        ),
        (UNLABELLED, ["spec.method={name: FedBarlow, regulariser: {type: Proximal}}"]),
        (LABELLED, ["spec.method={name: FedBarlow}", ASYNCHRONOUS]),
        (LABELLED, ["spec.method={name: FedCLR, supervised: {type: BalancedSoftmax}}"]),
    ],
)
def test_what_has_a_meaning_passes(file: Path, overrides: list[str]) -> None:
    validate_study(file, overrides)


@pytest.mark.parametrize(
    ("file", "overrides", "messages"),
    [
        (LABELLED, [warm_up(("FedMagic", 1))], ["ANC-1110 spec.warmUp[0].method: found 'FedMagic', allowed are"]),
        (
            LABELLED,
            [warm_up(("FedAvg", 3), ("FedProx", 7))],
            ["ANC-1010 spec.rounds: found 10, but the warm-up takes 10"],
        ),
        (LABELLED, [warm_up(("FedAvg", 1)), ASYNCHRONOUS], ["ANC-1120 spec.warmUp: found stages, but an asynchronous"]),
        (
            LABELLED,
            [warm_up(("AsyncFedAvg", 1))],
            ["ANC-1120 spec.protocol.mode: found Synchronous, but AsyncFedAvg allows"],
        ),
        (
            LABELLED,
            [warm_up(("SemiFL", 1))],
            ["ANC-1112 spec.anchorData: found nothing, but SemiFL with server training"],
        ),
        (
            UNLABELLED,
            [warm_up(("FedAvg", 1))],
            ["ANC-1117 spec.warmUp[0].method: found FedAvg, whose silos learn from"],
        ),
        (
            LABELLED,
            [overridden("FedAvg", "local.epochs=0", "local.epoch=1", "supervised.type=Hinge")],
            [
                'ANC-1012 spec.warmUp[0].set[2]: supervised.type: found "Hinge", allowed is one of CrossEntropy',
                "ANC-1010 spec.warmUp[0].set[0]: local.epochs: found 0, allowed is a whole number, 1 to 1000",
                "ANC-1007 spec.warmUp[0].set[1]: local.epoch: found an unknown field, allowed are epochs",
            ],
        ),
        (
            LABELLED,
            [overridden("FedAvg", "local.epochs", "local.epochs=[", "name.x=1", "name=FedProx")],
            [
                "ANC-1015 spec.warmUp[0].set[0]: found no path=value; write it like local.epochs=1",
                "ANC-1015 spec.warmUp[0].set[1]: expected the node content",
                "ANC-1015 spec.warmUp[0].set[2]: found a path that leads through a single value",
                "ANC-1015 spec.warmUp[0].set[3]: found another preset's name; write it as the stage's method",
            ],
        ),
        (
            LABELLED,
            [overridden("FedAvg", *PAPER, "mixup={at: Client}", "regulariser.mu=1")],
            [
                "ANC-1116 spec.warmUp[0].set[3]: mixup.at: found Client, but silos mix images whose labels",
                "ANC-1116 spec.warmUp[0].set[4]: regulariser.mu: found a value that nothing reads",
            ],
        ),
        (
            UNLABELLED,
            ["spec.method={name: FedCLR}"],
            ["ANC-1117 spec.method.name: found FedCLR, whose silos learn from"],
        ),
        (
            LABELLED,
            ["spec.method={name: FedCLR}", ASYNCHRONOUS],
            ["ANC-1120 spec.protocol.mode: found Asynchronous, but the online classifier is averaged over a whole"],
        ),
        (
            LABELLED,
            ["spec.method={name: Orchestra}", ASYNCHRONOUS],
            ["ANC-1120 spec.protocol.mode: found Asynchronous, but selfSupervised.type Clusters is of the clusters"],
        ),
        (
            LABELLED,
            ["spec.method={name: Orchestra, weighting: {type: DVW}}"],
            [
                "ANC-1116 spec.method.selfSupervised.type: found Clusters, which learns from images alone, with the weighting"
            ],
        ),
        (
            LABELLED,
            ["spec.method={name: FedBarlow, pseudoLabels: {type: FixMatch}}"],
            [
                "ANC-1116 spec.method.selfSupervised.type: found Barlow, which learns from images alone, with pseudoLabels"
            ],
        ),
        (
            LABELLED,
            ["spec.method={name: FedBarlow, regulariser: {type: Moon}}"],
            [
                "ANC-1116 spec.method.selfSupervised.type: found Barlow, which learns from images alone, with the regulariser"
            ],
        ),
        (
            LABELLED,
            ["spec.method={name: FedBarlow, supervised: {type: CrossEntropy}}"],
            ["ANC-1116 spec.method.supervised.type: found CrossEntropy, but with selfSupervised.type Barlow no silo"],
        ),
        (
            LABELLED,
            ["spec.method={name: FedAvg, weighting: {type: StepCount}}"],
            ["ANC-1116 spec.method.weighting.type: found StepCount, but silos tell their steps with selfSupervised"],
        ),
    ],
)
def test_what_has_no_meaning_is_refused(file: Path, overrides: list[str], messages: list[str]) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(file, overrides)
    told = [f"{m.code} {dotted(m.path)}: {m.message}" for m in caught.value.mistakes]
    assert len(told) == len(messages)
    assert all(line.startswith(message) for line, message in zip(told, messages, strict=True)), told
