"""Rules for methods that learn from images without labels (METHODS.md 6.13)."""

from collections.abc import Iterator

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.methods.plan import Plan

_METHOD = ("spec", "method")
_TYPE = (*_METHOD, "selfSupervised", "type")


def learns_without_labels(plan: Plan) -> bool:
    """Whether no silo looks at a label."""
    slot = plan.method.self_supervised
    return slot.type != "None" and slot.online_classifier == "Disabled"


def self_supervision_is_the_only_loss(plan: Plan) -> Iterator[Mistake]:
    """A self-supervised loss is of all images: no pseudo-labels, no labels, nothing that scores a classifier nobody trains."""
    method, kind = plan.method, plan.method.self_supervised.type
    if kind == "None":
        return
    found = f"found {kind}, which learns from images alone, with "
    if method.pseudo_labels.type != "None":
        message = f"{found}pseudoLabels.type {method.pseudo_labels.type}; set one of them to None"
        yield Mistake(MEANINGLESS_OVERRIDE, _TYPE, message)
    if method.regulariser.type not in ("None", "Proximal"):
        message = f"{found}the regulariser {method.regulariser.type}, which is of labelled images; set Proximal or None"
        yield Mistake(MEANINGLESS_OVERRIDE, _TYPE, message)
    if learns_without_labels(plan) and plan.spec.method.supervised is not None:
        path = (*_METHOD, "supervised", "type")
        message = (
            f"found {method.supervised.type}, but with selfSupervised.type {kind} no silo looks at labels; remove it"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)
    if learns_without_labels(plan) and method.weighting.type == "DVW":
        message = f"{found}the weighting DVW, which scores the classifier, but no silo trains one; set SampleCount"
        yield Mistake(MEANINGLESS_OVERRIDE, _TYPE, message)


def steps_are_told(plan: Plan) -> Iterator[Mistake]:
    """Only silos that cluster tell their number of steps."""
    if plan.method.weighting.type == "StepCount" and plan.method.self_supervised.type != "Clusters":
        message = "found StepCount, but silos tell their steps with selfSupervised.type: Clusters only; set SampleCount"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "weighting", "type"), message)
