"""What SCAFFOLD, SOLO, mixed images and upper bounds refuse, and where."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError, format_path
from anchorage.methods import validate_study

LABELLED = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"
MEANINGLESS, MODE = "ANC-1116", "ANC-1120"


@pytest.mark.parametrize(
    ("overrides", "mistakes"),
    [
        *(
            (
                [f"spec.method={{name: SCAFFOLD, local: {{optimiser: {{sgd: {{{option}: '0.1'}}}}}}}}"],
                {(MEANINGLESS, f"method.local.optimiser.sgd.{option}")},
            )
            for option in ("momentum", "weightDecay", "clipNorm")
        ),
        (
            ["spec.method={name: SCAFFOLD, local: {unlabelled: {clipNorm: '5'}}}"],
            {(MEANINGLESS, "method.local.unlabelled.clipNorm")},
        ),
        (["spec.method={name: SCAFFOLD, local: {optimiser: {adamW: {}}}}"], {(MEANINGLESS, "method.local.optimiser")}),
        (["spec.method={name: SCAFFOLD, weighting: {sampleCount: {}}}"], {(MEANINGLESS, "method.weighting")}),
        (["spec.method={name: SCAFFOLD, selfSupervised: {byol: {}}}"], {(MEANINGLESS, "method.selfSupervised")}),
        (["spec.method={name: SCAFFOLD, regulariser: {proximal: {}}}"], {(MEANINGLESS, "method.regulariser")}),
        (["spec.method={name: SCAFFOLD, regulariser: {moon: {}}}"], {(MEANINGLESS, "method.regulariser")}),
        (["spec.method={name: SCAFFOLD, pseudoLabels: {helpers: {}}}"], {(MEANINGLESS, "method.pseudoLabels")}),
        (["spec.method.name=SCAFFOLD", ASYNCHRONOUS], {(MODE, "protocol.mode")}),
        (["spec.method.name=SOLO", ASYNCHRONOUS], {(MODE, "protocol.mode")}),
        (["spec.method={name: FedMix, regulariser: {moon: {}}}"], {(MEANINGLESS, "method.regulariser")}),
        (["spec.method={name: FedMix, pseudoLabels: {uda: {}}}"], {(MEANINGLESS, "method.inputMixing")}),
        (["spec.method={name: FedMix, selfSupervised: {barlow: {}}}"], {(MEANINGLESS, "method.inputMixing")}),
        (
            ["spec.method={name: LocalMix, inputMixing: {local: {groupSize: 3}}}"],
            {("ANC-1007", "method.inputMixing.local.groupSize")},
        ),
        (["spec.method.name=FedMix", ASYNCHRONOUS], {(MODE, "protocol.mode")}),
        (
            ["spec.method={name: FedMix, inputMixing: {fedMix: {groupSize: 1}}}"],
            {("ANC-1010", "method.inputMixing.fedMix.groupSize")},
        ),
        (["spec.method={name: FedMatch, regulariser: {proximal: {}}}"], {(MEANINGLESS, "method.regulariser")}),
        (["spec.method={name: FedMatch, weighting: {dvw: {}}}"], {(MEANINGLESS, "method.weighting")}),
        (
            ["spec.method={name: FedMatch, local: {optimiser: {sgd: {weightDecay: '0.1'}}}}"],
            {(MEANINGLESS, "method.local.optimiser.sgd.weightDecay")},
        ),
    ],
)
def test_what_means_nothing_is_refused(overrides: list[str], mistakes: set[tuple[str, str]]) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, overrides)
    reported = [(mistake.code, format_path(mistake.path).removeprefix("spec.")) for mistake in caught.value.mistakes]
    assert len(reported) == len(mistakes) and set(reported) == mistakes, str(caught.value)


@pytest.mark.parametrize("name", ["UpperBound", "SCAFFOLD"])
def test_every_silo_has_labels(name: str, tmp_path: Path) -> None:
    text = LABELLED.read_text().replace("name: FedAvg\n", f"name: {name}\n").replace("labels: All", "labels: None", 1)
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(DocumentError, match=r"ANC-1117 .*spec\.method\.name: .* has labels: None"):
        validate_study(tmp_path / "study.yaml")
