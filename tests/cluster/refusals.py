"""What the API server refuses: every CEL rule of the definitions at each of its places, unions, and an example of each other kind of bound.

The unit tests hold this table against the definitions (no rule without its refusal) and against the documents' own rules (what the API
server refuses `fedctl validate` refuses as well); the cluster tests send every object to a real API server.
"""

from collections.abc import Iterator
from typing import Any

from refusal import ANCHORED, FEDERATION, SILO, Refusal, changed, spec


def _paths() -> Iterator[Refusal]:
    """Yield paths that leave their folder, and values of masks that are none, at each place where one stands."""
    manifest = {"format": "CsvManifest", "claimName": "derm"}
    listed = {"format": "Digits", "partition": {"recipe": "File", "file": ".."}}
    for place, base, field_of_list, section_of_list in (
        *(
            (f"{place}", FEDERATION, "partitionFile", {"format": "Digits", "partitionFile": ".."})
            for place in ("anchorData", "evaluation.validation", "evaluation.test")
        ),
        ("managed.data", SILO, "partition.file", listed),
    ):
        cases: tuple[tuple[str, Any], ...] = (
            ("path", {**manifest, "path": "a/../../b", "manifest": "m.csv"}),
            ("manifest", {**manifest, "manifest": "../m.csv"}),
            (field_of_list, section_of_list),
        )
        for field, section in cases:
            yield spec(f"{place}.{field} elsewhere", {place: section}, f"{place}.{field}", "remove ..", base)
        masks = {**manifest, "manifest": "m.csv", "maskValues": {"white": "lesion"}}
        values = (f"{place}.maskValues", "a name here is a quoted value of pixels")
        yield spec(f"{place}.maskValues of a word", {place: masks}, *values, base)
    yield spec("weights from elsewhere", {"model.initial": "../a"}, "model.initial", "remove ..")
    yield spec("a policy from elsewhere", {"managed.policy": "a/.."}, "managed.policy", "remove ..", SILO)


def _pods() -> Iterator[Refusal]:
    """Yield what is refused of a pod, at each place where one is described."""
    cases: tuple[tuple[str, str, Any, str, str], ...] = (
        ("a request for nothing known", "resources.requests", {"a b": 1}, "", "a name here is a resource"),
        ("a limit of nothing known", "resources.limits", {"a b": 1}, "", "a name here is a resource"),
        ("an amount that is none", "resources.limits", {"memory": "many"}, ".memory", "should match"),
    )
    for place, base in (("server", FEDERATION), ("managed", SILO)):
        for name, field, value, below, message in cases:
            yield spec(f"{place}: {name}", {f"{place}.{field}": value}, f"{place}.{field}{below}", message, base)


def _unions() -> Iterator[Refusal]:
    """Yield slots that hold no alternative, several, an unknown one, or options of another; also inside an alternative."""
    places = {
        "method.weighting": ("semiAnAgg", "uniform"),
        "method.serverTraining": ("anchors", "none"),
        "method.serverTraining.anchors.objective": ("labelContrastive", "taskLoss"),
        "method.local.optimiser": ("sgd", "plugin"),
    }
    for slot, (one, other) in places.items():
        yield spec(f"{slot} without an alternative", {slot: {}}, slot, "should have at least 1 properties")
        both = {one: {}, other: {"name": "acme.X"} if other == "plugin" else {}}
        yield spec(f"{slot} with two alternatives", {slot: both}, slot, "must have at most 1 item")
        for word in ("nonsense", one.capitalize(), "type"):
            yield spec(f"{slot} {word}", {slot: {word: {}}}, "", f'unknown field "spec.{slot}.{word}"')
        yield spec(f"{slot} as a word", {slot: one}, slot, "must be of type object")
        strange = {one: {"share": "0.5"}}
        yield spec(f"{slot} with an option of another", {slot: strange}, "", f'unknown field "spec.{slot}.{one}.share"')


BOUNDS = (
    spec(
        "an annotation that is none",
        {"server.service.annotations": {"a b": "c"}},
        "server.service.annotations",
        "a name here is a label's key",
    ),
    spec("no rounds", {"rounds": 0}, "rounds", "should be greater than or equal to 1"),
    spec("rounds that are text", {"rounds": "5"}, "rounds", "must be of type integer"),
    spec("a negative seed", {"seed": -1}, "seed", "should be greater than or equal to 0"),
    spec("no model", {"model": None}, "model", "Required value"),
    spec("a model that is not known", {"model.network": "SmallCNN"}, "model.network", "should match"),
    spec("a word that is not known", {"protocol.mode": "Async"}, "protocol.mode", 'Unsupported value: "Async"'),
    spec("a boolean for a word", {"labels": False}, "labels", "must be of type string", SILO),
    spec(
        "a number for a decimal",
        {"method.local": {"optimiser": {"sgd": {"learningRate": 0.5}}}},
        "method.local.optimiser.sgd.learningRate",
        "must be of type string",
    ),
    spec(
        "a fraction above 1",
        {"method.pseudoLabels": {"anchorSimilarity": {"threshold": "1.5"}}},
        "method.pseudoLabels.anchorSimilarity.threshold",
        "should match",
        ANCHORED,
    ),
    spec(
        "updates that count nothing",
        {"method": {"name": "FedAsync", "serverStep": {"mix": {"alpha": "0"}}}, "protocol.mode": "Asynchronous"},
        "method.serverStep.mix.alpha",
        "should match",
    ),
    spec(
        "means of one image",
        {"method": {"name": "FedMix", "inputMixing": {"fedMix": {"groupSize": 1}}}},
        "method.inputMixing.fedMix.groupSize",
        "should be greater than or equal to 2",
    ),
    spec(
        "a word that an option does not know",
        {"method.weighting": {"semiAnAgg": {"order": "code"}}},
        "method.weighting.semiAnAgg.order",
        'Unsupported value: "code"',
    ),
    spec("a password in an address", {"tracking.uri": "http://me:secret@mlflow"}, "tracking.uri", "should match"),
    spec("an address without a port", {"server.address": "derm.org"}, "server.address", "should match"),
    spec("a name that is none", {"federation": "Derm"}, "federation", "should match", SILO),
    spec("an unknown field", {"raunds": 5}, "", 'unknown field "spec.raunds"'),
    spec("an unknown field deep inside", {"method.local": {"epoch": 5}}, "", 'unknown field "spec.method.local.epoch"'),
)

CLUSTER = (
    Refusal(
        "a federation's name that is too long for its pods",
        changed(FEDERATION, {"metadata.name": "a" * 46}),
        "at most 45: pods and services are named after it",
        "metadata.name",
        everywhere=False,
    ),
    Refusal(
        "a federation's name that no Service can have",
        changed(FEDERATION, {"metadata.name": "2026-derm"}),
        "a letter first",
        "metadata.name",
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

REFUSALS: tuple[Refusal, ...] = (*_unions(), *BOUNDS, *_paths(), *_pods(), *CLUSTER)
