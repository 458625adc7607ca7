"""What SCAFFOLD, SOLO, mixed images and upper bounds refuse, and why."""

from pathlib import Path

import pytest

from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_study

LABELLED = Path(__file__).parents[3] / "examples" / "fedavg-digits.yaml"
ASYNCHRONOUS = "spec.protocol.mode=Asynchronous"


@pytest.mark.parametrize(
    ("overrides", "code", "message"),
    [
        (["spec.method={name: FedAvg, regulariser: {type: ControlVariates}}"], "ANC-1116", "are kept by both"),
        (["spec.method={name: SCAFFOLD, serverStep: {type: Replace}}"], "ANC-1116", "are kept by both"),
        (["spec.method={name: SCAFFOLD, local: {optimiser: {momentum: '0.9'}}}"], "ANC-1116", "of plain SGD alone"),
        (["spec.method={name: SCAFFOLD, local: {optimiser: {weightDecay: '0.1'}}}"], "ANC-1116", "of plain SGD alone"),
        (["spec.method={name: SCAFFOLD, local: {optimiser: {clipNorm: '5'}}}"], "ANC-1116", "of plain SGD alone"),
        (["spec.method={name: SCAFFOLD, weighting: {type: SampleCount}}"], "ANC-1116", "a plain mean over silos"),
        (["spec.method.name=SCAFFOLD", ASYNCHRONOUS], "ANC-1120", "ControlVariates takes the mean of a whole round"),
        (["spec.method={name: FedAvg, local: {start: Own}}"], "ANC-1116", "set both, or neither"),
        (["spec.method={name: SOLO, serverStep: {type: Replace}}"], "ANC-1116", "set both, or neither"),
        (["spec.method.name=SOLO", ASYNCHRONOUS], "ANC-1120", "Keep takes the mean of a whole round"),
        (["spec.method={name: FedMix, regulariser: {type: Moon}}"], "ANC-1116", "only the plain loss on labelled"),
        (["spec.method={name: FedMix, pseudoLabels: {type: UDA}}"], "ANC-1116", "only the plain loss on labelled"),
        (["spec.method={name: LocalMix, inputMixing: {groupSize: 3}}"], "ANC-1116", "only Naive and FedMix read"),
        (["spec.method.name=FedMix", ASYNCHRONOUS], "ANC-1120", "of whole rounds"),
        (["spec.method={name: SCAFFOLD, inputMixing: {type: FedMix}}"], "ANC-1116", "remembers one of the two"),
        (["spec.method={name: FedMix, inputMixing: {groupSize: 1}}"], "ANC-1010", "2 to 1000000"),
    ],
)
def test_what_means_nothing_is_refused(overrides: list[str], code: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        validate_study(LABELLED, overrides)
    found = [(mistake.code, message in mistake.message) for mistake in caught.value.mistakes]
    assert (code, True) in found, str(caught.value)


@pytest.mark.parametrize(("name", "message"), [("UpperBound", "labels: None; label it"), ("SCAFFOLD", "never trains")])
def test_every_silo_has_labels(name: str, message: str, tmp_path: Path) -> None:
    text = LABELLED.read_text().replace("name: FedAvg\n", f"name: {name}\n").replace("labels: All", "labels: None", 1)
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(DocumentError, match=f"ANC-1117.*{message}"):
        validate_study(tmp_path / "study.yaml")
