"""Rules for batch normalisation between silos (METHODS.md section 1, rule 5)."""

from collections.abc import Iterator

from anchorage.api.errors.documents import MEANINGLESS_OVERRIDE
from anchorage.api.mistakes import Mistake
from anchorage.methods.plan import Plan

RECOUNTED = ("Recalibrate", "Static")
"""Policies whose running statistics the server counts anew on its anchors."""

_PATH = ("spec", "method", "batchNorm", "policy")


def batch_norm_fits(plan: Plan) -> Iterator[Mistake]:
    """Pooled and recounted statistics need rounds; a model that is scored elsewhere needs all of its own."""
    policy, weighting = plan.method.batch_norm.policy, plan.method.weighting.type
    if plan.asynchronous and policy in ("Pooled", *RECOUNTED):
        message = f"found {policy}, but it is done once per round, and Asynchronous has none; set Average or Local"
        yield Mistake(MEANINGLESS_OVERRIDE, _PATH, message)
    if weighting == "DVW" and policy in ("Local", "Static"):
        message = f"found {policy}, but DVW has updates scored by other silos, and these travel without; set Average"
        yield Mistake(MEANINGLESS_OVERRIDE, _PATH, message)
    if policy == "Local" and plan.method.server_step.type == "ControlVariates":
        message = "found Local, but control variates are of every trained tensor; set Average"
        yield Mistake(MEANINGLESS_OVERRIDE, _PATH, message)
