"""What the API server refuses of a federation's choice of method, and what it leaves to the operator."""

from collections.abc import Iterator

from anchorage.api.slots import READ_BY
from anchorage.crd.methods import UNSAID
from pydantic.alias_generators import to_camel
from refusal import ANCHORED, DIGITS, SILO, Refusal, spec

from anchorage.api.method import ResolvedMethod


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
            yield spec(f"{path} that nothing reads", {path: plain}, field, "leave out what is not read")


METHODS = (
    spec(
        "an asynchronous barrier",
        {"method.name": "SemiAnAgg", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "need the announcements of all silos of a round",
    ),
    spec(
        "an asynchronous barrier by an override",
        {"method": {"name": "FedAvgSemi", "weighting": {"semiAnAgg": {}}}, "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "need the announcements of all silos of a round",
    ),
    spec(
        "asynchronous server training",
        {"protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "the server trains on its anchors after each round",
        ANCHORED,
    ),
    spec(
        "an asynchronous server step",
        {"method.serverStep.type": "Adam", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "this server step takes the mean of a whole round",
    ),
    spec(
        "a method without rounds in rounds",
        {"method.name": "AsyncFedAvg"},
        "spec.protocol.mode",
        "has no rounds",
    ),
    spec(
        "an asynchronous server step in rounds",
        {"method": {"name": "FedAvg", "weighting": {"uniform": {}}, "serverStep": {"mix": {}}}},
        "spec.protocol.mode",
        "nor have serverStep.type Mix",
    ),
    spec(
        "a validation cycle in rounds",
        {"method.local": {"cycle": {"tombstones": 2}}},
        "spec.protocol.mode",
        "nor have serverStep.type Mix and local.cycle",
    ),
    *(
        spec(
            f"what goes by rounds, {slot} {value}, without",
            {
                "method": {"name": name, "weighting": {"sampleCount": {}}, slot: value},
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
    spec(
        "a method of rounds without rounds",
        {"method.name": "FedAvgUDA", "protocol.mode": "Asynchronous"},
        "spec.protocol.mode",
        "this method has rounds only",
    ),
    spec(
        "an asynchronous warm-up",
        {"warmUp": [{"method": "FedProx", "rounds": 1}], "protocol.mode": "Asynchronous"},
        "spec.warmUp",
        "an asynchronous protocol has no rounds to divide",
    ),
    spec(
        "a warm-up without end",
        {"warmUp": [{"method": "FedProx", "rounds": 3}, {"method": "FedAvgM", "rounds": 2}]},
        "spec.rounds",
        "the warm-up takes all rounds",
    ),
    spec(
        "a warm-up without rounds",
        {"warmUp": [{"method": "FedAsync", "rounds": 1}]},
        "spec.protocol.mode",
        "this method, or one of warmUp, has no rounds",
    ),
    spec(
        "anchors that the warm-up needs",
        {"warmUp": [{"method": "FedAnchor", "rounds": 1}]},
        "spec.anchorData",
        "or one of warmUp, needs labelled anchors of each class",
    ),
    spec(
        "groups below the quorum",
        {"method": {"name": "RSCFed", "weighting": {"subConsensus": {"groupSize": 2}}}, "protocol.minSilos": 3},
        "spec.method.weighting.groupSize",
        "a group is to reach the quorum",
    ),
    spec(
        "anchors that are not there",
        {"method.name": "FedAnchor"},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData",
    ),
    spec(
        "anchors that a slot needs",
        {"method.serverTraining.type": "Anchors"},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData",
    ),
    spec(
        "a class without an anchor",
        {"anchorData.anchors": 9},
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData, or anchors to it",
        ANCHORED,
    ),
    spec(
        "a score of what silos keep statistics of",
        {
            "method": {"name": "FedAvg", "batchNorm": {"local": {}}},
            "evaluation": {"data": {**DIGITS, "use": "Test"}},
        },
        "spec.anchorData",
        "needs labelled anchors of each class at the server; add anchorData",
    ),
    spec(
        "a class without an anchor to count on",
        {"anchorData.anchors": 9, "method": {"name": "FedAvg", "batchNorm": {"recalibrate": {}}}},
        "spec.anchorData",
        "needs labelled anchors of each class at the server",
        ANCHORED,
    ),
    spec(
        "mixup at a server that does not train",
        {"method.mixup.at": "Server"},
        "spec.method.mixup.at",
        "mixup at the server, but the server trains on nothing",
    ),
    spec(
        "mixup of labels that change",
        {"method.mixup.at": "Client"},
        "spec.method.mixup.at",
        "silos mix images whose labels are fixed for the round",
    ),
    spec(
        "representations of images without labels",
        {"method": {"name": "FedAvgSemi", "regulariser": {"moon": {}}}},
        "spec.method",
        "one loss at a time",
    ),
    spec(
        "pseudo-labels beside a loss without labels",
        {"method": {"name": "FedBarlow", "pseudoLabels": {"fixMatch": {}}}},
        "spec.method",
        "one loss at a time",
    ),
    spec(
        "representations beside a loss without labels",
        {"method": {"name": "FedBarlow", "regulariser": {"moon": {}}}},
        "spec.method",
        "one loss at a time",
    ),
    spec(
        "mixed images with pseudo-labels",
        {"method": {"name": "FedAvgUDA", "inputMixing": {"local": {}}}},
        "spec.method",
        "one loss at a time",
    ),
    spec(
        "mixed images with a second head",
        {"method": {"name": "LocalMix", "secondHead": {"personal": {}}}},
        "spec.method",
        "one loss at a time",
    ),
    spec(
        "a cycle over images without labels",
        {
            "method": {"name": "FedAvgUDA", "local": {"cycle": {}}, "weighting": {"dvw": {}}},
            "protocol.mode": "Asynchronous",
        },
        "spec.method",
        "and local.cycle with neither of the first two",
    ),
    *(
        spec(
            f"a second head, {head}, beside {kind}",
            {"method": {"name": "FedAvg", "heads": {"second": head}, "pseudoLabels": {"type": kind}}},
            "spec.method",
            f"{head} beside",
        )
        for head, kind in (("Personal", "UDA"), ("PersonalDual", "None"), ("Balanced", "FlexMatch"))
    ),
    spec(
        "adjusted labels without a balanced head",
        {"method": {"name": "SSILCDM", "secondHead": {"none": {}}}},
        "spec.method.pseudoLabels.adjustment",
        "labels are adjusted for a balanced head only",
    ),
    *(
        spec(f"one of two, {slot}", {f"method.{slot}": value}, "spec.method", "need each other")
        for slot, value in (
            ("decomposition", {"type": "SigmaPsi"}),
            ("pseudoLabels", {"type": "Helpers"}),
            ("regulariser", {"type": "ControlVariates"}),
            ("local", {"start": "Own"}),
            ("serverStep", {"type": "Keep"}),
        )
    ),
    spec(
        "weighted control variates",
        {"method": {"name": "SCAFFOLD", "weighting": {"sampleCount": {}}}},
        "spec.method.weighting.type",
        "control variates are a plain mean",
    ),
    spec(
        "updates that are weighed twice",
        {
            "method": {"name": "FedAsync", "weighting": {"sampleCount": {}}},
            "protocol.mode": "Asynchronous",
        },
        "spec.method.weighting.type",
        "the server step Mix weighs updates by their age alone",
    ),
    *(
        spec(f"{name} and {slot}", {"method": {"name": name, slot: value}}, "spec.method", words)
        for name, slot, value, words in (
            ("SCAFFOLD", "selfSupervised", {"type": "Byol"}, "remove selfSupervised"),
            ("SCAFFOLD", "inputMixing", {"type": "FedMix"}, "remove selfSupervised"),
            ("SCAFFOLD", "batchNorm", {"policy": "Local"}, "remove selfSupervised"),
            ("DVW", "selfSupervised", {"type": "Byol"}, "DVW has the silos' whole models score"),
            ("DVW", "batchNorm", {"policy": "Static"}, "DVW has the silos' whole models score"),
        )
    ),
    spec(
        "steps that nobody tells",
        {"method.weighting.type": "StepCount"},
        "spec.method.weighting.type",
        "silos tell their steps with selfSupervised.type: Clusters only",
    ),
    spec(
        "a contrastive loss at a server that does not train",
        {"method.serverTraining": {"type": "None", "contrastive": "Enabled"}},
        "spec.method.serverTraining",
        "serverTraining.type reads contrastive, ",
    ),
    spec(
        "weights by pseudo-labels that are not there",
        {"method.weighting.type": "SemiAnAgg"},
        "spec.method.weighting.type",
        "weigh silos by accepted pseudo-labels, but there are none",
    ),
    spec(
        "a loss on labels that no silo uses",
        {"method.supervised.type": "BalancedSoftmax"},
        "spec.method.supervised",
        "AnchorSimilarity labels all images",
        ANCHORED,
    ),
    *(
        spec(
            f"a loss on labels of {name}",
            {"method": {"name": name, "localLoss": {"crossEntropy": {}}}},
            "spec.method.supervised",
            "no silo trains on labels by a loss of its own choice",
        )
        for name in ("SSILCDM", "FedBarlow")
    ),
    *_unread(),
)

LEFT_TO_THE_OPERATOR: tuple[Refusal, ...] = (
    spec("a method that is not there", {"method.name": "NoSuch"}, "spec.method.name", "allowed are"),
    spec(
        "a warm-up that is not there",
        {"warmUp": [{"method": "NoSuch", "rounds": 1}]},
        "spec.warmUp[0].method",
        "allowed are",
    ),
    spec(
        "a warm-up whose groups are below the quorum",
        {"warmUp": [{"method": "RSCFed", "rounds": 1}], "protocol.minSilos": 6},
        "spec.warmUp[0].method",
        "all groups may draw the same silos",
    ),
    *(
        spec(
            f"a stage that sets {override}",
            {"warmUp": [{"method": "FedAvg", "rounds": 1, "set": ["local.epochs=1", override]}]},
            "spec.warmUp[0].set[1]",
            words,
        )
        for override, words in (
            ("local.epochs", "found no path=value"),
            ("name=FedProx", "found another preset's name"),
            ("local.epoch=1", "found an unknown field, allowed are epochs"),
            ("local.batchSize=0", "local.batchSize: found 0, allowed is a whole number"),
            ("mixup.at=Server", "mixup.at: found Server, but the server trains on nothing"),
        )
    ),
    spec(
        "split weights with another pull",
        {"method": {"name": "FedMatch", "regulariser": {"proximal": {}}}},
        "spec.method.decomposition.type",
        "its own terms hold the parts together",
    ),
    spec(
        "split weights that decay",
        {"method": {"name": "FedMatch", "local": {"optimiser": {"sgd": {"weightDecay": "0.0005"}}}}},
        "spec.method.local.optimiser.weightDecay",
        "pull both parts of a weight to 0",
    ),
    spec(
        "control variates of steps with momentum",
        {"method": {"name": "SCAFFOLD", "local": {"optimiser": {"sgd": {"momentum": "0.9"}}}}},
        "spec.method.local.optimiser.momentum",
        "mean gradients of plain SGD alone",
    ),
    spec(
        "updates that count nothing",
        {"method": {"name": "FedAsync", "serverStep": {"mix": {"alpha": "0"}}}, "protocol.mode": "Asynchronous"},
        "spec.method.serverStep.alpha",
        "with which no update would count",
    ),
    spec(
        "ages that count nothing",
        {"method": {"name": "FedAsync", "serverStep": {"mix": {"falloff": "2"}}}, "protocol.mode": "Asynchronous"},
        "spec.method.serverStep.falloff",
        "serverStep.staleness is Constant",
    ),
    spec(
        "two views beside mixed anchors",
        {"method": {"name": "FedAnchorMix", "serverTraining": {"twoViews": {}}}},
        "spec.method.serverTraining.consistency",
        "which has a loss of its own",
        ANCHORED,
    ),
    spec(
        "shares of all labels without rounds",
        {
            "method": {"name": "OrigACR", "weighting": {"sampleCount": {}}},
            "protocol.mode": "Asynchronous",
        },
        "spec.protocol.mode",
        "adjustment Labelled needs what all silos",
    ),
    *(
        spec(
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
