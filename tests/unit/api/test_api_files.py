"""Files of documents: what is read, and every mistake with its place."""

import json
from pathlib import Path

import pytest

from anchorage.api.errors import AnchorageError
from anchorage.api.files import Study, as_mapping, dump_yaml, load_federation
from anchorage.api.mistakes import DocumentError
from anchorage.api.status import Condition, FederationStatus, Metric, timestamp

EXAMPLES = Path(__file__).parents[3] / "examples"

FEDERATION = """\
kind: Federation
metadata: {name: derm}
spec:
  rounds: 5
  task: {classification: {classes: [a, b, c]}}
  model: {network: SmallCnn, imageSize: 32}
  method: {name: FedAvg}
"""
SILO = """\
---
kind: Silo
metadata: {name: silo-a}
spec: {federation: derm, labels: All}
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "derm.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def told(path: Path, *overrides: str) -> list[str]:
    """Return the lines of the refusal, file names without their folder."""
    with pytest.raises(DocumentError) as caught:
        load_federation(path, overrides)
    assert caught.value.failure.exit_code == 2
    assert caught.value.code == caught.value.mistakes[0].code
    return str(caught.value).replace(f"{path.parent}/", "").split("\n")


def test_reads_defaults_and_order(write) -> None:
    study = load_federation(write(FEDERATION + SILO + SILO.replace("silo-a", "silo-b")))
    assert study.federation.metadata.name == "derm"
    assert study.federation.spec.seed == 1
    assert study.federation.spec.protocol.mode == "Synchronous"
    assert study.federation.spec.anchor_data is None
    assert [silo.metadata.name for silo in study.silos] == ["silo-a", "silo-b"]
    assert study.silos[0].spec.managed is None


def test_documents_are_frozen(write) -> None:
    study = load_federation(write(FEDERATION + SILO))
    with pytest.raises(ValueError, match="frozen"):
        study.federation.spec.rounds = 3


@pytest.mark.parametrize("name", ["digits.yaml", "fedavg-digits.yaml"])
def test_examples_come_back_as_they_were(name: str, tmp_path: Path) -> None:
    study = load_federation(EXAMPLES / name)
    copy = tmp_path / "copy.yaml"
    copy.write_text(dump_yaml([study.federation, *study.silos]))
    reloaded = load_federation(copy)
    assert (reloaded.federation, reloaded.silos) == (study.federation, study.silos)
    assert reloaded.federation.spec.method.model_fields_set == study.federation.spec.method.model_fields_set
    copy.write_text(json.dumps(as_mapping(study.federation), indent=1) + "\n" + dump_yaml(study.silos))
    assert load_federation(copy).federation == study.federation


def test_only_true_and_false_are_booleans(write) -> None:
    path = write(FEDERATION + "  tracking: {experiment: Off}\n" + SILO.replace("All", "None"))
    study = load_federation(path)
    assert study.federation.spec.tracking.experiment == "Off"
    assert study.silos[0].spec.labels == "None"
    assert "'Off'" in dump_yaml([study.federation])


def test_the_status_is_printed_whole(write) -> None:
    federation = load_federation(write(FEDERATION + SILO)).federation
    condition = Condition(type="Complete", status="True", reason="Done", last_transition_time=timestamp(0.9))
    status = FederationStatus(conditions=(condition,), round=5, metrics=(Metric(name="accuracy", value="0.95"),))
    values = as_mapping(federation.model_copy(update={"status": status}))
    assert list(values)[:2] == ["apiVersion", "kind"]
    assert values["status"]["round"] == 5
    assert values["status"]["bytesUp"] == 0
    assert values["status"]["metrics"] == [{"name": "accuracy", "value": "0.95"}]
    assert values["status"]["conditions"][0]["lastTransitionTime"] == "1970-01-01T00:00:00Z"


def test_a_missing_file(tmp_path: Path) -> None:
    (line,) = told(tmp_path / "derm.yaml")
    assert line == ("ANC-1001 FileUnreadable: derm.yaml: No such file or directory; check the path and the permissions")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (line,) = told(tmp_path)
    assert line.startswith("ANC-1001 FileUnreadable: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("spec: [1\nkind: x\n", "ANC-1002 NotYaml: derm.yaml:2: expected ',' or ']', but got ':'"),
        ("a: 'b\n", "ANC-1002 NotYaml: derm.yaml:2: found unexpected end of stream"),
        ("a: *b\n", "ANC-1002 NotYaml: derm.yaml:1: found undefined alias 'b'"),
        (b"a: b\nc: \xff\n", "ANC-1002 NotYaml: derm.yaml:2: found bytes that are not UTF-8 text"),
        (
            "[" * 40 + "]" * 40,
            ("ANC-1003 FileTooLarge: derm.yaml:1: found more than 100000 values, or values nested deeper than 32"),
        ),
        (
            "a: &a [*a]\n",
            ("ANC-1003 FileTooLarge: derm.yaml:1: found more than 100000 values, or values nested deeper than 32"),
        ),
        ("[" * 5000, "ANC-1003 FileTooLarge: derm.yaml: found values nested deeper than 32"),
        (
            "x" * (2**20 + 1),
            "ANC-1003 FileTooLarge: derm.yaml: found more than 1048576 bytes; name a file of documents",
        ),
        (
            "kind: !!python/name:os.system x\n",
            (
                "ANC-1009 WrongType: derm.yaml:1: kind: found the tag tag:yaml.org,2002:python/name:os.system, "
                "allowed are plain values"
            ),
        ),
        ("? [a]\n: b\n", "ANC-1009 WrongType: derm.yaml:1: found a list or mapping as a field's name, allowed is text"),
        (
            "kind: a\nkind: b\n",
            "ANC-1014 DuplicateField: derm.yaml:2: kind: found a second time, first in line 1; remove one",
        ),
        (
            "just text\n",
            (
                "ANC-1004 NotADocument: derm.yaml:1: found no mapping, allowed is a document with kind, "
                "metadata and spec"
            ),
        ),
        ("kind: Fed\n", "ANC-1005 UnknownKind: derm.yaml:1: kind: found 'Fed', allowed are Federation, Silo"),
        ("metadata: {}\n", "ANC-1005 UnknownKind: derm.yaml:1: kind: found nothing, allowed are Federation, Silo"),
        ("", "ANC-1101 NoFederation: derm.yaml: found no document with kind: Federation"),
        (SILO, "ANC-1101 NoFederation: derm.yaml: found no document with kind: Federation"),
        (FEDERATION, "ANC-1105 NoSilos: derm.yaml:1: found no silo; add at least one document with kind: Silo"),
        (
            "apiVersion: v2\n" + FEDERATION + SILO,
            ('ANC-1006 UnknownVersion: derm.yaml:1: apiVersion: found "v2", allowed is anchorage.dev/v1alpha1'),
        ),
    ],
)
def test_files_that_hold_no_federation(write, text: str | bytes, line: str) -> None:
    assert told(write(text)) == [line]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "rounds: 5",
            "rounds: 0",
            ("ANC-1010 OutOfRange: derm.yaml:4: spec.rounds: found 0, allowed is a whole number, 1 to 1000000"),
        ),
        (
            "rounds: 5",
            "rounds: five",
            ('ANC-1009 WrongType: derm.yaml:4: spec.rounds: found "five", allowed is a whole number, 1 to 1000000'),
        ),
        (
            "rounds: 5",
            "rounds: 5.5",
            ("ANC-1009 WrongType: derm.yaml:4: spec.rounds: found 5.5, allowed is a whole number, 1 to 1000000"),
        ),
        (
            "rounds: 5",
            "rounds: true",
            ("ANC-1009 WrongType: derm.yaml:4: spec.rounds: found true, allowed is a whole number, 1 to 1000000"),
        ),
        (
            "rounds: 5",
            "seed: 5",
            ("ANC-1008 MissingField: derm.yaml:3: spec.rounds: found nothing, needed is a whole number, 1 to 1000000"),
        ),
        (
            "imageSize: 32",
            "imageSize: 32, channels: 2",
            (
                "ANC-1013 WrongForm: derm.yaml:6: spec.model: found 2 channels, allowed are 1 for grey and 3 for RGB; "
                "volumes may have others"
            ),
        ),
        (
            "name: silo-a",
            "name: Silo_A",
            (
                'ANC-1013 WrongForm: derm.yaml:10: metadata.name: found "Silo_A", allowed is a name of '
                "lower-case letters, digits and dashes, at most 63 long"
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAvg}\n  protocol: {mode: Synchronous, min_silos: 1}",
            (
                "ANC-1007 UnknownField: derm.yaml:8: spec.protocol.min_silos: found an unknown field, "
                "did you mean minSilos? allowed are mode, minSilos, silosPerRound, roundDeadlineSeconds, idleTimeoutSeconds, "
                "maximumImages, secureAggregation, modelEncoding"
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAnchor, pseudoLabels: {anchorSimilarity: {threshold: 0.60}}}",
            (
                "ANC-1011 UnquotedDecimal: derm.yaml:7: spec.method.pseudoLabels.anchorSimilarity.threshold: found the number "
                '0.60, allowed is text: write "0.60"'
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAnchor, pseudoLabels: {anchorSimilarity: {threshold: 1}}}",
            (
                "ANC-1011 UnquotedDecimal: derm.yaml:7: spec.method.pseudoLabels.anchorSimilarity.threshold: found the number 1, "
                'allowed is text: write "1"'
            ),
        ),
        (
            "{name: FedAvg}",
            '{name: FedAnchor, pseudoLabels: {anchorSimilarity: {threshold: "1.5"}}}',
            (
                'ANC-1010 OutOfRange: derm.yaml:7: spec.method.pseudoLabels.anchorSimilarity.threshold: found "1.5", allowed is '
                'a quoted decimal number from 0 to 1, such as "0.6"'
            ),
        ),
        (
            "{name: FedAvg}",
            '{name: FedAnchor, pseudoLabels: {anchorSimilarity: {threshold: "high"}}}',
            (
                'ANC-1013 WrongForm: derm.yaml:7: spec.method.pseudoLabels.anchorSimilarity.threshold: found "high", allowed is '
                'a quoted decimal number from 0 to 1, such as "0.6"'
            ),
        ),
        (
            "{name: FedAvg}",
            "FedAvg",
            'ANC-1009 WrongType: derm.yaml:7: spec.method: found "FedAvg", allowed is a mapping',
        ),
        (
            "{name: FedAvg}",
            "{name: FedAvg}\n  protocol: {minSilos: 2}",
            (
                "ANC-1106 QuorumUnreachable: derm.yaml:8: spec.protocol.minSilos: found 2, but the federation "
                "has 1 silo; lower it, or add silos"
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAvg}\n  protocol:\n    silosPerRound: 2",
            (
                "ANC-1107 SelectionTooLarge: derm.yaml:9: spec.protocol.silosPerRound: found 2, but the "
                "federation has 1 silo; lower it, or leave it out to take all"
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAvg}\n  tracking: {uri: 'http://me:secret@mlflow'}",
            (
                'ANC-1013 WrongForm: derm.yaml:8: spec.tracking.uri: found "http://…@mlflow", allowed is a URI '
                "such as http://mlflow:5000 or sqlite:///mlflow.db, without user and password"
            ),
        ),
        (
            "{name: FedAvg}",
            "{name: FedAvg}\n  server: {resources: {limits: {a b: 1}}}",
            (
                'ANC-1013 WrongForm: derm.yaml:8: spec.server.resources.limits.a b: found the name "a b", '
                "allowed is a resource such as cpu or nvidia.com/gpu"
            ),
        ),
        (
            "federation: derm",
            "federation: skin",
            (
                "ANC-1104 ForeignSilo: derm.yaml:11: spec.federation: found 'skin', allowed is 'derm', the "
                "federation of this file"
            ),
        ),
        (
            "labels: All",
            "labels: all",
            (
                'ANC-1012 UnknownChoice: derm.yaml:11: spec.labels: found "all", did you mean All? allowed is one of None, All, Partial'
            ),
        ),
    ],
)
def test_one_mistake(write, old: str, new: str, line: str) -> None:
    text = FEDERATION + SILO
    assert old in text
    assert told(write(text.replace(old, new))) == [line]


def test_an_unknown_network_is_told_with_the_nearest(write) -> None:
    (line,) = told(write(FEDERATION.replace("SmallCnn", "SmallCNN") + SILO))
    assert line.startswith("ANC-1012 UnknownChoice: derm.yaml:6: spec.model.network: ")
    assert "did you mean SmallCnn? allowed are " in line and "ResNet18" in line


def test_all_mistakes_at_once_in_the_order_of_their_lines(write) -> None:
    text = (
        FEDERATION.replace("rounds: 5", "rounds: -1\n  raunds: 5")
        + SILO
        + SILO.replace("All", "all")
        + "---\nkind: Sillo\n"
    )
    lines = told(write(text))
    assert [line.split(": ")[:3] for line in lines] == [
        ["ANC-1010 OutOfRange", "derm.yaml:4", "spec.rounds"],
        ["ANC-1007 UnknownField", "derm.yaml:5", "spec.raunds"],
        ["ANC-1103 DuplicateName", "derm.yaml:15", "metadata.name"],
        ["ANC-1012 UnknownChoice", "derm.yaml:16", "spec.labels"],
        ["ANC-1005 UnknownKind", "derm.yaml:18", "kind"],
    ]


def test_quorum_above_the_selection(write) -> None:
    protocol = "method: {name: FedAvg}\n  protocol: {minSilos: 2, silosPerRound: 1}"
    text = FEDERATION.replace("method: {name: FedAvg}", protocol) + SILO + SILO.replace("silo-a", "silo-b")
    (line,) = told(write(text))
    assert line == (
        "ANC-1106 QuorumUnreachable: derm.yaml:8: spec.protocol.minSilos: found 2, but silosPerRound is "
        "1; lower it to 1 at most"
    )


def test_two_federations(write) -> None:
    (line,) = told(write(FEDERATION + "---\n" + FEDERATION + SILO))
    assert line == "ANC-1102 SeveralFederations: derm.yaml:9: found another Federation, allowed is one per file"


def test_an_error_is_one_of_the_catalogue(write) -> None:
    with pytest.raises(AnchorageError, match="ANC-1105 NoSilos"):
        load_federation(write(FEDERATION))


POOL = (
    "{{format: Digits, use: Part, testPercent: {test}, anchors: {anchors}, partition: {{recipe: "
    "Iid, parts: 2, part: {part}}}}}"
)


@pytest.mark.parametrize(
    ("second", "line"),
    [
        ({"test": 20, "anchors": 50, "part": 1}, None),
        (
            {"test": 10, "anchors": 50, "part": 1},
            (
                "ANC-1108 PoolsDiffer: derm.yaml:15: spec.managed.data.testPercent: found 10, but "
                "spec.evaluation.validation draws from the same images with 20; make them equal"
            ),
        ),
        (
            {"test": 20, "anchors": 40, "part": 1},
            (
                "ANC-1108 PoolsDiffer: derm.yaml:15: spec.managed.data.anchors: found 40, but silo silo-a draws "
                "from the same images with 50; make them equal"
            ),
        ),
        (
            {"test": 20, "anchors": 50, "part": 0},
            (
                "ANC-1108 PoolsDiffer: derm.yaml:15: spec.managed.data.partition: found the same part as silo "
                "silo-a; give every silo its own"
            ),
        ),
    ],
)
def test_shares_of_one_pool_are_drawn_alike(write, second: dict[str, int], line: str | None) -> None:
    def silo(name: str, share: dict[str, int]) -> str:
        return f"---\nkind: Silo\nmetadata: {{name: {name}}}\nspec: {{federation: derm, managed: {{data: {POOL.format(**share)}}}}}\n"

    text = FEDERATION + "  evaluation: {validation: {format: Digits, use: Test, testPercent: 20}}\n"
    path = write(text + silo("silo-a", {"test": 20, "anchors": 50, "part": 0}) + silo("silo-b", second))
    if line is None:
        assert isinstance(load_federation(path), Study)
    else:
        assert [text.replace(":16:", ":15:") for text in told(path)] == [line]


def test_embeddings_are_of_validation_images(write) -> None:
    text = (
        FEDERATION + "  evaluation: {test: {format: Digits, use: Test, testPercent: 20}, embeddings: {layer: LAYER}}\n"
    )
    (line,) = told(write(text.replace("LAYER", "encoder") + SILO))
    assert "found embeddings without validation" in line
    (line,) = told(write(text.replace("LAYER", "encoder/layer3").replace("test:", "validation:", 1) + SILO))
    assert "spec.evaluation.embeddings.layer" in line and "a module of the network" in line


def test_an_unknown_field_hides_no_mistake_across_fields(write) -> None:
    data = "{format: Digits, use: Part, partition: {recipe: Iid, part: 0, size: 3}}"
    lines = told(write(FEDERATION + SILO.replace("labels: All", "managed: {data: " + data + "}")))
    assert [line[:8] for line in lines] == ["ANC-1007", "ANC-1013"]
    assert "partition.size: found an unknown field" in lines[0] and "found the recipe Iid without parts" in lines[1]
