"""Rules for stages: the warm-up's methods on the same silos, data and protocol (methods reference, section 3.1)."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from anchorage.api.errors.documents import OUT_OF_RANGE, PROTOCOL_REFUSED, UNKNOWN_METHOD
from anchorage.api.federation import WarmUp
from anchorage.api.mistakes import DocumentError, FieldPath, Mistake
from anchorage.api.plan import Plan
from anchorage.api.stages import inside_stage, stage_method
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import resolve, unknown_method

_WARM_UP: FieldPath = ("spec", "warmUp")


def stages_fit(plan: Plan, rules: Callable[[Plan], Iterator[Mistake]]) -> Iterator[Mistake]:
    """Stages need rounds, and leave some to the main method; each of their methods keeps the rules by itself."""
    stages = plan.spec.warm_up
    if not stages:
        return
    if plan.asynchronous:
        message = "found stages, but an asynchronous protocol has no rounds to divide; set Synchronous, or remove them"
        yield Mistake(PROTOCOL_REFUSED, _WARM_UP, message)
        return
    warm_up_rounds = sum(stage.rounds for stage in stages)
    if warm_up_rounds >= plan.spec.rounds:
        message = f"found {plan.spec.rounds}, but the warm-up takes {warm_up_rounds} of them; allowed is {warm_up_rounds + 1} or more"
        yield Mistake(OUT_OF_RANGE, ("spec", "rounds"), message)
    for index, stage in enumerate(stages):
        for mistake in _stage_fits(plan, stage, rules):
            yield mistake if mistake.path[0] == "spec" else replace(mistake, path=(*_WARM_UP, index, *mistake.path))


def _stage_fits(plan: Plan, stage: WarmUp, rules: Callable[[Plan], Iterator[Mistake]]) -> Iterator[Mistake]:
    """Find a stage's mistakes: those in its method at their place inside the stage, others at theirs in the document."""
    if stage.method not in PRESETS:
        yield Mistake(UNKNOWN_METHOD, ("method",), unknown_method(stage.method))
        return
    try:
        method = stage_method(stage)
    except DocumentError as error:
        yield from error.mistakes
        return
    resolved = resolve(method, plan.spec.task)
    stage_plan = Plan(plan.spec.model_copy(update={"method": method}), plan.silos, resolved, warms_up=True)
    for mistake in rules(stage_plan):
        inside = mistake.path[:2] == ("spec", "method")
        yield inside_stage(stage, replace(mistake, path=mistake.path[2:])) if inside else mistake
