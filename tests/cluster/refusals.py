"""What the API server refuses: every CEL rule of the definitions, and an example of each other kind of bound.

The unit tests hold this table against the definitions (no rule without its refusal) and against the documents' own rules (what the API
server refuses `fedctl validate` refuses as well); the cluster tests send every object to a real API server.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from anchorage.crd.methods import UNSAID
from anchorage.spec.method import ResolvedMethod
from anchorage.spec.slots import READ_BY

Object = dict[str, Any]

DIGITS = {"format": "Digits", "testPercent": 20, "anchors": 80}
FEDERATION: Object = {
    "apiVersion": "anchorage.dev/v1alpha1",
    "kind": "Federation",
    "metadata": {"name": "derm"},
    "spec": {
        "rounds": 5,
        "model": {"name": "SmallCnn", "numClasses": 10, "imageSize": 8, "channels": 1, "augmentation": "Digits"},
        "method": {"name": "FedAvg"},
    },
}
ANCHORED: Object = {
    **FEDERATION,
    "spec": {**FEDERATION["spec"], "method": {"name": "FedAnchor"}, "anchorData": {**DIGITS, "use": "Anchors"}},
}
SILO: Object = {
    "apiVersion": "anchorage.dev/v1alpha1",
    "kind": "Silo",
    "metadata": {"name": "hospital-a"},
    "spec": {"federation": "derm", "managed": {"data": {"format": "Digits"}}},
}
BEGUN = {"startTime": "2026-11-21T12:00:00Z", "round": 2}


@dataclass(frozen=True)
class Refusal:
    """One object that the API server refuses.

    Parameters
    ----------
    name : str
        Of the case.
    document : mapping
        The object, complete.
    message : str
        A part of what kubectl says.
    path : str
        The field that kubectl names; empty where it names none.
    before : mapping or None
        The object that is there already, under the same name.
    status : mapping
        What is written to its status before `document` is sent.
    everywhere : bool
        Whether `fedctl validate` refuses the document as well; it does not know what was there before, nor a cluster's limits.
    """

    name: str
    document: Object
    message: str
    path: str = ""
    before: Object | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    everywhere: bool = True


def changed(document: Object, changes: Mapping[str, Any]) -> Object:
    """Set fields by their dotted paths; None takes one away."""
    copy = deepcopy(document)
    for path, value in changes.items():
        *outer, last = path.split(".")
        place = copy
        for part in outer:
            place = place.setdefault(part, {})
        if value is None:
            del place[last]
        else:
            place[last] = value
    return copy


def _spec(name: str, changes: Mapping[str, Any], path: str, message: str, base: Object = FEDERATION) -> Refusal:
    return Refusal(name, changed(base, {f"spec.{key}": value for key, value in changes.items()}), message, path)


def _unread() -> Iterator[Refusal]:
    """Yield, for every field that only some choices of its slot read, a federation that sets it in vain."""
    for slot, readers in READ_BY.items():
        for name in (name for name, (switch, _) in readers.items() if switch not in UNSAID):
            fields = ResolvedMethod.model_fields[slot].annotation
            assert fields is not None
            value = getattr(fields(), name)
            plain = value.model_dump(mode="json", by_alias=True) if hasattr(value, "model_dump") else value
            path = f"method.{to_camel(slot)}.{to_camel(name)}"
            field = f"spec.method.{to_camel(slot)}"
            yield _spec(f"{path} that nothing reads", {path: plain}, field, "leave out what is not read")


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
            yield _spec(f"{place} {name}", {place: section}, f"spec.{place}{path}", message, base)


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
            yield _spec(f"{place}: {name}", {path: value}, f"spec.{path}{below}", message, base)


METHODS = (
    _spec(
        "an asynchronous barrier",
        {"method.name": "SemiAnAgg", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "need the announcements of all silos of a round",
    ),
    _spec(
        "an asynchronous barrier by an override",
        {"method": {"name": "FedAvgSemi", "weighting": {"type": "SemiAnAgg"}}, "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "need the announcements of all silos of a round",
    ),
    _spec(
        "asynchronous server training",
        {"protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "the server trains on its anchors after each round",
        ANCHORED,
    ),
    _spec(
        "an asynchronous server step",
        {"method.serverStep.type": "Adam", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "this server step takes the mean of a whole round",
    ),
    _spec(
        "a method without rounds in rounds",
        {"method.name": "AsyncFedAvg"},
        "spec.protocol.mode",
        "has no rounds",
    ),
    _spec(
        "an asynchronous server step in rounds",
        {"method": {"name": "FedAvg", "weighting": {"type": "Uniform"}, "serverStep": {"type": "Mix"}}},
        "spec.protocol.mode",
        "nor have serverStep.type Mix",
    ),
    _spec(
        "a validation cycle in rounds",
        {"method.local": {"cycle": {"tombstones": 2}}},
        "spec.protocol.mode",
        "nor have serverStep.type Mix and local.cycle",
    ),
    *(
        _spec(
            f"what goes by rounds, {slot} {value}, without",
            {
                "method": {"name": name, "weighting": {"type": "SampleCount"}, slot: value},
                "anchorData": ANCHORED["spec"]["anchorData"],
                "protocol.mode": "Asynchronous",
            },
            "spec.protocol.mode" if slot != "batchNorm" else "",  # where fedctl validate names the policy
            "go by rounds; set Synchronous",
        )
        for name, slot, value in (
            ("FedAvgUDA", "pseudoLabels", {"type": "ClassAdaptive"}),
            ("FedAvg", "selfSupervised", {"type": "Clusters"}),
            ("FedAvg", "selfSupervised", {"type": "Barlow", "onlineClassifier": "Enabled"}),
            ("FedAvg", "batchNorm", {"policy": "Pooled"}),
            ("FedAvg", "batchNorm", {"policy": "Recalibrate"}),
            ("FedAvg", "inputMixing", {"type": "FedMix"}),
        )
    ),
    _spec(
        "a method of rounds without rounds",
        {"method.name": "FedAdam", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "this method has rounds only",
    ),
    _spec(
        "an asynchronous warm-up",
        {"warmUp": [{"method": "FedProx", "rounds": 1}], "protocol.mode": "Asynchronous"},
        "spec.warmUp",
        "an asynchronous protocol has no rounds to divide",
    ),
    _spec(
        "a warm-up without end",
        {"warmUp": [{"method": "FedProx", "rounds": 3}, {"method": "FedAvgM", "rounds": 2}]},
        "spec.rounds",
        "the warm-up takes all rounds",
    ),
    _spec(
        "a warm-up without rounds",
        {"warmUp": [{"method": "FedAsync", "rounds": 1}]},
        "spec.protocol.mode",
        "this method, or one of warmUp, has no rounds",
    ),
    _spec(
        "anchors that the warm-up needs",
        {"warmUp": [{"method": "FedAnchor", "rounds": 1}]},
        "spec.anchorData",
        "this method needs labelled anchors of each class",
    ),
    _spec(
        "groups below the quorum",
        {"method": {"name": "RSCFed", "weighting": {"groupSize": 2}}, "protocol.minSilos": 3},
        "spec.method.weighting.groupSize",
        "a group is to reach the quorum",
    ),
    _spec(
        "anchors that are not there",
        {"method.name": "FedAnchor"},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData",
    ),
    _spec(
        "anchors that a slot needs",
        {"method.serverTraining.type": "Anchors"},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData",
    ),
    _spec(
        "a class without an anchor",
        {"anchorData.anchors": 9},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData, or anchors to it",
        ANCHORED,
    ),
    _spec(
        "a class without an anchor to count on",
        {"anchorData.anchors": 9, "method": {"name": "FedAvg", "batchNorm": {"policy": "Recalibrate"}}},
        "spec.anchorData",
        "needs labelled anchors of each class at the server",
        ANCHORED,
    ),
    _spec(
        "mixup at a server that does not train",
        {"method.mixup.at": "Server"},
        "spec.method.mixup.at",
        "mixup at the server, but the server trains on nothing",
    ),
    _spec(
        "mixup of labels that change",
        {"method.mixup.at": "Client"},
        "spec.method.mixup.at",
        "silos mix images whose labels are fixed for the round",
    ),
    _spec(
        "representations of images without labels",
        {"method": {"name": "FedAvgSemi", "regulariser": {"type": "Moon"}}},
        "spec.method",
        "one loss at a time",
    ),
    _spec(
        "pseudo-labels beside a loss without labels",
        {"method": {"name": "FedBarlow", "pseudoLabels": {"type": "FixMatch"}}},
        "spec.method",
        "one loss at a time",
    ),
    _spec(
        "representations beside a loss without labels",
        {"method": {"name": "FedBarlow", "regulariser": {"type": "Moon"}}},
        "spec.method",
        "one loss at a time",
    ),
    _spec(
        "mixed images with pseudo-labels",
        {"method": {"name": "FedAvgUDA", "inputMixing": {"type": "Local"}}},
        "spec.method",
        "one loss at a time",
    ),
    _spec(
        "mixed images with a second head",
        {"method": {"name": "LocalMix", "heads": {"second": "Personal"}}},
        "spec.method",
        "one loss at a time",
    ),
    _spec(
        "a cycle over images without labels",
        {
            "method": {"name": "FedAvgUDA", "local": {"cycle": {}}, "weighting": {"type": "DVW"}},
            "protocol.mode": "Asynchronous",
        },
        "spec.method",
        "and local.cycle with neither of the first two",
    ),
    *(
        _spec(
            f"a second head, {head}, beside {kind}",
            {"method": {"name": "FedAvg", "heads": {"second": head}, "pseudoLabels": {"type": kind}}},
            "spec.method",
            f"{head} beside",
        )
        for head, kind in (("Personal", "UDA"), ("PersonalDual", "None"), ("Balanced", "FlexMatch"))
    ),
    _spec(
        "adjusted labels without a balanced head",
        {"method": {"name": "SSILCDM", "heads": {"second": "None"}}},
        "spec.method.pseudoLabels.adjustment",
        "labels are adjusted for a balanced head only",
    ),
    *(
        _spec(f"one of two, {slot}", {f"method.{slot}": value}, "spec.method", "need each other")
        for slot, value in (
            ("decomposition", {"type": "SigmaPsi"}),
            ("pseudoLabels", {"type": "Helpers"}),
            ("regulariser", {"type": "ControlVariates"}),
            ("local", {"start": "Own"}),
            ("serverStep", {"type": "Keep"}),
        )
    ),
    _spec(
        "weighted control variates",
        {"method": {"name": "SCAFFOLD", "weighting": {"type": "SampleCount"}}},
        "spec.method.weighting.type",
        "control variates are a plain mean",
    ),
    _spec(
        "updates that are weighed twice",
        {
            "method": {"name": "FedAsync", "weighting": {"type": "SampleCount"}},
            "protocol.mode": "Asynchronous",
        },
        "spec.method.weighting.type",
        "the server step Mix weighs updates by their age alone",
    ),
    *(
        _spec(f"{name} and {slot}", {"method": {"name": name, slot: value}}, "spec.method", words)
        for name, slot, value, words in (
            ("SCAFFOLD", "selfSupervised", {"type": "Byol"}, "remove selfSupervised"),
            ("SCAFFOLD", "inputMixing", {"type": "FedMix"}, "remove selfSupervised"),
            ("SCAFFOLD", "batchNorm", {"policy": "Local"}, "remove selfSupervised"),
            ("DVW", "selfSupervised", {"type": "Byol"}, "DVW has the silos' whole models score"),
            ("DVW", "batchNorm", {"policy": "Static"}, "DVW has the silos' whole models score"),
        )
    ),
    _spec(
        "steps that nobody tells",
        {"method.weighting.type": "StepCount"},
        "spec.method.weighting.type",
        "silos tell their steps with selfSupervised.type: Clusters only",
    ),
    _spec(
        "a contrastive loss at a server that does not train",
        {"method.serverTraining": {"type": "None", "contrastive": "Enabled"}},
        "spec.method.serverTraining",
        "serverTraining.type reads contrastive, ",
    ),
    _spec(
        "weights by pseudo-labels that are not there",
        {"method.weighting.type": "SemiAnAgg"},
        "spec.method.weighting.type",
        "weigh silos by accepted pseudo-labels, but there are none",
    ),
    _spec(
        "a loss on labels that no silo uses",
        {"method.supervised.type": "BalancedSoftmax"},
        "spec.method.supervised",
        "AnchorSimilarity labels all images",
        ANCHORED,
    ),
    *(
        _spec(
            f"a loss on labels of {name}",
            {"method": {"name": name, "supervised": {}}},
            "spec.method.supervised",
            "no silo trains on labels by a loss of its own choice",
        )
        for name in ("SSILCDM", "FedBarlow")
    ),
    *_unread(),
)

FIELDS = (
    _spec(
        "a quorum above the selection",
        {"protocol": {"minSilos": 3, "silosPerRound": 2}},
        "spec.protocol.minSilos",
        "minSilos is above silosPerRound",
    ),
    _spec(
        "an asynchronous selection",
        {"protocol": {"mode": "Asynchronous", "silosPerRound": 2}},
        "spec.protocol.silosPerRound",
        "an asynchronous protocol samples no silos",
    ),
    _spec(
        "two test parts of one pool",
        {"evaluation.data": {**DIGITS, "use": "Test", "testPercent": 10}},
        "spec.evaluation.data.testPercent",
        "draw from the same images; make testPercent equal",
        ANCHORED,
    ),
    _spec(
        "two groupings of one pool",
        {"evaluation.data": {**DIGITS, "use": "Test", "groupBy": "patient"}},
        "spec.evaluation.data.groupBy",
        "draw from the same images; make groupBy equal",
        ANCHORED,
    ),
    *_sections(),
    _spec(
        "images too small for their network", {"model.name": "MoonCnn"}, "spec.model.imageSize", "MoonCnn takes images"
    ),
    _spec("weights from elsewhere", {"model.initial": "../a"}, "spec.model.initial", "remove .."),
    _spec("a policy from elsewhere", {"managed.policy": "a/.."}, "spec.managed.policy", "remove ..", SILO),
    _spec(
        "ports of nodes that lead nowhere",
        {"server.service.nodePorts": {"silos": 30443}},
        "spec.server.service.nodePorts",
        "the type ClusterIP has no ports of nodes",
    ),
    _spec(
        "an annotation that is none",
        {"server.service.annotations": {"a b": "c"}},
        "spec.server.service.annotations",
        "a name here is a label's key",
    ),
    *_pods(),
    _spec("no rounds", {"rounds": 0}, "spec.rounds", "should be greater than or equal to 1"),
    _spec("rounds that are text", {"rounds": "5"}, "spec.rounds", "must be of type integer"),
    _spec("a negative seed", {"seed": -1}, "spec.seed", "should be greater than or equal to 0"),
    _spec("no model", {"model": None}, "spec.model", "Required value"),
    _spec("a model that is not known", {"model.name": "SmallCNN"}, "spec.model.name", 'Unsupported value: "SmallCNN"'),
    _spec("a boolean for a word", {"labels": False}, "spec.labels", "must be of type string", SILO),
    _spec(
        "a number for a decimal",
        {"method.local": {"optimiser": {"learningRate": 0.5}}},
        "spec.method.local.optimiser.learningRate",
        "must be of type string",
    ),
    _spec(
        "a fraction above 1",
        {"method.pseudoLabels.threshold": "1.5"},
        "spec.method.pseudoLabels.threshold",
        "should match",
        ANCHORED,
    ),
    _spec("a password in an address", {"tracking.uri": "http://me:secret@mlflow"}, "spec.tracking.uri", "should match"),
    _spec("an address without a port", {"server.address": "derm.org"}, "spec.server.address", "should match"),
    _spec("a name that is none", {"federation": "Derm"}, "spec.federation", "should match", SILO),
    _spec("an unknown field", {"raunds": 5}, "", 'unknown field "spec.raunds"'),
    _spec(
        "an unknown field deep inside", {"method.local": {"epoch": 5}}, "", 'unknown field "spec.method.local.epoch"'
    ),
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
    *(
        Refusal(
            f"another {noun} while training",
            changed(FEDERATION, {f"spec.{path}": value}),
            f"the {noun} cannot change once training has begun",
            f"spec.{path if path in ('protocol.mode', 'warmUp') else path.rsplit('.', 1)[0]}",
            FEDERATION,
            BEGUN,
            everywhere=False,
        )
        for noun, path, value in (
            ("method", "method.name", "FedProx"),
            ("warm-up", "warmUp", [{"method": "FedProx", "rounds": 1}]),
            ("model", "model.numClasses", 11),
            ("seed", "seed", 2),
            ("protocol's mode", "protocol.mode", "Asynchronous"),
        )
    ),
    Refusal(
        "a slot's change while training",
        changed(FEDERATION, {"spec.method.local": {"epochs": 2}}),
        "the method cannot change once training has begun",
        "spec.method",
        FEDERATION,
        {"round": 1},
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

LEFT_TO_THE_OPERATOR: tuple[Refusal, ...] = (
    _spec("a method that is not there", {"method.name": "NoSuch"}, "spec.method.name", "allowed are"),
    _spec(
        "a warm-up that is not there",
        {"warmUp": [{"method": "NoSuch", "rounds": 1}]},
        "spec.warmUp[0].method",
        "allowed are",
    ),
    _spec(
        "a warm-up whose groups are below the quorum",
        {"warmUp": [{"method": "RSCFed", "rounds": 1}], "protocol.minSilos": 6},
        "spec.warmUp[0].method",
        "all groups may draw the same silos",
    ),
    _spec(
        "split weights with another pull",
        {"method": {"name": "FedMatch", "regulariser": {"type": "Proximal"}}},
        "spec.method.decomposition.type",
        "its own terms hold the parts together",
    ),
    _spec(
        "control variates of steps with momentum",
        {"method": {"name": "SCAFFOLD", "local": {"optimiser": {"momentum": "0.9"}}}},
        "spec.method.local.optimiser.momentum",
        "mean gradients of plain SGD alone",
    ),
    _spec(
        "updates that count nothing",
        {"method": {"name": "FedAsync", "serverStep": {"alpha": "0"}}, "protocol.mode": "Asynchronous"},
        "spec.method.serverStep.alpha",
        "with which no update would count",
    ),
    _spec(
        "ages that count nothing",
        {"method": {"name": "FedAsync", "serverStep": {"falloff": "2"}}, "protocol.mode": "Asynchronous"},
        "spec.method.serverStep.falloff",
        "serverStep.staleness is Constant",
    ),
    _spec(
        "two views beside mixed anchors",
        {"method": {"name": "FedAnchorMix", "serverTraining": {"consistency": "Enabled"}}},
        "spec.method.serverTraining.consistency",
        "which has a loss of its own",
        ANCHORED,
    ),
    _spec(
        "shares of all labels without rounds",
        {
            "method": {"name": "OrigACR", "weighting": {"type": "SampleCount"}},
            "protocol.mode": "Asynchronous",
        },
        "spec.protocol.mode",
        "adjustment Labelled needs what all silos",
    ),
    *(
        _spec(
            f"classes of {parts} parts",
            {f"{place}.partition": {"recipe": "ClassQuota", "parts": parts, "classesPerPart": "8x1,5x9"}},
            f"spec.{place}.partition",
            "write one number of classes",
            base,
        )
        for place, parts, base in (("anchorData", 9, ANCHORED), ("managed.data", 11, SILO))
    ),
)
"""What the API server takes, though `fedctl validate` does not; the condition Accepted tells."""
