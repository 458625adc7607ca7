"""Rules for methods and protocols: what needs rounds, what needs none (METHODS.md section 3, last paragraph)."""

from collections.abc import Iterator

from anchorage.api.errors.documents import (
    BARRIER_ASYNCHRONOUS,
    MEANINGLESS_OVERRIDE,
    PROTOCOL_REFUSED,
    SERVER_TRAINING_ASYNCHRONOUS,
)
from anchorage.api.mistakes import Mistake
from anchorage.methods.plan import Plan
from anchorage.methods.registry import PRESETS

_MODE = ("spec", "protocol", "mode")
_METHOD = ("spec", "method")

BARRIERS = ("FedAvgSemi", "SemiAnAgg", "SubConsensus")
"""Weightings that normalise over all silos of a round."""

BY_ANNOUNCEMENTS = ("ClassAdaptive", "Helpers")
"""Pseudo-labels by what the silos of the round before announced."""

BY_THEMSELVES = ("Replace", "Mix")
"""Server steps that take one update as it comes."""


def protocol_fits(plan: Plan) -> Iterator[Mistake]:
    """Barriers and server training need rounds, mixing and validation cycles need none; a preset may refuse a mode."""
    refusals = list(_needing_rounds(plan) if plan.asynchronous else _needing_none(plan))
    yield from refusals
    allowed = PRESETS[plan.method.name].protocols
    overridden = plan.spec.method.model_fields_set & {"weighting", "server_training", "server_step"}
    if plan.spec.protocol.mode not in allowed and not refusals and not overridden:
        message = f"found {plan.spec.protocol.mode}, but {plan.method.name} allows {', '.join(allowed)}"
        yield Mistake(PROTOCOL_REFUSED, _MODE, message)
    if plan.asynchronous and plan.spec.protocol.silos_per_round is not None:
        path = ("spec", "protocol", "silosPerRound")
        message = "found a number, but an asynchronous protocol samples no silos: all train all the time; remove it"
        yield Mistake(MEANINGLESS_OVERRIDE, path, message)


def _needing_rounds(plan: Plan) -> Iterator[Mistake]:
    kind, step = plan.method.weighting.type, plan.method.server_step.type
    if kind in BARRIERS:
        yield Mistake(
            BARRIER_ASYNCHRONOUS,
            _MODE,
            f"found Asynchronous, but the weighting {kind} normalises over all silos of a round "
            "(a barrier); set Synchronous, or another weighting",
        )
    if plan.server_learns:
        yield Mistake(
            SERVER_TRAINING_ASYNCHRONOUS,
            _MODE,
            "found Asynchronous, but the server trains on its anchors after each round's aggregation; set Synchronous, "
            "or serverTraining.type: None",
        )
    pseudo = plan.method.pseudo_labels
    if pseudo.type in BY_ANNOUNCEMENTS or pseudo.adjustment == "Labelled":
        what = f"type {pseudo.type}" if pseudo.type in BY_ANNOUNCEMENTS else "adjustment Labelled"
        found = f"found Asynchronous, but pseudoLabels.{what} needs what all silos of the round before announced"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Synchronous, or other pseudo-labels")
    slot = plan.method.self_supervised
    if slot.type == "Clusters":
        found = "found Asynchronous, but selfSupervised.type Clusters is of the clusters of a whole round"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Synchronous, or another selfSupervised.type")
    if slot.online_classifier == "Enabled":
        found = "found Asynchronous, but the online classifier is averaged over a whole round's labelled silos"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Synchronous, or onlineClassifier: Disabled")
    if step not in BY_THEMSELVES:
        found = f"found Asynchronous, but the server step {step} takes the mean of a whole round"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Synchronous, or serverStep.type: Replace")


def _needing_none(plan: Plan) -> Iterator[Mistake]:
    if plan.method.server_step.type == "Mix":
        found = "found Synchronous, but the server step Mix takes each update as it comes"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Asynchronous, or serverStep.type: Replace")
    if plan.method.local.cycle is not None:
        found = "found Synchronous, but with local.cycle every silo trains as long as it likes"
        yield Mistake(PROTOCOL_REFUSED, _MODE, f"{found}; set Asynchronous, or another method")


def mixing_is_plain(plan: Plan) -> Iterator[Mistake]:
    """FedAsync weighs an update by its age alone, and above 0 (METHODS.md 6.14)."""
    step, weighting = plan.method.server_step, plan.method.weighting.type
    if step.type == "Mix" and weighting != "Uniform":
        message = f"found {weighting}, but the server step Mix weighs updates by their age alone; set Uniform"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "weighting", "type"), message)
    if step.type == "Mix" and float(step.alpha) == 0:
        message = "found 0, with which no update would count; set it above 0, at most 1"
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "serverStep", "alpha"), message)


def cycles_are_of_labelled_images(plan: Plan) -> Iterator[Mistake]:
    """A validation cycle counts passes over labelled images (METHODS.md 6.14)."""
    kind, alone = plan.method.pseudo_labels.type, plan.method.self_supervised.type
    if plan.method.local.cycle is not None and (kind != "None" or alone != "None"):
        found = f"pseudoLabels.type {kind}" if kind != "None" else f"selfSupervised.type {alone}"
        message = (
            f"found a validation cycle with {found}, but it counts passes over labelled images; remove one of them"
        )
        yield Mistake(MEANINGLESS_OVERRIDE, (*_METHOD, "local", "cycle"), message)
