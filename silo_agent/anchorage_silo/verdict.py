"""The policy's verdict on one request: the one place that decides what may leave, for the gate, `review` and `policy check`."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from anchorage.api.errors import AnchorageError, Failure, silo
from anchorage.api.fact import Fact
from anchorage.api.method import ResolvedMethod
from anchorage.api.piece import TOLD_TO_SILOS
from anchorage.api.run import RunDescription
from anchorage.engine.accounting import Mechanism
from anchorage.methods import PRESETS
from anchorage.methods.preset import auxiliary_arrays
from anchorage.transport.tensors.layout import LORA, MOMENTS, Layout
from anchorage_silo.audit import SentMessages
from anchorage_silo.budget import mechanism_of
from anchorage_silo.limits import Limits, stages_of
from anchorage_silo.policy import Policy


class RequestKind(StrEnum):
    """What would leave; the value is the kind of its entry in the audit log."""

    JOIN = "join"
    """The number of images."""
    UPDATE = "announce"
    """An update with what is announced of it."""
    SCORES = "evaluation"
    """Scores of a model on the silo's images."""
    STEP = "step"
    """An answer to a step of secure aggregation; its entry is of the kind ``keys`` or ``reveal``."""


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What a run's description asks of a silo, as far as a policy has rules on it."""

    methods: tuple[ResolvedMethod, ...]
    """Methods of the stages, in their order."""
    needed: Limits
    """The least that the run needs."""
    ends: tuple[int, ...] = ()
    """Last rounds of the stages before the last one."""
    extras: tuple[str, ...] = ()
    """What updates carry beside the network's parameters, in a policy's vocabulary: ``control``, ``moments``."""
    secure: bool = False
    """Whether updates leave masked."""
    per_image: bool = True
    """Whether the task's loss is of each image by itself, as DP-SGD needs it, and not of a batch, as Dice is."""

    @classmethod
    def of(cls, run: RunDescription, labels: str) -> "RunTerms":
        """Derive them for a silo whose images have `labels` (``None``, ``All`` or ``Partial``)."""
        stages = list(stages_of(run))
        extras = extras_of(Layout.from_json(up) for _, up, _ in stages)
        methods = tuple(method for method, _, _ in stages)
        secure, per_image = run.secure_aggregation is not None, not run.model.task.gives_maps
        return cls(methods, Limits.of(run, labels), run.ends[:-1], extras, secure, per_image)

    @classmethod
    def read(cls, entry: object) -> "RunTerms | None":
        """Return what `entry` wrote down; None where this version cannot read it, as with an outside piece that is not installed."""
        try:
            return _TERMS.validate_json(json.dumps(entry))
        except (ValidationError, AnchorageError):
            return None

    def entry(self) -> Mapping[str, Any]:
        """Return them as JSON, for the audit log."""
        entry: Mapping[str, Any] = _TERMS.dump_python(
            self, mode="json", by_alias=True, exclude_none=True, context=TOLD_TO_SILOS
        )
        return entry

    def method(self, round_number: int) -> ResolvedMethod:
        """Return the method of a round."""
        return self.methods[sum(round_number > last for last in self.ends)]


_TERMS = TypeAdapter(RunTerms)


def extras_of(layouts: Iterable[Layout]) -> tuple[str, ...]:
    """Return what updates of these layouts carry beside the network's parameters, in a policy's vocabulary."""
    extra = {name for layout in layouts for name in layout.by_name.keys() - layout.of_network().by_name.keys()}
    return tuple(
        sorted({"moments" if name.startswith(MOMENTS) else "control" for name in extra if not name.startswith(LORA)})
    )


@dataclass(frozen=True, slots=True)
class Request:
    """Something that would leave, or a task that would have it leave. None stands for what is not known, or not known yet."""

    kind: RequestKind
    terms: RunTerms | None
    task: str = ""
    """Id of the task."""
    round: int | None = None
    """Round of the task, from 1."""
    digest: str | None = None
    """Digest of the update, or of the model that is scored."""
    auxiliary: frozenset[str] | None = None
    """Names of the auxiliary data that leaves with it."""
    fewest: int | None = None
    """Smallest number of images that it reports on."""
    update: bool = True
    """Whether an update comes, and not only auxiliary data."""
    trained: int | None = None
    """Number of images that the update comes from."""
    images: int | None = None
    """Number of images that the silo trains on."""
    repetitions: int = 1
    """Trainings for one update."""


class Sent(Protocol):
    """What was sent before, by which limits are counted: an audit log, or entries of one."""

    def read_sent(self, kind: str, *, all_runs: bool) -> Collection[tuple[str, str]]:
        """Return tasks and digests of all entries of a kind: of the whole log that is here, or of the last run."""

    def number_sent(self, kind: str, *, all_runs: bool) -> int:
        """Return the number of entries of a kind, as `SentMessages.number_sent` does."""


@dataclass(frozen=True, slots=True)
class Past:
    """What happened before a request."""

    sent: Sent = field(default_factory=SentMessages)
    fits: Callable[[Mechanism, str], None] = lambda mechanism, task: None
    """Raises AnchorageError where the privacy budget has no room for a mechanism, used for a task."""
    approved: bool = False
    """Whether a person at the hospital has approved the run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of a request."""

    refusal: AnchorageError | None = None
    """Why it is refused; None admits it, as far as it is known."""
    unjudged: tuple[str, ...] = ()
    """Fields of the policy whose rule needs what is not known."""

    def enforce(self) -> None:
        """Raise the refusal, if there is one.

        Raises
        ------
        AnchorageError
            The policy does not allow the request.
        """
        if self.refusal is not None:
            raise self.refusal


_ADMITTED = Verdict()


def judge(policy: Policy, request: Request, past: Past) -> Verdict:
    """Judge a request by a hospital's policy; a field that the policy leaves out allows what the run's description needs."""
    unjudged: list[str] = []
    for rule in _RULES[request.kind]:
        verdict = rule(policy, request, past)
        unjudged += verdict.unjudged
        if verdict.refusal is not None:
            return Verdict(verdict.refusal, tuple(dict.fromkeys(unjudged)))
    return Verdict(unjudged=tuple(dict.fromkeys(unjudged)))


def _masked_updates(policy: Policy, request: Request, past: Past) -> Verdict:
    if not policy.require_secure_aggregation:
        return _ADMITTED
    if request.terms is None:
        return Verdict(unjudged=("requireSecureAggregation",))
    if request.terms.secure:
        return _ADMITTED
    return _refuse(silo.SECURE_AGGREGATION_MISSING, "updates would leave unmasked (requireSecureAggregation)")


def _methods(policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse a method of the run that is not allowed, and one that sends more than the allowed method of its name."""
    if policy.allowed_methods is None:
        return _ADMITTED
    if request.terms is None:
        return Verdict(unjudged=("allowedMethods",))
    for method in request.terms.methods:
        if method.name not in policy.allowed_methods or method.name not in PRESETS:
            allowed = ", ".join(policy.allowed_methods) or "none"
            return _refuse(silo.METHOD_REFUSED, f"method {method.name} is not allowed here (allowedMethods: {allowed})")
        sent = {array.name for array in auxiliary_arrays(method, up=True)}
        if further := sorted(sent - PRESETS[method.name].sent):
            detail = f"under the name {method.name} the run also sends {', '.join(further)}"
            return _refuse(silo.METHOD_REFUSED, f"{detail}, which that method does not (allowedMethods)")
    return _ADMITTED


def _auxiliary_data(policy: Policy, request: Request, past: Past) -> Verdict:
    names = {*(request.auxiliary or ()), *(request.terms.extras if request.terms is not None else ())}
    if refused := sorted(filter(policy.refuses, names)):
        allowed = ", ".join(policy.allowed_auxiliary_data or ()) or "none"
        detail = f"auxiliary data {', '.join(refused)} is not allowed here (allowedAuxiliaryData: {allowed})"
        return _refuse(silo.AUXILIARY_DATA_REFUSED, detail)
    known = request.terms is not None and request.auxiliary is not None
    return _ADMITTED if known else Verdict(unjudged=("allowedAuxiliaryData",))


def _undeclared_data(policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse auxiliary data that no piece of the run's methods declares: the hospital could not have known of it."""
    if request.terms is None or request.auxiliary is None:
        return _ADMITTED
    declared = {array.name for method in request.terms.methods for array in auxiliary_arrays(method, up=True)}
    if unknown := sorted(name for name in request.auxiliary if not any(fnmatchcase(name, each) for each in declared)):
        detail = f"auxiliary data {', '.join(unknown)} is declared by no piece of the run's methods"
        return _refuse(silo.AUXILIARY_DATA_REFUSED, detail)
    return _ADMITTED


def _updates(policy: Policy, request: Request, past: Past) -> Verdict:
    """Count updates, and trainings for one update."""
    terms = request.terms
    if terms is not None and request.repetitions > terms.needed.repetitions:
        detail = f"task {request.task} asks for {request.repetitions} trainings, the run's description for {terms.needed.repetitions} at most"
        return _refuse(silo.ROUNDS_USED_UP, detail)
    unasked = policy.unasked_updates / (terms.needed.repetitions if terms is not None else 1)
    if not past.approved and _would_exceed(unasked, request, past, all_runs=True):
        detail = "an update was announced before, and relative noise protects no second one"
        return _refuse(
            silo.ROUNDS_USED_UP, f"{detail}: a person approves the run (anchorage-silo review), or sets maximumRounds"
        )
    return _count(policy.maximum_rounds, "maximumRounds", "updates were announced", policy, request, past)


def _scores(policy: Policy, request: Request, past: Past) -> Verdict:
    """Count models that were scored."""
    stated = policy.maximum_rounds if policy.maximum_evaluations is None else policy.maximum_evaluations
    return _count(stated, "maximumEvaluations", "models were scored", policy, request, past)


def _count(stated: int | None, rule: str, what: str, policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse what would be one too many."""
    most, is_policy_limit = stated, stated is not None
    if most is None:
        if request.terms is None:
            return Verdict(unjudged=(rule,))
        limits = policy.limits(request.terms.needed)
        most = limits.updates if request.kind is RequestKind.UPDATE else limits.evaluations
    if not _would_exceed(most, request, past, all_runs=is_policy_limit):
        return _ADMITTED
    of = rule if is_policy_limit else f"the run's description; {rule} of the policy sets another limit"
    return _refuse(
        silo.ROUNDS_USED_UP, f"{past.sent.number_sent(request.kind, all_runs=is_policy_limit)} {what} ({of}: {most})"
    )


def _would_exceed(most: float, request: Request, past: Past, *, all_runs: bool) -> bool:
    """Return whether it would be one too many; a server may give two tasks the same name, but what is sent for them differs."""
    if past.sent.number_sent(request.kind, all_runs=all_runs) + 1 <= most:
        return False
    sent, known = past.sent.read_sent(request.kind, all_runs=all_runs), request.digest is not None
    is_repetition = (request.task, request.digest) in sent if known else any(request.task == name for name, _ in sent)
    return not is_repetition


def _reported_images(policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse to report on too few images; the message does not say how many they are."""
    if policy.minimum_samples is None:
        return _ADMITTED
    if request.fewest is None:
        return Verdict(unjudged=("minimumSamples",))
    if request.fewest >= policy.minimum_samples:
        return _ADMITTED
    detail = f"the message would report on fewer than {policy.minimum_samples} images (minimumSamples)"
    return _refuse(silo.TOO_FEW_SAMPLES, detail)


def _trained_images(policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse an update of few images where nothing says how it is protected."""
    if not request.update or not policy.least_images:
        return _ADMITTED
    if request.trained is None:
        return Verdict(unjudged=("minimumSamples",))
    if request.trained >= policy.least_images:
        return _ADMITTED
    detail = f"the update would come from fewer than {policy.least_images} images (the policy states neither noise nor minimumSamples)"
    return _refuse(silo.TOO_FEW_SAMPLES, detail)


def _budget(policy: Policy, request: Request, past: Past) -> Verdict:
    """Refuse what the privacy budget does not account, and an update for which it has no room."""
    budget = policy.privacy_budget
    if budget is None:
        return _ADMITTED
    if request.kind is RequestKind.SCORES:
        return _refuse(
            silo.NOT_ACCOUNTED, "a model's score on the images is asked for: not accounted under privacyBudget"
        )
    if budget.dp_sgd is not None and request.terms is not None and not request.terms.per_image:
        detail = "DP-SGD hides each image by its own loss, but the loss of this task (Dice) is of a batch of images together (privacyBudget.dpSgd)"
        return _refuse(silo.NOT_ACCOUNTED, detail)
    if request.auxiliary:
        detail = f"an announcement with {', '.join(sorted(request.auxiliary))} is asked for: not accounted under privacyBudget"
        return _refuse(silo.NOT_ACCOUNTED, detail)
    if request.terms is None or request.round is None:
        return Verdict(unjudged=("privacyBudget",))
    method = request.terms.method(request.round)
    asked = [*(array.name for array in auxiliary_arrays(method, up=True)), *request.terms.extras]
    if Fact.PLAIN_WEIGHTS not in method.facts():
        asked.append("weights that are not by numbers of images")
    if asked:
        detail = f"method {method.name} asks for {', '.join(asked)}: not accounted under privacyBudget"
        return _refuse(silo.NOT_ACCOUNTED, detail)
    if request.images is None and budget.dp_sgd is not None:
        return Verdict(unjudged=("privacyBudget",))
    try:
        past.fits(mechanism_of(policy, budget, method.local, request.images or 0, request.repetitions), request.task)
    except AnchorageError as error:
        if error.failure is not silo.PRIVACY_BUDGET_SPENT:
            raise
        return Verdict(error)
    return _ADMITTED


def _refuse(failure: Failure, detail: str) -> Verdict:
    return Verdict(AnchorageError(failure, detail))


_Rule = Callable[[Policy, Request, Past], Verdict]
_RUN: tuple[_Rule, ...] = (_masked_updates, _methods, _auxiliary_data)
_RULES: Mapping[RequestKind, tuple[_Rule, ...]] = {
    RequestKind.JOIN: (_reported_images,),
    RequestKind.UPDATE: (*_RUN, _undeclared_data, _updates, _reported_images, _trained_images, _budget),
    RequestKind.SCORES: (*_RUN, _scores, _reported_images, _budget),
    RequestKind.STEP: _RUN,
}
"""Rules in the order in which the first refusal is reported."""
