"""Rules of methods that learn from labels alone: SCAFFOLD, SOLO, mixed images, upper bounds (METHODS.md 3.2, 6.1, 6.2, 6.4)."""

from collections.abc import Iterator

from anchorage.api.errors.documents import LABELS_MISSING, MEANINGLESS_OVERRIDE, PROTOCOL_REFUSED
from anchorage.api.mistakes import Mistake
from anchorage.methods.plan import Plan

_METHOD = ("spec", "method")
_VARIATES = "ControlVariates"
POOLED = ("Naive", "FedMix", "Global")
"""Foreign images from a pool that grows from round to round."""
_UPPER_BOUNDS = ("UpperBound", "FedAvgSL", "FedProxSL")


def variates_are_of_plain_steps(plan: Plan) -> Iterator[Mistake]:
    """SCAFFOLD's option II takes the way of plain SGD for a mean gradient, of every silo alike (METHODS.md 6.2)."""
    method = plan.method
    if (method.regulariser.type == _VARIATES) != (method.server_step.type == _VARIATES):
        message = (
            f"found {method.server_step.type} with regulariser.type {method.regulariser.type}, but control variates are "
            f"kept by both; set {_VARIATES} in both, or in neither"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "serverStep", "type"), message)
    if method.regulariser.type != _VARIATES:
        return
    optimiser, other = method.local.optimiser, method.local.unlabelled.clip_norm or "0"
    fields = {"momentum": optimiser.momentum, "weightDecay": optimiser.weight_decay, "clipNorm": optimiser.clip_norm}
    for field, value in fields.items():
        if float(value) or (field == "clipNorm" and float(other)):
            message = f"found {value}, but {_VARIATES} are mean gradients of plain SGD alone; set 0"
            yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "local", "optimiser", field), message)
    if method.weighting.type != "Uniform":
        message = f"found {method.weighting.type}, but {_VARIATES} are a plain mean over silos; set Uniform"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "weighting", "type"), message)
    idle = (
        [s.metadata.name for s in plan.silos if s.spec.labels == "None"] if method.pseudo_labels.type == "None" else []
    )
    if idle:
        message = (
            f"found {method.name}, whose control variates are a mean over all silos, but {idle[0]} has labels: None and "
            "never trains; leave such silos out"
        )
        yield Mistake(LABELS_MISSING, (*_METHOD, "name"), message)


def own_models_are_not_averaged(plan: Plan) -> Iterator[Mistake]:
    """Silos that go on from their own models, and a server that keeps its own, need each other (SOLO, METHODS.md 6.1)."""
    start, step = plan.method.local.start, plan.method.server_step.type
    if (start == "Own") != (step == "Keep"):
        message = (
            f"found {start} with serverStep.type {step}, but silos go on from their own models (Own) where the server "
            "keeps its own (Keep); set both, or neither"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "local", "start"), message)


def mixed_images_have_labels(plan: Plan) -> Iterator[Mistake]:
    """Labelled images are mixed, under one plain loss; a pool of means grows from round to round (METHODS.md 6.4)."""
    method, kind = plan.method, plan.method.input_mixing.type
    if kind == "None":
        return
    others = {
        "pseudoLabels.type": (method.pseudo_labels.type, ("None",)),
        "selfSupervised.type": (method.self_supervised.type, ("None",)),
        "heads.second": (method.heads.second, ("None",)),
        "regulariser.type": (method.regulariser.type, ("None", "Proximal", _VARIATES)),
    }
    for field, (found, allowed) in others.items():
        if found not in allowed:
            message = (
                f"found {kind} with {field} {found}, but only the plain loss on labelled images is mixed; set {field}: "
                f"{' or '.join(allowed)}, or inputMixing.type: None"
            )
            yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "inputMixing", "type"), message)
    if plan.asynchronous and kind in POOLED:
        message = (
            f"found Asynchronous, but the pool of images that {kind} mixes with is of whole rounds; set Synchronous"
        )
        yield Mistake(PROTOCOL_REFUSED, ("spec", "protocol", "mode"), message)
    if method.regulariser.type == _VARIATES and kind in POOLED:
        message = f"found {kind} with {_VARIATES}, but a run remembers one of the two; set another regulariser"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "inputMixing", "type"), message)


def upper_bounds_have_every_label(plan: Plan) -> Iterator[Mistake]:
    """An upper bound with labels missing bounds nothing."""
    if plan.method.name in _UPPER_BOUNDS:
        for silo in plan.silos:
            if silo.spec.labels != "All":
                message = f"found {plan.method.name}, but {silo.metadata.name} has labels: {silo.spec.labels}; label it, or choose LowerBound"
                yield Mistake(LABELS_MISSING, (*_METHOD, "name"), message)
                return
