"""Rules for second heads, for groups of silos, and for the server's two views (METHODS.md 6.7, 6.10, 6.12)."""

from collections.abc import Iterator, Mapping

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE, TOO_FEW_SILOS
from anchorage.api.mistakes import Mistake
from anchorage.methods.plan import Plan

_METHOD = ("spec", "method")
_HEADS = (*_METHOD, "heads", "second")

LABELLED_BY: Mapping[str, tuple[str, ...]] = {
    "Personal": ("None", "FlexMatch"),
    "PersonalDual": ("FlexMatch",),
    "Balanced": ("FixMatch",),
}
"""Pseudo-labels that each kind of second head learns beside."""


def second_head_learns(plan: Plan) -> Iterator[Mistake]:
    """Two heads have losses of their own."""
    method, second = plan.method, plan.method.heads.second
    kind, adjustment = method.pseudo_labels.type, method.pseudo_labels.adjustment
    if adjustment != "None" and second != "Balanced":
        message = f"found {adjustment}, but labels are adjusted for a balanced head only; set heads.second: Balanced"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "pseudoLabels", "adjustment"), message)
    if second == "None":
        return
    allowed = LABELLED_BY[second]
    if kind not in allowed:
        message = (
            f"found {second} with pseudoLabels.type {kind}, beside which no second head learns; set "
            f"pseudoLabels.type: {' or '.join(allowed)}, or heads.second: None"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, _HEADS, message)
    others = {
        "regulariser.type": method.regulariser.type in ("Moon", "FeatureDistance") and method.regulariser.type,
        "selfSupervised.type": method.self_supervised.type != "None" and method.self_supervised.type,
        "inputMixing.type": method.input_mixing.type != "None" and method.input_mixing.type,
    }
    for slot, found in others.items():
        if found:
            message = f"found {second} with {slot} {found}, whose loss is of one head; set one of them to None"
            yield Mistake(MEANINGLESS_OVERRIDE, _HEADS, message)
    if second == "Balanced" and plan.spec.method.supervised is not None:
        message = f"found {method.supervised.type}, but with heads.second: Balanced each head has its loss; remove it"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "supervised", "type"), message)


def groups_reach_the_quorum(plan: Plan) -> Iterator[Mistake]:
    """A round of sub-consensus groups may have as few silos as one group."""
    weighting, needed = plan.method.weighting, plan.spec.protocol.min_silos
    if weighting.type == "SubConsensus" and weighting.group_size < needed:
        message = (
            f"found {weighting.group_size}, but protocol.minSilos is {needed}, and all groups may draw the same silos; "
            "set groupSize to at least that, or minSilos lower"
        )
        yield Mistake(TOO_FEW_SILOS, (*_METHOD, "weighting", "groupSize"), message)


def views_agree_alone(plan: Plan) -> Iterator[Mistake]:
    """The server's consistency loss is of plain anchors."""
    method = plan.method
    mixed = method.mixup.at in ("Server", "Both")
    if method.server_training.consistency == "Enabled" and (mixed or method.decomposition.type != "None"):
        found = "mixup at the server" if mixed else "weights in two parts"
        message = (
            f"found Enabled with {found}, which has a loss of its own; set consistency: Disabled, or leave that out"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "serverTraining", "consistency"), message)
