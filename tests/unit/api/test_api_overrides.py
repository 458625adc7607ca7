"""Overrides from the command line."""

from pathlib import Path

import pytest

from anchorage.api.files import load_federation
from anchorage.api.mistakes import DocumentError
from anchorage.pieces.pseudo_labels.anchor_similarity import AnchorSimilarity

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"


def test_they_apply_in_order_and_keep_the_rest() -> None:
    study = load_federation(DIGITS, ["spec.rounds=2", "spec.rounds=3", "spec.protocol.minSilos = 1"])
    assert study.federation.spec.rounds == 3
    assert study.federation.spec.protocol.min_silos == 1
    assert study.federation.spec.protocol.round_deadline_seconds == 300


@pytest.mark.parametrize(
    ("text", "value"), [("0.50", "0.50"), ("'0.5'", "0.5"), ("1", "1"), (".5", "0.5"), ("5e-1", "0.5")]
)
def test_a_number_for_a_decimal_is_taken_as_text(text: str, value: str) -> None:
    slot = "spec.method.pseudoLabels"
    for override in (
        f"{slot}.anchorSimilarity.threshold={text}",
        f"{slot}.anchorSimilarity={{threshold: {text}}}",
        f"{slot}={{anchorSimilarity: {{threshold: {text}}}}}",
    ):
        pseudo_labels = load_federation(DIGITS, [override]).federation.spec.method.pseudo_labels
        assert pseudo_labels == AnchorSimilarity(threshold=value)


def test_a_number_of_classes_is_taken_as_text() -> None:
    place = "silo.spec.managed.data.partition."
    managed = load_federation(DIGITS, [f"{place}recipe=Shards", f"{place}classesPerPart=4"]).silos[0].spec.managed
    assert managed is not None and managed.data.partition is not None
    assert managed.data.partition.class_counts == (4, 4, 4)


def test_values_are_yaml() -> None:
    overrides = [
        "spec.evaluation=null",
        "spec.server.resources.limits={nvidia.com/gpu: 1}",
        "spec.task.classification.classes=[a, b]",
        "spec.task.classification.classes.1=c",
        "spec.task.classification.classes.2=d",
        "spec.method.name=FedAvg",
    ]
    spec = load_federation(DIGITS, overrides).federation.spec
    assert spec.evaluation is None
    assert spec.server.resources.limits == {"nvidia.com/gpu": 1}
    assert spec.task.classes == ("a", "c", "d")
    assert spec.method.name == "FedAvg"


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "spec.rounds",
            "ANC-1015 OverrideRefused: --set spec.rounds: found no path=value; write it like spec.rounds=5",
        ),
        ("=5", "ANC-1015 OverrideRefused: --set =5: found no path=value; write it like spec.rounds=5"),
        (
            "spec..rounds=5",
            ("ANC-1015 OverrideRefused: --set spec..rounds=5: found no path=value; write it like spec.rounds=5"),
        ),
        (
            "spec.rounds=[",
            (
                "ANC-1015 OverrideRefused: --set spec.rounds=[: spec.rounds: expected the node content, but "
                "found '<stream end>'; quote the value"
            ),
        ),
        (
            "spec.rounds.x=5",
            (
                "ANC-1015 OverrideRefused: --set spec.rounds.x=5: spec.rounds.x: found a path that leads "
                "through a single value"
            ),
        ),
        (
            "spec.method.serverTraining.anchors.optimiser.sgd.state=Kept",
            (
                "ANC-1012 UnknownChoice: --set spec.method.serverTraining.anchors.optimiser.sgd.state=Kept: spec.method."
                'serverTraining.anchors.optimiser.sgd.state: found "Kept", allowed is one of Reset, Persist'
            ),
        ),
        (
            "spec.rounds=0",
            ("ANC-1010 OutOfRange: --set spec.rounds=0: spec.rounds: found 0, allowed is a whole number, 1 to 1000000"),
        ),
        (
            "spec.rounds=",
            (
                "ANC-1009 WrongType: --set spec.rounds=: spec.rounds: found null, allowed is a whole number, 1 "
                "to 1000000"
            ),
        ),
        (
            "spec.protocol.minSilos=4",
            (
                "ANC-1106 QuorumUnreachable: --set spec.protocol.minSilos=4: spec.protocol.minSilos: found 4, "
                "but the federation has 3 silos; lower it, or add silos"
            ),
        ),
        (
            "spec.tracking.uri=http://me:secret@h",
            (
                'ANC-1013 WrongForm: --set spec.tracking.uri=http://…@h: spec.tracking.uri: found "http://…@h", '
                "allowed is a URI such as http://mlflow:5000 or sqlite:///mlflow.db, without user and password"
            ),
        ),
    ],
)
def test_mistakes_name_the_override(override: str, line: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_federation(DIGITS, [override])
    assert str(caught.value) == line


def test_a_field_around_the_one_that_is_set_names_the_override_that_brought_it() -> None:
    """Not the line of the file around it."""
    expected_error = r"ANC-1012 UnknownChoice: --set spec\.method\.serverStep\.sgd\.momentum=0: spec\.method\.serverStep\.sgd: found 'sgd'"
    with pytest.raises(DocumentError, match=expected_error):
        load_federation(DIGITS, ["spec.method.serverStep.sgd.momentum=0"])


def test_unknown_paths_name_the_fields_there_are() -> None:
    with pytest.raises(
        DocumentError,
        match=r"--set spec\.raunds=1: spec\.raunds: found an unknown field, did you mean rounds\? allowed are rounds",
    ):
        load_federation(DIGITS, ["spec.raunds=1"])
