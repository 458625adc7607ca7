"""What the API server takes and `fedctl validate` refuses: what fields ask of each other. The operator tells it in the condition Accepted.

The message of each case is the reason of its failure.
"""

from collections.abc import Iterator
from typing import Any

from refusal import ANCHORED, DIGITS, FEDERATION, SILO, Refusal, spec

MEANINGLESS, PROTOCOL = "MeaninglessOverride", "ProtocolRefused"
SHARED = {"managed.devices": 4, "managed.resources": {"limits": {"nvidia.com/gpu": 2}}}
ASYNCHRONOUS = {"protocol.mode": "Asynchronous"}


def _sections() -> Iterator[Refusal]:
    """Yield what is refused of a data section, at each place where one stands; the section as a whole is told."""
    iid = {"recipe": "Iid", "parts": 3}
    everywhere: tuple[tuple[str, Any, str], ...] = (
        ("without its claim", {"format": "ImageFolder"}, ""),
        ("without its manifest", {"format": "CsvManifest", "claimName": "derm"}, ""),
        ("of one channel twice", {"format": "ImageFolder", "claimName": "derm", "channelFiles": ["_t1", "_t1"]}, ""),
    )
    at_the_server: tuple[tuple[str, Any, str], ...] = (
        ("of the test part of 0 %", {"format": "Digits", "use": "Test"}, ""),
        ("of the validation part of 0 %", {"format": "Digits", "use": "Validation", "testPercent": 20}, ""),
        ("of no anchors", {"format": "Digits", "use": "Anchors"}, ""),
    )
    at_a_silo: tuple[tuple[str, Any, str], ...] = (
        ("of a part of what", {"format": "Digits", "use": "Part"}, ""),
        ("of which part", {"format": "Digits", "use": "Part", "partition": iid}, ""),
        ("by a list without a file", {"format": "Digits", "partition": {"recipe": "File"}}, ".partition"),
        ("in how many parts", {"format": "Digits", "partition": {"recipe": "PerClass"}}, ".partition"),
        ("of a part that is none", {"format": "Digits", "partition": {**iid, "part": 3}}, ".partition"),
        (
            "of classes of more parts",
            {"format": "Digits", "partition": {"recipe": "ClassQuota", "parts": 9, "classesPerPart": "8x1,5x9"}},
            ".partition",
        ),
    )
    for place, base, own_value in (
        ("anchorData", FEDERATION, at_the_server),
        ("evaluation.validation", FEDERATION, at_the_server),
        ("evaluation.test", FEDERATION, at_the_server),
        ("managed.data", SILO, at_a_silo),
    ):
        for name, section, below in (*everywhere, *own_value):
            yield spec(f"{place} {name}", {place: section}, f"{place}{below}", "WrongForm", base)


def _pods() -> Iterator[Refusal]:
    """Yield what is refused of a pod, at each place where one is described."""
    both = {"key": "gpu", "operator": "Exists", "value": "yes"}
    volumes = [{"claimName": "a", "mountPath": "/data"}]
    keys = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "derm-authority", "key": "ca.key"}}}]
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    unknown = "UnknownField"
    for place, base in (("server", FEDERATION), ("managed", SILO)):
        for name, field, value, below, failure in (
            ("every taint", "tolerations", [{"value": "yes"}], "[0]", "WrongForm"),
            ("a value that nothing reads", "tolerations", [both], "[0]", "WrongForm"),
            ("a folder of the operator's", "volumes", volumes, "[0].mountPath", "WrongForm"),
            ("a key of the federation", "env", keys, "[0].valueFrom.secretKeyRef", "WrongForm"),
            ("a label that is none", "nodeSelector", {"a b": "c"}, ".a b", "WrongForm"),
            ("another federation's pod", "labels", {"anchorage.dev/federation": "b"}, "", "WrongForm"),
            (
                "a folder of the node",
                "volumes",
                [{**volumes[0], "mountPath": "/a", "hostPath": {"path": "/"}}],
                "[0].hostPath",
                unknown,
            ),
            ("privileges", "securityContext", {"privileged": True}, "", unknown),
            ("another command", "command", ["sh"], "", unknown),
            ("another account", "serviceAccountName", "admin", "", unknown),
            ("the node's network", "hostNetwork", True, "", unknown),
            ("other containers", "containers", [{"name": "server"}], "", unknown),
        ):
            path = f"{place}.pod.{field}"
            yield spec(f"{place}: {name}", {path: value}, f"{path}{below}", failure, base)
        yield spec(f"{place}: a variable twice", {f"{place}.pod.env": twice}, f"{place}.pod", "WrongForm", base)


def _meaningless(name: str, method: dict[str, Any], path: str, **changes: Any) -> Refusal:
    """Choose a method that means nothing; the path is from the method on."""
    return spec(name, {"method": method, **changes}, f"method.{path}", MEANINGLESS)


FIELDS = (
    spec(
        "a quorum above the selection",
        {"protocol": {"minSilos": 3, "silosPerRound": 2}},
        "protocol.minSilos",
        "QuorumUnreachable",
    ),
    spec(
        "an asynchronous selection",
        {"protocol": {"mode": "Asynchronous", "silosPerRound": 2}},
        "protocol.silosPerRound",
        MEANINGLESS,
    ),
    *(
        spec(
            f"two {field} of one pool",
            {"evaluation.validation": {**DIGITS, "use": "Test", field: value}},
            f"evaluation.validation.{field}",
            "PoolsDiffer",
            ANCHORED,
        )
        for field, value in (("testPercent", 10), ("groupBy", "patient"))
    ),
    spec("GPUs for some devices", SHARED, "managed", "WrongForm", SILO),
    spec("an evaluation of nothing", {"evaluation": {"everyRounds": 2}}, "evaluation", "WrongForm"),
    spec("two colours", {"model.channels": 2}, "model", "WrongForm"),
    spec(
        "channels of flat images in files of their own",
        {"evaluation.validation": {"format": "ImageFolder", "claimName": "derm", "channelFiles": ["_t1"]}},
        "evaluation.validation.channelFiles",
        MEANINGLESS,
    ),
    spec("images too small for their network", {"model.network": "MoonCnn"}, "model", "WrongForm"),
    spec(
        "ports of nodes that lead nowhere",
        {"server.service.nodePorts": {"silos": 30443}},
        "server.service",
        "WrongForm",
    ),
    spec("a method that is not there", {"method.name": "NoSuch"}, "method.name", "UnknownMethod"),
    spec(
        "an alternative of a package that is not there",
        {"method.weighting": {"plugin": {"name": "acme.Trimmed"}}},
        "method.weighting.plugin.name",
        "UnknownChoice",
    ),
    spec(
        "an alternative of no package",
        {"method.weighting": {"plugin": {"options": {}}}},
        "method.weighting.plugin.name",
        "MissingField",
    ),
)

PROTOCOLS = (
    *(
        spec(f"{method} without rounds", {"method": method, **ASYNCHRONOUS}, "protocol.mode", reason)
        for method, reason in (
            ({"name": "SemiAnAgg"}, "BarrierAsynchronous"),
            ({"name": "FedAvgSemi", "weighting": {"semiAnAgg": {}}}, "BarrierAsynchronous"),
            ({"name": "FedAvg", "serverStep": {"adam": {}}}, PROTOCOL),
            ({"name": "FedAvg", "pseudoLabels": {"classAdaptive": {}}}, PROTOCOL),
            ({"name": "FedAvg", "selfSupervised": {"clusters": {}}}, PROTOCOL),
            ({"name": "FedAvg", "selfSupervised": {"barlow": {"onlineClassifier": "Enabled"}}}, PROTOCOL),
            ({"name": "FedAvg", "inputMixing": {"fedMix": {}}}, PROTOCOL),
            ({"name": "OrigACR", "weighting": {"sampleCount": {}}}, PROTOCOL),
            ({"name": "FedAvgUDA"}, PROTOCOL),
        )
    ),
    *(
        spec(f"{method} in rounds", {"method": method}, "protocol.mode", PROTOCOL)
        for method in (
            {"name": "AsyncFedAvg"},
            {"name": "FedAvg", "weighting": {"uniform": {}}, "serverStep": {"mix": {}}},
            {"name": "FedAvg", "local": {"cycle": {"tombstones": 2}}},
        )
    ),
    spec("asynchronous server training", ASYNCHRONOUS, "protocol.mode", "ServerTrainingAsynchronous", ANCHORED),
    spec(
        "asynchronous statistics",
        {"method": {"name": "FedAvg", "batchNorm": {"pooled": {}}}, **ASYNCHRONOUS},
        "method.batchNorm",
        MEANINGLESS,
    ),
)

STAGES = (
    spec(
        "an asynchronous warm-up",
        {"warmUp": [{"method": "FedProx", "rounds": 1}], **ASYNCHRONOUS},
        "warmUp",
        PROTOCOL,
    ),
    spec(
        "a warm-up without end",
        {"warmUp": [{"method": "FedProx", "rounds": 3}, {"method": "FedAvgM", "rounds": 2}]},
        "rounds",
        "OutOfRange",
    ),
    *(
        spec(f"a warm-up by {method}", {"warmUp": [{"method": method, "rounds": 1}], **changes}, path, reason)
        for method, changes, path, reason in (
            ("NoSuch", {}, "warmUp[0].method", "UnknownMethod"),
            ("FedAsync", {}, "protocol.mode", PROTOCOL),
            ("FedAnchor", {}, "anchorData", "NoAnchorData"),
            ("RSCFed", {"protocol.minSilos": 6}, "warmUp[0].method", "TooFewSilos"),
        )
    ),
    *(
        spec(
            f"a stage that sets {override}",
            {"warmUp": [{"method": "FedAvg", "rounds": 1, "set": ["local.epochs=1", override]}]},
            "warmUp[0].set[1]",
            reason,
        )
        for override, reason in (
            ("local.epochs", "OverrideRefused"),
            ("name=FedProx", "OverrideRefused"),
            ("local.epoch=1", "UnknownField"),
            ("local.batchSize=0", "OutOfRange"),
            ("weighting={semiAnAg: {}}", "UnknownChoice"),
            ("weighting={uniform: {}, dvw: {}}", "WrongForm"),
            ("mixup={server: {}}", MEANINGLESS),
        )
    ),
)

METHODS = (
    spec(
        "groups below the quorum",
        {"method": {"name": "RSCFed"}, "protocol.minSilos": 6},
        "method.weighting.subConsensus.groupSize",
        "TooFewSilos",
    ),
    *(
        spec(f"anchors that {method} needs", {"method": method, **changes}, "anchorData", "NoAnchorData")
        for method, changes in (
            ({"name": "FedAnchor"}, {}),
            ({"name": "FedAvg", "serverTraining": {"anchors": {}}}, {}),
            ({"name": "FedAvg", "batchNorm": {"recalibrate": {}}}, {}),
            ({"name": "FedAvg", "batchNorm": {"local": {}}}, {"evaluation": {"validation": {**DIGITS, "use": "Test"}}}),
        )
    ),
    spec("a class without an anchor", {"anchorData.anchors": 9}, "anchorData.anchors", "ClassWithoutAnchors", ANCHORED),
    _meaningless("mixup at a server that does not train", {"name": "FedAvg", "mixup": {"server": {}}}, "mixup"),
    _meaningless("mixup of labels that change", {"name": "FedAvg", "mixup": {"client": {}}}, "mixup"),
    _meaningless(
        "representations beside pseudo-labels", {"name": "FedAvgSemi", "regulariser": {"moon": {}}}, "regulariser"
    ),
    _meaningless("representations without labels", {"name": "FedBarlow", "regulariser": {"moon": {}}}, "regulariser"),
    _meaningless(
        "pseudo-labels without labels", {"name": "FedBarlow", "pseudoLabels": {"fixMatch": {}}}, "selfSupervised"
    ),
    _meaningless("mixed images with pseudo-labels", {"name": "FedAvgUDA", "inputMixing": {"local": {}}}, "inputMixing"),
    _meaningless("mixed images with a second head", {"name": "LocalMix", "secondHead": {"personal": {}}}, "secondHead"),
    _meaningless(
        "a cycle over images without labels",
        {"name": "FedAvgUDA", "local": {"cycle": {}}, "weighting": {"dvw": {}}},
        "local.cycle",
        **ASYNCHRONOUS,
    ),
    *(
        _meaningless(
            f"{head} beside {kind}",
            {"name": "FedAvg", "secondHead": {head: {}}, "pseudoLabels": {kind: {}}},
            "secondHead",
        )
        for head, kind in (("personal", "uda"), ("personalDual", "none"), ("balanced", "flexMatch"))
    ),
    _meaningless(
        "adjusted labels without a balanced head",
        {"name": "SSILCDM", "secondHead": {"none": {}}},
        "pseudoLabels.fixMatch.adjustment",
    ),
    _meaningless("a loss on labels that no head has", {"name": "SSILCDM", "localLoss": {"taskLoss": {}}}, "localLoss"),
    _meaningless(
        "a loss on labels that are not read", {"name": "FedBarlow", "localLoss": {"taskLoss": {}}}, "localLoss"
    ),
    spec(
        "a loss on labels that no silo uses",
        {"method.localLoss": {"balancedSoftmax": {}}},
        "method.localLoss",
        MEANINGLESS,
        ANCHORED,
    ),
    _meaningless("weighted control variates", {"name": "SCAFFOLD", "weighting": {"sampleCount": {}}}, "weighting"),
    _meaningless("variates without labels", {"name": "SCAFFOLD", "selfSupervised": {"byol": {}}}, "selfSupervised"),
    _meaningless("variates of what stays", {"name": "SCAFFOLD", "batchNorm": {"local": {}}}, "batchNorm"),
    _meaningless(
        "control variates of steps with momentum",
        {"name": "SCAFFOLD", "local": {"optimiser": {"sgd": {"momentum": "0.9"}}}},
        "local.optimiser.sgd.momentum",
    ),
    _meaningless(
        "updates that are weighed twice",
        {"name": "FedAsync", "weighting": {"sampleCount": {}}},
        "weighting",
        **ASYNCHRONOUS,
    ),
    _meaningless("scores of an untrained classifier", {"name": "DVW", "selfSupervised": {"byol": {}}}, "weighting"),
    _meaningless(
        "scores of models without statistics",
        {"name": "DVW", "batchNorm": {"static": {}}},
        "batchNorm",
        anchorData=ANCHORED["spec"]["anchorData"],
    ),
    _meaningless("steps that nobody tells", {"name": "FedAvg", "weighting": {"stepCount": {}}}, "weighting"),
    _meaningless(
        "weights by labels that are not there", {"name": "FedAvg", "weighting": {"semiAnAgg": {}}}, "weighting"
    ),
    _meaningless("similarities of no features", {"name": "FedAvgUDA", "weighting": {"semiAnAgg": {}}}, "weighting"),
    _meaningless(
        "split weights with another pull", {"name": "FedMatch", "regulariser": {"proximal": {}}}, "regulariser"
    ),
    _meaningless(
        "split weights that decay",
        {"name": "FedMatch", "local": {"optimiser": {"sgd": {"weightDecay": "0.0005"}}}},
        "local.optimiser.sgd.weightDecay",
    ),
    spec(
        "two views beside mixed anchors",
        {
            "method": {
                "name": "FedAnchor",
                "mixup": {"both": {}},
                "serverTraining": {"anchors": {"objective": {"twoViews": {}}}},
            }
        },
        "method.serverTraining.anchors.objective",
        MEANINGLESS,
        ANCHORED,
    ),
)

LEFT_TO_THE_OPERATOR: tuple[Refusal, ...] = (*FIELDS, *_sections(), *_pods(), *PROTOCOLS, *STAGES, *METHODS)
