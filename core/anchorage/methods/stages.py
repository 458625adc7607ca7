"""Rules for stages: the warm-up's methods on the same silos, data and protocol (METHODS.md section 3.1)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from anchorage.errors.documents import OUT_OF_RANGE, PROTOCOL_REFUSED, UNKNOWN_METHOD
from anchorage.methods.plan import Plan
from anchorage.methods.registry import PRESETS
from anchorage.methods.resolution import unknown_method
from anchorage.spec.method import MethodSpec
from anchorage.spec.mistakes import FieldPath, Mistake

_WARM_UP: FieldPath = ("spec", "warmUp")


def stages_fit(plan: Plan, rules: Sequence[Callable[[Plan], Iterator[Mistake]]]) -> Iterator[Mistake]:
    """Stages need rounds, and leave some to the main method; each of their methods keeps the rules by itself."""
    stages = plan.spec.warm_up
    if not stages:
        return
    if plan.asynchronous:
        message = "found stages, but an asynchronous protocol has no rounds to divide; set Synchronous, or remove them"
        yield Mistake(PROTOCOL_REFUSED, _WARM_UP, message)
        return
    taken = sum(stage.rounds for stage in stages)
    if taken >= plan.spec.rounds:
        message = f"found {plan.spec.rounds}, but the warm-up takes {taken} of them; allowed is {taken + 1} or more"
        yield Mistake(OUT_OF_RANGE, ("spec", "rounds"), message)
    for index, stage in enumerate(stages):
        path = (*_WARM_UP, index, "method")
        if stage.method not in PRESETS:
            yield Mistake(UNKNOWN_METHOD, path, unknown_method(stage.method))
            continue
        spec = plan.spec.model_copy(update={"method": MethodSpec(name=stage.method)})
        own = Plan(spec, plan.silos, PRESETS[stage.method].slots)
        for mistake in (mistake for rule in rules for mistake in rule(own)):
            yield replace(mistake, path=path) if mistake.path[:2] == ("spec", "method") else mistake
