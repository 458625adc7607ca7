"""What the API server refuses: every CEL rule of the definitions, and an example of each other kind of bound.

The unit tests hold this table against the definitions (no rule without its refusal) and against the documents' own rules (what the API
server refuses `fedctl validate` refuses as well); the cluster tests send every object to a real API server.
"""

from collections.abc import Iterator
from typing import Any

from refusal import ANCHORED, DIGITS, FEDERATION, SILO, Refusal, changed, spec
from refused_methods import METHODS


def _sections() -> Iterator[Refusal]:
    """Yield what is refused of a data section, at each place where one stands."""
    places = (("anchorData", FEDERATION), ("evaluation.data", FEDERATION), ("managed.data", SILO))
    manifest = {"format": "CsvManifest", "claimName": "derm"}
    iid = {"recipe": "Iid", "parts": 3}
    cases: tuple[tuple[str, Any, str, str], ...] = (
        ("without its claim", {"format": "ImageFolder"}, ".claimName", "every format but Digits needs claimName"),
        ("without its manifest", manifest, ".manifest", "the format CsvManifest needs manifest"),
        ("of the test part of 0 %", {"format": "Digits", "use": "Test"}, ".testPercent", "use Test needs testPercent"),
        ("of no anchors", {"format": "Digits", "use": "Anchors"}, ".anchors", "use Anchors needs anchors"),
        ("of a part of what", {"format": "Digits", "use": "Part"}, ".partition", "use Part needs partition;"),
        (
            "of which part",
            {"format": "Digits", "use": "Part", "partition": iid},
            ".partition.part",
            "use Part needs partition.part",
        ),
        ("outside its claim", {**manifest, "path": "a/../../b", "manifest": "m.csv"}, ".path", "remove .."),
        ("with a manifest elsewhere", {**manifest, "manifest": "../m.csv"}, ".manifest", "remove .."),
        (
            "by a list without a file",
            {"format": "Digits", "partition": {"recipe": "File"}},
            ".partition.file",
            "the recipe File needs file",
        ),
        (
            "by a list elsewhere",
            {"format": "Digits", "partition": {"recipe": "File", "file": ".."}},
            ".partition.file",
            "remove ..",
        ),
        (
            "in how many parts",
            {"format": "Digits", "partition": {"recipe": "PerClass"}},
            ".partition.parts",
            "every recipe but File needs parts",
        ),
        (
            "of a part that is none",
            {"format": "Digits", "use": "Part", "partition": {**iid, "part": 3}},
            ".partition.part",
            "part is one of 0 to parts - 1",
        ),
    )
    for place, base in places:
        for name, section, path, message in cases:
            yield spec(f"{place} {name}", {place: section}, f"spec.{place}{path}", message, base)


def _pods() -> Iterator[Refusal]:
    """Yield what is refused of a pod, at each place where one is described."""
    both = {"key": "gpu", "operator": "Exists", "value": "yes"}
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    taken = [{"claimName": "a", "mountPath": "/data"}]
    cases: tuple[tuple[str, str, Any, str, str], ...] = (
        ("every taint", "pod.tolerations", [{"value": "yes"}], "[0].operator", "no key means every taint"),
        ("a value that nothing reads", "pod.tolerations", [both], "[0].value", "operator Exists takes no value"),
        ("a folder of the operator's", "pod.volumes", taken, "[0].mountPath", "the operator mounts this folder itself"),
        ("a variable twice", "pod.env", twice, "[1]", "Duplicate value"),
        ("a label that is none", "pod.nodeSelector", {"a b": "c"}, "", "a name here is a label's key"),
        ("a request for nothing known", "resources.requests", {"a b": 1}, "", "a name here is a resource"),
        ("a limit of nothing known", "resources.limits", {"a b": 1}, "", "a name here is a resource"),
        ("an amount that is none", "resources.limits", {"memory": "many"}, ".memory", "should match"),
    )
    for place, base in (("server", FEDERATION), ("managed", SILO)):
        for name, field_path, value, below, message in cases:
            path = f"{place}.{field_path}"
            yield spec(f"{place}: {name}", {path: value}, f"spec.{path}{below}", message, base)


FIELDS = (
    spec(
        "a quorum above the selection",
        {"protocol": {"minSilos": 3, "silosPerRound": 2}},
        "spec.protocol.minSilos",
        "minSilos is above silosPerRound",
    ),
    spec(
        "an asynchronous selection",
        {"protocol": {"mode": "Asynchronous", "silosPerRound": 2}},
        "spec.protocol.silosPerRound",
        "an asynchronous protocol samples no silos",
    ),
    spec(
        "two test parts of one pool",
        {"evaluation.data": {**DIGITS, "use": "Test", "testPercent": 10}},
        "spec.evaluation.data.testPercent",
        "draw from the same images; make testPercent equal",
        ANCHORED,
    ),
    spec(
        "two groupings of one pool",
        {"evaluation.data": {**DIGITS, "use": "Test", "groupBy": "patient"}},
        "spec.evaluation.data.groupBy",
        "draw from the same images; make groupBy equal",
        ANCHORED,
    ),
    *_sections(),
    spec(
        "images too small for their network", {"model.name": "MoonCnn"}, "spec.model.imageSize", "MoonCnn takes images"
    ),
    spec("weights from elsewhere", {"model.initial": "../a"}, "spec.model.initial", "remove .."),
    spec("a policy from elsewhere", {"managed.policy": "a/.."}, "spec.managed.policy", "remove ..", SILO),
    spec(
        "ports of nodes that lead nowhere",
        {"server.service.nodePorts": {"silos": 30443}},
        "spec.server.service.nodePorts",
        "the type ClusterIP has no ports of nodes",
    ),
    spec(
        "an annotation that is none",
        {"server.service.annotations": {"a b": "c"}},
        "spec.server.service.annotations",
        "a name here is a label's key",
    ),
    *_pods(),
    spec("no rounds", {"rounds": 0}, "spec.rounds", "should be greater than or equal to 1"),
    spec("rounds that are text", {"rounds": "5"}, "spec.rounds", "must be of type integer"),
    spec("a negative seed", {"seed": -1}, "spec.seed", "should be greater than or equal to 0"),
    spec("no model", {"model": None}, "spec.model", "Required value"),
    spec("a model that is not known", {"model.name": "SmallCNN"}, "spec.model.name", 'Unsupported value: "SmallCNN"'),
    spec("a boolean for a word", {"labels": False}, "spec.labels", "must be of type string", SILO),
    spec(
        "a number for a decimal",
        {"method.local": {"optimiser": {"sgd": {"learningRate": 0.5}}}},
        "spec.method.local.optimiser.learningRate",
        "must be of type string",
    ),
    spec(
        "a fraction above 1",
        {"method.pseudoLabels.threshold": "1.5"},
        "spec.method.pseudoLabels.threshold",
        "should match",
        ANCHORED,
    ),
    spec("a password in an address", {"tracking.uri": "http://me:secret@mlflow"}, "spec.tracking.uri", "should match"),
    spec("an address without a port", {"server.address": "derm.org"}, "spec.server.address", "should match"),
    spec("a name that is none", {"federation": "Derm"}, "spec.federation", "should match", SILO),
    spec("an unknown field", {"raunds": 5}, "", 'unknown field "spec.raunds"'),
    spec("an unknown field deep inside", {"method.local": {"epoch": 5}}, "", 'unknown field "spec.method.local.epoch"'),
)

LONG = "a" * 46
CLUSTER = (
    Refusal(
        "a federation's name that is too long for its pods",
        changed(FEDERATION, {"metadata.name": LONG}),
        "at most 45: pods and services are named after it",
        "metadata.name",
        everywhere=False,
    ),
    Refusal(
        "a silo's name with a dot",
        changed(SILO, {"metadata.name": "a.b"}),
        "at most 45: pods and services are named after it",
        "metadata.name",
        everywhere=False,
    ),
    Refusal(
        "a silo for another federation",
        changed(SILO, {"spec.federation": "skin"}),
        "a silo stays in its federation",
        "spec.federation",
        SILO,
        everywhere=False,
    ),
)

REFUSALS: tuple[Refusal, ...] = (*METHODS, *FIELDS, *CLUSTER)
